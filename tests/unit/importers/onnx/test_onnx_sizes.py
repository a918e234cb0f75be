"""Names of sizes, arithmetic on them, and what a graph implies about them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import helper
from onnx_graphs import check, check_on_cpu, model_of, result_shapes

from headrace.base.errors import HeadraceError
from headrace.base.symbols import parse_expr
from headrace.importers.onnx.dimensions import Dimensions
from headrace.importers.onnx.learnings import Learned
from headrace.importers.onnx.reader import import_model
from headrace.importers.onnx.remainders import bounds_by_remainder
from headrace.tensor.interp import run

_F = np.float32


def _zeros(*shape: int) -> Any:
    return np.zeros(shape, _F)


def node(kind: str, inputs: str, output: str, **attributes: Any) -> Any:
    return helper.make_node(kind, inputs.split(), [output], **attributes)


# -- names ---------------------------------------------------------------------------


def test_names_are_kept() -> None:
    proto = model_of([node("Relu", "x", "y")], {"x": _zeros(1, 1)}, ["y"],
                     shapes={"x": ["batch", "seq"]})  # fmt: skip
    assert result_shapes(import_model(proto)) == ["batch x seq"]


@pytest.mark.parametrize("unnamed", ["?", "", None, -1])
def test_unnamed_sizes_get_names_of_their_own(unnamed: Any) -> None:
    proto = model_of([node("Relu", "x", "y")], {"x": _zeros(1, 1)}, ["y"],
                     shapes={"x": [unnamed, unnamed]})  # fmt: skip
    assert result_shapes(import_model(proto)) == ["x_d0 x x_d1"]


def test_names_that_are_no_expressions_are_rewritten_and_remembered() -> None:
    proto = model_of([node("Relu", "x", "y")], {"x": _zeros(1, 1, 1)}, ["y"],
                     shapes={"x": ["batch size", "max", "batch_size"]})  # fmt: skip
    model = import_model(proto)
    assert result_shapes(model) == ["batch_size_2 x max_2 x batch_size"]
    spelled = model.ir.attributes["hr.dimension_names"]
    assert "batch size" in str(spelled)


def test_a_name_that_is_an_expression_of_other_names_is_that_expression() -> None:
    proto = model_of(
        [node("Relu", "mask", "y")],
        {"mask": _zeros(1, 1), "past": _zeros(1, 1)},
        ["y"],
        shapes={"mask": ["batch", "past_length + 1"], "past": ["batch", "past_length"]},
    )
    assert result_shapes(import_model(proto)) == ["batch x past_length + 1"]


def test_dimensions_are_fixed_and_bounded_by_the_user() -> None:
    proto = model_of([node("Relu", "x", "y")], {"x": _zeros(1, 1)}, ["y"],
                     shapes={"x": ["batch", "seq"]})  # fmt: skip
    model = import_model(proto, dimensions={"seq": 128, "batch": (1, 64)})
    assert result_shapes(model) == ["batch x 128"]
    assert model.dimension_ranges == {"batch": (1, 64)}
    with pytest.raises(HeadraceError, match=r"HR0203.*'sequence'"):
        import_model(proto, dimensions={"sequence": 128})


# -- arithmetic on sizes -------------------------------------------------------------------


def test_a_shape_computed_by_many_operators_leaves_one_reshape() -> None:
    """batch, seq, 12 -> batch, seq, 3, 4 as torch exports it."""
    nodes = [
        node("Shape", "x", "shape"),
        node("Gather", "shape zero", "b", axis=0),
        node("Slice", "shape one two zero_axis", "s"),
        node("Unsqueeze", "b zero_axis", "b1"),
        node("Concat", "b1 s tail", "target", axis=0),
        node("Reshape", "x target", "y"),
    ]
    weights = {
        "zero": np.array(0), "one": np.array([1]), "two": np.array([2]),
        "zero_axis": np.array([0]), "tail": np.array([3, 4]),
    }  # fmt: skip
    x = np.arange(2 * 5 * 12, dtype=_F).reshape(2, 5, 12)
    proto = model_of(nodes, {"x": x}, ["y"], weights=weights, shapes={"x": ["b", "s", 12]})
    model = check(proto, {"x": x})
    assert result_shapes(model) == ["b x s x 3 x 4"]
    names = [op.name for op in model.ir.walk()]
    assert [n for n in names if n.startswith("tensor.")] == ["tensor.reshape"]


def test_minus_one_is_solved_with_symbolic_sizes() -> None:
    x = _zeros(2, 3, 8)
    proto = model_of([node("Reshape", "x s", "y")], {"x": x}, ["y"],
                     weights={"s": np.array([-1, 0, 4])}, shapes={"x": ["a", "b", 8]})  # fmt: skip
    assert result_shapes(check(proto, {"x": x})) == ["2*a x b x 4"]


def test_a_shape_with_a_placeholder_is_chosen_by_comparison() -> None:
    """torch's expand: Where(shape == -1, 1, shape)."""
    nodes = [
        node("Shape", "x", "shape"),
        node("Equal", "wanted minus", "free"),
        node("Where", "free shape wanted", "target"),
        node("Expand", "x target", "y"),
    ]
    x = _zeros(3, 1)
    weights = {"wanted": np.array([-1, 4]), "minus": np.array(-1)}
    proto = model_of(nodes, {"x": x}, ["y"], weights=weights, shapes={"x": ["n", 1]})
    assert result_shapes(check(proto, {"x": x})) == ["n x 4"]


