"""`fft` and `triangular_solve`: products with known matrices, and substitution written out."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from xdsl.ir import SSAValue

from headrace.base.dtypes import BY_NAME
from headrace.base.parameters import array_source
from headrace.base.symbols import as_expr
from headrace.importers.hlo.helpers import result_type
from headrace.importers.hlo.registry import Unsupported, Value, converter, integers_of
from headrace.importers.hlo.sources import MAX_CONSTANT_ELEMENTS
from headrace.importers.hlo.tree import HloOperation
from headrace.ir.types import dtype_of, shape_of
from headrace.tensor.build import TensorBuilder

if TYPE_CHECKING:
    from headrace.importers.hlo.convert import FunctionConverter

MOST_UNKNOWNS = 64
"""Systems of more unknowns are not written out."""


def _matrix(at: FunctionConverter, array: Any) -> SSAValue:
    """A constant, or a weight where it is large."""
    if array.size > MAX_CONSTANT_ELEMENTS:
        return at.weight(array_source(array))
    return at.builder.constant(array)


def _roots(rows: int, columns: int, size: int, sign: int) -> Any:
    """exp(sign 2 pi i r c / size) for r < rows, c < columns, each exactly reduced."""
    import numpy as np

    turns = np.outer(np.arange(rows), np.arange(columns)) % size
    return np.exp(sign * 2j * np.pi * turns / size)


def _along(at: FunctionConverter, value: SSAValue, axis: int, array: Any) -> SSAValue:
    """The product with a matrix [old, new] along one dimension."""
    matrix = _matrix(at, array.astype(dtype_of(value).numpy_dtype))
    made = at.builder.dot_general(value, matrix, contract=([axis], [0]))
    rank = len(shape_of(value))
    # The new dimension comes last: it goes back to its place.
    order = [*range(axis), rank - 1, *range(axis, rank - 1)]
    return at.builder.transpose(made, order)


@converter("fft")
def _fft(at: FunctionConverter, operation: HloOperation) -> Sequence[Value]:
    """A product with the matrix of roots of unity for each dimension: n squared work, which
    is what short transforms need; sums in the order of a matrix product."""
    b, x = at.builder, at.operand(operation, 0)
    lengths = integers_of(operation.attributes["fft_length"])
    kind = str(operation.attributes["fft_type"]).rpartition(" ")[2]
    rank, count = len(shape_of(x)), len(lengths)
    axes = list(range(rank - count, rank))
    # In f64: sums of many terms that cancel keep the digits of the type asked for.
    x = b.convert(x, BY_NAME["complex<f64>"])
    wanted = result_type(operation).dtype
    sign = 1 if kind in ("IFFT", "IRFFT") else -1
    scale = 1.0
    for axis, size in zip(axes, lengths, strict=True):
        last = axis == axes[-1]
        half = size // 2 + 1
        if sign > 0:
            scale /= size
        if kind == "RFFT" and last:
            x = _along(at, x, axis, _roots(size, half, size, sign))
        elif kind == "IRFFT" and last:
            continue
        else:
            x = _along(at, x, axis, _roots(size, size, size, sign))
    if kind == "IRFFT":
        x = _real_inverse(at, x, axes[-1], lengths[-1], scale)
        return [b.convert(x, wanted)]
    if scale != 1.0:
        x = b.binary("multiply", x, b.splat(scale, dtype_of(x), shape_of(x)))
    return [b.convert(x, wanted)]


def _real_inverse(
    at: FunctionConverter, x: SSAValue, axis: int, size: int, scale: float
) -> SSAValue:
    """The half that is given stands for its mirror too: parts times cosines and sines."""
    import numpy as np

    b = at.builder
    roots = _roots(size // 2 + 1, size, size, 1)
    twice = np.full(size // 2 + 1, 2.0)
    twice[0] = 1.0
    if size % 2 == 0:
        twice[-1] = 1.0
    weights = roots * twice[:, np.newaxis] * scale
    real = _along(at, b.unary("real", x), axis, weights.real)
    imaginary = _along(at, b.unary("imag", x), axis, weights.imag)
    return b.binary("subtract", real, imaginary)


@converter("triangular_solve")
def _triangular_solve(at: FunctionConverter, operation: HloOperation) -> Sequence[Value]:
    """Substitution, one unknown after the other, over all right-hand sides at once."""
    a, x = operation.attributes, None
    matrix, given = at.operands(operation)
    b = at.builder
    left, lower = bool(a["left_side"]), bool(a["lower"])
    unit = bool(a["unit_diagonal"])
    transposed = str(a["transpose_a"]).rpartition(" ")[2].rstrip(">")
    rank = len(shape_of(matrix))
    swap = [*range(rank - 2), rank - 1, rank - 2]
    if not left:
        # x a = b is a' x' = b'.
        given = b.transpose(given, swap)
        transposed = {"NO_TRANSPOSE": "TRANSPOSE", "TRANSPOSE": "NO_TRANSPOSE"}.get(
            transposed, "CONJUGATE"
        )
    if transposed in ("TRANSPOSE", "ADJOINT"):
        matrix, lower = b.transpose(matrix, swap), not lower
    if transposed in ("ADJOINT", "CONJUGATE") and dtype_of(matrix).kind == "complex":
        parts = b.unary("real", matrix), b.unary("negate", b.unary("imag", matrix))
        matrix = b.binary("complex", *parts)
    size = shape_of(matrix)[-1]
    if not size.is_constant or size.value > MOST_UNKNOWNS:
        raise Unsupported(f"a system of {size} unknowns is not written out")
    x = _substituted(b, matrix, given, size.value, lower, unit)
    x = x if left else b.transpose(x, swap)
    return [b.convert(x, result_type(operation).dtype)]


def _substituted(
    b: TensorBuilder, matrix: SSAValue, given: SSAValue, size: int, lower: bool, unit: bool
) -> SSAValue:
    shape, sides = list(shape_of(matrix)), list(shape_of(given))
    rank = len(shape)
    batch = list(range(rank - 2))

    def part(value: SSAValue, row: tuple[int, int], column: tuple[int, Any]) -> SSAValue:
        extents = list(shape_of(value))
        start = [0] * (rank - 2) + [row[0], column[0]]
        limit = [*extents[: rank - 2], as_expr(row[1]), as_expr(column[1])]
        return b.slice(value, start, limit, [1] * rank)

    order = range(size) if lower else range(size - 1, -1, -1)
    solved: list[SSAValue] = []
    for n in order:
        rest = part(given, (n, n + 1), (0, sides[-1]))
        if solved:
            known = b.concatenate(solved if lower else solved[::-1], rank - 2)
            columns = (0, n) if lower else (n + 1, size)
            row = part(matrix, (n, n + 1), columns)
            used = b.dot_general(
                row, known, batch=(batch, batch), contract=([rank - 1], [rank - 2])
            )
            rest = b.binary("subtract", rest, used)
        if not unit:
            diagonal = part(matrix, (n, n + 1), (n, n + 1))
            rest = b.binary("divide", rest, b.broadcast_to(diagonal, shape_of(rest)))
        solved.append(rest)
    return b.concatenate(solved if lower else solved[::-1], rank - 2)
