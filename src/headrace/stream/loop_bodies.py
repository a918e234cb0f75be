"""The commands of a loop as steps of one kernel, and the operands of that kernel."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from xdsl.ir import Block, BlockArgument, Operation, SSAValue

from headrace.base.dtypes import BY_NAME, DType
from headrace.base.symbols import ZERO, Expr, as_expr, bounds, dim, product
from headrace.kernel.description import (
    Access,
    Axis,
    Compute,
    Constant,
    Kernel,
    Load,
    Operand,
    Phase,
    ScalarOperation,
    Store,
    ordered_layout,
)
from headrace.kernel.join import Piece, Round, Step
from headrace.stream.commands import CallOp, CopyOp, DispatchOp, FillOp, IfOp, LoopOp
from headrace.stream.in_place_sites import Executables
from headrace.stream.resources import aliased_input, operand_bytes

Ranges = Mapping[str, tuple[int, int]]

_WEIGHT_BYTES = 1 << 20
"""Of one weight; what is larger is better streamed through dispatches of its own."""

_MOST_COMMANDS = 200
_GUESSED_TRIPS = 10


class Unfit(Exception):
    """The loop is no kernel."""


@dataclass(frozen=True)
class _View:
    """A tensor in a resource, as a kernel sees it; `offset` in elements."""

    resource: SSAValue
    offset: Expr
    operand: Operand

    @property
    def end(self) -> Expr:
        return self.offset + self.operand.layout.size

    @property
    def seen(self) -> tuple[object, ...]:
        """What is equal where two views are the very same tensor."""
        return (self.offset, self.operand.dtype, self.operand.shape, self.operand.layout)


@dataclass(frozen=True)
class _Command:
    kernel: Kernel
    views: tuple[_View, ...]


@dataclass(frozen=True)
class _Inner:
    """A loop within: read after what comes before it, `condition` before each trip."""

    steps: tuple[_Command | _Inner, ...]
    condition: SSAValue
    trips: int


@dataclass
class _Resource:
    """A resource that the loop touches, in the order of its accesses."""

    views: list[_View] = field(default_factory=list[_View])
    accesses: list[Access] = field(default_factory=list[Access])


class LoopBody:
    """One loop on its way to a kernel.

    Attributes:
        points: of one trip, phases of loops within counted as often as they run.
        operands: of the kernel, once read.
        dims: the scalar of each named dimension.
        sites, commands, kept: dispatches, all commands, and what is none, in order.
    """

    def __init__(self, loop: LoopOp, executables: Executables, ranges: Ranges) -> None:
        self.loop = loop
        self.executables = executables
        self.ranges = ranges
        self.points = 0
        self.operands: list[Operand] = []
        self.dims: dict[str, SSAValue] = {}
        self.sites: list[DispatchOp] = []
        self.commands: list[Operation] = []
        self.kept: list[Operation] = []
        self._resources: dict[SSAValue, _Resource] = {}
        self._numbers: dict[SSAValue, int] = {}
        self._dtypes: dict[SSAValue, DType] = {}

    def read(self) -> tuple[Step, ...]:
        """The steps of a trip.

        Raises:
            Unfit: it is no kernel.
        """
        self._note_dtypes()
        commands = self._block(self.loop.body.block, 1)
        if not self.sites:
            raise Unfit("nothing is computed")
        # The condition is read before all else.
        self._touch_flag(self.loop.condition)
        for command in commands:
            self._touch(command)
        for resource, found in self._resources.items():
            self._numbers[resource] = len(self.operands)
            self.operands.append(self._operand(resource, found))
        self._check_aliases()
        conditions = [self.loop.condition, *_conditions(commands)]
        if any(self.operands[self._numbers[c]].access == "ro" for c in conditions):
            raise Unfit("a condition that nothing sets")
        if any(name not in self.dims for c in _flat(commands) for name in c.kernel.dims):
            raise Unfit("a size that no dispatch is given")
        if len({c.kernel.precision for c in _flat(commands)}) > 1:
            raise Unfit("products of several precisions")
        if len(self.commands) > _MOST_COMMANDS:
            raise Unfit("a long body")
        return tuple(self._step(c) for c in commands)

    def number(self, resource: SSAValue) -> int:
        """The operand that a resource is."""
        return self._numbers[resource]

    def likely_trips(self, loop: LoopOp) -> int:
        """How often a loop runs, or a guess."""
        known = self._most_trips(loop)
        return _GUESSED_TRIPS if known is None else known

    def bindings(self) -> tuple[list[SSAValue], list[str], list[Expr], list[Expr]]:
        """Resources, accesses, offsets and lengths of the kernel's dispatch."""
        offsets = [
            ZERO if self._is_flat(found) else found.views[0].offset * operand.dtype.size_bytes
            for found, operand in zip(self._resources.values(), self.operands, strict=True)
        ]
        return (
            list(self._resources),
            [o.access for o in self.operands],
            offsets,
            [operand_bytes(o) for o in self.operands],
        )

    # -- reading -----------------------------------------------------------------------

    def _note_dtypes(self) -> None:
        """The element type of every resource: copies and fills have none of their own."""
        for op in self.loop.body.walk():
            kernel = self.executables.kernel(op) if isinstance(op, DispatchOp) else None
            if isinstance(op, DispatchOp) and kernel is not None:
                for resource, operand in zip(op.resources, kernel.operands, strict=True):
                    self._dtypes.setdefault(resource, operand.dtype)

    def _block(self, block: Block, times: int) -> tuple[_Command | _Inner, ...]:
        found: list[_Command | _Inner] = []
        for op in block.ops:
            if isinstance(op, (DispatchOp, CopyOp, FillOp)):
                command = self._command(op)
                self.commands.append(op)
                self._count(command.kernel, times)
                found.append(command)
            elif isinstance(op, LoopOp):
                found += self._block(op.before.block, times)
                trips = self._most_trips(op)
                if trips is None:
                    raise Unfit("a loop within may run for ever")
                self.commands.append(op)
                steps = self._block(op.body.block, times * trips)
                found.append(_Inner(steps, op.condition, trips))
            elif isinstance(op, (IfOp, CallOp)):
                raise Unfit(op.name)
            else:
                self.kept.append(op)
        return tuple(found)

    def _most_trips(self, loop: LoopOp) -> int | None:
        count = None if loop.trip_count is None else loop.trip_count.exprs[0]
        known = None if count is None else bounds(count, self.ranges)
        return None if known is None else max(1, known[1])

    def _count(self, kernel: Kernel, times: int) -> None:
        for phase in kernel.phases:
            axes = (*kernel.outer, *phase.parallel, *phase.reduction_axes)
            known = bounds(product(a.size for a in axes), self.ranges)
            if known is None:
                raise Unfit("a size without a bound")
            self.points += known[1] * times
            if any(o.dtype.kind == "complex" for o in phase.body if isinstance(o, Compute)):
                raise Unfit("complex numbers")

    def _command(self, op: DispatchOp | CopyOp | FillOp) -> _Command:
        if isinstance(op, CopyOp):
            return self._copy(op)
        if isinstance(op, FillOp):
            return self._fill(op)
        kernel = self.executables.kernel(op)
        if kernel is None or kernel.loops:
            raise Unfit("no kernel")
        self.sites.append(op)
        self.dims = dict(zip(kernel.dims, op.constants, strict=True)) | self.dims
        views: list[_View] = []
        for operand, resource, offset in zip(
            kernel.operands, op.resources, op.offsets.exprs, strict=True
        ):
            layout, dtype = operand.layout, operand.dtype
            if layout.transform or layout.codes is not None or dtype.kind == "complex":
                raise Unfit("an operand that only its own family reads")
            if layout.has_halo and operand.access != "ro":
                raise Unfit("a halo is written")
            size = operand_bytes(operand)
            known = size.is_constant and size.value <= _WEIGHT_BYTES
            if operand.constant and not known:
                raise Unfit("a large weight")
            views.append(_View(resource, _elements(offset, dtype), operand))
        return _Command(kernel, tuple(views))

    def _copy(self, op: CopyOp) -> _Command:
        dtypes = [self._dtypes[r] for r in (op.source, op.target) if r in self._dtypes]
        dtype = dtypes[0] if dtypes else BY_NAME["ui8"]
        shape = (_elements(op.length.exprs[0], dtype),)
        source = Operand("source", dtype, shape, "ro", ordered_layout(shape))
        target = Operand("target", dtype, shape, "wo", ordered_layout(shape))
        kernel = _elementwise((source, target), (Load("%v0", 0, (dim("%d0"),)),))
        places = (
            (op.source, op.source_offset.exprs[0], source),
            (op.target, op.target_offset.exprs[0], target),
        )
        views = tuple(_View(r, _elements(o, dtype), x) for r, o, x in places)
        return _Command(kernel, views)

    def _fill(self, op: FillOp) -> _Command:
        dtype = self._dtypes.get(op.target, BY_NAME["ui8"])
        if op.pattern.value.data:
            raise Unfit("a pattern of bytes")
        zeros = {"bool": False, "float": 0.0}
        shape = (_elements(op.length.exprs[0], dtype),)
        target = Operand("target", dtype, shape, "wo", ordered_layout(shape))
        kernel = _elementwise((target,), (Constant("%v0", dtype, zeros.get(dtype.kind, 0)),))
        return _Command(
            kernel, (_View(op.target, _elements(op.offset.exprs[0], dtype), target),)
        )

    # -- operands ----------------------------------------------------------------------

    def _touch(self, command: _Command | _Inner) -> None:
        if isinstance(command, _Inner):
            self._touch_flag(command.condition)
            for inner in command.steps:
                self._touch(inner)
            return
        for view in command.views:
            found = self._resources.setdefault(view.resource, _Resource())
            found.views.append(view)
            found.accesses.append(view.operand.access)

    def _touch_flag(self, condition: SSAValue) -> None:
        self._resources.setdefault(condition, _Resource()).accesses.append("ro")

    def _is_flat(self, found: _Resource) -> bool:
        return len({v.seen for v in found.views}) > 1

    def _operand(self, resource: SSAValue, found: _Resource) -> Operand:
        access: Access = "ro"
        if any(a != "ro" for a in found.accesses):
            fresh = found.accesses[0] == "wo" and self._begins(resource, found)
            access = "wo" if fresh else "rw"
        letter = {"ro": "in", "wo": "out", "rw": "state"}[access]
        name = f"{letter}{len(self.operands)}"
        first, constant = found.views[0], all(v.operand.constant for v in found.views)
        if not self._is_flat(found):
            seen = first.operand
            return Operand(name, seen.dtype, seen.shape, access, seen.layout, constant)
        if len({v.operand.dtype for v in found.views}) > 1:
            raise Unfit("a buffer of several element types")
        size = _greatest([v.end for v in found.views])
        return Operand(
            name, first.operand.dtype, (size,), access, ordered_layout((size,)), constant
        )

    def _begins(self, resource: SSAValue, found: _Resource) -> bool:
        """Whether nothing of what stood there before a trip is left after its first write.

        Raises:
            Unfit: some of it may be.
        """
        inside = all(self._is_inside(use.operation) for use in resource.uses)
        if inside or not self._is_flat(found):
            return True
        first = found.views[0]
        dense = first.operand.layout == ordered_layout(first.operand.shape)
        if (
            first.offset == ZERO
            and dense
            and first.end == _greatest([v.end for v in found.views])
        ):
            return True
        raise Unfit("a buffer that is written in parts")

    def _is_inside(self, op: Operation) -> bool:
        body, at = self.loop.body.block, op
        while at is not None:
            if at.parent is body:
                return True
            at = at.parent_op()
        return False

    def _check_aliases(self) -> None:
        """State that an output shares with an input is two names of the same bytes."""
        touched = [r for r in self._resources if isinstance(r, BlockArgument)]
        if any(aliased_input(r) in touched for r in touched):
            raise Unfit("state under two names")

    # -- steps -------------------------------------------------------------------------

    def _step(self, command: _Command | _Inner) -> Step:
        if isinstance(command, _Inner):
            steps = tuple(self._step(c) for c in command.steps)
            return Round(steps, self._numbers[command.condition], None, command.trips)
        flat = [self._is_flat(self._resources[v.resource]) for v in command.views]
        if any(flat[n] for n in _bounded_operands(command.kernel)):
            raise Unfit("elements outside of a tensor that is seen in several ways")
        return Piece(
            command.kernel,
            tuple(self._numbers[v.resource] for v in command.views),
            tuple(
                view.offset if is_flat else None
                for view, is_flat in zip(command.views, flat, strict=True)
            ),
        )