def test_a_size_used_as_data() -> None:
    nodes = [
        node("Shape", "x", "shape"),
        node("Cast", "shape", "f", to=1),
        node("ReduceProd", "f", "y", keepdims=0),
    ]
    x = _zeros(3, 5)
    proto = model_of(nodes, {"x": x}, ["y", "shape"], shapes={"x": ["n", "m"]})
    model = check(proto, {"x": x})
    assert result_shapes(model) == ["", "2"]


def test_a_range_as_long_as_a_size() -> None:
    nodes = [
        node("Shape", "x", "shape", start=0, end=1),
        node("Squeeze", "shape", "n"),
        node("Range", "zero n one", "y"),
    ]
    x = _zeros(6)
    weights = {"zero": np.array(0), "one": np.array(1)}
    proto = model_of(nodes, {"x": x}, ["y"], weights=weights, shapes={"x": ["n"]})
    assert result_shapes(check(proto, {"x": x})) == ["n"]


def test_a_shape_that_depends_on_data_is_refused_with_its_place() -> None:
    nodes = [node("Reshape", "x s", "y")]
    proto = model_of(nodes, {"x": _zeros(4), "s": np.array([2, 2])}, ["y"])
    with pytest.raises(HeadraceError, match=r"HR1205.*depends on the data in 's'") as caught:
        import_model(proto)
    assert "node 0 (Reshape -> 'y')" in str(caught.value)


def test_an_input_given_as_a_constant_may_decide_shapes() -> None:
    nodes = [node("Reshape", "x s", "y")]
    proto = model_of(nodes, {"x": _zeros(4), "s": np.array([2, 2])}, ["y"])
    model = import_model(proto, constants={"s": np.array([2, 2])})
    assert run(model, {"x": np.arange(4, dtype=_F)})["y"].shape == (2, 2)


def test_scales_computed_from_constants_are_known() -> None:
    nodes = [
        node("Mul", "two half", "one"),
        node("Concat", "one one two two", "scales", axis=0),
        node("Resize", "x none scales", "y"),
    ]
    x = np.arange(4, dtype=_F).reshape(1, 1, 2, 2)
    weights = {"two": np.array([2], _F), "half": np.array([0.5], _F), "none": _zeros(0)}
    check(model_of(nodes, {"x": x}, ["y"], weights=weights, opset=13), {"x": x})


def test_sizes_may_pass_through_floats() -> None:
    """Old exporters double a size by Cast, Mul by 2.0, Floor, Cast."""
    nodes = [
        node("Shape", "x", "n", start=2, end=3),
        node("Cast", "n", "f", to=1),
        node("Mul", "f two", "g"),
        node("Floor", "g", "h"),
        node("Cast", "h", "k", to=7),
        node("Concat", "ones k", "target", axis=0),
        helper.make_node("Resize", ["x", "", "", "target"], ["y"], mode="nearest"),
    ]
    x = np.arange(4, dtype=_F).reshape(1, 1, 4)
    weights = {"two": np.array([2], _F), "ones": np.array([1, 1])}
    proto = model_of(nodes, {"x": x}, ["y"], weights=weights, shapes={"x": [1, 1, "n"]})
    assert result_shapes(check(proto, {"x": x})) == ["1 x 1 x 2*n"]


# -- what a graph implies -----------------------------------------------------------------


def test_operands_of_an_add_have_one_size() -> None:
    a, b = _zeros(2, 3), _zeros(2, 3)
    proto = model_of([node("Add", "a b", "y")], {"a": a, "b": b}, ["y"],
                     shapes={"a": ["n", "m"], "b": ["k", 3]})  # fmt: skip
    assert result_shapes(check(proto, {"a": a, "b": b})) == ["n x 3"]


def test_a_table_of_positions_bounds_the_length() -> None:
    nodes = [
        node("Shape", "x", "n", start=1, end=2),
        node("Slice", "table zero n one", "cut"),
        node("Add", "x cut", "y"),
    ]
    weights = {"table": np.ones((1, 16), _F), "zero": np.array([0]), "one": np.array([1])}
    x = _zeros(2, 5)
    proto = model_of(nodes, {"x": x}, ["y"], weights=weights, shapes={"x": ["b", "s"]})
    model = check(proto, {"x": x})
    assert result_shapes(model) == ["b x s"]
    assert model.dimension_ranges == {"s": (1, 16)}


def test_halving_and_doubling_needs_a_multiple() -> None:
    nodes = [
        node("MaxPool", "x", "half", kernel_shape=[2], strides=[2]),
        node("Resize", "half none scales", "back", mode="nearest"),
        node("Add", "x back", "y"),
    ]
    weights = {"none": _zeros(0), "scales": np.array([1, 1, 2], _F)}
    x = _zeros(1, 1, 6)
    proto = model_of(nodes, {"x": x}, ["y"], weights=weights, shapes={"x": [1, 1, "n"]})
    model = check(proto, {"x": x})
    assert result_shapes(model) == ["1 x 1 x 2*n_by_2"]
    with pytest.raises(HeadraceError, match="HR4001"):
        run(model, {"x": _zeros(1, 1, 7)})


