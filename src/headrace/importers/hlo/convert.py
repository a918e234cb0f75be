"""Makes the tensor stage from an HLO tree.

One function per operation, registered under its StableHLO name; names of older dialects
are aliases. Everything unsupported in the module is listed at once.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias, Union

from xdsl.dialects.builtin import ArrayAttr, DictionaryAttr, ModuleOp, StringAttr
from xdsl.dialects.func import FuncOp, ReturnOp
from xdsl.ir import Block, Region, SSAValue

from headrace.base.errors import Diagnostic, Problems
from headrace.base.parameters import Source, array_source, expression
from headrace.base.symbols import ONE
from headrace.importers.hlo.tree import (
    HloFunction,
    HloModule,
    HloOperation,
    HloRegion,
    HloTensorType,
    HloTupleType,
    HloType,
)
from headrace.ir.locations import location
from headrace.ir.model import Model
from headrace.ir.types import dtype_of, shape_of, tensor_type
from headrace.tensor.build import TensorBuilder

MAX_CONSTANT_ELEMENTS = 1024
"""Constants of more elements become parameters (design: weights never live in the IR)."""

Value: TypeAlias = Union[SSAValue, tuple["Value", ...]]
Converter: TypeAlias = Callable[["FunctionConverter", HloOperation], Sequence[Value]]

CONVERTERS: dict[str, Converter] = {}

ALIASES = {
    "max": "maximum", "min": "minimum", "sub": "subtract", "mul": "multiply",
    "div": "divide", "exp": "exponential", "neg": "negate", "cos": "cosine", "sin": "sine",
    "conv": "convolution", "expm1": "exponential_minus_one", "log1p": "log_plus_one",
    "addf": "add", "addi": "add", "subf": "subtract", "subi": "subtract", "mulf": "multiply",
    "muli": "multiply", "divf": "divide", "divis": "divide", "remis": "remainder",
    "tuple_element": "get_tuple_element", "custom_tuple": "tuple", "unfoldable_constant": "constant",
    "do_not_optimize": "identity", "optimization_barrier": "identity",
}  # fmt: skip
"""Names of older ages (xla_hlo 2019, std) under their StableHLO name."""


def operation_key(name: str) -> str:
    """`xla_hlo.max` -> `maximum`: the name that `CONVERTERS` knows."""
    bare = name.rpartition(".")[2]
    return ALIASES.get(bare, bare)


def converter(*names: str) -> Callable[[Converter], Converter]:
    """Registers a converter under StableHLO names."""

    def register(function: Converter) -> Converter:
        for name in names:
            CONVERTERS[name] = function
        return function

    return register


def convert_module(
    module: HloModule, name: str, weights: Mapping[int, tuple[str, Source]] | None = None
) -> Model:
    """The model for an HLO module.

    Args:
        module: as an importer read it.
        name: of the model.
        weights: arguments of `main` that are weights, position -> (name, source): they
            leave the signature and become parameters.

    Raises:
        HeadraceError HR1101: operations without a converter, all of them at once;
            HR1102: an operation that breaks its own rules, with its place.
    """
    problems = Problems()
    for function in module.functions:
        _list_unsupported(module, function.body, problems)
    problems.raise_if_any()
    parameters: dict[str, Source] = {}
    block = Block()
    for function in module.functions:
        if not function.public:
            continue
        bound = (weights or {}) if function.name == "main" else {}
        try:
            block.add_op(
                FunctionConverter(module, function, parameters, problems).convert(bound)
            )
        except _Stop:
            continue
    problems.raise_if_any()
    return Model(ModuleOp(Region(block)), parameters, name)


def _list_unsupported(module: HloModule, region: HloRegion, problems: Problems) -> None:
    for operation in region.operations:
        key = operation_key(operation.name)
        if key not in CONVERTERS and key not in ("return",):
            near = difflib.get_close_matches(key, CONVERTERS, n=1)
            problems.add(
                Diagnostic(
                    "HR1101",
                    f"operation '{operation.name}' is not supported",
                    (f"{module.source}: {operation.place}",),
                    helps=(f"'{near[0]}' is supported",) if near else (),
                )
            )
        for inner in operation.regions:
            _list_unsupported(module, inner, problems)


class _Stop(Exception):
    """An operation failed; the reason is in the problems."""


class FunctionConverter:
    """Converts one function; `values` maps value names to what they became."""

    def __init__(
        self,
        module: HloModule,
        function: HloFunction,
        parameters: dict[str, Source],
        problems: Problems,
    ) -> None:
        self.module = module
        self.function = function
        self.parameters = parameters
        self.problems = problems
        self.values: dict[str, Value] = {}
        self.builder = TensorBuilder(Block())

    def convert(self, weights: Mapping[int, tuple[str, Source]]) -> FuncOp:
        """The `func.func`; tuples in the signature are spread out, weights leave it."""
        body = self.function.body
        inputs = [(n, a) for n, a in enumerate(body.arguments) if n not in weights]
        types: list[Any] = []
        for _, (_, kind) in inputs:
            types += [tensor_type(t.dtype, t.shape) for t in _leaves(kind)]
        block = Block(arg_types=types)
        self.builder = TensorBuilder(block)
        arguments = iter(block.args)
        for _, (name, kind) in inputs:
            self.values[name] = _take(kind, arguments)
        for position, (name, source) in weights.items():
            self.parameters[name] = source
            value = self.builder.parameter(name, source.dtype, source.shape)
            self.values[body.arguments[position][0]] = value
        results = [leaf for value in self.region_values(body) for leaf in _flatten(value)]
        self.builder.insert(ReturnOp(*results))
        made = FuncOp(
            self.function.name, (types, [r.type for r in results]), region=Region(block)
        )
        given = [self.function.argument_names[n] for n, _ in inputs]
        names = _padded(given, len(types), "arg")
        outputs = _padded(self.function.result_names, len(results), "result")
        made.properties["arg_attrs"] = name_attributes(names)
        made.properties["res_attrs"] = name_attributes(outputs)
        return made

    def region_values(self, region: HloRegion) -> list[Value]:
        """Converts a region's operations in place; what its return yields."""
        for operation in region.operations:
            if operation_key(operation.name) == "return":
                return [self.values[o] for o in operation.operands]
            self.operation(operation)
        return []

    def operation(self, operation: HloOperation) -> None:
        place = f"{self.module.source}: {operation.place}"
        self.builder.location = location(place)
        try:
            made = CONVERTERS[operation_key(operation.name)](self, operation)
        except (ValueError, KeyError, TypeError, IndexError) as wrong:
            reason = f"lacks {wrong}" if isinstance(wrong, KeyError) else str(wrong)
            self.problems.add(
                Diagnostic(
                    "HR1102", f"'{operation.name}' is not well formed: {reason}", (place,)
                )
            )
            raise _Stop from wrong
        for name, value in zip(operation.results, made, strict=True):
            self.values[name] = value

    def operand(self, operation: HloOperation, index: int) -> SSAValue:
        """Operand `index` as a tensor value."""
        value = self.values[operation.operands[index]]
        if isinstance(value, tuple):
            raise ValueError(f"operand {index} is a tuple, not a tensor")
        return value

    def operands(self, operation: HloOperation) -> list[SSAValue]:
        return [self.operand(operation, n) for n in range(len(operation.operands))]

    def weight(self, source: Source) -> SSAValue:
        """A parameter for a large constant, one for equal sources."""
        for name, known in self.parameters.items():
            if known == source:
                return self.builder.parameter(name, source.dtype, source.shape)
        name = f"constant_{len(self.parameters)}"
        self.parameters[name] = source
        return self.builder.parameter(name, source.dtype, source.shape)


