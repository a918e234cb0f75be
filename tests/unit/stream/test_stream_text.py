"""Text of the stream and hal dialects prints and parses, in both forms."""

from __future__ import annotations

import pytest
from stream_texts import STREAM_PASSES, TWO_LAYERS, parsed, passed, printed
from xdsl.utils.exceptions import VerifyException

from headrace.base.errors import HeadraceError
from headrace.ir.passes import make_pass
from headrace.pipeline import run_pass

EVERYTHING = """
builtin.module {
  stream.executable private @ex attributes {note = "kept"} {
    stream.executable.export public @fn workgroup_size [32, 1, 1] workgroup_count [784, "n floordiv 2", 1] {a = 1 : i32}
    builtin.module {
      func.func @fn(%x: !stream.binding, %n: index {stream.alignment = 16 : index}) {
        %c = arith.constant 0 : index
        %v = stream.binding.subspan %x[%c] : !stream.binding -> memref<?xf32>{%n}
        %i = stream.dispatch.workgroup.id[0] : index
        %j = stream.dispatch.workgroup.count[1] : index
        %k = stream.dispatch.workgroup.size[2] : index
        func.return
      }
    }
  }
  stream.executable @none {
    builtin.module {
    }
  }
  func.func @main(%a: !stream.resource<external>, %b: !stream.resource<external>) {
    %t = stream.resource.alloc "h" : !stream.resource<transient>{"4*batch"}
    %u = stream.resource.alloc : !stream.resource<variable>{64}
    %w = stream.resource.constant @p : !stream.resource<constant>{64}
    %n = stream.size "batch" : index
    stream.cmd.dispatch @ex::@fn[784, "batch", 1](%n : index) {
      xw %t[0 for "4*batch"] : !stream.resource<transient>
    } attributes {x = 1 : i32}
    stream.cmd.copy %t[0], %b[64], "4*batch" : !stream.resource<transient> -> !stream.resource<external>
    stream.cmd.fill %t[0 for 64] -1 : i32, !stream.resource<transient>
    stream.cmd.if %u : !stream.resource<variable> {
      stream.cmd.fill %t[0 for 64] 0 : i8, !stream.resource<transient>
    } else {
    } attributes {y}
    stream.cmd.loop {
    } while %u : !stream.resource<variable> trip_count "n" {
      stream.cmd.call @main(%a, %b : !stream.resource<external>, !stream.resource<external>)
    }
    func.return
  }
}
"""


def check_round_trip(text: str) -> None:
    model = parsed(text)
    once = printed(model)
    assert printed(parsed(once)) == once
    assert printed(parsed(printed(model, generic=True))) == once


def test_every_operation_prints_and_parses() -> None:
    check_round_trip(EVERYTHING)


def test_what_passes_leave_prints_and_parses() -> None:
    model = passed(parsed(TWO_LAYERS), *STREAM_PASSES)
    check_round_trip(printed(model))
    run_pass(make_pass("hal-materialize-interfaces{targets=cpu,cuda}"), model)
    check_round_trip(printed(model))


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("workgroup_size [32, 1, 1]", "workgroup_size [32, 1]"),
        ("workgroup.size[2]", "workgroup.size[3]"),
        ("-1 : i32", "1 : i24"),
        ("@ex::@fn[784", "@ex[784"),
    ],
)
def test_malformed_operations_are_refused(before: str, after: str) -> None:
    model_text = EVERYTHING.replace(before, after)
    assert model_text != EVERYTHING
    with pytest.raises((VerifyException, HeadraceError)):
        parsed(model_text).ir.verify()


def test_unreadable_sizes_have_a_place() -> None:
    with pytest.raises(HeadraceError, match=r"test\.mlir"):
        parsed(EVERYTHING.replace('{"4*batch"}', '{"4*"}'))