def _flat(commands: Sequence[_Command | _Inner]) -> Iterator[_Command]:
    for command in commands:
        if isinstance(command, _Inner):
            yield from _flat(command.steps)
        else:
            yield command


def _conditions(commands: Sequence[_Command | _Inner]) -> Iterator[SSAValue]:
    for command in commands:
        if isinstance(command, _Inner):
            yield command.condition
            yield from _conditions(command.steps)


def _elementwise(operands: tuple[Operand, ...], body: tuple[ScalarOperation, ...]) -> Kernel:
    """Sets the last operand to `%v0`, element by element of one dimension."""
    (size,) = operands[-1].shape
    store = Store("%v0", len(operands) - 1, (dim("%d0"),))
    phase = Phase((), (), body, None, (store,))
    return Kernel((Axis("%d0", size),), operands, (), (phase,), tuple(sorted(size.names)))


def _elements(size_bytes: Expr, dtype: DType) -> Expr:
    """Bytes as a number of elements.

    Raises:
        Unfit: they are no whole number.
    """
    count = size_bytes // dtype.size_bytes
    if count * dtype.size_bytes != size_bytes:
        raise Unfit("bytes that are no elements")
    return count


def _greatest(sizes: Sequence[Expr]) -> Expr:
    """Raises Unfit where it is not known which that is."""
    if all(s.is_constant for s in sizes):
        return as_expr(max(s.value for s in sizes))
    if any(s != sizes[0] for s in sizes):
        raise Unfit("sizes that cannot be told apart")
    return sizes[0]


def _bounded_operands(kernel: Kernel) -> set[int]:
    """Operands of which elements outside are read or written."""
    found: set[int] = set()
    for phase in kernel.phases:
        found |= {o.operand for o in phase.body if isinstance(o, Load) and o.bounded}
        found |= {s.operand for s in phase.stores if s.bounded and isinstance(s.operand, int)}
    return found