def _padded(names: Sequence[str], count: int, stem: str) -> list[str]:
    return [names[n] if n < len(names) and names[n] else f"{stem}{n}" for n in range(count)]


def name_attributes(names: Sequence[str]) -> ArrayAttr[DictionaryAttr]:
    """The user's names of a function's arguments or results, as its `arg_attrs`."""
    return ArrayAttr([DictionaryAttr({"hr.name": StringAttr(n)}) for n in names])


def _leaves(kind: HloType) -> list[HloTensorType]:
    if isinstance(kind, HloTensorType):
        return [kind]
    return [leaf for element in kind.elements for leaf in _leaves(element)]


def _take(kind: HloType, values: Any) -> Value:
    if isinstance(kind, HloTupleType):
        return tuple(_take(e, values) for e in kind.elements)
    return next(values)


def _flatten(value: Value) -> list[SSAValue]:
    if isinstance(value, tuple):
        return [leaf for element in value for leaf in _flatten(element)]
    return [value]


def _result(operation: HloOperation, index: int = 0) -> HloTensorType:
    kind = operation.result_types[index]
    if not isinstance(kind, HloTensorType):
        raise ValueError("the result is no tensor")
    return kind


def _ints(value: Any) -> list[int]:
    """An integer attribute of any spelling (array, dense, list, int) as a list."""
    import numpy as np

    return [int(v) for v in np.asarray(value).reshape(-1)]


