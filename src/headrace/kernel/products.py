"""Which kernels are products of matrices, whatever their indices look like.

The outer axes that only the left factor uses, flattened, are the rows; those that only the
right one uses the columns; what both use is a batch; the reduction axes, flattened, are the
depth. A convolution is the same with an index that mixes rows and depth.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from headrace.base.dtypes import DType
from headrace.base.symbols import ONE, Expr, as_expr, product
from headrace.kernel.classify import contraction
from headrace.kernel.description import (
    Axis,
    Compute,
    IndexValue,
    Kernel,
    Load,
    LoadLocal,
    Operand,
    ScalarOperation,
)
from headrace.kernel.lanes.machine import compute_type
from headrace.kernel.target import LayoutWish, SliceRule

NARROW_FLOATS = ("f16", "bf16")
LOADED_FLOATS = (*NARROW_FLOATS, "f32")


@dataclass(frozen=True)
class Product:
    """A kernel seen as a product of matrices.

    Attributes:
        left, right: names in the body of the two factors.
        rows, columns, batch, depth: axes; the first three are the outer ones.
        loaded: the float of 16 or 32 bits that both factors are loaded as, unchanged and 0
            outside of their bounds; empty for none.
    """

    left: str
    right: str
    rows: tuple[Axis, ...]
    columns: tuple[Axis, ...]
    batch: tuple[Axis, ...]
    depth: tuple[Axis, ...]
    loaded: str

    @property
    def narrow(self) -> str:
        """`loaded` where it has 16 bits."""
        return self.loaded if self.loaded in NARROW_FLOATS else ""


# -- what can be one ------------------------------------------------------------------


def as_product(kernel: Kernel) -> Product | None:
    """The kernel as a product of matrices, or None where it is none that we tile."""
    if not kernel.phases or not _plain(kernel):
        return None
    first, *rest = kernel.phases
    factors = contraction(first)
    if factors is None or any(p.reduction is not None for p in rest):
        return None
    values = {o.result: o for o in first.body}
    cones = [cone_of(values, f) for f in factors]
    if any(isinstance(o, LoadLocal) for cone in cones for o in cone):
        return None
    names = [_index_names(cone) for cone in cones]
    if _neighbours_in_result(kernel, *names) in names[0]:
        factors, names, cones = factors[::-1], names[::-1], cones[::-1]
    left, right = names
    rows = tuple(a for a in kernel.outer if a.name in left and a.name not in right)
    columns = tuple(a for a in kernel.outer if a.name in right and a.name not in left)
    batch = tuple(a for a in kernel.outer if (a.name in left) == (a.name in right))
    sources = [_source_dtype(values, f, kernel) for f in factors]
    loaded = sources[0] if sources[0] == sources[1] else ""
    return Product(
        factors[0],
        factors[1],
        rows,
        columns,
        batch,
        _by_distance(kernel, first.reduction_axes, cones[0]),
        loaded if loaded in LOADED_FLOATS else "",
    )


def _neighbours_in_result(kernel: Kernel, left: set[str], right: set[str]) -> str:
    """The axis of one factor along which results lie side by side: columns run along it."""
    single = [a.name for a in kernel.outer if (a.name in left) != (a.name in right)]
    for phase in kernel.phases:
        for store in phase.stores:
            if isinstance(store.operand, int):
                operand = kernel.operands[store.operand]
                for name in single:
                    if is_contiguous(operand, store.index, name):
                        return name
    return single[-1] if single else ""


def is_contiguous(operand: Operand, index: tuple[Expr, ...], axis: str) -> bool:
    """Whether a step along an axis is a step of one element."""
    return step(operand, index, axis) == 1


def step(operand: Operand, index: tuple[Expr, ...], axis: str) -> int | None:
    """Elements between neighbours along an axis, where that is one number."""
    offset = operand.layout.element_offset(index)
    along = offset.substitute({axis: 1}) - offset.substitute({axis: 0})
    return along.value if along.is_constant else None


def _by_distance(
    kernel: Kernel, axes: Sequence[Axis], cone: Sequence[ScalarOperation]
) -> tuple[Axis, ...]:
    """Reduction axes, the one along which the left factor's elements lie closest last.

    Axes whose distance is not known stay before the others.
    """
    loads = [o for o in cone if isinstance(o, Load)]
    if len(loads) != 1:
        return tuple(axes)
    operand = kernel.operands[loads[0].operand]

    def distance(axis: Axis) -> int:
        along = step(operand, loads[0].index, axis.name)
        return 1 << 60 if not along else abs(along)

    return tuple(sorted(axes, key=distance, reverse=True))


def _plain(kernel: Kernel) -> bool:
    """Scalars summed in fp32, then maps that write what nobody of the kernel reads after."""
    first = kernel.phases[0]
    if first.reduction is None or first.parallel:
        return False
    (result, *more), locals_ = first.reduction.results, {x.name: x for x in kernel.locals}
    if more or any(local.shape for local in kernel.locals):
        return False
    dtype = locals_[result].dtype
    if dtype.kind != "float" or compute_type(dtype) != "f32":
        return False
    written = {
        s.operand for p in kernel.phases for s in p.stores if not isinstance(s.operand, str)
    }
    for number, phase in enumerate(kernel.phases):
        if phase.parallel or phase.serial or (number and phase.reduction_axes):
            return False
        for operation in phase.body:
            if isinstance(operation, Load) and operation.operand in written:
                # The sum must not read what other tiles write; nor a map another map's
                # elements. In place, a map reads the element that it then writes.
                in_place = kernel.operands[operation.operand].access == "rw" and any(
                    s.operand == operation.operand and s.index == operation.index
                    for s in phase.stores
                )
                if not number or not in_place:
                    return False
    return all(
        o.access == "ro" or (not o.layout.has_halo and o.dtype.kind != "complex")
        for o in kernel.operands
    )


def cone_of(values: dict[str, ScalarOperation], name: str) -> list[ScalarOperation]:
    """The operations a value hangs on, in order, itself last."""
    needed: set[str] = set()
    todo = [name]
    while todo:
        current = todo.pop()
        if current in needed or current not in values:
            continue
        needed.add(current)
        operation = values[current]
        if isinstance(operation, Compute):
            todo.extend(operation.operands)
        todo.extend(_expression_names([operation]) & values.keys())
    return [o for o in values.values() if o.result in needed]


def _expression_names(operations: Iterable[ScalarOperation]) -> set[str]:
    found: set[str] = set()
    for operation in operations:
        if isinstance(operation, (Load, LoadLocal)):
            for expr in operation.index:
                found |= expr.names
        elif isinstance(operation, IndexValue):
            found |= operation.value.names
    return found


def _index_names(cone: Sequence[ScalarOperation]) -> set[str]:
    """Axes that a factor uses."""
    return _expression_names(cone)


def unconverted(values: dict[str, ScalarOperation], name: str) -> ScalarOperation:
    """What a value is before conversions."""
    operation = values[name]
    while isinstance(operation, Compute) and operation.operation == "convert":
        operation = values[operation.operands[0]]
    return operation


def _source_dtype(values: dict[str, ScalarOperation], name: str, kernel: Kernel) -> str:
    """The element type of the load that a factor is, conversions aside; empty for others.

    A conversion on the way that loses bits (through a narrower type) counts as another.
    """
    operation = values[name]
    dtypes: list[DType] = []
    while isinstance(operation, Compute) and operation.operation == "convert":
        dtypes.append(operation.dtype)
        operation = values[operation.operands[0]]
    if not isinstance(operation, Load) or operation.otherwise not in (None, 0, 0.0):
        return ""
    source = kernel.operands[operation.operand].dtype
    wide = all(d == source or d.name in ("f32", "f64") for d in dtypes)
    return source.name if wide else ""


# -- how operands should stand, and how they are cut ---------------------------------


def layout_wishes(kernel: Kernel) -> dict[int, LayoutWish]:
    """Weights by columns, the depth of each together; images with channels last.

    A column of a weight is then one run: a row of tiles reads a run of the file, which
    may stream alone, and a product with one row reads whole cache lines.
    """
    found = as_product(kernel)
    if found is None:
        return {}
    values = {o.result: o for o in kernel.phases[0].body}
    loads = [unconverted(values, f) for f in (found.left, found.right)]
    if not all(isinstance(o, Load) for o in loads):
        return {}
    left, right = (o for o in loads if isinstance(o, Load))
    if kernel.operands[left.operand].constant and not kernel.operands[right.operand].constant:
        left, right = right, left
    depth = {a.name for a in found.depth}
    wishes: dict[int, LayoutWish] = {}
    order = tuple(range(len(left.index)))
    image = _channels_last(left, depth)
    if image is not None:
        order = image
        wishes[left.operand] = LayoutWish(image)
        outside = {a.name for a in kernel.outer if a.name not in _expression_names([left])}
        _wish_like_images(kernel, outside, wishes)
    if kernel.operands[right.operand].constant:
        ranks = {name: n for n, d in enumerate(order) for name in left.index[d].names & depth}
        dimensions = sorted(
            range(len(right.index)),
            key=lambda d: max((ranks.get(n, -1) for n in right.index[d].names), default=-1),
        )
        wishes[right.operand] = LayoutWish(tuple(dimensions))
    return wishes


def _channels_last(load: Load, depth: set[str]) -> tuple[int, ...] | None:
    """Channels last, where an image slides under a window."""
    sliding = [d for d, i in enumerate(load.index) if len(i.names) > 1 and i.names & depth]
    alone = [d for d, i in enumerate(load.index) if len(i.names) == 1 and i.names <= depth]
    if len(load.index) < 3 or len(alone) != 1:
        return None
    if not sliding and alone[0] == len(load.index) - 1:
        return None
    return (*(d for d in range(len(load.index)) if d != alone[0]), alone[0])


def _wish_like_images(
    kernel: Kernel, channels: set[str], wishes: dict[int, LayoutWish]
) -> None:
    """Results with channels last too, and what is read at the same index (a residual)."""
    for phase in kernel.phases[1:]:
        for store in phase.stores:
            places = [d for d, i in enumerate(store.index) if i.names & channels]
            if not isinstance(store.operand, int) or len(places) != 1:
                continue
            order = (*(d for d in range(len(store.index)) if d != places[0]), places[0])
            wishes[store.operand] = LayoutWish(order)
            for item in phase.body:
                if isinstance(item, Load) and item.index == store.index:
                    wishes.setdefault(item.operand, LayoutWish(order))


def slice_rule(
    kernel: Kernel, load: Load, columns: Sequence[Axis], tile: int, grid_axis: int
) -> SliceRule | None:
    """A cut along `columns`, `tile` of them a workgroup, where each reads a run of the weight.

    The columns, flattened, must be the outermost dimension of the whole weight.
    """
    weight = kernel.operands[load.operand]
    used = [a for a in columns if a.size != ONE]
    if not weight.constant or len(used) != 1 or not weight.layout.size.is_constant:
        return None
    (column,) = used
    along = step(weight, load.index, column.name)
    size = weight.layout.size.value
    if not along or not column.size.is_constant or along * column.size.value != size:
        return None
    codes, width = weight.layout.codes, weight.dtype.size_bytes
    if codes is None:
        return SliceRule(load.operand, grid_axis, as_expr(along * tile * width))
    if along * tile % codes.block:
        return None
    return SliceRule(load.operand, grid_axis, as_expr(codes.packed_bytes(along * tile, width)))


def flat_size(axes: Sequence[Axis]) -> Expr:
    """Points of the axes together."""
    return product(a.size for a in axes)
