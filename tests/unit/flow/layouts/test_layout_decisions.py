"""Layouts change where elements stand, never what is computed."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from xdsl.dialects.func import FuncOp

from headrace.base.dtypes import F32
from headrace.base.errors import HeadraceDefect, HeadraceError
from headrace.base.parameters import array_source
from headrace.base.symbols import as_expr
from headrace.flow.layouts.halo import at_most, with_layouts
from headrace.flow.layouts.parameters import packed, weight_layout
from headrace.flow.layouts.wishes import read_wish
from headrace.flow.passes.assign_layouts import AssignLayouts, check_layouts
from headrace.ir.model import Model
from headrace.ir.passes import make_pass
from headrace.ir.text import parse_module
from headrace.ir.types import dtype_of, shape_of, static_shape
from headrace.kernel.buffers import pack_operand, unpack_operand
from headrace.kernel.description import Operand, ordered_layout, panel_layout
from headrace.kernel.dialect import BodyAttr, ExecuteOp
from headrace.kernel.interp import evaluate
from headrace.kernel.target import LayoutWish
from headrace.kernel.text import parse_kernel
from headrace.kernel.verify import verify_kernel
from headrace.pipeline import context, run_pass
from headrace.stream import interp
from headrace.tensor.dialect import ParameterOp
from headrace.tensor.interp import evaluate_source

TEXTS = Path(__file__).parents[3] / "filecheck" / "flow" / "assign_layouts.mlir"
CASES = re.split(r"^// -----.*$", TEXTS.read_text(), flags=re.M)


def parsed(text: str) -> Model:
    model = Model(parse_module(text, "test.mlir", context()), {}, "test")
    random = np.random.default_rng(0)
    for op in model.ir.walk():
        if isinstance(op, ParameterOp):
            array = random.standard_normal(static_shape(op.result))
            name = op.parameter.root_reference.data
            kind = dtype_of(op.result).numpy_dtype
            model.parameters.setdefault(name, array_source(array.astype(kind)))
    return model


def outputs(model: Model, dims: dict[str, int]) -> list[np.ndarray]:
    """What the program gives for seeded inputs; arguments are named here."""
    (function,) = [op for op in model.ir.ops if isinstance(op, FuncOp)]
    random = np.random.default_rng(1)
    inputs: dict[str, np.ndarray] = {}
    for argument in function.body.block.args:
        shape = [s.evaluate(dims) for s in shape_of(argument)]
        inputs[f"x{argument.index}"] = random.standard_normal(shape).astype(np.float32)
    from xdsl.dialects.builtin import ArrayAttr, DictionaryAttr, StringAttr

    function.arg_attrs = ArrayAttr(
        [DictionaryAttr({"hr.name": StringAttr(name)}) for name in inputs]
    )
    results = len(function.function_type.outputs.data)
    function.res_attrs = ArrayAttr(
        [DictionaryAttr({"hr.name": StringAttr(f"y{n}")}) for n in range(results)]
    )
    for name in ("stream-convert-from-flow", "stream-materialize-copies"):
        run_pass(make_pass(name), model)
    got = interp.run(model, inputs)
    return [got[f"y{n}"] for n in range(results)]


@pytest.mark.parametrize("text", CASES)
@pytest.mark.parametrize("h", [1, 4, 5])
def test_meaning_is_kept(text: str, h: int) -> None:
    plain, laid_out = parsed(text), parsed(text)
    AssignLayouts(level=0).run(plain)
    AssignLayouts(level=2).run(laid_out)
    for execute in laid_out.ir.walk():
        if isinstance(execute, ExecuteOp):
            verify_kernel(execute.kernel, ())
    for a, b in zip(outputs(plain, {"h": h}), outputs(laid_out, {"h": h}), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-5)


def test_level_0_stays_row_major() -> None:
    model = parsed(CASES[0])
    before = str(model.ir)
    AssignLayouts(level=0).run(model)
    assert str(model.ir) == before


def test_weights_nobody_reads_any_more_are_dropped() -> None:
    model = parsed(CASES[0])
    AssignLayouts().run(model)
    assert list(model.parameters) == ["w$layout0"]


def test_disagreeing_users_are_a_defect() -> None:
    model = parsed(CASES[0])
    AssignLayouts().run(model)
    for op in model.ir.walk():
        if isinstance(op, ExecuteOp) and " - 1] bounded" in str(op.body):
            text = re.sub(r"ro x : (\S+, \S+, \S+, \S+) layout .*", r"ro x : \1", _text(op))
            op.body = BodyAttr(parse_kernel(text))
    with pytest.raises(HeadraceDefect, match="HR9402"):
        check_layouts(model.ir)


def _text(op: ExecuteOp) -> str:
    from headrace.kernel.text import print_kernel

    return print_kernel(op.kernel)


def test_names_of_targets_are_refused() -> None:
    with pytest.raises(HeadraceError, match="HR0106"):
        run_pass(make_pass("flow-assign-layouts{targets=cpu}"), parsed(CASES[0]))


def test_unreadable_wishes_are_refused() -> None:
    with pytest.raises(HeadraceError, match="HR2404"):
        AssignLayouts().run(parsed(CASES[0].replace('y = "0 2 3 1"', 'y = "nhwc"')))
    with pytest.raises(HeadraceError, match="HR2404"):
        AssignLayouts().run(parsed(CASES[0].replace(', y = "0 2 3 1"', ', z = "0 2 3 1"')))


@pytest.mark.parametrize(
    ("text", "wish"),
    [
        ("0 2 3 1", LayoutWish((0, 2, 3, 1))),
        ("1 0 strict", LayoutWish((1, 0), strict=True)),
        ("0 panel 1 16 strict", LayoutWish((0,), panel=(1, 16), strict=True)),
        ("panel 0 8", LayoutWish((), panel=(0, 8))),
        (
            "2 3 1 panel 0 16 transform winograd strict",
            LayoutWish((2, 3, 1), panel=(0, 16), strict=True, transform="winograd"),
        ),
        ("0 1 halo 1 0 / 2 0 = -inf", LayoutWish((0, 1), (1, 0), (2, 0), float("-inf"))),
        ("0 1 halo 1 0 / 2 0 = 0", LayoutWish((0, 1), (1, 0), (2, 0), 0)),
        ("nhwc", None),
    ],
)
def test_wishes_are_read(text: str, wish: LayoutWish | None) -> None:
    assert read_wish(text) == wish


WINDOW = """kernel(%d0 = 5) {
  ro x : f32[5] layout [1] offset 1 size 7 halo [1] [1] value VALUE
  wo y : f32[5]
  local a : f32
  reduce(%r0 = 3) {
    %v0 = load x[INDEX] bounded [0] otherwise 0.0
    fold %v0 from 0.0 with add into a
  }
  map() {
    %v0 = read a[]
    store %v0 to y[%d0]
  }
}"""


@pytest.mark.parametrize(
    ("index", "value", "guarded"),
    [
        ("%d0 + %r0 - 1", "0.0", False),
        ("%d0 + %r0 - 1", "-0.0", True),  # -0.0 is not what the load gives outside
        ("%d0 + %r0 - 1", "1.0", True),
        ("%d0 + %r0 - 2", "0.0", True),  # reaches further than the halo
        ("%d0 + %r0", "0.0", True),
        ("5 - %d0 - %r0 + 1", "0.0", True),  # runs backwards
        ("%d0*%r0", "0.0", True),  # not linear
    ],
)
def test_guards_go_only_where_the_halo_says_the_same(
    index: str, value: str, guarded: bool
) -> None:
    kernel = parse_kernel(WINDOW.replace("INDEX", index).replace("VALUE", value))
    changed = with_layouts(kernel, [o.layout for o in kernel.operands])
    load = changed.phases[0].body[0]
    assert bool(load.bounded) == guarded  # pyright: ignore
    results: list[np.ndarray] = []
    for each in (kernel, changed):
        x = pack_operand(np.arange(1, 6, dtype=np.float32), each.operands[0], {})
        y = np.zeros(5, np.float32)
        evaluate(each, [x, y], {})
        results.append(y)
    np.testing.assert_array_equal(*results)


def test_at_most_is_never_smaller() -> None:
    for text in ("2*((h + 3) floordiv 2) - h", "3*((h - 1) floordiv 3)", "h floordiv 2 + h"):
        expr = as_expr(text)
        for h in range(1, 20):
            assert at_most(expr).evaluate({"h": h}) >= expr.evaluate({"h": h})


def test_packed_weights_hold_their_elements_in_place() -> None:

    array = np.arange(3 * 20, dtype=np.float32).reshape(3, 20)
    shape = tuple(as_expr(s) for s in array.shape)
    layout = panel_layout(shape, (0,), 1, 16)
    source = packed(array_source(array.reshape(60)), F32, (3, 20), layout)
    wanted = pack_operand(array, Operand("w", F32, shape, "ro", layout), {})
    np.testing.assert_array_equal(evaluate_source(source), wanted)


def test_transformed_weights_hold_their_elements_in_place() -> None:

    random = np.random.default_rng(0)
    array = random.standard_normal((20, 5, 3, 3)).astype(np.float32)
    shape = tuple(as_expr(s) for s in array.shape)
    wish = LayoutWish((2, 3, 1), panel=(0, 16), strict=True, transform="winograd")
    operand = Operand("w", F32, shape, "ro", ordered_layout(shape), constant=True)
    layout = weight_layout(operand, wish)
    assert layout.size.value == 32 * 5 * 16
    operand = replace(operand, layout=layout)
    found = evaluate_source(packed(array_source(array), F32, array.shape, layout))
    np.testing.assert_array_equal(found, pack_operand(array, operand, {}))
    np.testing.assert_allclose(unpack_operand(found, operand, {}), array, atol=1e-6)
