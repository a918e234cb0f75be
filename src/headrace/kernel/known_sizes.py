"""A kernel where some of its named dimensions are known numbers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from headrace.base.symbols import Expr, as_expr
from headrace.kernel.description import (
    Axis,
    IndexValue,
    Kernel,
    Layout,
    Load,
    LoadLocal,
    Operand,
    Phase,
    ScalarOperation,
)


def with_sizes(kernel: Kernel, sizes: Mapping[str, int]) -> Kernel:
    """The same kernel for these sizes alone: axes, shapes, strides and indices have numbers.

    Its parameters stay: `dims` still lists all names.
    """
    names = {name: as_expr(size) for name, size in sizes.items()}

    def known(exprs: tuple[Expr, ...]) -> tuple[Expr, ...]:
        return tuple(e.substitute(names) for e in exprs)

    def axes(given: tuple[Axis, ...]) -> tuple[Axis, ...]:
        return tuple(Axis(a.name, a.size.substitute(names)) for a in given)

    def layout(given: Layout) -> Layout:
        dimensions = tuple(
            replace(
                d,
                stride=d.stride.substitute(names),
                tile_stride=d.tile_stride.substitute(names),
            )
            for d in given.dimensions
        )
        offset, size = known((given.offset, given.size))
        return replace(given, dimensions=dimensions, offset=offset, size=size)

    def operand(given: Operand) -> Operand:
        return replace(given, shape=known(given.shape), layout=layout(given.layout))

    def operation(given: ScalarOperation) -> ScalarOperation:
        if isinstance(given, (Load, LoadLocal)):
            return replace(given, index=known(given.index))
        if isinstance(given, IndexValue):
            return replace(given, value=given.value.substitute(names))
        return given

    def phase(given: Phase) -> Phase:
        return replace(
            given,
            parallel=axes(given.parallel),
            reduction_axes=axes(given.reduction_axes),
            body=tuple(operation(o) for o in given.body),
            stores=tuple(replace(s, index=known(s.index)) for s in given.stores),
        )

    return replace(
        kernel,
        outer=axes(kernel.outer),
        operands=tuple(operand(o) for o in kernel.operands),
        locals=tuple(replace(x, shape=known(x.shape)) for x in kernel.locals),
        phases=tuple(phase(p) for p in kernel.phases),
    )
