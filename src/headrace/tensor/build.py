"""Makes tensor operations with inferred result types, at one place in the user's model.

Importers and passes build through here and nowhere else, so every operation has a
location and a type that its own rule gave it. Shape rules raise ValueError with the
reason; importers turn that into a located diagnostic.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Sequence
from contextlib import contextmanager
from typing import Any

from xdsl.dialects.builtin import (
    DenseArrayBase,
    DenseIntOrFPElementsAttr,
    LocationAttr,
    StringAttr,
    SymbolRefAttr,
    UnknownLoc,
    i64,
)
from xdsl.ir import Attribute, Block, Operation, Region, SSAValue
from xdsl.irdl import IRDLOperation
from xdsl.rewriter import InsertPoint

from headrace.base.dtypes import BY_NAME, F32, F64, I1, I64, DType, from_numpy
from headrace.base.symbols import Expr, ExprLike, as_expr, ceildiv, product
from headrace.ir.types import dtype_of, exprs_attr, shape_of, tensor_type
from headrace.tensor import dialect as d

_UNARY: dict[str, type[IRDLOperation]] = {
    op.name.removeprefix("tensor."): op
    for op in d.TENSOR_OPERATIONS
    if issubclass(op, d.UnaryOp)
}
_BINARY: dict[str, type[IRDLOperation]] = {
    op.name.removeprefix("tensor."): op
    for op in d.TENSOR_OPERATIONS
    if issubclass(op, d.BinaryOp)
}
REDUCERS = ("add", "multiply", "maximum", "minimum", "and", "or", "xor")


def part_type(dtype: DType) -> DType:
    """The type of the parts of a complex type; a real type stays."""
    return {"complex<f32>": F32, "complex<f64>": F64}.get(dtype.name, dtype)


def complex_type(dtype: DType) -> DType:
    """The complex type with parts of a type. Raises ValueError where there is none."""
    if dtype not in (F32, F64):
        raise ValueError(f"there are no complex numbers of {dtype}")
    return BY_NAME[f"complex<{dtype}>"]


def integers(values: Iterable[int]) -> DenseArrayBase[Any]:
    """The attribute for a list of 64-bit integers."""
    return DenseArrayBase.from_list(i64, list(values))


def dense(array: Any) -> DenseIntOrFPElementsAttr:
    """A numpy array as a dense attribute, bit for bit."""
    import numpy as np

    kind = from_numpy(array.dtype)
    # `1-bit` elements are packed in MLIR's raw form; go through Python values for them.
    type_: Any = tensor_type(kind, array.shape)
    if kind == I1:
        return DenseIntOrFPElementsAttr.from_list(type_, [int(v) for v in array.reshape(-1)])
    from xdsl.dialects.builtin import BytesAttr

    if kind.kind == "signed" and kind.bits < 8:
        array = array.astype(np.int8)  # ml_dtypes leaves the upper bits clear
    flat = np.ascontiguousarray(array).tobytes()
    return DenseIntOrFPElementsAttr(type_, BytesAttr(flat))


def to_numpy(attribute: DenseIntOrFPElementsAttr) -> Any:
    """A dense attribute as a numpy array, splats spread out."""
    import numpy as np

    shape = tuple(s.value for s in shape_of(attribute.type))
    kind = dtype_of(attribute.type)
    if kind == I1:
        values = [bool(v) for v in attribute.get_values()]
        array = np.array(values, dtype=np.bool_)
    else:
        array = np.frombuffer(attribute.data.data, dtype=kind.numpy_dtype)
    count = int(np.prod(shape, dtype=np.int64))
    if array.size == 1 and count != 1:
        array = np.repeat(array, count)
    return array.reshape(shape)


class TensorBuilder:
    """Appends operations to a block (or inserts before an operation).

    Attributes:
        location: given to every operation made; set it as the place changes.
    """

    def __init__(
        self, where: Block | InsertPoint, location: LocationAttr | None = None
    ) -> None:
        self._point = where if isinstance(where, InsertPoint) else InsertPoint.at_end(where)
        self._around: list[Block] = []
        self.location: LocationAttr = location or UnknownLoc()

    @contextmanager
    def inside(self, block: Block) -> Generator[None, None, None]:
        """Builds at the end of a block of a region, and goes on where it was afterwards."""
        before = self._point
        self._around.append(before.block)
        self._point = InsertPoint.at_end(block)
        try:
            yield
        finally:
            self._point = before
            self._around.pop()

    @property
    def depth(self) -> int:
        """In how many regions of control flow it builds."""
        return len(self._around)

    def sees(self, value: SSAValue) -> bool:
        """Whether what is built now may use a value: it stands in this block or around it."""
        block = value.owner if isinstance(value.owner, Block) else value.owner.parent_block()
        return block is self._point.block or block in self._around

    def insert(self, operation: Operation) -> Operation:
        """Places an operation made elsewhere; gives it the location if it has none."""
        if isinstance(operation.location, UnknownLoc):
            operation.location = self.location
        if self._point.insert_before is None:
            self._point.block.add_op(operation)
        else:
            self._point.block.insert_op_before(operation, self._point.insert_before)
        return operation

    def _make(
        self,
        kind: type[IRDLOperation],
        operands: Sequence[SSAValue | Sequence[SSAValue]],
        dtype: DType,
        shape: Iterable[ExprLike],
        regions: Sequence[Region] = (),
        **properties: Attribute,
    ) -> SSAValue:
        made = kind.build(
            operands=operands,
            result_types=[tensor_type(dtype, shape)],
            properties=dict(properties),
            regions=regions,
        )
        return self.insert(made).results[0]

    # -- sources ----------------------------------------------------------------

    def constant(self, array: Any) -> SSAValue:
        """A small numpy array (at most 1,024 elements) or numpy scalar."""
        import numpy as np

        value = np.asarray(array)
        return self._make(
            d.ConstantOp, [], from_numpy(value.dtype), value.shape, value=dense(value)
        )

    def scalar(self, value: Any, dtype: DType = F32) -> SSAValue:
        """A rank-0 constant of `dtype`."""
        import numpy as np

        return self.constant(np.asarray(value).astype(dtype.numpy_dtype))

    def splat(self, value: Any, dtype: DType, shape: Iterable[ExprLike]) -> SSAValue:
        """One value everywhere: a scalar and a broadcast."""
        return self.broadcast_in_dim(self.scalar(value, dtype), (), shape)

    def parameter(self, name: str, dtype: DType, shape: Iterable[int]) -> SSAValue:
        """A weight of the module's parameter table."""
        return self._make(d.ParameterOp, [], dtype, shape, parameter=SymbolRefAttr(name))

    def iota(self, dtype: DType, shape: Iterable[ExprLike], dimension: int) -> SSAValue:
        return self._make(d.IotaOp, [], dtype, shape, dimension=integers([dimension]))

    def dimension(self, values: ExprLike | Sequence[Expr], dtype: DType = I64) -> SSAValue:
        """A size expression as a scalar, or a list of them as a rank-1 tensor."""
        if isinstance(values, (Expr, int, str)):
            return self._make(d.DimensionOp, [], dtype, (), value=exprs_attr([values]))
        return self._make(d.DimensionOp, [], dtype, (len(values),), value=exprs_attr(values))

    def define_dimension(self, name: str, size: SSAValue) -> None:
        """Says that a named dimension has the size that an i64 scalar holds."""
        self.insert(
            d.DefineDimensionOp.build(operands=[size], properties={"symbol": StringAttr(name)})
        )

    # -- elementwise --------------------------------------------------------------

    def unary(self, name: str, operand: SSAValue) -> SSAValue:
        """The elementwise operation `tensor.<name>`, same element type.

        `is_finite` gives i1; `abs`, `real` and `imag` of complex numbers give reals.
        """
        kind = I1 if name == "is_finite" else dtype_of(operand)
        if name in ("abs", "real", "imag"):
            kind = part_type(kind)
        return self._make(_UNARY[name], [operand], kind, shape_of(operand))

    def binary(self, name: str, lhs: SSAValue, rhs: SSAValue) -> SSAValue:
        """The elementwise operation `tensor.<name>` of two operands of one type."""
        self._require_alike(name, lhs, rhs)
        kind = complex_type(dtype_of(lhs)) if name == "complex" else dtype_of(lhs)
        return self._make(_BINARY[name], [lhs, rhs], kind, shape_of(lhs))

    def convert(self, operand: SSAValue, dtype: DType) -> SSAValue:
        if dtype_of(operand) == dtype:
            return operand
        return self._make(d.ConvertOp, [operand], dtype, shape_of(operand))

    def bitcast_convert(self, operand: SSAValue, dtype: DType) -> SSAValue:
        if dtype_of(operand).bits != dtype.bits:
            raise ValueError(f"{dtype_of(operand)} and {dtype} differ in width")
        return self._make(d.BitcastConvertOp, [operand], dtype, shape_of(operand))

    def compare(self, direction: str, lhs: SSAValue, rhs: SSAValue) -> SSAValue:
        """`direction`: EQ, NE, LT, LE, GT or GE."""
        self._require_alike("compare", lhs, rhs)
        return self._make(
            d.CompareOp, [lhs, rhs], I1, shape_of(lhs), direction=StringAttr(direction)
        )

    def select(self, predicate: SSAValue, on_true: SSAValue, on_false: SSAValue) -> SSAValue:
        self._require_alike("select", on_true, on_false)
        if shape_of(predicate) != shape_of(on_true) or dtype_of(predicate) != I1:
            raise ValueError("select needs an i1 predicate of its operands' shape")
        return self._make(
            d.SelectOp, [predicate, on_true, on_false], dtype_of(on_true), shape_of(on_true)
        )

    def clamp(self, low: SSAValue, operand: SSAValue, high: SSAValue) -> SSAValue:
        self._require_alike("clamp", low, operand)
        self._require_alike("clamp", operand, high)
        return self._make(d.ClampOp, [low, operand, high], dtype_of(operand), shape_of(operand))

    def _require_alike(self, name: str, lhs: SSAValue, rhs: SSAValue) -> None:
        if dtype_of(lhs) != dtype_of(rhs):
            raise ValueError(
                f"{name} needs one element type, not {dtype_of(lhs)} and {dtype_of(rhs)}"
            )
        if shape_of(lhs) != shape_of(rhs):
            raise ValueError(
                f"{name} needs one shape, not {_show(shape_of(lhs))} and {_show(shape_of(rhs))}"
            )

    # -- movement -------------------------------------------------------------------

    def broadcast_in_dim(
        self, operand: SSAValue, dimensions: Sequence[int], shape: Iterable[ExprLike]
    ) -> SSAValue:
        """Operand dimension i becomes result dimension `dimensions[i]`."""
        target = tuple(as_expr(s) for s in shape)
        source = shape_of(operand)
        for size, at in zip(source, dimensions, strict=True):
            if size != target[at] and size != as_expr(1):
                raise ValueError(f"size {size} cannot stretch to {target[at]}")
        if source == target and list(dimensions) == list(range(len(target))):
            return operand
        return self._make(
            d.BroadcastInDimOp,
            [operand],
            dtype_of(operand),
            target,
            broadcast_dimensions=integers(dimensions),
        )

    def broadcast_to(self, operand: SSAValue, shape: Sequence[ExprLike]) -> SSAValue:
        """Numpy's broadcast: shapes aligned at the end."""
        rank = len(shape_of(operand))
        first = len(shape) - rank
        if first < 0:
            raise ValueError(f"rank {rank} cannot broadcast to rank {len(shape)}")
        return self.broadcast_in_dim(operand, range(first, len(shape)), shape)

    def reshape(self, operand: SSAValue, shape: Iterable[ExprLike]) -> SSAValue:
        target = tuple(as_expr(s) for s in shape)
        source = shape_of(operand)
        if source == target:
            return operand
        if product(source) != product(target):
            raise ValueError(
                f"{_show(source)} has {product(source)} elements, "
                f"{_show(target)} has {product(target)}"
            )
        return self._make(d.ReshapeOp, [operand], dtype_of(operand), target)

    def transpose(self, operand: SSAValue, permutation: Sequence[int]) -> SSAValue:
        shape = shape_of(operand)
        if sorted(permutation) != list(range(len(shape))):
            raise ValueError(
                f"{list(permutation)} is no permutation of {len(shape)} dimensions"
            )
        if list(permutation) == list(range(len(shape))):
            return operand
        return self._make(
            d.TransposeOp,
            [operand],
            dtype_of(operand),
            [shape[p] for p in permutation],
            permutation=integers(permutation),
        )

    def slice(
        self,
        operand: SSAValue,
        start: Sequence[ExprLike],
        limit: Sequence[ExprLike],
        strides: Sequence[int],
    ) -> SSAValue:
        """Elements start, start + stride, ... < limit; strides are positive."""
        shape = [
            ceildiv(as_expr(end) - as_expr(s), step)
            for s, end, step in zip(start, limit, strides, strict=True)
        ]
        return self._make(
            d.SliceOp,
            [operand],
            dtype_of(operand),
            shape,
            start_indices=exprs_attr(start),
            limit_indices=exprs_attr(limit),
            strides=integers(strides),
        )

    def dynamic_slice(
        self, operand: SSAValue, start: Sequence[SSAValue], sizes: Sequence[ExprLike]
    ) -> SSAValue:
        return self._make(d.DynamicSliceOp, [operand, list(start)], dtype_of(operand), sizes)

    def dynamic_update_slice(
        self, operand: SSAValue, update: SSAValue, start: Sequence[SSAValue]
    ) -> SSAValue:
        return self._make(
            d.DynamicUpdateSliceOp,
            [operand, update, list(start)],
            dtype_of(operand),
            shape_of(operand),
        )

    def pad(
        self,
        operand: SSAValue,
        value: SSAValue,
        low: Sequence[ExprLike],
        high: Sequence[ExprLike],
        interior: Sequence[int] | None = None,
    ) -> SSAValue:
        between = list(interior) if interior is not None else [0] * len(low)
        shape: list[Expr] = []
        for size, before, behind, i in zip(shape_of(operand), low, high, between, strict=True):
            inner = size if i == 0 else size + (size - 1) * i
            shape.append(inner + as_expr(before) + as_expr(behind))
        return self._make(
            d.PadOp,
            [operand, value],
            dtype_of(operand),
            shape,
            edge_padding_low=exprs_attr(low),
            edge_padding_high=exprs_attr(high),
            interior_padding=integers(between),
        )

    def concatenate(self, inputs: Sequence[SSAValue], dimension: int) -> SSAValue:
        if len(inputs) == 1:
            return inputs[0]
        shapes = [shape_of(i) for i in inputs]
        result = list(shapes[0])
        for other in shapes[1:]:
            if len(other) != len(result) or any(
                a != b
                for n, (a, b) in enumerate(zip(result, other, strict=True))
                if n != dimension
            ):
                raise ValueError("concatenate needs equal shapes but for its dimension")
            result[dimension] = result[dimension] + other[dimension]
        return self._make(
            d.ConcatenateOp,
            [list(inputs)],
            dtype_of(inputs[0]),
            result,
            dimension=integers([dimension]),
        )

    def reverse(self, operand: SSAValue, dimensions: Sequence[int]) -> SSAValue:
        return self._make(
            d.ReverseOp,
            [operand],
            dtype_of(operand),
            shape_of(operand),
            dimensions=integers(dimensions),
        )

    def gather(
        self,
        operand: SSAValue,
        start_indices: SSAValue,
        *,
        offset_dims: Sequence[int],
        collapsed_slice_dims: Sequence[int],
        start_index_map: Sequence[int],
        index_vector_dim: int,
        slice_sizes: Sequence[ExprLike],
        operand_batching_dims: Sequence[int] = (),
        start_indices_batching_dims: Sequence[int] = (),
    ) -> SSAValue:
        """StableHLO's gather; the result shape follows from the specification."""
        index_shape = list(shape_of(start_indices))
        if index_vector_dim < len(index_shape):
            del index_shape[index_vector_dim]
        hidden = {*collapsed_slice_dims, *operand_batching_dims}
        offsets = [as_expr(s) for n, s in enumerate(slice_sizes) if n not in hidden]
        rank = len(index_shape) + len(offsets)
        batch, offset = iter(index_shape), iter(offsets)
        shape = [next(offset) if n in offset_dims else next(batch) for n in range(rank)]
        return self._make(
            d.GatherOp,
            [operand, start_indices],
            dtype_of(operand),
            shape,
            offset_dims=integers(offset_dims),
            collapsed_slice_dims=integers(collapsed_slice_dims),
            operand_batching_dims=integers(operand_batching_dims),
            start_indices_batching_dims=integers(start_indices_batching_dims),
            start_index_map=integers(start_index_map),
            index_vector_dim=integers([index_vector_dim]),
            slice_sizes=exprs_attr(slice_sizes),
        )

    def take(self, operand: SSAValue, indices: SSAValue, axis: int) -> SSAValue:
        """numpy's take along `axis` (ONNX Gather); indices must be in range."""
        shape = shape_of(operand)
        rank = len(shape_of(indices))
        return self.gather(
            operand,
            indices,
            offset_dims=[
                n for n in range(len(shape) - 1 + rank) if not axis <= n < axis + rank
            ],
            collapsed_slice_dims=[axis],
            start_index_map=[axis],
            index_vector_dim=rank,
            slice_sizes=[as_expr(1) if n == axis else s for n, s in enumerate(shape)],
        )

    # -- reductions ---------------------------------------------------------------

    def _body(
        self, dtypes: Sequence[DType], reducer: str | Callable[..., Sequence[SSAValue]]
    ) -> Region:
        scalars = [tensor_type(k, ()) for k in dtypes]
        block = Block(arg_types=[*scalars, *scalars])
        inner = TensorBuilder(block, self.location)
        left, right = block.args[: len(dtypes)], block.args[len(dtypes) :]
        if isinstance(reducer, str):
            if reducer not in REDUCERS:
                raise ValueError(f"'{reducer}' is no reducer; one of {', '.join(REDUCERS)}")
            values: Sequence[SSAValue] = [inner.binary(reducer, left[0], right[0])]
        else:
            values = reducer(inner, *left, *right)
        inner.insert(d.ReturnOp.build(operands=[list(values)]))
        return Region(block)

    def reduce(
        self,
        inputs: SSAValue | Sequence[SSAValue],
        init_values: SSAValue | Sequence[SSAValue],
        dimensions: Sequence[int],
        reducer: str | Callable[..., Sequence[SSAValue]],
    ) -> list[SSAValue]:
        """Folds over dimensions, which leave the shape.

        `reducer` is a name of `REDUCERS`, or a function of (builder, left..., right...)
        scalars that returns one value an input.
        """
        several = [inputs] if isinstance(inputs, SSAValue) else list(inputs)
        starts = [init_values] if isinstance(init_values, SSAValue) else list(init_values)
        shape = [s for n, s in enumerate(shape_of(several[0])) if n not in set(dimensions)]
        made = d.ReduceOp.build(
            operands=[several, starts],
            result_types=[[tensor_type(dtype_of(i), shape) for i in starts]],
            properties={"dimensions": integers(dimensions)},
            regions=[self._body([dtype_of(i) for i in starts], reducer)],
        )
        return list(self.insert(made).results)

    def reduce_window(
        self,
        inputs: SSAValue | Sequence[SSAValue],
        init_values: SSAValue | Sequence[SSAValue],
        reducer: str | Callable[..., Sequence[SSAValue]],
        *,
        window_dimensions: Sequence[int],
        window_strides: Sequence[int],
        padding_low: Sequence[ExprLike],
        padding_high: Sequence[ExprLike],
        base_dilations: Sequence[int] | None = None,
        window_dilations: Sequence[int] | None = None,
    ) -> list[SSAValue]:
        """Folds windows; one entry a dimension everywhere."""
        several = [inputs] if isinstance(inputs, SSAValue) else list(inputs)
        starts = [init_values] if isinstance(init_values, SSAValue) else list(init_values)
        rank = len(window_dimensions)
        base = list(base_dilations or [1] * rank)
        window = list(window_dilations or [1] * rank)
        shape = [
            window_size(s, k, st, lo, hi, b, w)
            for s, k, st, lo, hi, b, w in zip(
                shape_of(several[0]),
                window_dimensions,
                window_strides,
                padding_low,
                padding_high,
                base,
                window,
                strict=True,
            )
        ]
        made = d.ReduceWindowOp.build(
            operands=[several, starts],
            result_types=[[tensor_type(dtype_of(i), shape) for i in starts]],
            properties={
                "window_dimensions": integers(window_dimensions),
                "window_strides": integers(window_strides),
                "base_dilations": integers(base),
                "window_dilations": integers(window),
                "padding_low": exprs_attr(padding_low),
                "padding_high": exprs_attr(padding_high),
            },
            regions=[self._body([dtype_of(i) for i in starts], reducer)],
        )
        return list(self.insert(made).results)

    def scatter(
        self,
        inputs: Sequence[SSAValue],
        scatter_indices: SSAValue,
        updates: Sequence[SSAValue],
        reducer: str | Callable[..., Sequence[SSAValue]],
        *,
        update_window_dims: Sequence[int],
        inserted_window_dims: Sequence[int],
        scatter_dims_to_operand_dims: Sequence[int],
        index_vector_dim: int,
        input_batching_dims: Sequence[int] = (),
        scatter_indices_batching_dims: Sequence[int] = (),
    ) -> list[SSAValue]:
        """StableHLO's scatter; `reducer` gets elements of the inputs, then of the updates."""
        made = d.ScatterOp.build(
            operands=[list(inputs), scatter_indices, list(updates)],
            result_types=[[tensor_type(dtype_of(i), shape_of(i)) for i in inputs]],
            properties={
                "update_window_dims": integers(update_window_dims),
                "inserted_window_dims": integers(inserted_window_dims),
                "input_batching_dims": integers(input_batching_dims),
                "scatter_indices_batching_dims": integers(scatter_indices_batching_dims),
                "scatter_dims_to_operand_dims": integers(scatter_dims_to_operand_dims),
                "index_vector_dim": integers([index_vector_dim]),
            },
            regions=[self._body([dtype_of(i) for i in inputs], reducer)],
        )
        return list(self.insert(made).results)

    def sort(
        self,
        inputs: Sequence[SSAValue],
        dimension: int,
        before: Callable[..., Sequence[SSAValue]],
    ) -> list[SSAValue]:
        """Sorts along a dimension; `before` of (builder, left..., right...) gives an i1."""
        made = d.SortOp.build(
            operands=[list(inputs)],
            result_types=[[tensor_type(dtype_of(i), shape_of(i)) for i in inputs]],
            properties={"dimension": integers([dimension])},
            regions=[self._body([dtype_of(i) for i in inputs], before)],
        )
        return list(self.insert(made).results)

    # -- contractions ---------------------------------------------------------------

    def dot_general(
        self,
        lhs: SSAValue,
        rhs: SSAValue,
        *,
        batch: tuple[Sequence[int], Sequence[int]] = ((), ()),
        contract: tuple[Sequence[int], Sequence[int]],
        dtype: DType | None = None,
    ) -> SSAValue:
        """Result: batch dimensions, free ones of lhs, free ones of rhs."""
        left, right = shape_of(lhs), shape_of(rhs)
        for kind, (a, b) in (("batch", batch), ("contracting", contract)):
            for i, j in zip(a, b, strict=True):
                if left[i] != right[j]:
                    raise ValueError(f"{kind} sizes {left[i]} and {right[j]} differ")
        used_left, used_right = {*batch[0], *contract[0]}, {*batch[1], *contract[1]}
        shape = [
            *(left[i] for i in batch[0]),
            *(s for n, s in enumerate(left) if n not in used_left),
            *(s for n, s in enumerate(right) if n not in used_right),
        ]
        return self._make(
            d.DotGeneralOp,
            [lhs, rhs],
            dtype or dtype_of(lhs),
            shape,
            lhs_batching_dimensions=integers(batch[0]),
            rhs_batching_dimensions=integers(batch[1]),
            lhs_contracting_dimensions=integers(contract[0]),
            rhs_contracting_dimensions=integers(contract[1]),
        )

    def convolution(
        self,
        lhs: SSAValue,
        rhs: SSAValue,
        *,
        window_strides: Sequence[int],
        padding_low: Sequence[ExprLike],
        padding_high: Sequence[ExprLike],
        lhs_dilation: Sequence[int] | None = None,
        rhs_dilation: Sequence[int] | None = None,
        feature_group_count: int = 1,
        dtype: DType | None = None,
    ) -> SSAValue:
        """lhs [batch, feature, spatial...], rhs [output, feature / groups, spatial...]."""
        left, right = shape_of(lhs), shape_of(rhs)
        spatial = len(left) - 2
        base = list(lhs_dilation or [1] * spatial)
        window = list(rhs_dilation or [1] * spatial)
        if left[1] != right[1] * feature_group_count:
            raise ValueError(
                f"{left[1]} input features do not fit a kernel of {right[1]} in "
                f"{feature_group_count} groups"
            )
        sizes = [
            window_size(
                left[2 + n], right[2 + n].value, window_strides[n], padding_low[n],
                padding_high[n], base[n], window[n],
            )
            for n in range(spatial)
        ]  # fmt: skip
        return self._make(
            d.ConvolutionOp,
            [lhs, rhs],
            dtype or dtype_of(lhs),
            [left[0], right[0], *sizes],
            window_strides=integers(window_strides),
            padding_low=exprs_attr(padding_low),
            padding_high=exprs_attr(padding_high),
            lhs_dilation=integers(base),
            rhs_dilation=integers(window),
            feature_group_count=integers([feature_group_count]),
        )


def window_size(
    size: ExprLike,
    window: int,
    stride: int,
    low: ExprLike,
    high: ExprLike,
    base_dilation: int = 1,
    window_dilation: int = 1,
) -> Expr:
    """How many windows fit (specification: `reduce_window`, `convolution`)."""
    extent = as_expr(size)
    if base_dilation != 1:
        extent = (extent - 1) * base_dilation + 1
    padded = extent + as_expr(low) + as_expr(high)
    reach = (window - 1) * window_dilation + 1
    return (padded - reach) // stride + 1


def _show(shape: Iterable[Expr]) -> str:
    return "x".join(str(s) for s in shape) or "scalar"
