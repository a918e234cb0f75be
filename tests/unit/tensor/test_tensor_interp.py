"""The numpy meaning against values worked out by hand from the specification."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from tensor_graphs import model

from headrace.base.dtypes import BF16, BY_NAME, F16, F32, I1, I8, I32, I64, UI8, DType
from headrace.base.errors import HeadraceError
from headrace.base.parameters import array_source, expression
from headrace.ir.context import make_context
from headrace.ir.model import Model
from headrace.ir.text import parse_module
from headrace.tensor.dialect import TENSOR
from headrace.tensor.interp import evaluate, evaluate_function, evaluate_source, run

_INF, _NAN = float("inf"), float("nan")


def _binary(name: str, kind: DType, x: Any, y: Any) -> Any:
    arrays = [np.array(v).astype(kind.numpy_dtype) for v in (x, y)]
    return evaluate(name, arrays, kind, arrays[0].shape)


@pytest.mark.parametrize(
    ("name", "kind", "x", "y", "expected"),
    [
        ("divide", I8, [7, -7, 7, -128, 5, -5], [2, 2, -2, -1, 0, 0], [3, -3, -3, -128, -1, -1]),
        ("divide", UI8, [7, 200, 5], [2, 3, 0], [3, 66, 255]),
        ("remainder", I8, [7, -7, 7, -128, 5], [2, 2, -2, -1, 0], [1, -1, 1, 0, 5]),
        ("remainder", F32, [7.5, -7.5, 1.0], [2, 2, _INF], [1.5, -1.5, 1.0]),
        ("shift_left", I8, [1, 1, 1, 1], [7, 8, -1, 100], [-128, 0, 0, 0]),
        ("shift_right_arithmetic", I8, [-2, -2, 64], [1, 8, 100], [-1, -1, 0]),
        ("shift_right_logical", I8, [-2, -2], [1, 8], [127, 0]),
        ("power", I32, [3, -1, -1, 1, 2, 0, 2], [4, -3, -2, -9, -1, -1, 40], [81, -1, 1, 1, 0, 0, 0]),
        ("maximum", F32, [1, _NAN, 2], [_NAN, 1, 3], [_NAN, _NAN, 3]),
        ("minimum", F16, [1, _NAN, 2], [_NAN, 1, 3], [_NAN, _NAN, 2]),
        ("add", I8, [127, -128], [1, -1], [-128, 127]),
        ("add", I1, [True, True, False], [True, False, False], [True, True, False]),
        ("multiply", I1, [True, True], [True, False], [True, False]),
        ("xor", I32, [6], [3], [5]),
        ("add", BY_NAME["i4"], [7, -8], [1, -1], [-8, 7]),
        ("add", BF16, [256.0, 1.0], [1.0, 1.0], [256.0, 2.0]),
    ],
)  # fmt: skip
def test_binary(name: str, kind: DType, x: Any, y: Any, expected: Any) -> None:
    found = _binary(name, kind, x, y)
    assert found.dtype == kind.numpy_dtype
    np.testing.assert_array_equal(
        found.astype(np.float64), np.array(expected).astype(np.float64)
    )


def test_zero_has_a_sign_in_maximum_and_minimum() -> None:
    for x, y in ((0.0, -0.0), (-0.0, 0.0)):
        assert not np.signbit(_binary("maximum", F32, x, y))
        assert np.signbit(_binary("minimum", F32, x, y))


@pytest.mark.parametrize(
    ("source", "target", "x", "expected"),
    [
        (F32, I8, [1.9, -1.9, 300, -300, _NAN, _INF, -_INF], [1, -1, 127, -128, 0, 127, -128]),
        (F32, UI8, [-1.0, 255.9, 256, _NAN], [0, 255, 255, 0]),
        (F32, I64, [1e30, -1e30], [2**63 - 1, -(2**63)]),
        (F32, BY_NAME["ui64"], [1e30, 2.0**63], [2**64 - 1, 2**63]),
        (F32, I1, [0.0, -0.0, 0.5, _NAN], [False, False, True, True]),
        (I32, I8, [300, -129], [44, 127]),
        (I32, BY_NAME["i4"], [8, -9], [-8, 7]),
        (I1, F32, [True, False], [1.0, 0.0]),
        (BY_NAME["f64"], BF16, [1 + 2**-8 + 2**-40], [1 + 2**-7]),  # once, to nearest
    ],
)
def test_convert(source: DType, target: DType, x: Any, expected: Any) -> None:
    found = evaluate("convert", [np.array(x).astype(source.numpy_dtype)], target, (len(x),))
    assert found.dtype == target.numpy_dtype
    wanted = np.array(expected).astype(target.numpy_dtype)
    assert found.tobytes() == wanted.tobytes()


def test_rounding() -> None:
    x = np.array([0.5, 1.5, 2.5, -0.5, 0.49999997, -2.5], np.float32)
    away = evaluate("round_nearest_afz", [x], F32, x.shape)
    even = evaluate("round_nearest_even", [x], F32, x.shape)
    np.testing.assert_array_equal(away, np.array([1, 2, 3, -1, 0, -3], np.float32))
    np.testing.assert_array_equal(even, np.array([0, 2, 2, 0, 0, -2], np.float32))


def test_bits() -> None:
    x = np.array([0, 1, -1, 64], np.int8)
    assert evaluate("popcnt", [x], I8, x.shape).tolist() == [0, 1, 8, 1]
    assert evaluate("count_leading_zeros", [x], I8, x.shape).tolist() == [8, 7, 0, 1]


def test_reduce_starts_at_its_initial_value() -> None:
    """Seed 1 has reductions that start at 0.5: they are computed as written."""
    m = model(
        [(F32, ("b", 4))],
        lambda b, x: b.reduce(x, b.scalar(0.5), [1], "add"),
    )
    x = np.arange(8, dtype=np.float32).reshape(2, 4)
    np.testing.assert_array_equal(run(m, {"x0": x})["y0"], [6.5, 22.5])


def test_reduce_with_any_body() -> None:
    """Arg-max: two inputs, a body of five operations, ties to the smaller index."""

    def body(b: Any, v0: Any, i0: Any, v1: Any, i1: Any) -> Any:
        larger = b.compare("GT", v0, v1)
        tie = b.binary("and", b.compare("EQ", v0, v1), b.compare("LT", i0, i1))
        left = b.binary("or", larger, tie)
        return [b.select(left, v0, v1), b.select(left, i0, i1)]

    def build(b: Any, x: Any) -> Any:
        index = b.iota(I64, (2, 7), 1)
        starts = [b.scalar(-_INF), b.scalar(0, I64)]
        return b.reduce([x, index], starts, [1], body)

    x = np.array([[1, 5, 2, 5, 0, 1, 1], [3, 3, 3, 3, 3, 3, 9]], np.float32)
    value, index = evaluate_function(model([(F32, (2, 7))], build), [x])
    assert value.tolist() == [5, 9]
    assert index.tolist() == [1, 6]


def test_reduce_body_that_does_not_commute_keeps_the_order() -> None:
    """A body that returns its right operand yields the last element."""
    m = model(
        [(F32, (3, 5))],
        lambda b, x: b.reduce(x, b.scalar(0), [1], lambda inner, left, right: [right]),
    )
    x = np.arange(15, dtype=np.float32).reshape(3, 5)
    assert evaluate_function(m, [x])[0].tolist() == [4, 9, 14]


def test_sum_of_halves_accumulates_wider() -> None:
    x = np.full((4096,), 1.0, F16.numpy_dtype)
    m = model([(F16, (4096,))], lambda b, x: b.reduce(x, b.scalar(0, F16), [0], "add"))
    assert float(evaluate_function(m, [x])[0]) == 4096


def test_pad_cuts_and_spreads() -> None:
    x = np.array([1, 2, 3], np.int32)
    attributes = {
        "edge_padding_low": (-1,),
        "edge_padding_high": (2,),
        "interior_padding": (1,),
    }
    found = evaluate("pad", [x, np.int32(9)], I32, (6,), attributes)
    assert found.tolist() == [9, 2, 9, 3, 9, 9]


def test_pool_pads_with_its_initial_value() -> None:
    m = model(
        [(F32, (4,))],
        lambda b, x: b.reduce_window(
            x,
            b.scalar(1.0),
            "add",
            window_dimensions=[2],
            window_strides=[2],
            padding_low=[1],
            padding_high=[1],
        ),
    )
    found = evaluate_function(m, [np.array([1, 2, 3, 4], np.float32)])[0]
    assert found.tolist() == [3, 6, 6]  # 1 + (1 + 1), 1 + (2 + 3), 1 + (4 + 1)


def test_convolution_with_groups_dilation_and_cut_padding() -> None:
    x = np.arange(16, dtype=np.float32).reshape(1, 2, 8)
    w = np.array([[[1, 10]], [[1, -1]]], np.float32)
    attributes = {
        "window_strides": (2,),
        "padding_low": (-1,),
        "padding_high": (1,),
        "lhs_dilation": (1,),
        "rhs_dilation": (2,),
        "feature_group_count": (2,),
    }
    found = evaluate("convolution", [x, w], F32, (1, 2, 3), attributes)
    assert found.tolist() == [[[31, 53, 75], [-2, -2, -2]]]


def test_gather_clamps_its_starts() -> None:
    m = model(
        [(F32, (4, 2)), (I64, ("n",))],
        lambda b, x, i: b.take(x, i, 0),
    )
    x = np.arange(8, dtype=np.float32).reshape(4, 2)
    found = run(m, {"x0": x, "x1": np.array([3, -5, 9], np.int64)})["y0"]
    assert found.tolist() == [[6, 7], [0, 1], [6, 7]]


def test_dynamic_slice_clamps() -> None:
    x = np.arange(5, dtype=np.int32)
    assert evaluate("dynamic_slice", [x, np.int64(9)], I32, (2,)).tolist() == [3, 4]
    update = np.array([7, 8], np.int32)
    found = evaluate("dynamic_update_slice", [x, update, np.int64(-3)], I32, (5,))
    assert found.tolist() == [7, 8, 2, 3, 4]


def test_dot_general_of_bytes_is_exact() -> None:
    x = np.full((1, 70000), -128, np.int8)
    attributes = {
        "lhs_batching_dimensions": (),
        "rhs_batching_dimensions": (),
        "lhs_contracting_dimensions": (1,),
        "rhs_contracting_dimensions": (1,),
    }
    assert evaluate("dot_general", [x, x], I32, (1, 1), attributes).tolist() == [[70000 << 14]]


def test_dimensions_follow_from_the_inputs() -> None:
    m = model(
        [(F32, ("batch", "2*seq + 1"))],
        lambda b, x: b.dimension(["batch", "seq"][0]),
    )
    assert run(m, {"x0": np.zeros((3, 9), np.float32)})["y0"] == 3
    with pytest.raises(HeadraceError, match=r"'2\*seq \+ 1' cannot be that"):
        run(m, {"x0": np.zeros((3, 8), np.float32)})
    with pytest.raises(HeadraceError, match="unknown: y"):
        run(m, {"y": np.zeros((3, 9), np.float32)})


def test_a_result_of_another_type_is_our_defect() -> None:
    text = """func.func @main(%x: tensor<4xf32>) -> tensor<3xf32> {
      %0 = tensor.abs %x : (tensor<4xf32>) -> tensor<3xf32> loc("node 'a'")
      func.return %0 : tensor<3xf32>
    }"""
    context = make_context([("tensor", lambda: TENSOR)])
    wrong = Model(parse_module(text, "a.mlir", context), {}, "test")
    with pytest.raises(HeadraceError, match=r"HR9123(.|\n)*node 'a'"):
        run(wrong, {"arg0": np.zeros(4, np.float32)})


def _pack_slowly(x: Any, strides: Any, tiles: Any, tile_strides: Any, offset: int, size: int):
    buffer = np.zeros(size, x.dtype)
    for index in np.ndindex(*x.shape):
        at = offset
        for i, s, t, ts in zip(index, strides, tiles, tile_strides, strict=True):
            at += i * s if t == 1 else (i // t) * s + (i % t) * ts
        buffer[at] = x[index]
    return buffer


@pytest.mark.parametrize(
    ("shape", "strides", "tiles", "tile_strides", "offset", "size"),
    [
        ((3, 5), (5, 1), (1, 1), (0, 0), 0, 15),
        ((3, 5), (1, 3), (1, 1), (0, 0), 2, 17),
        ((3, 21), (8, 24), (1, 8), (0, 1), 0, 72),  # panels of 8, the last one cut short
        ((5, 6, 2), (32, 8, 1), (2, 4, 1), (16, 2, 0), 3, 200),
        ((0, 4), (4, 1), (1, 1), (0, 0), 0, 4),
    ],
)
def test_pack(
    shape: Any, strides: Any, tiles: Any, tile_strides: Any, offset: int, size: int
) -> None:
    x = np.arange(1, 1 + int(np.prod(shape)), dtype=np.float32).reshape(shape)
    source = expression(
        "pack", (array_source(x),), F32, (size,),
        strides=strides, tiles=tiles, tile_strides=tile_strides, offset=offset, size=size,
    )  # fmt: skip
    expected = _pack_slowly(x, strides, tiles, tile_strides, offset, size)
    np.testing.assert_array_equal(evaluate_source(source), expected)


def test_parameter_expressions_nest() -> None:
    x = array_source(np.arange(6, dtype=np.float32).reshape(2, 3))
    turned = expression("transpose", (x,), F32, (3, 2), permutation=(1, 0))
    doubled = expression("add", (turned, turned), F32, (3, 2))
    rounded = expression("convert", (doubled,), BF16, (3, 2))
    assert evaluate_source(rounded).tolist() == [[0, 6], [2, 8], [4, 10]]
    summed = expression(
        "reduce", (doubled, array_source(np.float32(1))), F32, (3,),
        dimensions=(1,), reducer="add",
    )  # fmt: skip
    assert evaluate_source(summed).tolist() == [7, 11, 15]


def test_an_expression_of_a_wrong_type_is_our_defect() -> None:
    x = array_source(np.zeros((2, 3), np.float32))
    with pytest.raises(HeadraceError, match="HR9123"):
        evaluate_source(expression("transpose", (x,), F32, (2, 3), permutation=(1, 0)))
    with pytest.raises(HeadraceError, match="HR9121"):
        evaluate_source(expression("transposed", (x,), F32, (2, 3)))
