"""Where in a kernel's domain a value is computed.

A *frame* is the domain of one dispatch: outer axes, one a dimension of the root
reduction's result (two where a transposed convolution is cut), and inner axes, one a
dimension that the root folds. Where the root is a product whose rows are folded later
(attention), its last dimension is the inner axis, and a product at the end adds an axis of
its own, which is *free*. The *chain* is
what depends on the root. For every value of the chain the frame knows its coordinates:
element `coordinates[v]` of `v` is computed at the point (outer, inner). An operation
whose coordinates do not follow from its operands' cannot be in the dispatch:
`CannotFuse` says why. That is the whole legality of fusing consumers.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from xdsl.ir import Operation, SSAValue

from headrace.base.symbols import ONE, ZERO, Expr, dim
from headrace.flow.lowering.indexing import Index, reshape_index
from headrace.flow.lowering.operations import integers, is_elementwise, is_reduction
from headrace.flow.lowering.subpixels import outer_axes
from headrace.ir.types import shape_of
from headrace.tensor import dialect as t


class CannotFuse(Exception):
    """The operation cannot be part of the dispatch; the text says why."""


@dataclass
class Frame:
    """The domain of one dispatch and where each value of the chain stands in it.

    Attributes:
        outer: (name, size) of the outer axes: `%d0`, `%d1`, ...
        inner: (name, size) of the inner axes: placeholders `%x0`, ...; a reduce phase
            folds them, a map phase runs them in parallel.
        free: (name, size) of the axis that the product at the end of rows adds.
        coordinates: of each value of the chain.
        full_shape, full_index: shape of what a root `reduce` folds, and its coordinates.
    """

    outer: tuple[tuple[str, Expr], ...]
    inner: tuple[tuple[str, Expr], ...] = ()
    full_shape: tuple[Expr, ...] = ()
    full_index: Index = ()
    coordinates: dict[SSAValue, Index] = field(default_factory=dict[SSAValue, Index])
    free: tuple[tuple[str, Expr], ...] = ()

    @property
    def sizes(self) -> dict[str, Expr]:
        """The size of every axis by name."""
        return dict((*self.outer, *self.inner, *self.free))

    @property
    def outer_index(self) -> Index:
        return tuple(dim(name) for name, _ in self.outer)

    @staticmethod
    def of_values(values: tuple[SSAValue, ...]) -> Frame:
        """The frame of a dispatch without reductions: the elements of its results."""
        outer = tuple((f"%d{n}", s) for n, s in enumerate(shape_of(values[0])))
        frame = Frame(outer)
        for value in values:
            frame.coordinates[value] = frame.outer_index
        return frame

    @staticmethod
    def of_root(root: Operation) -> Frame:
        """The frame of a dispatch whose first reduction is `root`."""
        shape = shape_of(root.results[0])
        outer = tuple((f"%d{n}", s) for n, s in enumerate(shape))
        frame = Frame(outer)
        if isinstance(root, t.ReduceOp):
            full = shape_of(root.inputs[0])
            folded = set(integers(root.dimensions))
            kept = iter(frame.outer_index)
            inner: list[tuple[str, Expr]] = []
            index: list[Expr] = []
            for n, size in enumerate(full):
                if n in folded:
                    inner.append((f"%x{len(inner)}", size))
                    index.append(dim(inner[-1][0]))
                else:
                    index.append(next(kept))
            frame = Frame(outer, tuple(inner), full, tuple(index))
        at = frame.outer_index
        if isinstance(root, t.ConvolutionOp):
            axes, at = outer_axes(root)
            frame = Frame(axes)
        for result in root.results:
            frame.coordinates[result] = at
        return frame

    @staticmethod
    def of_rows(root: t.DotGeneralOp) -> Frame:
        """The frame of a dispatch that folds the rows of a product: its last dimension."""
        shape = shape_of(root.result)
        outer = tuple((f"%d{n}", s) for n, s in enumerate(shape[:-1]))
        full = (*(dim(name) for name, _ in outer), dim("%x0"))
        frame = Frame(outer, (("%x0", shape[-1]),), shape, full)
        frame.coordinates[root.result] = full
        return frame

    def copy(self) -> Frame:
        """A frame that can be extended without changing this one."""
        return Frame(
            self.outer,
            self.inner,
            self.full_shape,
            self.full_index,
            dict(self.coordinates),
            self.free,
        )

    def extend(self, operation: Operation) -> None:
        """Adds an operation that uses values of the chain.

        Raises:
            CannotFuse: its elements have no place in this domain.
        """
        chain = [o for o in operation.operands if o in self.coordinates]
        if is_elementwise(operation) or isinstance(operation, t.CopyOp):
            index = self._common([self.coordinates[o] for o in chain])
        elif isinstance(operation, t.BroadcastInDimOp):
            index = self._broadcast(operation)
        elif isinstance(operation, t.ReshapeOp):
            index = reshape_index(
                self.coordinates[operation.operand],
                shape_of(operation.operand),
                shape_of(operation.result),
                self.sizes,
            )
        elif isinstance(operation, t.TransposeOp):
            at = self.coordinates[operation.operand]
            index = tuple(at[p] for p in integers(operation.permutation))
        elif isinstance(operation, t.ReduceOp):
            index = self._reduce(operation)
        elif isinstance(operation, t.DotGeneralOp):
            index = self._product(operation)
        else:
            raise CannotFuse(f"{operation.name} of a value of the same dispatch")
        for result in operation.results:
            self.coordinates[result] = index

    def _common(self, found: list[Index]) -> Index:
        if not found:
            raise CannotFuse("it uses no value of the dispatch")
        if any(index != found[0] for index in found[1:]):
            raise CannotFuse("it combines different elements of the dispatch")
        return found[0]

    def _broadcast(self, operation: t.BroadcastInDimOp) -> Index:
        at = self.coordinates[operation.operand]
        operand, result = shape_of(operation.operand), shape_of(operation.result)
        index: list[Expr | None] = [ZERO if size == ONE else None for size in result]
        for n, place in enumerate(integers(operation.broadcast_dimensions)):
            if operand[n] == result[place]:
                index[place] = at[n]
        if None not in index:
            return tuple(i for i in index if i is not None)
        if not self.inner or result != self.full_shape:
            raise CannotFuse("it repeats elements of the dispatch")
        full = self.full_index
        whole = tuple(full[n] if i is None else i for n, i in enumerate(index))
        inner = {name for name, _ in self.inner}
        repeated = [full[n] for n, i in enumerate(index) if i is None]
        if any(not (i.names <= inner) for i in repeated) or not self._same(whole, full):
            raise CannotFuse("it repeats elements along another dimension than was folded")
        return full

    def _same(self, left: Index, right: Index) -> bool:
        """Equal, where an axis of size 1 equals 0."""
        sizes = self.sizes

        def plain(index: Index) -> Index:
            return tuple(
                i.substitute({n: ZERO for n in i.names if sizes.get(n) == ONE}) for i in index
            )

        return plain(left) == plain(right)

    def place(self, value: SSAValue, shape: tuple[Expr, ...]) -> Index:
        """Coordinates at which a reduction reads an operand that may be off the chain."""
        if value in self.coordinates:
            return self.coordinates[value]
        if shape != self.full_shape:
            raise CannotFuse("it folds a tensor of another shape")
        return self.full_index

    def _reduce(self, operation: t.ReduceOp) -> Index:
        folded = set(integers(operation.dimensions))
        for value in operation.inputs:
            at = self.place(value, shape_of(value))
            kept = tuple(i for n, i in enumerate(at) if n not in folded)
            inner = [i for n, i in enumerate(at) if n in folded]
            axes = [dim(name) for name, _ in self.inner]
            if sorted(map(str, inner)) != sorted(map(str, axes)):
                raise CannotFuse("it folds other dimensions than the first reduction")
            if not self._same(kept, self.outer_index):
                raise CannotFuse("it folds into another domain than the first reduction")
        return self.outer_index

    def _product(self, operation: t.DotGeneralOp) -> Index:
        """The product of folded rows (on the left) with a matrix of one free dimension."""
        if self.free or len(self.inner) != 1 or operation.lhs not in self.coordinates:
            raise CannotFuse("it is no product of the rows of the dispatch")
        if operation.rhs in self.coordinates:
            raise CannotFuse("both factors come from the dispatch")
        at = self.coordinates[operation.lhs]
        batch = integers(operation.lhs_batching_dimensions)
        contract = integers(operation.lhs_contracting_dimensions)
        (inner, _), *_ = self.inner
        kept = [n for n in range(len(at)) if n not in contract and n not in batch]
        if len(contract) != 1 or at[contract[0]] != dim(inner):
            raise CannotFuse("it sums over another dimension than was folded")
        outer = tuple(at[n] for n in (*batch, *kept))
        if any(inner in i.names for i in outer):
            raise CannotFuse("its rows are not those that were folded")
        shape = shape_of(operation.result)
        if len(shape) != len(outer) + 1:
            raise CannotFuse("its right factor has more than one free dimension")
        self.free = (("%x1", shape[-1]),)
        return (*outer, dim("%x1"))


def can_pull(operation: Operation) -> bool:
    """Whether single elements of its result can be computed where they are used."""
    return not is_reduction(operation)