def test_a_size_that_must_vanish_bounds_a_dimension() -> None:
    """Pooled to one row: Squeeze says that the height was 4 to 7."""
    nodes = [
        node("MaxPool", "x", "p", kernel_shape=[4, 1], strides=[4, 1]),
        node("Squeeze", "p axis", "y"),
    ]
    x = _zeros(1, 2, 5, 3)
    proto = model_of(nodes, {"x": x}, ["y"], weights={"axis": np.array([2])},
                     shapes={"x": [1, 2, "h", "w"]})  # fmt: skip
    model = check(proto, {"x": x})
    assert result_shapes(model) == ["1 x 2 x w"]
    assert model.dimension_ranges == {"h": (4, 7)}


def test_squeeze_without_axes_bounds_what_stays() -> None:
    """A batch of 1 would go too: the result's rank must be known."""
    x = _zeros(3, 1, 5)
    proto = model_of([node("Squeeze", "x", "y")], {"x": x}, ["y"], shapes={"x": ["n", 1, 5]})
    model = check(proto, {"x": x})
    assert result_shapes(model) == ["n x 5"]
    assert model.dimension_ranges == {"n": (2, None)}
    assert result_shapes(import_model(proto, dimensions={"n": 1})) == ["5"]


def test_squeeze_without_axes_of_a_size_that_data_decides_is_refused() -> None:
    nodes = [node("NonZero", "x", "p"), node("Squeeze", "p", "y")]
    proto = model_of(nodes, {"x": _zeros(3)}, ["y"])
    with pytest.raises(HeadraceError, match=r"HR1204.*whether a dimension of size p_size goes"):
        import_model(proto)


def test_total_length_is_past_and_present() -> None:
    nodes = [node("Concat", "past x", "all", axis=1), node("Add", "all mask", "y")]
    inputs = {"past": _zeros(1, 3), "x": _zeros(1, 2), "mask": _zeros(1, 5)}
    shapes = {"past": [1, "past"], "x": [1, "now"], "mask": [1, "total"]}
    proto = model_of(nodes, inputs, ["y"], shapes=shapes)
    assert result_shapes(check(proto, inputs)) == ["1 x now + past"]


def test_sizes_that_cannot_be_equal_are_refused() -> None:
    proto = model_of([node("Add", "a b", "y")], {"a": _zeros(2, 3), "b": _zeros(2, 4)}, ["y"])
    with pytest.raises(HeadraceError, match=r"HR1206.*sizes 3 and 4 differ"):
        import_model(proto)


def test_bounds_decide_minimum_and_maximum() -> None:
    dims = Dimensions({})
    dims.start()
    size = dims.named("n")
    assert dims.maximum(size - 1, 0) == size - 1
    dims.ranges["n"] = (1, 8)
    assert dims.minimum(size, 512) == size
    assert str(dims.minimum(size, 4)) == "min(n, 4)"


def test_a_name_that_is_divided_and_stands_whole_has_narrow_bounds() -> None:
    """Resampling by 160 to 441: what is cut off is never more than there is."""
    dims = Dimensions({})
    length, there = parse_expr("(160*n + 440) floordiv 441"), parse_expr(
        "160*(n floordiv 441) + 160"
    )  # fmt: skip
    assert dims.minimum(length, there) == length
    assert bounds_by_remainder(parse_expr("n - 7*(n floordiv 7)"), {"n": (1, 1000)}) == (0, 6)
    assert bounds_by_remainder(parse_expr("n - 7"), {"n": (1, 10)}) == (-6, 3)


def test_a_size_that_is_its_own_maximum_bounds_its_name() -> None:
    dims = Dimensions({})
    frames = parse_expr("(n - 20) floordiv 10")
    with pytest.raises(Learned):
        dims.same(parse_expr("max((n - 20) floordiv 10, 0)"), frames)
    assert dims.ranges["n"] == (20, None)


def test_a_length_without_its_remainder_is_cut_in_frames(tmp_path: Path) -> None:
    """Frames of 4 samples, as filter banks take them: what is left over is dropped."""
    nodes = [
        node("Shape", "x", "shape"),
        node("Gather", "shape one", "length"),
        node("Mod", "length four", "rest"),
        node("Sub", "length rest", "end"),
        node("Slice", "x zero end one", "cut"),
        node("Reshape", "cut frames", "y"),
    ]
    weights = {
        "zero": np.array([0]), "one": np.array([1]), "four": np.array([4]),
        "frames": np.array([0, -1, 4]),
    }  # fmt: skip
    for length in (11, 12):
        x = np.arange(2 * length, dtype=_F).reshape(2, length)
        proto = model_of(nodes, {"x": x}, ["y"], weights=weights, shapes={"x": ["b", "n"]})
        check_on_cpu(proto, {"x": x}, tmp_path)