def _pairs(value: Any, rank: int) -> tuple[list[int], list[int]]:
    """A `[rank, 2]` padding attribute as (low, high); zeros where absent."""
    if value is None:
        return [0] * rank, [0] * rank
    flat = _ints(value)
    if len(flat) == 1:
        flat = flat * (2 * rank)
    return flat[0::2], flat[1::2]


def _spread(value: Any, rank: int, default: int = 1) -> list[int]:
    if value is None:
        return [default] * rank
    flat = _ints(value)
    return flat * rank if len(flat) == 1 and rank > 1 else flat


# -- sources, tuples ------------------------------------------------------------------


@converter("constant")
def _constant(at: FunctionConverter, operation: HloOperation) -> Sequence[Value]:
    import numpy as np

    kind = _result(operation)
    shape = tuple(s.value for s in kind.shape)
    array = np.asarray(operation.attributes["value"]).astype(kind.dtype.numpy_dtype, copy=False)
    count = int(np.prod(shape, dtype=np.int64))
    if array.size == 1 and count > MAX_CONSTANT_ELEMENTS:
        # A placeholder weight: bound like any other, but never spread out in memory here.
        scalar = array_source(array.reshape(()))
        source = expression(
            "broadcast_in_dim", (scalar,), kind.dtype, shape, broadcast_dimensions=()
        )
        return [at.weight(source)]
    if array.size == 1 and count != 1:
        array = np.full(shape, array.reshape(-1)[0], dtype=array.dtype)
    array = array.reshape(shape)
    if count > MAX_CONSTANT_ELEMENTS:
        return [at.weight(array_source(array))]
    return [at.builder.constant(array)]


@converter("iota")
def _iota(at: FunctionConverter, operation: HloOperation) -> Sequence[Value]:
    kind = _result(operation)
    return [
        at.builder.iota(
            kind.dtype, kind.shape, _ints(operation.attributes["iota_dimension"])[0]
        )
    ]


@converter("tuple")
def _tuple(at: FunctionConverter, operation: HloOperation) -> Sequence[Value]:
    return [tuple(at.values[o] for o in operation.operands)]


@converter("get_tuple_element")
def _get_tuple_element(at: FunctionConverter, operation: HloOperation) -> Sequence[Value]:
    value = at.values[operation.operands[0]]
    if not isinstance(value, tuple):
        raise ValueError("the operand is no tuple")
    return [value[_ints(operation.attributes["index"])[0]]]


@converter("identity", "custom_call_identity")
def _identity(at: FunctionConverter, operation: HloOperation) -> Sequence[Value]:
    return [at.values[o] for o in operation.operands]


@converter("call")
def _call(at: FunctionConverter, operation: HloOperation) -> Sequence[Value]:
    """Inlines the callee: HLO calls are pure and not recursive."""
    callee = str(operation.attributes["callee"]).lstrip("@")
    for function in at.module.functions:
        if function.name == callee:
            outer = at.values
            at.values = {
                name: outer[operand]
                for (name, _), operand in zip(
                    function.body.arguments, operation.operands, strict=True
                )
            }
            results = at.region_values(function.body)
            at.values = outer
            return results
    raise ValueError(f"there is no function '{callee}'")


# -- elementwise ----------------------------------------------------------------------


@converter(
    "abs", "cbrt", "ceil", "copy", "cosine", "count_leading_zeros", "erf", "exponential",
    "exponential_minus_one", "floor", "is_finite", "log", "log_plus_one", "logistic", "negate",
    "not", "popcnt", "round_nearest_afz", "round_nearest_even", "rsqrt", "sign", "sine", "sqrt",
    "tan", "tanh",
)  # fmt: skip
def _unary(at: FunctionConverter, operation: HloOperation) -> Sequence[Value]:
    return [at.builder.unary(operation_key(operation.name), at.operand(operation, 0))]


