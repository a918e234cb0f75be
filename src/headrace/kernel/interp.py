"""The meaning of a kernel in numpy: the oracle for every target.

Values are arrays over the domain of their phase that keep size 1 along the axes they do
not depend on; big domains run in boxes of the outer domain so that memory stays small. A
sum of products folds through `einsum`, so that whole models can be checked.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from headrace.base.errors import error
from headrace.base.symbols import Expr
from headrace.kernel.buffers import (
    element_offsets,
    evaluate_index,
    index_grid,
    numpy_scalar,
    unpacked,
    untransformed,
    write_halo,
)
from headrace.kernel.description import (
    Axis,
    Combiner,
    Compute,
    Constant,
    IndexValue,
    Kernel,
    Load,
    LoadLocal,
    Phase,
    Reduction,
    Store,
)
from headrace.kernel.loops import Loop, walk
from headrace.kernel.scalars import apply
from headrace.kernel.shortened import shortened

_BOX_ELEMENTS = 1 << 22
"""The most elements of one value in a box of the outer domain."""

Box = tuple[tuple[int, int], ...]


def evaluate(kernel: Kernel, buffers: Sequence[Any], dims: Mapping[str, int]) -> None:
    """Runs a kernel in place.

    Args:
        kernel: what to compute.
        buffers: one flat numpy array an operand, in the operand's layout, of its element
            type, of bytes where it is packed. Those of written operands are changed; their
            halos are written too.
        dims: the value of every named dimension in `kernel.dims`.

    Raises:
        HeadraceDefect HR9301: a load or store falls outside its buffer.
    """
    kernel, buffers = untransformed(*unpacked(kernel, buffers), dims)
    for n in kernel.outputs:
        write_halo(buffers[n], kernel.operands[n], dims)
    sizes = [a.size.evaluate(dims) for a in kernel.outer]
    for box in _boxes(kernel, sizes, dims):
        run = _Run(kernel, buffers, dims, box)
        walk(kernel, lambda n, run=run: run.phase(kernel.phases[n]), run.loop)


# -- boxes --------------------------------------------------------------------------


def _dependencies(phase: Phase, outer: Sequence[Axis]) -> list[frozenset[str]]:
    """The axes each materialised value of a phase depends on."""
    known = {a.name for a in (*outer, *phase.parallel, *phase.reduction_axes)}
    everywhere = frozenset(a.name for a in outer)
    found: dict[str, frozenset[str]] = {}

    def of_index(index: Sequence[Expr]) -> frozenset[str]:
        names: frozenset[str] = frozenset()
        for expr in index:
            for name in expr.names:
                names |= found.get(name, frozenset({name} & known))
        return names

    for operation in phase.body:
        match operation:
            case Load(result, _, index):
                found[result] = of_index(index)
            case LoadLocal(result, _, index):
                found[result] = everywhere | of_index(index)
            case Constant(result):
                found[result] = frozenset()
            case IndexValue(result, _, value):
                found[result] = of_index((value,))
            case Compute(result, _, operands):
                found[result] = frozenset().union(*(found[o] for o in operands))
    product = _summed_product(phase)
    return [
        names for result, names in found.items() if product is None or result != product.result
    ]


def _boxes(kernel: Kernel, sizes: list[int], dims: Mapping[str, int]) -> Iterator[Box]:
    """Cuts the outer domain so that no value in any phase is too large."""
    steps = dict(zip((a.name for a in kernel.outer), (max(s, 1) for s in sizes), strict=True))
    for phase in kernel.phases:
        inner = {
            a.name: a.size.evaluate(dims) for a in (*phase.parallel, *phase.reduction_axes)
        }
        for names in _dependencies(phase, kernel.outer):
            fixed = 1
            for name in names & inner.keys():
                fixed *= inner[name]
            wide = [a.name for a in kernel.outer if a.name in names]
            for name in wide:
                points = fixed
                for other in wide:
                    points *= steps[other]
                if points <= _BOX_ELEMENTS:
                    break
                steps[name] = max(1, steps[name] * _BOX_ELEMENTS // points)
    cuts = [
        [(low, min(low + steps[a.name], size)) for low in range(0, size, steps[a.name])]
        for a, size in zip(kernel.outer, sizes, strict=True)
    ]
    return itertools.product(*cuts)


def _summed_product(phase: Phase) -> Compute | None:
    """The product that the phase sums and does nothing else with, if it is that."""
    reduction = phase.reduction
    if reduction is None or reduction.combiner.kind != "add" or not phase.body:
        return None
    last = phase.body[-1]
    if not isinstance(last, Compute) or last.operation != "multiply":
        return None
    narrow = last.dtype.bits < 32 or last.dtype.kind == "bool"
    return None if narrow or reduction.values != (last.result,) else last


# -- running ------------------------------------------------------------------------


class _Run:
    """Runs the phases of a kernel over one box of the outer domain."""

    def __init__(
        self, kernel: Kernel, buffers: Sequence[Any], dims: Mapping[str, int], box: Box
    ) -> None:
        self.kernel = kernel
        self.buffers = buffers
        self.dims = dims
        self.box = box
        self.box_shape = tuple(high - low for low, high in box)
        self.locals: dict[str, Any] = {
            local.name: np.zeros(
                self.box_shape + tuple(s.evaluate(dims) for s in local.shape),
                local.dtype.numpy_dtype,
            )
            for local in kernel.locals
        }

    def loop(self, loop: Loop, trip: Callable[[], None]) -> None:
        condition = self.buffers[loop.condition]
        place = self.kernel.operands[loop.condition].layout.offset.evaluate(self.dims)
        done = 0
        while done != loop.most and condition[place]:
            trip()
            done += 1

    def phase(self, phase: Phase) -> None:
        if not phase.serial:
            self._phase(phase, {})
            return
        extents = [a.size.evaluate(self.dims) for a in phase.parallel]
        one_point = replace(phase, parallel=())
        for point in np.ndindex(*extents):
            names = (a.name for a in phase.parallel)
            self._phase(one_point, dict(zip(names, point, strict=True)))

    def _phase(self, phase: Phase, fixed: Mapping[str, int]) -> None:
        inner = (*phase.parallel, *phase.reduction_axes)
        extents = [a.size.evaluate(self.dims) for a in inner]
        names: dict[str, Any] = {**self.dims, **fixed}
        axes = (*self.kernel.outer, *inner)
        grid = index_grid([*self.box, *((0, e) for e in extents)])
        names.update(zip((a.name for a in axes), grid, strict=True))
        self.shape = self.box_shape + tuple(extents)
        product = _summed_product(phase)
        values: dict[str, Any] = {}
        for operation in phase.body:
            if operation is product:
                break
            value = self._value(operation, values, names)
            values[operation.result] = value
            if np.asarray(value).dtype.kind in "iu":
                names[operation.result] = np.asarray(value).astype(np.int64)
        for store in phase.stores:
            self._store(store, values, names)
        if phase.reduction is not None:
            folded = len(phase.reduction_axes)
            if product is not None and 0 not in self.shape:
                left, right = (values[o] for o in product.operands)
                if self.kernel.precision == "tf32":
                    left, right = shortened(left), shortened(right)
                results = self._sum_of_products(phase.reduction, left, right, folded)
            else:
                if product is not None:
                    values[product.result] = self._value(product, values, names)
                results = self._fold(phase.reduction, values, folded)
            for name, result in zip(phase.reduction.results, results, strict=True):
                self.locals[name][...] = result

    def _value(
        self,
        operation: Load | LoadLocal | Constant | IndexValue | Compute,
        values: Mapping[str, Any],
        names: Mapping[str, Any],
    ) -> Any:
        rank = len(self.shape)
        match operation:
            case Load():
                return self._load(operation, names)
            case LoadLocal(_, local, index):
                return self.locals[local][self._local_index(index, names)]
            case Constant(_, dtype, value):
                return numpy_scalar(value, dtype).reshape((1,) * rank)
            case IndexValue(_, dtype, value):
                index = np.asarray(evaluate_index(value, names), np.int64)
                return index.astype(dtype.numpy_dtype).reshape(index.shape or (1,) * rank)
            case Compute(_, name, operands, dtype, attribute):
                return apply(name, [values[o] for o in operands], dtype, attribute)

    def _load(self, load: Load, names: Mapping[str, Any]) -> Any:
        operand = self.kernel.operands[load.operand]
        index = [np.asarray(evaluate_index(i, names)) for i in load.index]
        outside: Any = None
        for d in load.bounded:
            size = operand.shape[d].evaluate(self.dims)
            beyond = (index[d] < 0) | (index[d] >= size)
            outside = beyond if outside is None else outside | beyond
            index[d] = np.clip(index[d], 0, max(size - 1, 0))
        offsets = self._checked(element_offsets(operand.layout, index, self.dims), load.operand)
        buffer = self.buffers[load.operand]
        if outside is not None and len(buffer) == 0:
            value = np.zeros(np.shape(offsets), buffer.dtype)
        else:
            value = buffer[offsets]
        if outside is not None and load.otherwise is not None:
            value = np.where(outside, numpy_scalar(load.otherwise, operand.dtype), value)
        return value.reshape(value.shape or (1,) * len(self.shape))

    def _checked(self, offsets: Any, operand: int) -> Any:
        size = len(self.buffers[operand])
        if 0 in self.shape or (size == 0 and offsets.size == 0):
            return np.clip(offsets, 0, max(size - 1, 0))
        if size and (offsets.min() < 0 or offsets.max() >= size):
            name = self.kernel.operands[operand].name
            raise error(
                "HR9301",
                f"the kernel reaches element {int(offsets.min())} to {int(offsets.max())} "
                f"of operand '{name}', which has {size}",
            )
        return offsets

    def _local_index(self, index: Sequence[Expr], names: Mapping[str, Any]) -> tuple[Any, ...]:
        rank, outer = len(self.shape), len(self.box_shape)
        if not index:
            return (slice(None),) * outer + (None,) * (rank - outer)
        own = [
            np.arange(extent).reshape([-1 if n == m else 1 for m in range(rank)])
            for n, extent in enumerate(self.box_shape)
        ]
        inner = [np.asarray(evaluate_index(i, names)) for i in index]
        if not own:
            inner[0] = inner[0].reshape(inner[0].shape or (1,) * rank)
        return (*own, *inner)

    def _store(self, store: Store, values: Mapping[str, Any], names: Mapping[str, Any]) -> None:
        value = np.broadcast_to(values[store.value], self.shape)
        if isinstance(store.operand, str):
            if not store.index:
                self.locals[store.operand][...] = value.reshape(self.box_shape)
                return
            self.locals[store.operand][self._local_index(store.index, names)] = value
            return
        operand = self.kernel.operands[store.operand]
        index = [np.asarray(evaluate_index(i, names)) for i in store.index]
        inside: Any = np.ones(self.shape, np.bool_)
        for d in store.bounded:
            size = operand.shape[d].evaluate(self.dims)
            inside = inside & (index[d] >= 0) & (index[d] < size)
            index[d] = np.clip(index[d], 0, max(size - 1, 0))
        offsets = self._checked(
            element_offsets(operand.layout, index, self.dims), store.operand
        )
        places = np.broadcast_to(offsets, self.shape)
        if store.bounded:
            value, places = value[inside], places[inside]
        self.buffers[store.operand][places] = value

    def _sum_of_products(
        self, reduction: Reduction, left: Any, right: Any, folded: int
    ) -> list[Any]:
        rank = len(self.shape)
        kept = rank - folded
        for axis in range(kept, rank):
            if left.shape[axis] == right.shape[axis] == 1:
                wide = list(left.shape)
                wide[axis] = self.shape[axis]
                left = np.broadcast_to(left, wide)
        sides: list[Any] = []
        labels: list[list[int]] = []
        for side in (left, right):
            present = [n for n in range(rank) if side.shape[n] != 1]
            labels.append(present)
            sides.append(side.reshape([side.shape[n] for n in present]))
        out = [n for n in range(kept) if n in labels[0] or n in labels[1]]
        total = np.einsum(sides[0], labels[0], sides[1], labels[1], out, optimize=True)
        shape = [self.shape[n] if n in out else 1 for n in range(kept)]
        dtype = left.dtype
        start = np.asarray(reduction.initial[0]).astype(dtype)
        whole = start + np.asarray(total, dtype).reshape(shape)
        return [np.broadcast_to(whole, self.shape[:kept])]

    def _fold(self, reduction: Reduction, values: Mapping[str, Any], folded: int) -> list[Any]:
        kept = self.shape[: len(self.shape) - folded]
        count = int(np.prod(self.shape[len(kept) :], dtype=np.int64))
        parts = [
            np.broadcast_to(values[v], self.shape).reshape((*kept, count))
            for v in reduction.values
        ]
        start = [
            np.full(kept, np.asarray(i).astype(p.dtype), p.dtype)
            for i, p in zip(reduction.initial, parts, strict=True)
        ]
        if count == 0:
            return start
        while count > 1:
            # Neighbours combine, so that an order-dependent combiner keeps its order.
            left = [p[..., 0 : count - 1 : 2] for p in parts]
            right = [p[..., 1:count:2] for p in parts]
            combined = combine(reduction.combiner, left, right)
            if count % 2:
                combined = [
                    np.concatenate([c, p[..., count - 1 :]], axis=-1)
                    for c, p in zip(combined, parts, strict=True)
                ]
            parts, count = combined, (count + 1) // 2
        return combine(reduction.combiner, start, [p[..., 0] for p in parts])


def combine(combiner: Combiner, left: Sequence[Any], right: Sequence[Any]) -> list[Any]:
    """Combines two partial results, elementwise over arrays."""
    values: dict[str, Any] = dict(zip(combiner.left, left, strict=True))
    values.update(zip(combiner.right, right, strict=True))
    for operation in combiner.body:
        if isinstance(operation, Constant):
            values[operation.result] = numpy_scalar(operation.value, operation.dtype)
        else:
            arguments = [values[o] for o in operation.operands]
            values[operation.result] = apply(
                operation.operation, arguments, operation.dtype, operation.attribute
            )
    return [values[r] for r in combiner.results]
