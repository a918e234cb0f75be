"""The meaning of the tensor stage in numpy: functions, models and parameter expressions.

`run` takes a model and named inputs; `evaluate_function` is the same without names;
`evaluate_source` evaluates a parameter, as `artifact/writer` needs it. The operations
themselves are in `meaning/`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from xdsl.dialects.builtin import (
    ArrayAttr,
    DenseArrayBase,
    DictionaryAttr,
    StringAttr,
    SymbolRefAttr,
)
from xdsl.dialects.func import FuncOp
from xdsl.ir import Attribute, Block, Operation, SSAValue

from headrace.base.dtypes import DType
from headrace.base.errors import error
from headrace.base.parameters import ArraySource, ExpressionSource, FileSource, Source
from headrace.ir.locations import places
from headrace.ir.model import Model
from headrace.ir.types import ExprsAttr, dtype_of, shape_of
from headrace.tensor import dialect as d
from headrace.tensor.build import to_numpy
from headrace.tensor.control import used_values
from headrace.tensor.dimensions import solve_dimensions
from headrace.tensor.meaning import (
    contraction,
    conversion,
    elementwise,
    movement,
    packing,
    placement,
    reduction,
)
from headrace.tensor.meaning.arguments import Arguments, Array, Meaning, Reducer, dtype_of_array
from headrace.tensor.reducers import reducer_kind
from headrace.tensor.sizes import defined_size, run_chain

MEANINGS: dict[str, Meaning] = {
    **elementwise.MEANINGS,
    **conversion.MEANINGS,
    **movement.MEANINGS,
    **reduction.MEANINGS,
    **contraction.MEANINGS,
    **packing.MEANINGS,
    **placement.MEANINGS,
}
"""Operation name without `tensor.` -> meaning; also `pack`, for parameters only."""


def evaluate(
    operation: str,
    arrays: Sequence[Array],
    dtype: DType,
    shape: Sequence[int],
    attributes: Mapping[str, Any] | None = None,
    reducer: Reducer | None = None,
) -> Any:
    """One operation by name, on arrays; a list of arrays for the reductions.

    Raises:
        HeadraceDefect HR9121: there is no operation of that name.
    """
    meaning = MEANINGS.get(operation)
    if meaning is None:
        raise error("HR9121", f"the tensor stage has no operation '{operation}'")
    return meaning(Arguments(tuple(arrays), attributes or {}, dtype, tuple(shape), reducer))


MOST_TRIPS = 1 << 20
"""The interpreter gives a loop up after so many trips."""


# -- operations ------------------------------------------------------------------------


def attribute_values(
    operation: Operation, dims: Mapping[str, int] | None = None
) -> dict[str, Any]:
    """An operation's properties as Python values: str and tuples of integers.

    Raises:
        KeyError: a size expression names a dimension that `dims` lacks.
    """
    values: dict[str, Any] = {}
    for name, attribute in operation.properties.items():
        value = _attribute_value(attribute, dims or {})
        if value is not None:
            values[name] = value
    return values


def _attribute_value(attribute: Attribute, dims: Mapping[str, int]) -> Any:
    if isinstance(attribute, DenseArrayBase):
        return tuple(int(v) for v in attribute.get_values())
    if isinstance(attribute, ExprsAttr):
        return tuple(e.evaluate(dims) for e in attribute.exprs)
    if isinstance(attribute, StringAttr):
        return attribute.data
    return None


def concrete_shape(value: SSAValue | Attribute, dims: Mapping[str, int]) -> tuple[int, ...]:
    """The shape of a tensor value under `dims`."""
    return tuple(s.evaluate(dims) for s in shape_of(value))


def _reducer(operation: Operation) -> Reducer:
    block = operation.regions[0].blocks[0]

    def combine(left: Sequence[Array], right: Sequence[Array]) -> list[Array]:
        # Scalars become whole arrays: the body holds only elementwise operations of them.
        values: dict[SSAValue, Array] = dict(zip(block.args, [*left, *right], strict=True))
        for op in block.ops:
            if isinstance(op, d.ReturnOp):
                return [values[v] for v in op.operands]
            arrays = [values[v] for v in op.operands]
            if isinstance(op, d.ConstantOp):
                values[op.result] = to_numpy(op.value)
            elif isinstance(op, d.ElementwiseOp):
                result = op.results[0]
                name = op.name.removeprefix("tensor.")
                values[result] = evaluate(
                    name, arrays, dtype_of(result), (), attribute_values(op)
                )
            elif isinstance(op, (d.BroadcastInDimOp, d.ReshapeOp, d.TransposeOp)):
                values[op.result] = arrays[0]  # of a scalar: nothing to do
            else:
                raise error(
                    "HR9122", f"'{op.name}' in the body of a reduction", at=places(operation)
                )
        raise error("HR9122", "the body of a reduction does not return", at=places(operation))

    return Reducer(reducer_kind(operation), combine)


def evaluate_operation(
    operation: Operation,
    arrays: Sequence[Array],
    dims: Mapping[str, int],
    parameters: Callable[[str], Array],
) -> list[Array]:
    """The results of one tensor operation.

    Raises:
        HeadraceDefect HR9123: a result does not have the type that the IR says.
    """
    if isinstance(operation, d.ParameterOp):
        found = [np.asarray(parameters(parameter_name(operation)))]
    elif isinstance(operation, d.ConstantOp):
        found = [to_numpy(operation.value)]
    else:
        first = operation.results[0]
        value = evaluate(
            operation.name.removeprefix("tensor."),
            arrays,
            dtype_of(first),
            concrete_shape(first, dims),
            attribute_values(operation, dims),
            _reducer(operation) if operation.regions else None,
        )
        found = [np.asarray(v) for v in value] if operation.regions else [np.asarray(value)]
    for array, result in zip(found, operation.results, strict=True):
        shape, kind = concrete_shape(result, dims), dtype_of(result)
        if array.shape != shape or array.dtype != kind.numpy_dtype:
            raise error(
                "HR9123",
                f"'{operation.name}' computes {array.dtype}{list(array.shape)} where its "
                f"type says {kind}{list(shape)}",
                at=places(operation),
            )
    return found


def parameter_name(operation: d.ParameterOp) -> str:
    """The key of a `tensor.parameter` in the model's table."""
    attribute: SymbolRefAttr = operation.parameter
    return attribute.root_reference.data


