"""Modules round-trip as text; text that is wrong gives located errors."""

from __future__ import annotations

import numpy as np
import pytest
from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import Block, Region

from headrace.base.dtypes import BY_NAME
from headrace.base.errors import HeadraceError
from headrace.ir.context import make_context
from headrace.ir.text import parse_module, print_module
from headrace.tensor.build import TensorBuilder, to_numpy
from headrace.tensor.dialect import HR, TENSOR, ConstantOp

_BATCH = 'tensor<?x4xf32, #hr.dims<["b", ""]>>'
_GOOD = f"""func.func @main(%x: {_BATCH} {{hr.name = "x"}}) -> {_BATCH} {{
  %c = tensor.constant dense<0xFF800000> : tensor<f32> : tensor<f32>
  %d = tensor.broadcast_in_dim %c, dims = [] : (tensor<f32>) -> {_BATCH} loc("node 'a'")
  %2 = tensor.maximum %x, %d : ({_BATCH}, {_BATCH}) -> {_BATCH}
  func.return %2 : {_BATCH}
}}
"""


@pytest.fixture(name="context")
def _context() -> Context:
    return make_context([("tensor", lambda: TENSOR), ("hr", lambda: HR)])


@pytest.mark.parametrize("locations", [False, True])
def test_printed_text_reads_back(context: Context, locations: bool) -> None:
    text = print_module(parse_module(_GOOD, "a.mlir", context), locations)
    again = print_module(parse_module(text, "a.mlir", context), locations)
    assert again == text
    assert "0xff800000" in text, "minus infinity keeps its bits"
    assert ("loc(\"node 'a'\")" in text) == locations


@pytest.mark.parametrize(
    ("right", "wrong", "fact", "place"),
    [
        ("maximum %x", "maximum %q", "values used but not defined: [%q]", "a.mlir:4:23"),
        ("maximum", "maximums", "tensor.maximums is not registered", "a.mlir:4:"),
        ('"b", ""', '"b +", ""', "'b +' is no size expression", "a.mlir:1:"),
        ("return %2", "return %c", "previously used or defined with type", "a.mlir:5:"),
        ("dims = []", "dims = [a]", "Expected integer literal", "a.mlir:3:"),
        ("dense<0xFF800000>", "dense<[1, 2]>", "Shape mismatch in dense literal", "a.mlir:2"),
    ],
)
def test_wrong_text_is_located(
    context: Context, right: str, wrong: str, fact: str, place: str
) -> None:
    with pytest.raises(HeadraceError) as caught:
        parse_module(_GOOD.replace(right, wrong, 1), "a.mlir", context)
    (found,) = caught.value.diagnostics
    assert found.code == "HR1001"
    assert fact in found.fact
    assert found.places[0].startswith(place)


def test_text_that_parses_but_does_not_verify(context: Context) -> None:
    without_end = _GOOD.replace(f"  func.return %2 : {_BATCH}\n", "")
    with pytest.raises(HeadraceError, match="not a terminator") as caught:
        parse_module(without_end, "a.mlir", context)
    assert caught.value.diagnostics[0].code == "HR1002"


@pytest.mark.parametrize("name", sorted(BY_NAME))
def test_constants_of_every_element_type_read_back(context: Context, name: str) -> None:
    kind = BY_NAME[name]
    if kind.is_float and kind.bits >= 16:
        values = np.array([-np.inf, 1.5, -0.0])
    else:
        values = np.array([1, 0, -1 if kind.kind == "signed" else 1])
    array = values.astype(kind.numpy_dtype)
    block = Block()
    TensorBuilder(block).constant(array)
    text = print_module(ModuleOp(Region(block)))
    (read,) = parse_module(text, "a.mlir", context).ops
    assert isinstance(read, ConstantOp)
    found = to_numpy(read.value)
    assert found.dtype == array.dtype
    if kind.is_float:
        assert found.tobytes() == array.tobytes(), "bit for bit: signs of zeros, NaN"
    else:
        np.testing.assert_array_equal(found, array)
