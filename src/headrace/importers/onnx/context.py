"""What an operator's function sees: its node, inputs, attributes and the builder."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from xdsl.ir import SSAValue

from headrace.base.dtypes import F32, I64, DType
from headrace.base.errors import HeadraceError, error
from headrace.base.parameters import Source, array_source
from headrace.base.symbols import Expr, ExprLike, as_expr, product
from headrace.importers.onnx.dimensions import Dimensions
from headrace.importers.onnx.folding import constant_elements
from headrace.importers.onnx.nodes import Node, attribute_value
from headrace.importers.onnx.values import SMALL_ELEMENTS, Value, sizes_array
from headrace.importers.onnx.weights import tensor_array
from headrace.ir.types import dtype_of, shape_of
from headrace.tensor.build import TensorBuilder

_MOST_DECIDED = 8
"""The most elements of a tensor of sizes that is read back."""


_FEW_SUMMED = 1024
"""So many elements are summed one after another."""

_READS_BACK = frozenset(
    ("ConstantOfShape", "Expand", "OneHot", "Pad", "Range", "Resize", "Slice", "Tile", "TopK")
)
"""Operators whose sizes may be read back: right for every size that is not negative, and
simple formulas of it (those of Reshape are equations)."""


class NodeContext:
    """One node being imported.

    Attributes:
        node: the node.
        opset: version of the operator set its domain has in this model.
        inputs: one value an input; None where an optional one is left out.
        build: makes operations; its location is the node.
        dims: names and facts about sizes.
        folder: the model's folder, for tensors in attributes.
    """

    def __init__(
        self,
        node: Node,
        opset: int,
        inputs: Sequence[Value | None],
        build: TensorBuilder,
        dims: Dimensions,
        materialise: Callable[[Value], SSAValue],
        add_source: Callable[[str, Source], Value],
        folder: Path | None,
    ) -> None:
        self.node = node
        self.opset = opset
        self.inputs = tuple(inputs)
        self.build = build
        self.dims = dims
        self.folder = folder
        self._materialise = materialise
        self._add_source = add_source

    # -- errors -----------------------------------------------------------------

    def unsupported(self, fact: str, helps: str = "") -> HeadraceError:
        """The error for a form of a known operator that headrace does not take."""
        return error("HR1204", f"{self.node.kind}: {fact}", at=self.node.place, helps=helps)

    def malformed(self, fact: str) -> HeadraceError:
        """The error for a node that its operator's definition forbids."""
        return error("HR1207", f"{self.node.kind}: {fact}", at=self.node.place)

    def data_dependent(self, index: int) -> HeadraceError:
        """The error for a shape that only the data decides."""
        name = self.node.inputs[index]
        return error(
            "HR1205",
            f"{self.node.kind}: a shape depends on the data in '{name}'",
            at=self.node.place,
            notes="shapes are computed from the inputs' sizes and from constants only",
        )

    # -- inputs ------------------------------------------------------------------

    @property
    def output_count(self) -> int:
        """How many outputs the node has, up to the last one that is named."""
        used = [n for n, name in enumerate(self.node.outputs) if name]
        return used[-1] + 1 if used else 0

    def wants(self, index: int) -> bool:
        """Whether the output is named, so that it must be computed."""
        return index < len(self.node.outputs) and bool(self.node.outputs[index])

    def has(self, index: int) -> bool:
        """Whether the input is given."""
        return index < len(self.inputs) and self.inputs[index] is not None

    def value(self, index: int) -> Value:
        """The input, which must be given."""
        found = self.inputs[index] if index < len(self.inputs) else None
        if found is None:
            raise self.malformed(f"input {index} is missing")
        return found

    def data(self, index: int) -> SSAValue:
        """The input as an SSA value, which must be given."""
        return self._materialise(self.value(index))

    def all_data(self) -> list[SSAValue]:
        """Every input as an SSA value."""
        return [self.data(n) for n in range(len(self.inputs))]

    def shape(self, index: int) -> tuple[Expr, ...]:
        """The shape of an input."""
        return self.value(index).shape

    def dtype(self, index: int) -> DType:
        """The element type of an input."""
        return self.value(index).dtype

    def rank(self, index: int) -> int:
        """The rank of an input."""
        return len(self.value(index).shape)

    def as_data(self, value: Value) -> SSAValue:
        """Any value as an SSA value."""
        return self._materialise(value)

    def sizes(self, index: int) -> list[Expr]:
        """The elements of an integer input as sizes, flattened.

        Raises:
            HeadraceError HR1205: they depend on data.
        """
        found = self.value(index).sizes
        if found is None:
            known = self.known(index)
            found = self._decided_sizes(index) if known is None else sizes_array(known)
        return list(found.reshape(-1))

    def _decided_sizes(self, index: int) -> Any:
        """The elements of an integer input that data decides, each a new dimension."""
        value = self.value(index)
        count = product(value.shape)
        few = count.is_constant and count.value <= _MOST_DECIDED
        may = self.node.op_type in _READS_BACK and not self.node.domain
        if not may or not few or not value.dtype.is_integer or self.build.depth:
            raise self.data_dependent(index)
        flat = self.build.reshape(self.build.convert(self.data(index), I64), (count,))
        found: list[Expr] = []
        for n in range(count.value):
            element = self.build.reshape(self.build.slice(flat, [n], [n + 1], [1]), ())
            found.append(self.decided_size(element, None))
        value.sizes = sizes_array(found, tuple(s.value for s in value.shape))
        return value.sizes

    def decided_size(self, size: SSAValue, most: ExprLike | None) -> Expr:
        """A size that an i64 scalar has when the program runs, read back there.

        The program goes on with a plan for it. Values whose types name it may be used from
        here on; what has to be there before is best made at its upper bound.

        Args:
            most: what it surely does not exceed.

        Raises:
            HeadraceError HR1205: inside a branch or loop, where nothing is read back.
        """
        if self.build.depth:
            raise error(
                "HR1205",
                f"{self.node.kind}: data decides a size inside a branch or loop",
                at=self.node.place,
            )
        stem = next((o for o in self.node.outputs if o), self.node.op_type)
        bound = None if most is None else as_expr(most)
        limit = bound.value if bound is not None and bound.is_constant else None
        name = self.dims.decided(f"{stem}_size", limit)
        self.build.define_dimension(str(name), size)
        return name

    def size(self, index: int) -> Expr:
        """The one element of an integer input."""
        found = self.sizes(index)
        if len(found) != 1:
            raise self.malformed(f"input {index} must have one element")
        return found[0]

    def integers_at(self, index: int) -> list[int]:
        """The elements of an integer input, which must be constants."""
        found = self.sizes(index)
        if not all(e.is_constant for e in found):
            raise self.unsupported(f"input '{self.node.inputs[index]}' must be constant")
        return [e.value for e in found]

    def known(self, index: int) -> Any:
        """The elements of an input as a numpy array where they are constants, else None."""
        return self.known_value(self.value(index))

    def known_value(self, value: Value) -> Any:
        """The elements of a value as a numpy array where they are constants, else None."""
        found = value.known()
        if found is None and value.ssa is not None:
            found = constant_elements(value.ssa)
        return found

    def constant(self, index: int) -> Any:
        """The elements of an input as a numpy array.

        Raises:
            HeadraceError HR1204: it is no constant.
        """
        found = self.known(index)
        if found is None:
            raise self.unsupported(f"input '{self.node.inputs[index]}' must be constant")
        return found

    # -- attributes ---------------------------------------------------------------

    def attribute(self, name: str, kinds: type | tuple[type, ...], default: Any) -> Any:
        """An attribute of one of `kinds`, or the default.

        Raises:
            HeadraceError HR1207: it has another type.
        """
        found = self.node.attributes.get(name)
        if found is None:
            return default
        value = attribute_value(found, self.node.place)
        if not isinstance(value, kinds):
            raise self.malformed(f"attribute '{name}' has the wrong type")
        return value

    def has_attribute(self, name: str) -> bool:
        return name in self.node.attributes

    def int(self, name: str, default: int = 0) -> int:
        return self.attribute(name, int, default)

    def flag(self, name: str, default: bool = False) -> bool:
        return bool(self.attribute(name, int, int(default)))

    def float(self, name: str, default: float = 0.0) -> float:
        return float(self.attribute(name, (float, int), default))

    def string(self, name: str, default: str = "") -> str:
        return self.attribute(name, str, default)

    def ints(self, name: str, default: Sequence[int] | None = None) -> list[int] | None:
        """A list of integers; None where there is neither attribute nor default."""
        found = self.attribute(name, list, None)
        if found is None:
            return list(default) if default is not None else None
        if not all(isinstance(v, int) for v in found):
            raise self.malformed(f"attribute '{name}' must hold integers")
        return [int(v) for v in found]

    def floats(self, name: str) -> list[float] | None:
        """A list of floats; None where the attribute is not there."""
        found = self.attribute(name, list, None)
        return None if found is None else [float(v) for v in found]

    def tensor(self, name: str) -> Any:
        """A tensor attribute as a numpy array; None where it is not there."""
        from onnx import TensorProto

        found = self.attribute(name, TensorProto, None)
        return None if found is None else tensor_array(found, self.folder, self.node.place)

    def axis(self, name: str, rank: int, default: int) -> int:
        """An axis attribute, counted from the front."""
        return self.normal_axis(self.int(name, default), rank)

    def normal_axis(self, axis: int, rank: int) -> int:
        """The axis counted from the front.

        Raises:
            HeadraceError HR1207: out of range.
        """
        if not -rank <= axis < rank:
            raise self.malformed(f"axis {axis} is out of range for rank {rank}")
        return axis + rank if axis < 0 else axis

    def normal_axes(self, axes: Sequence[int], rank: int) -> list[int]:
        """Axes counted from the front, each once."""
        normal = [self.normal_axis(a, rank) for a in axes]
        if len(set(normal)) != len(normal):
            raise self.malformed(f"axes {list(axes)} name one axis twice")
        return normal

    # -- building -------------------------------------------------------------------

    def scalar_like(self, number: Any, like: SSAValue) -> SSAValue:
        """A number everywhere, of the type and shape of `like`."""
        return self.build.splat(number, dtype_of(like), shape_of(like))

    def common_shape(self, *shapes: Sequence[Expr]) -> tuple[Expr, ...]:
        """Numpy's broadcast of shapes; sizes that must be equal are learned to be."""
        rank = max(len(s) for s in shapes)
        result: list[Expr] = [as_expr(1)] * rank
        for shape in shapes:
            first = rank - len(shape)
            for n, size in enumerate(shape):
                result[first + n] = self._common_size(result[first + n], size)
        return tuple(result)

    def _common_size(self, a: Expr, b: Expr) -> Expr:
        one = as_expr(1)
        if a == one or b == one:
            return b if a == one else a
        return self.dims.same(a, b)

    def broadcast(self, *operands: SSAValue) -> list[SSAValue]:
        """The operands in their common shape."""
        shape = self.common_shape(*(shape_of(o) for o in operands))
        return [self.build.broadcast_to(o, shape) for o in operands]

    def binary(self, name: str, lhs: SSAValue, rhs: SSAValue) -> SSAValue:
        """`tensor.<name>` of two operands, broadcast."""
        left, right = self.broadcast(lhs, rhs)
        return self.build.binary(name, left, right)

    def with_scalar(self, name: str, lhs: SSAValue, number: Any) -> SSAValue:
        """`tensor.<name>` of an operand and a number."""
        return self.build.binary(name, lhs, self.scalar_like(number, lhs))

    def along(self, vector: SSAValue, axis: int, shape: Sequence[ExprLike]) -> SSAValue:
        """A rank-1 tensor spread over a shape along one axis."""
        self.common_shape(shape_of(vector), (as_expr(shape[axis]),))
        return self.build.broadcast_in_dim(vector, (axis,), shape)

    def slice_axis(
        self, operand: SSAValue, axis: int, start: ExprLike, limit: ExprLike, stride: int = 1
    ) -> SSAValue:
        """A slice along one axis."""
        shape = shape_of(operand)
        starts: list[ExprLike] = [0] * len(shape)
        limits: list[ExprLike] = list(shape)
        strides = [1] * len(shape)
        starts[axis], limits[axis], strides[axis] = start, limit, stride
        if as_expr(start) == as_expr(0) and as_expr(limit) == shape[axis] and stride == 1:
            return operand
        return self.build.slice(operand, starts, limits, strides)

    def reduce(
        self,
        operand: SSAValue,
        initial: Any,
        dimensions: Sequence[int],
        reducer: str,
        keep: bool = False,
    ) -> SSAValue:
        """Folds over dimensions from a number; with `keep` they stay, with size 1."""
        kind = dtype_of(operand)
        if not dimensions:
            return operand
        folded = self.build.reduce(
            operand, self.build.scalar(initial, kind), dimensions, reducer
        )[0]
        if not keep:
            return folded
        shape = [
            as_expr(1) if n in set(dimensions) else s for n, s in enumerate(shape_of(operand))
        ]
        return self.build.reshape(folded, shape)

    def _plane_sums(self, operand: SSAValue, dimensions: Sequence[int]) -> SSAValue | None:
        """Sums over the last of several dimensions, then over the others; None where there
        are few elements."""
        *others, last = sorted(dimensions) or [0]
        total = product([shape_of(operand)[d] for d in dimensions])
        few = total.is_constant and total.value <= _FEW_SUMMED
        if len(dimensions) < 2 or few:
            return None
        rows = self.reduce(operand, 0, [last], "add")
        return self.reduce(rows, 0, others, "add")

    def count(self, sizes: Sequence[Expr], dtype: DType = F32) -> SSAValue:
        """The product of sizes as a scalar of `dtype`."""
        total = product(sizes)
        if total.is_constant:
            return self.build.scalar(total.value, dtype)
        return self.build.convert(self.build.dimension(total, I64), dtype)

    def mean(self, operand: SSAValue, dimensions: Sequence[int], keep: bool) -> SSAValue:
        """The arithmetic mean over dimensions, of a float type.

        Planes that may be large are summed row by row first: of 160 x 160 elements one after
        another a sum has lost 5 of an f32's 24 bits, of 160 sums 2.
        """
        sizes = [shape_of(operand)[d] for d in dimensions]
        total = self._plane_sums(operand, dimensions)
        if total is None:
            total = self.reduce(operand, 0, dimensions, "add", keep)
        elif keep:
            kept = [
                as_expr(1) if n in set(dimensions) else s
                for n, s in enumerate(shape_of(operand))
            ]
            total = self.build.reshape(total, kept)
        count = self.count(sizes, dtype_of(operand))
        return self.build.binary(
            "divide", total, self.build.broadcast_in_dim(count, (), shape_of(total))
        )

    def of_sizes(self, sizes: Any, dtype: DType = I64) -> Value:
        """The value of a tensor of sizes: an object array, or a list for rank 1."""
        array = sizes_array(sizes)
        return Value("", dtype, tuple(as_expr(s) for s in array.shape), sizes=array)

    def from_source(self, source: Source) -> Value:
        """The value of a constant, kept as a source until it is used as data."""
        return self._add_source("", source)

    def from_array(self, array: Any) -> Value:
        """The value of a numpy array."""
        return self.from_source(array_source(array))

    def fits_small(self, shape: Sequence[Expr]) -> bool:
        """Whether a tensor of the shape is small enough to be tracked as sizes."""
        total = product(shape)
        return total.is_constant and total.value <= SMALL_ELEMENTS
