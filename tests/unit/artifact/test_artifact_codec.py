"""Values of the schema to JSON and back."""

from __future__ import annotations

import json

import pytest

from headrace.artifact import schema as s
from headrace.artifact.codec import CodecError, decode, encode
from headrace.base.symbols import as_expr

BLOCK = s.Block(
    (
        s.Fill(1, as_expr(0), as_expr("4*batch"), 7, 4),
        s.If(2, s.Block((s.Call(0, (0, 1)),)), s.Block(())),
        s.Loop(
            s.Block(()), 2, s.Block((s.Copy(0, as_expr(0), 1, as_expr(0), as_expr(8)),)), None
        ),
        s.Dispatch(
            0,
            1,
            (s.Binding(0, as_expr(0), as_expr("(n + 3) floordiv 4"), "rw"),),
            (),
            "a",
            as_expr(9),
        ),
    )
)


def test_blocks_come_back_equal():
    text = json.dumps(encode(BLOCK, s.Block))
    assert decode(json.loads(text), s.Block) == BLOCK


@pytest.mark.parametrize(
    ("change", "fact"),
    [
        (lambda v: v["commands"][0].pop("pattern"), "Fill lacks pattern"),
        (lambda v: v["commands"][0].update(more=1), "Fill has no 'more'"),
        (lambda v: v["commands"][0].update({"is": "Exec"}), "'Exec' is none of Dispatch"),
        (lambda v: v["commands"][0].update(target="1"), "'1' is no int"),
        (lambda v: v["commands"][0].update(target=True), "True is no int"),
        (lambda v: v["commands"][0].update(target=1 << 70), "out of range"),
        (lambda v: v["commands"][0].update(size_bytes="4 +"), "no size expression"),
        (lambda v: v["commands"][0].update(size_bytes=4), "a size expression should"),
        (lambda v: v["commands"][3]["bindings"][0].update(access="x"), "'x' is none of ro"),
        (lambda v: v.update(commands={}), "{} is no list"),
        (lambda v: v["commands"][3].update(bindings=[3]), "3 is no Binding"),
    ],
)
def test_what_does_not_fit_is_named_with_its_place(change, fact):
    value = encode(BLOCK, s.Block)
    change(value)
    with pytest.raises(CodecError) as caught:
        decode(value, s.Block)
    assert fact in str(caught.value)
    assert caught.value.place.startswith("commands") or "Binding" in fact


def test_element_types_are_known_ones():
    signature = s.TensorSignature("x", s.DType("f32", 32, "float", "float32"), (), 0)
    value = encode(signature, s.TensorSignature)
    assert decode(value, s.TensorSignature) == signature
    value["dtype"] = "f31"
    with pytest.raises(CodecError, match="no element type"):
        decode(value, s.TensorSignature)
