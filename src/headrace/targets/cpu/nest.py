"""A kernel as loops over element offsets: what the schedules and the emitter work on.

Lowering replaces indices by *offsets* into the operands' buffers, drops axes of one
point, and merges axes that every access walks through as if they were one (a dense
elementwise kernel of any rank becomes one axis). Guards of accesses that cannot leave
their tensor go away.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import TypeAlias, Union

from headrace.base.dtypes import DType
from headrace.base.symbols import ZERO, Expr, dim, product
from headrace.kernel.description import (
    Axis,
    Compute,
    Constant,
    IndexValue,
    Kernel,
    Load,
    LoadLocal,
    Phase,
    Reduction,
    Scalar,
)
from headrace.targets.cpu.entry import DIM_LIMIT
from headrace.targets.cpu.simplify import Facts, divisors_of, simplify, split_size

_MOST_SPLITS = 6


@dataclass(frozen=True)
class Access:
    """A place in an operand (its position) or in a local (its name).

    Attributes:
        offset: in elements.
        guards: (index, size) pairs; the element exists where 0 <= index < size for all.
    """

    place: int | str
    offset: Expr
    guards: tuple[tuple[Expr, Expr], ...] = ()

    @property
    def names(self) -> frozenset[str]:
        found = self.offset.names
        for index, size in self.guards:
            found |= index.names | size.names
        return found


@dataclass(frozen=True)
class Read:
    """Loads an element; `otherwise` stands in where a guard fails."""

    result: str
    access: Access
    dtype: DType
    otherwise: Scalar | None = None


@dataclass(frozen=True)
class Write:
    """Stores a body value."""

    value: str
    access: Access
    dtype: DType


Item: TypeAlias = Union[Read, Constant, IndexValue, Compute]


@dataclass(frozen=True)
class NestPhase:
    """A phase on offsets. `results` says where a reduction's outcome goes.

    `writes` of a reduction are by-products that an optimisation keeps per element.
    """

    parallel: tuple[Axis, ...]
    reduction_axes: tuple[Axis, ...]
    body: tuple[Item, ...]
    reduction: Reduction | None
    results: tuple[Write, ...]
    writes: tuple[Write, ...]
    serial: bool = False

    @property
    def axes(self) -> tuple[Axis, ...]:
        """Inner axes: parallel ones, then those of the reduction."""
        return self.parallel + self.reduction_axes

    @property
    def reads(self) -> tuple[Read, ...]:
        return tuple(i for i in self.body if isinstance(i, Read))

    def accesses(self) -> Iterable[Access]:
        """Every place it touches."""
        for read in self.reads:
            yield read.access
        for write in (*self.results, *self.writes):
            yield write.access


@dataclass(frozen=True)
class Array:
    """A local array in the worker's scratch."""

    dtype: DType
    size: Expr


@dataclass(frozen=True)
class Nest:
    """A kernel on offsets.

    Attributes:
        outer: the parallel domain.
        phases: run in order for each of its points.
        scalars: dtypes of the locals that are one value.
        arrays: the locals that are arrays.
        ranges: inclusive ranges of all names with a known one.
    """

    outer: tuple[Axis, ...]
    phases: tuple[NestPhase, ...]
    scalars: Mapping[str, DType]
    arrays: Mapping[str, Array]
    ranges: Mapping[str, tuple[int, int]]


def lower(
    kernel: Kernel, *, split: bool = False, merge: bool = True, ordered: bool = False
) -> Nest:
    """The kernel on offsets, axes dropped and merged where that changes nothing.

    `split` also cuts axes whose quotient and remainder stand in offsets (a packed
    weight's panels, reshapes); families that know panels want them whole. Without `merge`
    the outer axes stay as they are; `ordered` keeps the order in which reductions fold.
    """
    most = _MOST_SPLITS if split else 0
    shapes = {local.name: local.shape for local in kernel.locals}
    dtypes = {local.name: local.dtype for local in kernel.locals}
    ranges: dict[str, tuple[int, int]] = {name: (0, DIM_LIMIT) for name in kernel.dims}
    for axis in kernel.outer:
        ranges[axis.name] = _range(axis)
    phases = tuple(_lower_phase(kernel, p, shapes, dtypes) for p in kernel.phases)
    outer = kernel.outer
    if merge:
        outer, phases = _drop_single(outer, phases)
    outer, phases = _split(outer, phases, ranges, most)
    if merge:
        outer, phases = _merge(outer, phases)
    for axis in outer:
        ranges[axis.name] = _range(axis)
    phases = tuple(_simplify_inner(p, outer, ranges, most, ordered) for p in phases)
    return Nest(
        outer,
        phases,
        {name: dtypes[name] for name, shape in shapes.items() if not shape},
        {n: Array(dtypes[n], product(s)) for n, s in shapes.items() if s},
        ranges,
    )