# -- functions -------------------------------------------------------------------------


def find_function(model: Model, name: str = "main") -> FuncOp:
    """The function of that name. Raises HeadraceError HR4007 where there is none."""
    functions = [op for op in model.ir.ops if isinstance(op, FuncOp)]
    for function in functions:
        if function.sym_name.data == name:
            return function
    known = ", ".join(f.sym_name.data for f in functions) or "none"
    raise error("HR4007", f"the model has no function '{name}'", helps=f"it has: {known}")


def evaluate_function(
    model_or_func: Model | FuncOp,
    inputs: Sequence[Array],
    dims: Mapping[str, int] | None = None,
    parameters: Callable[[str], Array] | None = None,
) -> list[Array]:
    """The results of a function (of a model: `main`) for inputs in order.

    Args:
        dims: the value of every named dimension; left out, it follows from the inputs.
        parameters: the array of a parameter; left out, the model's own sources.

    Raises:
        HeadraceError HR4001: the inputs do not fit the declared types.
        HeadraceDefect HR912x: an operation without meaning, or whose type is wrong.
    """
    if isinstance(model_or_func, Model):
        function = find_function(model_or_func)
        parameters = parameters or parameter_reader(model_or_func)
    else:
        function = model_or_func
    block = function.body.blocks[0]
    solved = _check_inputs(function, block, inputs, dims or {})
    return _evaluate_block(block, inputs, solved, parameters or _no_parameters)


def _no_parameters(name: str) -> Array:
    raise error("HR9124", f"parameter '{name}' is read but no parameters were given")