@converter(
    "add", "and", "atan2", "divide", "maximum", "minimum", "multiply", "or", "power",
    "complex", "remainder", "shift_left", "shift_right_arithmetic", "shift_right_logical", "subtract",
    "xor",
)  # fmt: skip
def _binary(at: FunctionConverter, operation: HloOperation) -> Sequence[Value]:
    lhs, rhs = at.operand(operation, 0), at.operand(operation, 1)
    lhs, rhs = _broadcast_pair(at.builder, lhs, rhs, operation.attributes)
    return [at.builder.binary(operation_key(operation.name), lhs, rhs)]


def _broadcast_pair(
    builder: TensorBuilder, lhs: SSAValue, rhs: SSAValue, attributes: dict[str, Any]
) -> tuple[SSAValue, SSAValue]:
    """xla_hlo of 2019 and CHLO broadcast implicitly, by `broadcast_dimensions` or at the end."""
    left, right = shape_of(lhs), shape_of(rhs)
    if left == right:
        return lhs, rhs
    given = attributes.get("broadcast_dimensions")
    if len(left) < len(right):
        dims = _ints(given) if given is not None else range(len(right) - len(left), len(right))
        return builder.broadcast_in_dim(lhs, list(dims), right), rhs
    dims = _ints(given) if given is not None else range(len(left) - len(right), len(left))
    if len(left) > len(right):
        return lhs, builder.broadcast_in_dim(rhs, list(dims), left)
    shape = [b if a == ONE else a for a, b in zip(left, right, strict=True)]
    return builder.broadcast_to(lhs, shape), builder.broadcast_to(rhs, shape)


@converter("broadcast_add", "broadcast_subtract", "broadcast_multiply", "broadcast_divide",
           "broadcast_maximum", "broadcast_minimum", "broadcast_power")  # fmt: skip
def _broadcast_binary(at: FunctionConverter, operation: HloOperation) -> Sequence[Value]:
    lhs, rhs = _broadcast_pair(
        at.builder, at.operand(operation, 0), at.operand(operation, 1), operation.attributes
    )
    return [
        at.builder.binary(operation_key(operation.name).removeprefix("broadcast_"), lhs, rhs)
    ]


@converter("square")
def _square(at: FunctionConverter, operation: HloOperation) -> Sequence[Value]:
    value = at.operand(operation, 0)
    return [at.builder.binary("multiply", value, value)]


_DIRECTIONS = {
    "eq": "EQ", "ne": "NE", "slt": "LT", "sle": "LE", "sgt": "GT", "sge": "GE",
    "oeq": "EQ", "une": "NE", "olt": "LT", "ole": "LE", "ogt": "GT", "oge": "GE",
}  # fmt: skip


@converter("compare", "cmpi", "cmpf")
def _compare(at: FunctionConverter, operation: HloOperation) -> Sequence[Value]:
    attributes = operation.attributes
    direction = attributes.get("comparison_direction", attributes.get("predicate", ""))
    text = str(direction)
    lhs, rhs = _broadcast_pair(
        at.builder, at.operand(operation, 0), at.operand(operation, 1), attributes
    )
    return [at.builder.compare(_DIRECTIONS.get(text, text.upper()), lhs, rhs)]


@converter("select")
def _select(at: FunctionConverter, operation: HloOperation) -> Sequence[Value]:
    predicate, on_true, on_false = at.operands(operation)
    if not shape_of(predicate):
        predicate = at.builder.broadcast_in_dim(predicate, (), shape_of(on_true))
    return [at.builder.select(predicate, on_true, on_false)]


@converter("clamp")
def _clamp(at: FunctionConverter, operation: HloOperation) -> Sequence[Value]:
    low, value, high = at.operands(operation)
    shape = shape_of(value)
    low, high = (
        b if shape_of(b) == shape else at.builder.broadcast_in_dim(b, (), shape)
        for b in (low, high)
    )
    return [at.builder.clamp(low, value, high)]