def axis_ranges(axes: Iterable[Axis]) -> dict[str, tuple[int, int]]:
    """Inclusive ranges of axes."""
    return {axis.name: _range(axis) for axis in axes}


def _range(axis: Axis) -> tuple[int, int]:
    return 0, (max(0, axis.size.value - 1) if axis.size.is_constant else DIM_LIMIT)


def _lower_phase(
    kernel: Kernel,
    phase: Phase,
    shapes: Mapping[str, tuple[Expr, ...]],
    dtypes: Mapping[str, DType],
) -> NestPhase:
    def operand_access(
        position: int, index: tuple[Expr, ...], bounded: Iterable[int]
    ) -> Access:
        operand = kernel.operands[position]
        guards = tuple((index[d], operand.shape[d]) for d in bounded)
        return Access(position, operand.layout.element_offset(index), guards)

    def local_access(name: str, index: tuple[Expr, ...]) -> Access:
        offset = ZERO
        for i, extent in zip(index, shapes[name], strict=True):
            offset = offset * extent + i
        return Access(name, offset)

    body: list[Item] = []
    for item in phase.body:
        if isinstance(item, Load):
            access = operand_access(item.operand, item.index, item.bounded)
            body.append(
                Read(item.result, access, kernel.operands[item.operand].dtype, item.otherwise)
            )
        elif isinstance(item, LoadLocal):
            access = local_access(item.local, item.index)
            body.append(Read(item.result, access, dtypes[item.local]))
        else:
            body.append(item)
    writes: list[Write] = []
    for store in phase.stores:
        if isinstance(store.operand, int):
            access = operand_access(store.operand, store.index, store.bounded)
            writes.append(Write(store.value, access, kernel.operands[store.operand].dtype))
        else:
            access = local_access(store.operand, store.index)
            writes.append(Write(store.value, access, dtypes[store.operand]))
    results: list[Write] = []
    if phase.reduction is not None:
        index = tuple(dim(axis.name) for axis in phase.parallel)
        for name in phase.reduction.results:
            access = local_access(name, index if shapes[name] else ())
            results.append(Write(name, access, dtypes[name]))
    return NestPhase(
        phase.parallel,
        phase.reduction_axes,
        tuple(body),
        phase.reduction,
        tuple(results),
        tuple(writes),
        phase.serial,
    )


# -- rewriting ------------------------------------------------------------------


def rewrite_phase(phase: NestPhase, change: Callable[[Expr], Expr]) -> NestPhase:
    """The phase with `change` applied to every index expression."""

    def access(old: Access) -> Access:
        return Access(
            old.place, change(old.offset), tuple((change(i), s) for i, s in old.guards)
        )

    def item(old: Item) -> Item:
        if isinstance(old, Read):
            return replace(old, access=access(old.access))
        if isinstance(old, IndexValue):
            return replace(old, value=change(old.value))
        return old

    return replace(
        phase,
        body=tuple(item(i) for i in phase.body),
        results=tuple(replace(w, access=access(w.access)) for w in phase.results),
        writes=tuple(replace(w, access=access(w.access)) for w in phase.writes),
    )


def _drop_single(
    axes: tuple[Axis, ...], phases: tuple[NestPhase, ...]
) -> tuple[tuple[Axis, ...], tuple[NestPhase, ...]]:
    """Axes of exactly one point become 0."""
    single = {a.name: ZERO for a in axes if a.size.is_constant and a.size.value == 1}
    if not single:
        return axes, phases
    kept = tuple(a for a in axes if a.name not in single)
    return kept, tuple(rewrite_phase(p, lambda e: e.substitute(single)) for p in phases)


def _merge(
    axes: tuple[Axis, ...], phases: tuple[NestPhase, ...], *, ordered: bool = False
) -> tuple[tuple[Axis, ...], tuple[NestPhase, ...]]:
    """Merges pairs of axes as long as there is one that every access allows.

    `ordered`: only neighbours, so that the order of the points stays.
    """
    current = list(axes)
    changed = True
    while changed:
        changed = False
        for slow in current:
            for fast in current:
                if ordered and current.index(fast) != current.index(slow) + 1:
                    continue
                if slow is fast or not all(_mergeable(p, slow, fast) for p in phases):
                    continue
                merged = Axis(fast.name, slow.size * fast.size)
                names = {slow.name: ZERO}
                phases = tuple(
                    rewrite_phase(p, lambda e, n=names: e.substitute(n)) for p in phases
                )
                current = [merged if a is fast else a for a in current if a is not slow]
                changed = True
                break
            if changed:
                break
    return tuple(current), phases


