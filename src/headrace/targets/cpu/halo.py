"""Writing the halo of an output: constant elements around it that readers may read.

A kernel adds `count` tiles behind its own; tile `main + i` writes piece `i`.
"""

from __future__ import annotations

from dataclasses import dataclass

from headrace.base.dtypes import DType
from headrace.base.errors import error
from headrace.base.symbols import ONE, Expr, as_expr
from headrace.kernel.description import Kernel, Scalar
from headrace.targets.cpu.entry import Entry
from headrace.targets.cpu.ir_text import Value
from headrace.targets.cpu.machine import Machine
from headrace.targets.cpu.storage import encode, memory_type, scalar_constant

_LANES = 16


@dataclass(frozen=True)
class HaloPiece:
    """A box of halo elements: (extent, stride) loops from `start`, outermost first."""

    operand: int
    dtype: DType
    start: Expr
    loops: tuple[tuple[Expr, Expr], ...]
    value: Scalar


def halo_pieces(kernel: Kernel) -> tuple[HaloPiece, ...]:
    """Every box of halo that the kernel must write, in a fixed order.

    Raises:
        HeadraceError HR2433: a halo in a tiled dimension, or one without a value.
    """
    pieces: list[HaloPiece] = []
    for position in kernel.outputs:
        operand = kernel.operands[position]
        layout = operand.layout
        if not layout.has_halo:
            continue
        if layout.halo_value is None or any(d.tile != 1 for d in layout.dimensions):
            raise error(
                "HR2433", f"the cpu target cannot write the halo of operand '{operand.name}'"
            )
        strides = [d.stride for d in layout.dimensions]
        low, high = layout.halo_low, layout.halo_high
        for d in range(len(strides)):
            for side in ("low", "high"):
                thickness = low[d] if side == "low" else high[d]
                if thickness == 0:
                    continue
                start = layout.offset
                boxes: list[tuple[Expr, Expr]] = []
                for e, stride in enumerate(strides):
                    extent = operand.shape[e]
                    if e == d:
                        first = as_expr(-low[e]) if side == "low" else extent
                        start, extent = start + first * stride, as_expr(thickness)
                    elif e > d:
                        start = start - stride * low[e]
                        extent = extent + low[e] + high[e]
                    boxes.append((extent, stride))
                pieces.append(
                    HaloPiece(position, operand.dtype, start, _merged(boxes), layout.halo_value)
                )
    return tuple(pieces)


def _merged(boxes: list[tuple[Expr, Expr]]) -> tuple[tuple[Expr, Expr], ...]:
    """Loops that run on from one another become one; stride 1 is innermost."""
    loops = [b for b in boxes if b[0] != ONE]
    changed = True
    while changed:
        changed = False
        for slow in loops:
            for fast in loops:
                if slow is not fast and slow[1] == fast[0] * fast[1]:
                    merged = (slow[0] * fast[0], fast[1])
                    loops = [merged if b is fast else b for b in loops if b is not slow]
                    changed = True
                    break
            if changed:
                break
    return tuple(sorted(loops, key=lambda b: b[1] == ONE))


def emit_halo_piece(entry: Entry, piece: HaloPiece, machine: Machine) -> None:
    """Code that writes one piece whole."""
    f = entry.function
    size_bytes = piece.dtype.size_bytes
    scalar = encode(f, piece.dtype, scalar_constant(piece.dtype, piece.value), machine)
    base = entry.bindings[piece.operand]
    assert memory_type(piece.dtype, machine) == scalar.type

    def nest(loops: tuple[tuple[Expr, Expr], ...], at: Value) -> None:
        if not loops:
            f.store(scalar, f.element(base, at, size_bytes), size_bytes)
            return
        (extent, step), rest = loops[0], loops[1:]
        count = entry.size(extent)
        if not rest and step == ONE:
            lanes = f.splat(scalar, _LANES)
            whole = f.binary("and", count, -_LANES)
            if count.constant is not None:
                whole = f.value(count.constant & -_LANES)

            def wide(i: Value, _: list[Value]) -> None:
                f.store(lanes, f.element(base, f.add(at, i), size_bytes), size_bytes)

            def narrow(i: Value, _: list[Value]) -> None:
                f.store(scalar, f.element(base, f.add(at, i), size_bytes), size_bytes)

            f.loop(0, whole, _LANES, wide)
            f.loop(whole, count, 1, narrow)
            return
        stride = entry.size(step)
        f.loop(0, count, 1, lambda i, _: nest(rest, f.add(at, f.mul(i, stride))))

    nest(piece.loops, entry.size(piece.start))


def emit_halo(
    entry: Entry, pieces: tuple[HaloPiece, ...], which: Value, machine: Machine
) -> None:
    """Code that writes the piece numbered `which` (i64)."""
    f = entry.function
    for number, piece in enumerate(pieces):
        f.branch(
            f.compare("eq", which, number),
            lambda piece=piece: emit_halo_piece(entry, piece, machine),
        )
