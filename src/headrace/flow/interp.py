"""The meaning of the flow stage in numpy: dispatches run their bodies.

A body that is still tensor operations runs through `tensor/interp`, one that is a kernel
through `kernel/interp`, its operands packed into the layouts they have.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from xdsl.dialects.func import FuncOp
from xdsl.dialects.func import ReturnOp as FuncReturnOp
from xdsl.ir import Block, Operation, SSAValue

from headrace.base.errors import error
from headrace.flow.control import IfOp, WhileOp
from headrace.flow.dialect import DispatchOp, DispatchRegionOp, ReturnOp, TensorReshapeOp
from headrace.flow.executables import entry_functions
from headrace.ir.locations import places
from headrace.ir.model import Model
from headrace.ir.types import shape_of
from headrace.kernel.buffers import pack_operand, unpack_operand
from headrace.kernel.description import Kernel
from headrace.kernel.dialect import ExecuteOp
from headrace.kernel.interp import evaluate
from headrace.tensor.dimensions import solve_dimensions
from headrace.tensor.interp import (
    argument_names,
    concrete_shape,
    evaluate_operation,
    find_function,
    parameter_reader,
    result_names,
    run_loop,
)
from headrace.tensor.sizes import run_chain

Array = Any
Values = dict[SSAValue, Array]


def run(model: Model, inputs: Mapping[str, Array], function: str = "main") -> dict[str, Array]:
    """Evaluates an entry function: named arrays in, named arrays out."""

    def one(
        entry: FuncOp, values: Mapping[str, Array], dims: Mapping[str, int]
    ) -> tuple[dict[str, Array], dict[str, int]]:
        arrays = [np.asarray(values[n]) for n in argument_names(entry)]
        outputs, solved = _evaluate(model, entry, arrays, dims)
        return dict(zip(result_names(entry), outputs, strict=True)), solved

    return run_chain(lambda name: find_function(model, name), function, inputs, one)


def evaluate_function(
    model: Model, inputs: Sequence[Array], function: str = "main"
) -> list[Array]:
    """The results of a function for inputs in order.

    Raises:
        HeadraceError HR4001: the inputs do not fit the declared types.
        HeadraceDefect HR92xx: an operation without meaning.
    """
    return _evaluate(model, find_function(model, function), inputs, {})[0]


def _evaluate(
    model: Model, entry: FuncOp, inputs: Sequence[Array], known: Mapping[str, int]
) -> tuple[list[Array], dict[str, int]]:
    names = argument_names(entry)
    block = entry.body.block
    declared = [(n, shape_of(v)) for n, v in zip(names, block.args, strict=True)]
    dims = solve_dimensions(declared, [np.shape(i) for i in inputs], known)
    values: Values = dict(zip(block.args, map(np.asarray, inputs), strict=True))
    return _Machine(model, dims).block(block, values), dims


def run_kernel(kernel: Kernel, inputs: Sequence[Array], dims: Mapping[str, int]) -> list[Array]:
    """The logical outputs of a kernel for logical inputs."""
    reads = iter(inputs)
    buffers: list[Array] = []
    for operand in kernel.operands:
        if operand.access == "ro":
            buffers.append(pack_operand(next(reads), operand, dims))
        else:
            size = operand.layout.size.evaluate(dims)
            buffers.append(np.zeros(size, operand.dtype.numpy_dtype))
    evaluate(kernel, buffers, dims)
    return [unpack_operand(buffers[n], kernel.operands[n], dims) for n in kernel.outputs]


class _Machine:
    def __init__(self, model: Model, dims: Mapping[str, int]) -> None:
        self.model = model
        self.dims = dims
        self.parameters: Callable[[str], Array] = parameter_reader(model)
        self.entries = entry_functions(model.ir)

    def block(self, block: Block, values: Values) -> list[Array]:
        for operation in block.ops:
            arrays = [values[v] for v in operation.operands]
            if isinstance(operation, (FuncReturnOp, ReturnOp)):
                return arrays
            results = self._results(operation, arrays, values)
            values.update(zip(operation.results, results, strict=True))
        raise error("HR9210", "a body does not return")

    def _results(
        self, operation: Operation, arrays: list[Array], values: Values
    ) -> list[Array]:
        if isinstance(operation, DispatchRegionOp):
            return self.block(operation.body.block, dict(values))
        if isinstance(operation, IfOp):
            taken = operation.then if bool(arrays[0]) else operation.otherwise
            return self._call(taken.root_reference.data, arrays[1:])
        if isinstance(operation, WhileOp):
            return self._while(operation, arrays)
        if isinstance(operation, DispatchOp):
            entry = self._entry(operation)
            inner: Values = dict(zip(entry.body.block.args, arrays, strict=True))
            return self.block(entry.body.block, inner)
        if isinstance(operation, ExecuteOp):
            return run_kernel(operation.kernel, arrays, self.dims)
        if isinstance(operation, TensorReshapeOp):
            return [arrays[0].reshape(concrete_shape(operation.result, self.dims))]
        return evaluate_operation(operation, arrays, self.dims, self.parameters)

    def _call(self, name: str, arrays: Sequence[Array]) -> list[Array]:
        block = find_function(self.model, name).body.block
        return self.block(block, dict(zip(block.args, arrays, strict=True)))

    def _while(self, operation: WhileOp, arrays: list[Array]) -> list[Array]:
        condition, body = operation.callees()
        count = len(operation.inputs)
        captured = arrays[count:]
        return run_loop(
            lambda carried: self._call(condition, [*carried, *captured])[0],
            lambda carried: self._call(body, [*carried, *captured]),
            arrays[:count],
            operation,
        )

    def _entry(self, dispatch: DispatchOp) -> FuncOp:
        found = self.entries.get(dispatch.entry_point)
        if found is None:
            raise error(
                "HR9211", f"there is no entry point {dispatch.entry_point}", at=places(dispatch)
            )
        return found