def _check_inputs(
    function: FuncOp, block: Block, inputs: Sequence[Array], dims: Mapping[str, int]
) -> dict[str, int]:
    names = argument_names(function)
    if len(inputs) != len(block.args):
        raise error("HR4001", f"{len(inputs)} inputs given, the model takes {len(block.args)}")
    for name, value, given in zip(names, block.args, inputs, strict=True):
        wanted = dtype_of(value)
        if np.asarray(given).dtype != wanted.numpy_dtype:
            raise error(
                "HR4001",
                f"input '{name}' holds {np.asarray(given).dtype}, the model takes {wanted}",
            )
    declared = [(n, shape_of(v)) for n, v in zip(names, block.args, strict=True)]
    return solve_dimensions(declared, [np.shape(i) for i in inputs], dims)


def _evaluate_block(
    block: Block,
    inputs: Sequence[Array],
    dims: Mapping[str, int],
    parameters: Callable[[str], Array],
    outer: Mapping[SSAValue, Array] | None = None,
) -> list[Array]:
    values: dict[SSAValue, Array] = dict(outer or {})
    values.update(zip(block.args, map(np.asarray, inputs), strict=True))
    last_use = _last_uses(block)
    dims = dict(dims)  # grows by what data decides
    for operation in block.ops:
        arrays = [values[v] for v in operation.operands]
        if operation.name in ("func.return", "tensor.return"):
            return [np.ascontiguousarray(a).reshape(a.shape) for a in arrays]
        if isinstance(operation, d.DefineDimensionOp):
            dims[operation.symbol.data] = defined_size(operation.symbol.data, arrays[0])
            continue
        if isinstance(operation, d.CONTROL):

            def enter(inner: Block, given: Sequence[Array]) -> list[Array]:
                return _evaluate_block(inner, given, dims, parameters, values)

            found = evaluate_control(operation, arrays, enter)
        else:
            found = evaluate_operation(operation, arrays, dims, parameters)
        values.update(zip(operation.results, found, strict=True))
        for dead in last_use.get(operation, ()):
            values.pop(dead, None)
    raise error("HR9125", "a function body does not return")


def evaluate_control(
    operation: d.IfOp | d.WhileOp,
    arrays: Sequence[Array],
    enter: Callable[[Block, Sequence[Array]], list[Array]],
) -> list[Array]:
    """The results of control flow; `enter` evaluates a block on arguments.

    Raises:
        HeadraceError HR4014: a loop runs more than `MOST_TRIPS` times.
    """
    if isinstance(operation, d.IfOp):
        taken = operation.then if bool(arrays[0]) else operation.otherwise
        return enter(taken.block, ())
    condition, body = operation.condition.block, operation.body.block
    return run_loop(
        lambda carried: enter(condition, carried)[0],
        lambda carried: enter(body, carried),
        arrays,
        operation,
    )


def run_loop(
    condition: Callable[[Sequence[Array]], Array],
    body: Callable[[Sequence[Array]], list[Array]],
    inputs: Sequence[Array],
    operation: Operation,
) -> list[Array]:
    """The carried values when the condition holds no longer; see `evaluate_control`."""
    carried = list(inputs)
    for _ in range(MOST_TRIPS):
        if not bool(condition(carried)):
            return carried
        carried = body(carried)
    raise error("HR4014", f"a loop runs more than {MOST_TRIPS} times", at=places(operation))


def _last_uses(block: Block) -> dict[Operation, list[SSAValue]]:
    """Which values each operation is the last to use, so that arrays are freed early."""
    seen: set[SSAValue] = set()
    last: dict[Operation, list[SSAValue]] = {}
    for operation in reversed(list(block.ops)):
        for value in (*used_values(operation), *operation.results):
            if value not in seen:
                seen.add(value)
                last.setdefault(operation, []).append(value)
    return last


def argument_names(function: FuncOp) -> list[str]:
    """The user's names of a function's inputs (`arg0`, ... where none is given)."""
    count = len(function.function_type.inputs)
    return _names(function.arg_attrs, count, "arg")


def result_names(function: FuncOp) -> list[str]:
    """The user's names of a function's outputs (`result0`, ... where none is given)."""
    count = len(function.function_type.outputs)
    return _names(function.res_attrs, count, "result")


