"""Rules of elementwise operations."""

from __future__ import annotations

import re

from headrace.base.dtypes import BY_NAME
from headrace.importers.hlo.quantization import parse_grid
from headrace.importers.hlo.tree import HloOperation, HloTensorType
from headrace.importers.hlo.verify.rules import (
    Scope,
    is_unranked,
    known,
    natural,
    need,
    operand,
    positive,
    result,
    rule,
    same_element,
    same_shape,
    sizes_of,
    storage,
    width,
    yields,
)
from headrace.importers.hlo.verify.signatures import SIGNATURES, check_elements


def same_shapes(operation: HloOperation) -> None:
    """Refuses operands and results of different shapes."""
    kinds = (*operation.types, *operation.result_types)
    for n, kind in enumerate(kinds[1:], 1):
        need(
            same_shape(kinds[0], kind),
            f"shapes differ: {kinds[0]} and {kind}, {'result' if n >= len(operation.types) else 'operand'}",
        )  # fmt: skip


def _is_elementwise(name: str) -> bool:
    """Whether all operands and the result have one shape and one kind of elements."""
    row = SIGNATURES[name]
    kinds = set(row.operands)
    if name in _OF_THEIR_OWN or len(kinds) != 1 or len(row.operands) > 2:
        return False
    (letters,) = kinds
    plain = not row.attributes and row.results == 1 and row.regions == 0
    return plain and letters[0] not in ".q" and not letters.endswith("*")


_OF_THEIR_OWN = (
    "cholesky", "complex", "convert", "imag", "is_finite", "real", "reduce_precision",
    "uniform_quantize",
)  # fmt: skip
_ELEMENTWISE = tuple(name for name in SIGNATURES if _is_elementwise(name))


@rule(*_ELEMENTWISE)
def _elementwise(operation: HloOperation, _: Scope) -> None:
    same_shapes(operation)
    _accuracy(operation)
    if not known(operation):
        return
    kinds = [operand(operation, n) for n in range(len(operation.types))]
    made = result(operation)
    for kind in kinds:
        need(bool(kind.grid) == bool(made.grid), "some are quantised, and some are not")
        size = operation.name == "stablehlo.abs" and kind.dtype.name == f"complex<{made.dtype}>"
        need(kind.dtype == made.dtype or size, f"elements differ: {kind} and {made}")
        if kind.grid:
            need(storage(kind) == storage(made), f"storage differs: {kind} and {made}")
    if made.grid and operation.name == "stablehlo.add":
        _same_axis(kinds, made)


def _same_axis(kinds: list[HloTensorType], made: HloTensorType) -> None:
    """Of a sum: per-axis grids lie along one dimension."""
    axes = [parse_grid(k.grid).axis for k in (*kinds, made)]
    need(axes[-1] is not None or all(a is None for a in axes), "only operands have an axis")
    for axis in axes[:-1]:
        need(axis is None or axis == axes[-1], "grids lie along different dimensions")


def _accuracy(operation: HloOperation) -> None:
    text = str(operation.attributes.get("result_accuracy", ""))
    if "HIGHEST" in text:
        numbers = [w.partition("=")[2] for w in text.replace(" ", "").split("<")[1].split(",") if "=" in w]  # fmt: skip
        wrong = any(n[:1].isdigit() and float(n) != 0 for n in numbers)
        need(not wrong, "the highest accuracy has no tolerances")


@rule("is_finite")
def _is_finite(operation: HloOperation, _: Scope) -> None:
    same_shapes(operation)
    check_elements(operation.result_types[0], "p", "the result")


@rule("convert")
def _convert(operation: HloOperation, _: Scope) -> None:
    same_shapes(operation)
    if known(operation):
        grids = (operand(operation, 0).grid, result(operation).grid)
        need(not any(grids), "quantised tensors are not converted so")


@rule("complex")
def _complex(operation: HloOperation, _: Scope) -> None:
    same_shapes(operation)
    if known(operation):
        a, b, made = operand(operation, 0), operand(operation, 1), result(operation)
        need(a.dtype == b.dtype and a.dtype.name in ("f32", "f64"), f"parts are {a} and {b}")
        need(made.dtype.name == f"complex<{a.dtype.name}>", f"the result is a {made}")


@rule("real", "imag")
def _part(operation: HloOperation, _: Scope) -> None:
    same_shapes(operation)
    if known(operation):
        source, made = operand(operation, 0), result(operation)
        name = source.dtype.name.removeprefix("complex<").removesuffix(">")
        need(made.dtype.name == name, f"a part of {source} is no {made}")


@rule("clamp")
def _clamp(operation: HloOperation, _: Scope) -> None:
    if not known(operation):
        return
    low, value, high = (operand(operation, n) for n in range(3))
    for what, kind in (("least", low), ("greatest", high)):
        need(not kind.shape or same_shape(kind, value), f"the {what} is a {kind}")
        need(same_element(kind, value), f"the {what} is a {kind}, and clamps a {value}")
    yields(operation, sizes_of(value), value)


@rule("compare")
def _compare(operation: HloOperation, _: Scope) -> None:
    same_shapes(operation)
    check_elements(operation.result_types[0], "p", "the result")
    if not known(operation):
        return
    lhs, rhs = operand(operation, 0), operand(operation, 1)
    need(same_element(lhs, rhs), f"{lhs} and {rhs} are not compared")
    direction = str(operation.attributes["comparison_direction"])
    need(direction in _DIRECTIONS, f"'{direction}' is no direction")
    said = operation.attributes.get("compare_type")
    need(
        said in (None, "FLOAT", "TOTALORDER", "SIGNED", "UNSIGNED", "NOTYPE"),
        f"'{said}' is no way to compare",
    )


