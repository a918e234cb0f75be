"""Packed push constants as expressions give back the words of the values."""

from __future__ import annotations

import struct

import pytest
from stream_texts import parsed, passed

from headrace.base.errors import HeadraceDefect
from headrace.stream.commands import DispatchOp
from headrace.stream.scalars import scalar_expr

TEXT = """
builtin.module {
  stream.executable private @ex {
    stream.executable.export public @entry
    builtin.module {
      func.func @entry(%v: KIND) {
        func.return
      }
    }
  }
  func.func @main() {
    %v = VALUE
    stream.cmd.dispatch @ex::@entry[1, 1, 1](%v : KIND) {
    }
    func.return
  }
}
"""


def words(kind: str, value: str) -> list[int]:
    text = TEXT.replace("KIND", kind).replace("VALUE", value)
    model = passed(parsed(text), "stream-pack-dispatch-operands")
    (site,) = [op for op in model.ir.walk() if isinstance(op, DispatchOp)]
    dims = {"n": 5, "many": (7 << 32) + 9}
    return [scalar_expr(v).evaluate(dims) for v in site.constants]


@pytest.mark.parametrize(
    ("kind", "value", "wanted"),
    [
        ("index", 'stream.size "3*n" : index', [15]),
        ("i32", "arith.constant -2 : i32", [0xFFFFFFFE]),
        ("i64", 'stream.size "many" : i64', [9, 7]),
        ("i64", "arith.constant -2 : i64", [0xFFFFFFFE, 0xFFFFFFFF]),
        ("i8", "arith.constant -1 : i8", [0xFF]),
        ("f32", "arith.constant -1.5 : f32", [0xBFC00000]),
        ("f16", "arith.constant 1.0 : f16", [0x3C00]),
        ("bf16", "arith.constant 1.0 : bf16", [0x3F80]),
        ("f64", "arith.constant 0.1 : f64", list(struct.unpack("<II", struct.pack("<d", 0.1)))),
    ],
)
def test_words(kind: str, value: str, wanted: list[int]) -> None:
    assert words(kind, value) == wanted


def test_anything_else_is_refused() -> None:
    text = TEXT.replace("KIND", "i32").replace(
        "%v = VALUE", "%a = arith.constant 1 : i32\n%v = arith.muli %a, %a : i32"
    )
    (site,) = [op for op in parsed(text).ir.walk() if isinstance(op, DispatchOp)]
    with pytest.raises(HeadraceDefect, match="HR9508"):
        scalar_expr(site.constants[0])