@converter("convert")
def _convert(at: FunctionConverter, operation: HloOperation) -> Sequence[Value]:
    return [at.builder.convert(at.operand(operation, 0), _result(operation).dtype)]


@converter("bitcast_convert")
def _bitcast_convert(at: FunctionConverter, operation: HloOperation) -> Sequence[Value]:
    return [at.builder.bitcast_convert(at.operand(operation, 0), _result(operation).dtype)]


# -- movement -------------------------------------------------------------------------


@converter("broadcast_in_dim")
def _broadcast_in_dim(at: FunctionConverter, operation: HloOperation) -> Sequence[Value]:
    operand = at.operand(operation, 0)
    given = operation.attributes.get("broadcast_dimensions")
    kind = _result(operation)
    rank = len(shape_of(operand))
    if given is None:
        # 2019 text leaves the attribute out for scalars and for equal leading shapes.
        dims = list(range(len(kind.shape) - rank, len(kind.shape)))
    else:
        dims = _ints(given)
    return [at.builder.broadcast_in_dim(operand, dims, kind.shape)]


@converter("broadcast")
def _broadcast(at: FunctionConverter, operation: HloOperation) -> Sequence[Value]:
    operand = at.operand(operation, 0)
    sizes = _ints(operation.attributes["broadcast_sizes"])
    shape = [*sizes, *shape_of(operand)]
    return [at.builder.broadcast_to(operand, shape)]


@converter("reshape")
def _reshape(at: FunctionConverter, operation: HloOperation) -> Sequence[Value]:
    return [at.builder.reshape(at.operand(operation, 0), _result(operation).shape)]


@converter("transpose")
def _transpose(at: FunctionConverter, operation: HloOperation) -> Sequence[Value]:
    permutation = _ints(operation.attributes["permutation"])
    return [at.builder.transpose(at.operand(operation, 0), permutation)]


@converter("slice")
def _slice(at: FunctionConverter, operation: HloOperation) -> Sequence[Value]:
    a = operation.attributes
    operand = at.operand(operation, 0)
    rank = len(shape_of(operand))
    return [
        at.builder.slice(
            operand,
            _spread(a["start_indices"], rank),
            _spread(a["limit_indices"], rank),
            _spread(a.get("strides"), rank),
        )
    ]


@converter("dynamic_slice")
def _dynamic_slice(at: FunctionConverter, operation: HloOperation) -> Sequence[Value]:
    operand, *start = at.operands(operation)
    return [
        at.builder.dynamic_slice(operand, start, _ints(operation.attributes["slice_sizes"]))
    ]


@converter("dynamic_update_slice")
def _dynamic_update_slice(at: FunctionConverter, operation: HloOperation) -> Sequence[Value]:
    operand, update, *start = at.operands(operation)
    return [at.builder.dynamic_update_slice(operand, update, start)]


@converter("pad")
def _pad(at: FunctionConverter, operation: HloOperation) -> Sequence[Value]:
    a = operation.attributes
    operand, value = at.operands(operation)
    rank = len(shape_of(operand))
    return [
        at.builder.pad(
            operand,
            value,
            _spread(a["edge_padding_low"], rank, 0),
            _spread(a["edge_padding_high"], rank, 0),
            _spread(a.get("interior_padding"), rank, 0),
        )
    ]


@converter("concatenate")
def _concatenate(at: FunctionConverter, operation: HloOperation) -> Sequence[Value]:
    dimension = _ints(operation.attributes["dimension"])[0]
    return [at.builder.concatenate(at.operands(operation), dimension)]


@converter("reverse")
def _reverse(at: FunctionConverter, operation: HloOperation) -> Sequence[Value]:
    return [
        at.builder.reverse(at.operand(operation, 0), _ints(operation.attributes["dimensions"]))
    ]


@converter("gather")
def _gather(at: FunctionConverter, operation: HloOperation) -> Sequence[Value]:
    numbers = {**operation.attributes, **operation.attributes.get("dimension_numbers", {})}
    operand, indices = at.operands(operation)
    return [
        at.builder.gather(
            operand,
            indices,
            offset_dims=_ints(numbers.get("offset_dims", [])),
            collapsed_slice_dims=_ints(numbers.get("collapsed_slice_dims", [])),
            start_index_map=_ints(numbers["start_index_map"]),
            index_vector_dim=_ints(numbers["index_vector_dim"])[0],
            slice_sizes=_ints(numbers["slice_sizes"]),
            operand_batching_dims=_ints(numbers.get("operand_batching_dims", [])),
            start_indices_batching_dims=_ints(numbers.get("start_indices_batching_dims", [])),
        )
    ]