_DIRECTIONS = ("EQ", "NE", "GE", "GT", "LE", "LT")


@rule("select")
def _select(operation: HloOperation, _: Scope) -> None:
    if not known(operation):
        return
    predicate, yes, no = (operand(operation, n) for n in range(3))
    need(same_shape(yes, no) and same_element(yes, no), f"{yes} and {no} are no choice")
    need(not predicate.shape or same_shape(predicate, yes), f"a {predicate} chooses no {yes}")
    yields(operation, [a if a is not None else b for a, b in zip(sizes_of(yes), sizes_of(no), strict=True)], yes)  # fmt: skip


@rule("reduce_precision")
def _reduce_precision(operation: HloOperation, _: Scope) -> None:
    positive(operation, "exponent_bits")
    natural(operation, "mantissa_bits")
    same_shapes(operation)
    if known(operation):
        need(same_element(operand(operation, 0), result(operation)), "elements differ")


@rule("uniform_quantize")
def _uniform_quantize(operation: HloOperation, _: Scope) -> None:
    same_shapes(operation)
    if known(operation):
        source, made = operand(operation, 0), result(operation)
        need(bool(made.grid), f"the result is a {made}, which has no grid")
        need(source.dtype == made.dtype, f"a {source} does not become a {made}")


@rule("uniform_dequantize")
def _uniform_dequantize(operation: HloOperation, _: Scope) -> None:
    same_shapes(operation)
    if known(operation):
        source, made = operand(operation, 0), result(operation)
        need(not made.grid and source.dtype == made.dtype, f"{source} becomes no {made}")


@rule("bitcast_convert")
def _bitcast_convert(operation: HloOperation, _: Scope) -> None:
    if not known(operation):
        return
    source, made = operand(operation, 0), result(operation)
    complexes = [k.dtype.kind == "complex" for k in (source, made)]
    need(complexes[0] == complexes[1], "real and complex numbers are not cast to each other")
    wide, narrow = _bits(source), _bits(made)
    a, b = sizes_of(source), sizes_of(made)
    if wide == narrow:
        need(same_shape(source, made), f"shapes differ: {source} and {made}")
        return
    if wide < narrow:
        a, b, wide, narrow = b, a, narrow, wide
    need(len(b) == len(a) + 1, "the narrower type needs one dimension more")
    need(all((x is None) or (y is None) or x == y for x, y in zip(a, b, strict=False)), f"shapes differ: {source} and {made}")  # fmt: skip
    last = b[-1]
    need(last is None or last * narrow == wide, f"{last} times {narrow} bits are no {wide}")


def _bits(kind: HloTensorType) -> int:
    if kind.grid:
        return int("".join(c for c in storage(kind) if c.isdigit()))
    return width(kind.dtype)


@rule("optimization_barrier")
def _optimization_barrier(operation: HloOperation, _: Scope) -> None:
    need(operation.types == operation.result_types, "operands and results differ")


@rule("constant")
def _constant(operation: HloOperation, _: Scope) -> None:
    kind = operation.result_types[0]
    need(not is_unranked(kind), "a constant has no rank")
    if not isinstance(kind, HloTensorType):
        return
    need(all(s.is_constant for s in kind.shape), "a constant has a size that is not known")
    value = operation.attributes["value"]
    shape = getattr(value, "shape", None)
    if shape is None:
        return
    need(list(shape) == sizes_of(kind), f"the value has the shape {list(shape)}")
    stored = re.sub(r"^u(?=\d)", "ui", storage(kind)) if kind.grid else ""
    if stored in BY_NAME:
        need(value.dtype == BY_NAME[stored].numpy_dtype, f"the value holds {value.dtype}")
    if not kind.grid:
        need(value.dtype == kind.dtype.numpy_dtype, f"the value holds {value.dtype}")


@rule("iota")
def _iota(operation: HloOperation, _: Scope) -> None:
    check_elements(operation.result_types[0], "sufcq", "the result")
    dimension = natural(operation, "iota_dimension")
    rank = len(result(operation).shape)
    need(rank > 0, "an iota has a dimension to count along")
    need(dimension < rank, f"dimension {dimension} is not there")
    need(None not in sizes_of(result(operation)), "a size is not known")


@rule("rng")
def _rng(operation: HloOperation, scope: Scope) -> None:
    made = result(operation)
    for n in (0, 1):
        kind = operand(operation, n)
        need(not kind.shape, f"operand {n} is a {kind}, not one element")
        need(kind.dtype == made.dtype, f"operand {n} is a {kind}, and a {made} is made")
    shape = operand(operation, 2)
    need(len(shape.shape) == 1 and shape.shape[0].is_constant, f"the shape is a {shape}")
    need(shape.shape[0].value == len(made.shape), f"the shape has {shape.shape[0]} sizes")
    given = scope.integers(operation.operands[2])
    if given is not None:
        yields(operation, list(given), None)
    if operation.attributes["rng_distribution"] == "NORMAL":
        need(made.dtype.is_float, "a normal distribution makes floats")


@rule("rng_bit_generator")
def _rng_bit_generator(operation: HloOperation, _: Scope) -> None:
    state, after = operand(operation, 0), result(operation, 0)
    need(same_shape(state, after) and state.dtype == after.dtype, f"the state is a {state}, then a {after}")  # fmt: skip