def _names(attributes: ArrayAttr[DictionaryAttr] | None, count: int, default: str) -> list[str]:
    names = [f"{default}{n}" for n in range(count)]
    if attributes is None:
        return names
    for n, dictionary in enumerate(attributes.data):
        found = dictionary.data.get("hr.name")
        if isinstance(found, StringAttr):
            names[n] = found.data
    return names


def run(model: Model, inputs: Mapping[str, Array], function: str = "main") -> dict[str, Array]:
    """Evaluates an entry function: named arrays in, named arrays out.

    Raises:
        HeadraceError HR4001: inputs are missing, unknown, or do not fit.
        HeadraceDefect HR912x: see `evaluate_function`.
    """
    names = argument_names(find_function(model, function))
    missing = [n for n in names if n not in inputs]
    unknown = [n for n in inputs if n not in names]
    if missing or unknown:
        notes = [f"missing: {', '.join(missing)}"] if missing else []
        notes += [f"unknown: {', '.join(unknown)}"] if unknown else []
        raise error("HR4001", "the inputs are not those of the model", notes=notes)
    read = parameter_reader(model)

    def one(
        entry: FuncOp, values: Mapping[str, Array], dims: Mapping[str, int]
    ) -> tuple[dict[str, Array], dict[str, int]]:
        arrays = [np.asarray(values[n]) for n in argument_names(entry)]
        block = entry.body.blocks[0]
        solved = _check_inputs(entry, block, arrays, dims)
        outputs = _evaluate_block(block, arrays, solved, read)
        return dict(zip(result_names(entry), outputs, strict=True)), solved

    return run_chain(lambda name: find_function(model, name), function, inputs, one)


# -- parameters ------------------------------------------------------------------------


def parameter_reader(model: Model) -> Callable[[str], Array]:
    """Reads a model's parameters by name."""

    def read(name: str) -> Array:
        source = model.parameters.get(name)
        if source is None:
            raise error("HR9124", f"the model's table has no parameter '{name}'")
        return evaluate_source(source)

    return read


def evaluate_source(source: Source) -> Array:
    """The tensor that a source yields; expressions used twice are evaluated once.

    Raises:
        OSError, ValueError: a file is gone or shorter than it was.
        HeadraceDefect HR9121, HR9123: an expression without meaning or of a wrong type.
    """
    uses: dict[str, int] = {}
    _count_uses(source, uses)
    return _evaluate_source(source, uses, {})


def _count_uses(source: Source, uses: dict[str, int]) -> None:
    if not isinstance(source, ExpressionSource):
        return
    uses[source.digest] = uses.get(source.digest, 0) + 1
    if uses[source.digest] == 1:
        for operand in source.operands:
            _count_uses(operand, uses)


def _evaluate_source(source: Source, uses: dict[str, int], known: dict[str, Array]) -> Array:
    if isinstance(source, FileSource):
        return source.read()
    if isinstance(source, ArraySource):
        return source.array
    if source.digest in known:
        return known[source.digest]
    arrays = [_evaluate_source(o, uses, known) for o in source.operands]
    attributes = dict(source.attributes)
    reducer = named_reducer(attributes["reducer"]) if "reducer" in attributes else None
    value = evaluate(source.operation, arrays, source.dtype, source.shape, attributes, reducer)
    found = np.asarray(value[0] if isinstance(value, list) else value)
    if found.shape != source.shape or found.dtype != source.dtype.numpy_dtype:
        raise error(
            "HR9123",
            f"parameter expression '{source.operation}' computes {found.dtype}"
            f"{list(found.shape)} where {source.dtype}{list(source.shape)} was declared",
        )
    if uses[source.digest] > 1:
        known[source.digest] = found
    return found


def named_reducer(kind: str) -> Reducer:
    """The reducer of a reduction in a parameter expression (attribute `reducer`)."""

    def combine(left: Sequence[Array], right: Sequence[Array]) -> list[Array]:
        dtype = dtype_of_array(np.asarray(left[0]).dtype)
        return [evaluate(kind, [left[0], right[0]], dtype, ())]

    return Reducer(kind, combine)