# -- reductions and contractions ----------------------------------------------------------


def _inline_body(at: FunctionConverter, region: HloRegion) -> Callable[..., Sequence[SSAValue]]:
    """A reduction body as the function `TensorBuilder.reduce` takes."""

    def build(inner: TensorBuilder, *scalars: SSAValue) -> Sequence[SSAValue]:
        outer_builder, outer_values = at.builder, at.values
        at.builder = inner
        at.values = {
            **outer_values,
            **{name: s for (name, _), s in zip(region.arguments, scalars, strict=True)},
        }
        try:
            return [leaf for value in at.region_values(region) for leaf in _flatten(value)]
        finally:
            at.builder, at.values = outer_builder, outer_values

    return build


@converter("reduce")
def _reduce(at: FunctionConverter, operation: HloOperation) -> Sequence[Value]:
    values = at.operands(operation)
    half = len(values) // 2
    return at.builder.reduce(
        values[:half],
        values[half:],
        _ints(operation.attributes["dimensions"]),
        _inline_body(at, operation.regions[0]),
    )


@converter("reduce_window")
def _reduce_window(at: FunctionConverter, operation: HloOperation) -> Sequence[Value]:
    values = at.operands(operation)
    half = len(values) // 2
    a = operation.attributes
    window = _ints(a["window_dimensions"])
    rank = len(window)
    low, high = _pairs(a.get("padding"), rank)
    return at.builder.reduce_window(
        values[:half],
        values[half:],
        _inline_body(at, operation.regions[0]),
        window_dimensions=window,
        window_strides=_spread(a.get("window_strides"), rank),
        padding_low=low,
        padding_high=high,
        base_dilations=_spread(a.get("base_dilations"), rank),
        window_dilations=_spread(a.get("window_dilations"), rank),
    )


@converter("scatter")
def _scatter(at: FunctionConverter, operation: HloOperation) -> Sequence[Value]:
    a = operation.attributes
    n = {**a, **a.get("scatter_dimension_numbers", {})}
    values = at.operands(operation)
    count = len(values) // 2
    return at.builder.scatter(
        values[:count],
        values[count],
        values[count + 1 :],
        _inline_body(at, operation.regions[0]),
        update_window_dims=_ints(n.get("update_window_dims", [])),
        inserted_window_dims=_ints(n.get("inserted_window_dims", [])),
        scatter_dims_to_operand_dims=_ints(n.get("scattered_dims_to_operand_dims", n.get("scatter_dims_to_operand_dims", []))),
        index_vector_dim=_ints(n["index_vector_dim"])[0],
        input_batching_dims=_ints(n.get("input_batching_dims", [])),
        scatter_indices_batching_dims=_ints(n.get("scatter_indices_batching_dims", [])),
    )


@converter("sort")
def _sort(at: FunctionConverter, operation: HloOperation) -> Sequence[Value]:
    values = at.operands(operation)
    rank = len(shape_of(values[0]))
    dimension = _ints(operation.attributes.get("dimension", -1))[0]
    region = operation.regions[0]
    # The region's arguments come in pairs, one of either side; the builder's side by side.
    paired = HloRegion(
        [*region.arguments[0::2], *region.arguments[1::2]], region.operations
    )
    return at.builder.sort(values, dimension % max(rank, 1), _inline_body(at, paired))


@converter("real", "imag")
def _part(at: FunctionConverter, operation: HloOperation) -> Sequence[Value]:
    operand, key = at.operand(operation, 0), operation_key(operation.name)
    if dtype_of(operand).kind == "complex":
        return [at.builder.unary(key, operand)]
    zero = at.builder.splat(0, dtype_of(operand), shape_of(operand))
    return [operand if key == "real" else zero]


@converter("dot")
def _dot(at: FunctionConverter, operation: HloOperation) -> Sequence[Value]:
    lhs, rhs = at.operands(operation)
    return [
        at.builder.dot_general(
            lhs, rhs, contract=([len(shape_of(lhs)) - 1], [0]), dtype=_result(operation).dtype
        )
    ]