def _mergeable(phase: NestPhase, slow: Axis, fast: Axis) -> bool:
    """Whether every access moves on `slow` as on the end of `fast`."""
    pair = {slow.name, fast.name}
    for item in phase.body:
        if isinstance(item, IndexValue) and pair & item.value.names:
            return False
    for access in phase.accesses():
        if any(pair & index.names for index, _ in access.guards):
            return False
        if not access.offset.is_linear_in(pair):
            return False
        step = access.offset.coefficient(fast.name)
        if access.offset.coefficient(slow.name) != step * fast.size:
            return False
    return True


def _simplify_inner(
    phase: NestPhase,
    outer: tuple[Axis, ...],
    ranges: Mapping[str, tuple[int, int]],
    most: int,
    ordered: bool,
) -> NestPhase:
    parallel, (phase,) = _drop_single(phase.parallel, (phase,))
    reduction, (phase,) = _drop_single(phase.reduction_axes, (phase,))
    phase = replace(phase, parallel=parallel, reduction_axes=reduction)
    around = (*outer, *phase.axes)
    parallel, (phase,) = _split(parallel, (phase,), ranges, most, around)
    reduction, (phase,) = _split(reduction, (phase,), ranges, most, (*outer, *parallel))
    kind = phase.reduction.combiner.kind if phase.reduction else None
    parallel, (phase,) = _merge(parallel, (phase,), ordered=phase.serial)
    reduction, (phase,) = _merge(reduction, (phase,), ordered=ordered or kind is None)
    phase = replace(phase, parallel=parallel, reduction_axes=reduction)
    return _without_guards(phase, _facts((*outer, *phase.axes), ranges))


# -- divisions --------------------------------------------------------------------


def _facts(axes: Iterable[Axis], ranges: Mapping[str, tuple[int, int]]) -> Facts:
    axes = tuple(axes)
    return Facts({a.name: a.size for a in axes}, {**ranges, **axis_ranges(axes)})


def _split(
    axes: tuple[Axis, ...],
    phases: tuple[NestPhase, ...],
    ranges: Mapping[str, tuple[int, int]],
    most: int,
    around: tuple[Axis, ...] = (),
) -> tuple[tuple[Axis, ...], tuple[NestPhase, ...]]:
    """Resolves divisions, and splits `most` axes whose quotient and remainder are used apart."""
    others = [a for a in around if a not in axes]
    current = list(axes)
    for count in range(most + 1):
        phases = tuple(
            _simplified(p, _facts((*others, *current, *p.axes), ranges)) for p in phases
        )
        found = _split_of(current, phases) if count < most else None
        if found is None:
            break
        axis, quotient, divisor = found
        high, low = Axis(axis.name + "h", quotient), Axis(axis.name + "l", divisor)
        names = {axis.name: dim(high.name) * divisor + dim(low.name)}
        phases = tuple(rewrite_phase(p, lambda e, n=names: e.substitute(n)) for p in phases)
        at = current.index(axis)
        current[at : at + 1] = [high, low]
    return tuple(current), phases


def _simplified(phase: NestPhase, facts: Facts) -> NestPhase:
    return rewrite_phase(phase, lambda e: simplify(e, facts))


def _split_of(
    axes: list[Axis], phases: tuple[NestPhase, ...]
) -> tuple[Axis, Expr, Expr] | None:
    """An axis to split, with the quotient and the divisor: the smallest divisor first."""
    for axis in axes:
        divisors: dict[str, Expr] = {}
        for phase in phases:
            for expr in _expressions(phase):
                divisors |= {str(d): d for d in divisors_of(expr, axis.name)}
        for _, divisor in sorted(divisors.items(), key=lambda i: (len(i[0]), i[0])):
            quotient = split_size(axis.size, divisor)
            if quotient is not None:
                return axis, quotient, divisor
    return None


def _expressions(phase: NestPhase) -> Iterable[Expr]:
    for access in phase.accesses():
        yield access.offset
        for index, _ in access.guards:
            yield index
    for item in phase.body:
        if isinstance(item, IndexValue):
            yield item.value


def _without_guards(phase: NestPhase, facts: Facts) -> NestPhase:
    """Guards that always hold go away."""
    body: list[Item] = []
    for item in phase.body:
        if isinstance(item, Read) and item.access.guards:
            kept = tuple(g for g in item.access.guards if not facts.within(*g))
            item = replace(item, access=replace(item.access, guards=kept))
        body.append(item)
    return replace(phase, body=tuple(body))


# -- questions --------------------------------------------------------------------


def stride(access: Access, axis: str) -> int | None:
    """Elements an access moves per step of an axis; None where that is no constant.

    An offset through an index value (`%v3`) says nothing about it: the caller knows
    whether the value varies with the axis.
    """
    if not access.offset.is_linear_in((axis,)):
        return None
    step = access.offset.coefficient(axis)
    return step.value if step.is_constant else None


def guard_varies(access: Access, axis: str) -> bool:
    """Whether a guard depends on the axis."""
    return any(axis in index.names for index, _ in access.guards)
