"""One dispatch's tensor operations as one kernel."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence

from xdsl.ir import Operation, SSAValue

from headrace.base.symbols import ONE, ZERO, Expr, dim
from headrace.flow.lowering.body import Body
from headrace.flow.lowering.folds import fold, folding_dtype, inner_names
from headrace.flow.lowering.frame import CannotFuse, Frame
from headrace.flow.lowering.operations import (
    PLACEMENTS,
    integers,
    is_elementwise,
    is_reduction,
)
from headrace.flow.lowering.placement import scatter, sort, update_slice
from headrace.flow.lowering.pull import Kept, Pull
from headrace.ir.types import dtype_of, shape_of
from headrace.kernel.bodies import live_operations, mentioned
from headrace.kernel.description import (
    Axis,
    Kernel,
    Local,
    Operand,
    Phase,
    Reduction,
    Store,
    ordered_layout,
)
from headrace.tensor import dialect as t


def frame_of(operations: Sequence[Operation], results: Sequence[SSAValue]) -> Frame:
    """The frame of a dispatch, every value of the chain placed.

    Raises:
        CannotFuse: the operations do not fit one domain.
    """
    roots = [op for op in operations if is_reduction(op)]
    if not roots:
        if len({shape_of(r) for r in results}) != 1:
            raise CannotFuse("results of different shapes")
        return Frame.of_values(tuple(results))
    first = roots[0]
    if isinstance(first, t.DotGeneralOp) and len(roots) > 1:
        frame = Frame.of_rows(first)
    else:
        frame = Frame.of_root(first)
    for operation in operations:
        if operation is roots[0]:
            continue
        on_chain = any(o in frame.coordinates for o in operation.operands)
        if on_chain or is_reduction(operation):
            frame.extend(operation)
    missing = [r for r in results if r not in frame.coordinates]
    if missing:
        raise CannotFuse("a result does not depend on the reduction")
    return frame


def build_kernel(
    operations: Sequence[Operation],
    inputs: Sequence[SSAValue],
    results: Sequence[SSAValue],
    constant: Sequence[bool],
) -> Kernel:
    """The kernel that computes `results` of `operations` from `inputs`.

    Args:
        operations: tensor operations in order.
        inputs: values from outside, the kernel's read operands in order.
        results: what it writes, operands behind them.
        constant: for each input whether it is a weight.

    Raises:
        CannotFuse: the operations do not fit one kernel.
    """
    return _Builder(operations, inputs, results, constant).build()


class _Builder:
    def __init__(
        self,
        operations: Sequence[Operation],
        inputs: Sequence[SSAValue],
        results: Sequence[SSAValue],
        constant: Sequence[bool],
    ) -> None:
        self.operations = operations
        self.results = results
        self.operand_of = {value: n for n, value in enumerate(inputs)}
        self.operands = [
            _operand(f"in{n}", value, "ro", constant[n]) for n, value in enumerate(inputs)
        ] + [_operand(f"out{n}", value, "wo", False) for n, value in enumerate(results)]
        self.locals: list[Local] = []
        self.kept: dict[SSAValue, Kept] = {}
        self.phases: list[Phase] = []
        self.numbers = itertools.count()
        self.frame = Frame(())

    def build(self) -> Kernel:
        if any(r in self.operand_of for r in self.results):
            raise CannotFuse("a result is an operand")
        parts = self._concatenation()
        placement = next((o for o in self.operations if isinstance(o, PLACEMENTS)), None)
        if placement is not None:
            self._place(placement)
        elif parts is not None:
            self._concatenate(parts)
        else:
            self.frame = frame_of(self.operations, self.results)
            for operation in self.operations:
                if is_reduction(operation):
                    self._reduce(operation)
                elif self._is_kept(operation):
                    self._keep(operation.results[0])
            self._store_results()
        outer = tuple(Axis(name, size) for name, size in self.frame.outer)
        kernel = Kernel(outer, tuple(self.operands), tuple(self.locals), tuple(self.phases))
        return Kernel(
            kernel.outer, kernel.operands, kernel.locals, kernel.phases, named_dims(kernel)
        )

    def _pull(self, inner: Mapping[str, Expr]) -> Pull:
        sizes = dict(self.frame.outer)
        for name, size in self._inner_axes():
            place = inner.get(name)
            if place is not None:
                sizes.update(dict.fromkeys(place.names, size))
        body = Body(self.numbers)
        return Pull(body, self.frame, self.operand_of, self.kept, inner, sizes)

    # -- phases -------------------------------------------------------------------------

    def _reduce(self, operation: Operation) -> None:
        rows = [value for value, (_, _, axes) in self.kept.items() if axes]
        first_fold = len(rows) == 1 and isinstance(operation, t.ReduceOp)
        if first_fold or (rows and isinstance(operation, t.DotGeneralOp)):
            self._keep_row(operation.operands[0])
        inner = inner_names(operation, self.frame)
        pull = self._pull(inner)
        done = fold(operation, pull)
        folded = {a.name for a in done.axes}
        kept = tuple(n for n, i in inner.items() if not i.names & folded)
        sizes = self.frame.sizes
        parallel = tuple(Axis(str(inner[n]), sizes[n]) for n in kept)
        names: list[str] = []
        for result, dtype in zip(operation.results, done.dtypes, strict=True):
            local = Local(f"fold{len(self.locals)}", dtype, tuple(a.size for a in parallel))
            self.locals.append(local)
            names.append(local.name)
            self.kept[result] = (local.name, dtype, kept)
        reduction = Reduction(done.values, done.initial, done.combiner, tuple(names))
        body = live_operations(pull.body.operations, done.values)
        self.phases.append(Phase(parallel, done.axes, body, reduction))
        for result, start in zip(operation.results, done.later, strict=False):
            self._start_later(result, start, done.combiner.kind)
        for result in operation.results:
            if self.kept[result][1] != dtype_of(result):
                self._narrow(result)

    def _start_later(self, result: SSAValue, start: SSAValue, kind: str | None) -> None:
        """Combines a fold with a start that is only known at run time."""
        assert kind is not None
        name, dtype, _ = self.kept[result]
        pull = self._pull({})
        first = pull.value(start, ())
        folded = pull.body.load_local(name, dtype)
        self._set(result, pull, pull.body.compute(kind, (first, folded), dtype))

    def _narrow(self, result: SSAValue) -> None:
        """Rounds a sum that was folded in a wider type."""
        assert self.kept[result][1] == folding_dtype(dtype_of(result))
        name, wide, axes = self.kept[result]
        if axes:
            self._narrow_row(result, axes[0])
            return
        pull = self._pull({})
        value = pull.body.convert(pull.body.load_local(name, wide), dtype_of(result))
        self._set(result, pull, value)

    def _narrow_row(self, result: SSAValue, inner: str) -> None:
        """The same of a row of sums."""
        name, wide, _ = self.kept[result]
        size = dict(self._inner_axes())[inner]
        axis = Axis(f"%d{len(self.frame.outer)}", size)
        place = (dim(axis.name),)
        body = Body(self.numbers)
        value = body.convert(body.load_local(name, wide, place), dtype_of(result))
        local = Local(f"kept{len(self.locals)}", dtype_of(result), (size,))
        self.locals.append(local)
        store = Store(value, local.name, place)
        self.phases.append(Phase((axis,), (), tuple(body.operations), None, (store,)))
        self.kept[result] = (local.name, local.dtype, (inner,))

    def _is_kept(self, operation: Operation) -> bool:
        """A value computed once an outer point and then used at many inner points."""
        if not self.frame.inner or not is_elementwise(operation):
            return False
        result = operation.results[0]
        at = self.frame.coordinates.get(result)
        inner = {name for name, _ in self.frame.inner}
        if at is None or any(i.names & inner for i in at):
            return False
        return any(self._spreads(use.operation) for use in result.uses)

    def _spreads(self, operation: Operation) -> bool:
        """Whether a value of outer coordinates reaches inner ones through movement."""
        if operation not in self.operations or len(operation.results) != 1:
            return False
        at = self.frame.coordinates.get(operation.results[0])
        if at is None or is_elementwise(operation) or is_reduction(operation):
            return False
        inner = {name for name, _ in self.frame.inner}
        if any(i.names & inner for i in at):
            return True
        return any(self._spreads(use.operation) for use in operation.results[0].uses)

    def _keep(self, value: SSAValue) -> None:
        pull = self._pull({})
        self._set(value, pull, pull.chain(value))

    def _set(self, value: SSAValue, pull: Pull, name: str) -> None:
        local = Local(f"kept{len(self.locals)}", dtype_of(value))
        self.locals.append(local)
        body = live_operations(pull.body.operations, (name,))
        self.phases.append(Phase((), (), body, None, (Store(name, local.name),)))
        self.kept[value] = (local.name, local.dtype, ())

    def _keep_row(self, value: SSAValue) -> None:
        """A whole row that later phases use again: the scores with scale and mask, which
        every fold reads, and the weights, which each column of a product reads."""
        if value in self.kept:
            return
        ((inner, size),) = self.frame.inner
        axis = Axis(f"%d{len(self.frame.outer)}", size)
        pull = self._pull({inner: dim(axis.name)})
        name = pull.chain(value)
        local = Local(f"kept{len(self.locals)}", dtype_of(value), (size,))
        self.locals.append(local)
        store = Store(name, local.name, (dim(axis.name),))
        self.phases.append(
            Phase((axis,), (), live_operations(pull.body.operations, (name,)), None, (store,))
        )
        self.kept[value] = (local.name, local.dtype, (inner,))

    def _store_results(self) -> None:
        groups: dict[tuple[str, ...], list[int]] = {}
        for n, result in enumerate(self.results):
            at = self.frame.coordinates[result]
            used = {name for i in at for name in i.names}
            axes = tuple(name for name, _ in self._inner_axes() if name in used)
            groups.setdefault(axes, []).append(n)
        for axes, numbers in groups.items():
            first = len(self.frame.outer)
            sizes = dict(self._inner_axes())
            # An axis of size 1 that a reshape took away still stands in what is pulled.
            inner = {name: ZERO for name, size in sizes.items() if size == ONE}
            inner |= {name: dim(f"%d{first + n}") for n, name in enumerate(axes)}
            parallel = tuple(Axis(f"%d{first + n}", sizes[a]) for n, a in enumerate(axes))
            pull = self._pull(inner)
            stores: list[Store] = []
            for n in numbers:
                result = self.results[n]
                value = pull.chain(result)
                operand = len(self.operand_of) + n
                stores.append(Store(value, operand, pull.coordinates(result)))
            body = live_operations(pull.body.operations, tuple(s.value for s in stores))
            self.phases.append(Phase(parallel, (), body, None, tuple(stores)))

    def _inner_axes(self) -> tuple[tuple[str, Expr], ...]:
        return (*self.frame.inner, *self.frame.free)

    # -- placements ---------------------------------------------------------------

    def _place(self, operation: Operation) -> None:
        first = len(self.operand_of)

        def pull_at(frame: Frame, axes: Sequence[Axis]) -> Pull:
            sizes = {**frame.sizes, **{a.name: a.size for a in axes}}
            return Pull(Body(self.numbers), frame, self.operand_of, self.kept, {}, sizes)

        if isinstance(operation, t.DynamicUpdateSliceOp):
            made = update_slice(operation, pull_at, first)
        elif isinstance(operation, t.SortOp):
            places = {result: first + n for n, result in enumerate(self.results)}
            made = sort(operation, pull_at, places)
        else:
            assert isinstance(operation, t.ScatterOp)
            if tuple(self.results) != tuple(operation.results):
                raise CannotFuse("a scatter yields all of its results and nothing else")
            made = scatter(operation, pull_at, first)
        self.frame = made.frame
        self.locals += made.locals
        self.phases += made.phases

    # -- concatenation ------------------------------------------------------------------

    def _concatenation(self) -> t.ConcatenateOp | None:
        """The concatenation that the whole dispatch ends in, if it does."""
        if len(self.results) != 1 or any(is_reduction(o) for o in self.operations):
            return None
        owner = self.results[0].owner
        return owner if isinstance(owner, t.ConcatenateOp) else None

    def _concatenate(self, operation: t.ConcatenateOp) -> None:
        """A phase an operand: each writes its own part, nothing is selected."""
        (d,) = integers(operation.dimension)
        shape = shape_of(operation.result)
        others = [n for n in range(len(shape)) if n != d]
        self.frame = Frame(tuple((f"%d{n}", shape[place]) for n, place in enumerate(others)))
        axis = f"%d{len(others)}"
        begin: Expr | None = None
        for value in operation.inputs:
            size = shape_of(value)[d]
            index = list(self.frame.outer_index)
            index.insert(d, dim(axis))
            pull = self._pull({})
            pull.know([Axis(axis, size)])
            element = pull.value(value, tuple(index))
            if begin is not None:
                index[d] = index[d] + begin
            store = Store(element, len(self.operand_of), tuple(index))
            body = live_operations(pull.body.operations, (element,))
            self.phases.append(Phase((Axis(axis, size),), (), body, None, (store,)))
            begin = size if begin is None else begin + size


def _operand(name: str, value: SSAValue, access: str, constant: bool) -> Operand:
    shape = shape_of(value)
    return Operand(
        name,
        dtype_of(value),
        shape,
        "ro" if access == "ro" else "wo",
        ordered_layout(shape),
        constant,
    )


def named_dims(kernel: Kernel) -> tuple[str, ...]:
    """Every named dimension that a kernel mentions, sorted."""
    exprs: list[Expr] = [a.size for a in kernel.outer]
    for operand in kernel.operands:
        exprs += [*operand.shape, operand.layout.size, operand.layout.offset]
    for phase in kernel.phases:
        exprs += [a.size for a in (*phase.parallel, *phase.reduction_axes)]
        for store in phase.stores:
            exprs += store.index
        for operation in phase.body:
            exprs += mentioned(operation)
    names = {name for expr in exprs for name in expr.names}
    return tuple(sorted(n for n in names if not n.startswith("%")))