@converter("dot_general")
def _dot_general(at: FunctionConverter, operation: HloOperation) -> Sequence[Value]:
    a = operation.attributes
    n = {**a, **a.get("dot_dimension_numbers", {})}
    lhs, rhs = at.operands(operation)
    return [
        at.builder.dot_general(
            lhs,
            rhs,
            batch=(
                _ints(n.get("lhs_batching_dimensions", [])),
                _ints(n.get("rhs_batching_dimensions", [])),
            ),
            contract=(
                _ints(n.get("lhs_contracting_dimensions", [])),
                _ints(n.get("rhs_contracting_dimensions", [])),
            ),
            dtype=_result(operation).dtype,
        )
    ]


@converter("convolution")
def _convolution(at: FunctionConverter, operation: HloOperation) -> Sequence[Value]:
    a = operation.attributes
    n = {**a, **a.get("dimension_numbers", {})}
    lhs, rhs = at.operands(operation)
    spatial = len(shape_of(lhs)) - 2
    if _ints(n.get("batch_group_count", 1))[0] != 1:
        raise ValueError("batch groups are not supported")
    if any(_bools(n.get("window_reversal"))):
        rhs = at.builder.reverse(rhs, _ints(n["kernel_spatial_dimensions"]))
    left = [
        _ints(n["input_batch_dimension"])[0],
        _ints(n["input_feature_dimension"])[0],
        *_ints(n["input_spatial_dimensions"]),
    ]
    right = [
        _ints(n["kernel_output_feature_dimension"])[0],
        _ints(n["kernel_input_feature_dimension"])[0],
        *_ints(n["kernel_spatial_dimensions"]),
    ]
    out = [
        _ints(n["output_batch_dimension"])[0],
        _ints(n["output_feature_dimension"])[0],
        *_ints(n["output_spatial_dimensions"]),
    ]
    low, high = _pairs(n.get("padding"), spatial)
    result = at.builder.convolution(
        at.builder.transpose(lhs, left),
        at.builder.transpose(rhs, right),
        window_strides=_spread(n.get("window_strides"), spatial),
        padding_low=low,
        padding_high=high,
        lhs_dilation=_spread(n.get("lhs_dilation", n.get("lhs_dilations")), spatial),
        rhs_dilation=_spread(n.get("rhs_dilation", n.get("rhs_dilations")), spatial),
        feature_group_count=_ints(n.get("feature_group_count", 1))[0],
        dtype=_result(operation).dtype,
    )
    inverse = [out.index(d) for d in range(len(out))]
    return [at.builder.transpose(result, inverse)]


def _bools(value: Any) -> list[bool]:
    """A boolean attribute of any spelling as a list."""
    import numpy as np

    return [bool(v) for v in np.asarray(value if value is not None else []).reshape(-1)]


@converter("batch_norm_inference")
def _batch_norm_inference(at: FunctionConverter, operation: HloOperation) -> Sequence[Value]:
    """(operand - mean) / sqrt(variance + epsilon) * scale + offset, along one dimension."""
    operand, scale, offset, mean, variance = at.operands(operation)
    b = at.builder
    axis = _ints(operation.attributes["feature_index"])[0]
    shape = shape_of(operand)
    epsilon = b.splat(
        float(operation.attributes["epsilon"]), dtype_of(operand), shape_of(variance)
    )
    deviation = b.unary("sqrt", b.binary("add", variance, epsilon))
    spread = [b.broadcast_in_dim(v, [axis], shape) for v in (mean, deviation, scale, offset)]
    centred = b.binary("subtract", operand, spread[0])
    scaled = b.binary("multiply", b.binary("divide", centred, spread[1]), spread[2])
    return [b.binary("add", scaled, spread[3])]


@converter("torch_index_select")
def _torch_index_select(at: FunctionConverter, operation: HloOperation) -> Sequence[Value]:
    operand, indices = at.operands(operation)
    if _ints(operation.attributes.get("batch_dims", 0))[0] != 0:
        raise ValueError("batch dimensions are not supported")
    return [at.builder.take(operand, indices, _ints(operation.attributes["dim"])[0])]
