"""The meaning of the stream stage in numpy: commands on byte buffers.

The oracle for every backend from here on. Allocations start out filled with a pattern
that is no number (0xFF bytes: NaN for floats), so what is read before it is written shows
in the answer. Kernels run through `kernel/interp`. `hal/interp.py` is the same machine
with another way to find the kernel of a dispatch.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from xdsl.dialects.builtin import ModuleOp
from xdsl.dialects.func import FuncOp
from xdsl.ir import Block, BlockArgument, SSAValue
from xdsl.traits import SymbolTable

from headrace.base.errors import error
from headrace.base.symbols import Expr
from headrace.ir.model import Model
from headrace.ir.types import dtype_of, shape_of
from headrace.kernel.description import Kernel
from headrace.kernel.interp import evaluate
from headrace.stream.commands import CallOp, CopyOp, DispatchOp, FillOp, IfOp, LoopOp
from headrace.stream.dialect import ExecutableOp, ResourceAllocOp, ResourceConstantOp
from headrace.stream.executables import entry_functions, kernel_of
from headrace.stream.places import place_of
from headrace.stream.resources import aliased_input, argument_io, argument_name, argument_type
from headrace.stream.scalars import scalar_expr
from headrace.tensor.dimensions import solve_dimensions
from headrace.tensor.interp import parameter_reader
from headrace.tensor.sizes import run_chain

Kernels = Mapping[tuple[str, str], Kernel]
Buffers = dict[SSAValue, Any]

_UNWRITTEN = 0xFF
MAXIMUM_STEPS = 1 << 20


def run(model: Model, inputs: Mapping[str, Any], function: str = "main") -> dict[str, Any]:
    """Runs a program function on named arrays.

    Args:
        model: at the end of the stream stage.
        inputs: an array for each input, by the user's name.

    Returns:
        The outputs by name.

    Raises:
        HeadraceError HR4001: shapes that do not fit.
    """
    return run_program(model, kernels_of(model.ir), inputs, function)


def kernels_of(module: ModuleOp) -> dict[tuple[str, str], Kernel]:
    """The kernel of every `@executable::@export`."""
    found: dict[tuple[str, str], Kernel] = {}
    for op in module.ops:
        if isinstance(op, ExecutableOp):
            for export, function in entry_functions(op):
                kernel = kernel_of(function)
                if kernel is not None:
                    found[op.sym_name.data, export.sym_name.data] = kernel
    return found


def run_program(
    model: Model,
    kernels: Kernels,
    inputs: Mapping[str, Any],
    function: str,
    machine_type: type[Machine] | None = None,
) -> dict[str, Any]:
    """`run` with the kernels given, and the machine that runs them; see there."""

    def find(name: str) -> FuncOp:
        found = SymbolTable.lookup_symbol(model.ir, name)
        if not isinstance(found, FuncOp):
            raise error("HR9509", f"there is no function @{name}")
        return found

    def one(
        found: FuncOp, values: Mapping[str, Any], dims: Mapping[str, int]
    ) -> tuple[dict[str, Any], dict[str, int]]:
        return _run_function(model, kernels, found, values, dims, machine_type or Machine)

    return run_chain(find, function, inputs, one)


def _run_function(
    model: Model,
    kernels: Kernels,
    function: FuncOp,
    inputs: Mapping[str, Any],
    known: Mapping[str, int],
    machine_type: type[Machine],
) -> tuple[dict[str, Any], dict[str, int]]:
    arguments = function.body.block.args
    given = [a for a in arguments if argument_io(a) == "input"]
    arrays = [np.asarray(inputs[argument_name(a)]) for a in given]
    dims = solve_dimensions(
        [(argument_name(a), shape_of(_type(a))) for a in given],
        [x.shape for x in arrays],
        known,
    )
    buffers: Buffers = {}
    for argument, array in zip(given, arrays, strict=True):
        wanted = dtype_of(_type(argument)).numpy_dtype
        buffers[argument] = _bytes(np.array(array, wanted))
    outputs = [a for a in arguments if argument_io(a) == "output"]
    for argument in outputs:
        place = aliased_input(argument)
        if place is None:
            buffers[argument] = _allocate(_shape(argument, dims), _type(argument))
        else:
            buffers[argument] = buffers[place]
    machine = machine_type(model, kernels, dims)
    machine.run(function.body.block, buffers)
    found = {
        argument_name(a): buffers[a]
        .view(dtype_of(_type(a)).numpy_dtype)
        .reshape(_shape(a, dims))
        for a in outputs
    }
    return found, dims


def _type(argument: BlockArgument) -> Any:
    kind = argument_type(argument)
    if kind is None:
        raise error("HR9509", f"argument {argument.index} has no hr.type")
    return kind


def _shape(argument: BlockArgument, dims: Mapping[str, int]) -> list[int]:
    return [s.evaluate(dims) for s in shape_of(_type(argument))]


def _allocate(shape: Sequence[int], kind: Any) -> Any:
    count = int(np.prod(shape, dtype=np.int64)) * dtype_of(kind).size_bytes
    return np.full(count, _UNWRITTEN, np.uint8)


def _bytes(array: Any) -> Any:
    dense = np.ascontiguousarray(array)
    return dense.reshape(-1).view(np.uint8).copy()


class Machine:
    """Runs blocks of commands on byte buffers."""

    def __init__(self, model: Model, kernels: Kernels, dims: Mapping[str, int]) -> None:
        self._model = model
        self._kernels = kernels
        self._dims = dims
        self._read: Callable[[str], Any] = parameter_reader(model)

    def _value(self, expr: Expr) -> int:
        return expr.evaluate(self._dims)

    def run(self, block: Block, buffers: Buffers) -> None:
        """Runs the commands of a block in order; `buffers` gains its allocations."""
        for op in block.ops:
            if isinstance(op, ResourceAllocOp):
                size = self._value(op.size.exprs[0])
                buffers[op.result] = np.full(size, _UNWRITTEN, np.uint8)
            elif isinstance(op, ResourceConstantOp):
                buffers[op.result] = _bytes(self._read(op.parameter.root_reference.data))
            elif isinstance(op, DispatchOp):
                self._dispatch(op, buffers)
            elif isinstance(op, CopyOp):
                self._copy(op, buffers)
            elif isinstance(op, FillOp):
                self._fill(op, buffers)
            elif isinstance(op, IfOp):
                taken = op.then if self._holds(op.condition, buffers) else op.otherwise
                self.run(taken.block, buffers)
            elif isinstance(op, LoopOp):
                self._loop(op, buffers)
            elif isinstance(op, CallOp):
                self._call(op, buffers)

    def _dispatch(self, op: DispatchOp, buffers: Buffers) -> None:
        kernel = self._kernels.get((op.executable_name, op.export_name))
        if kernel is None:
            raise error("HR9509", f"no kernel for {op.entry_point}", at=place_of(op))
        self.dispatch(op, kernel, buffers)

    def dispatch(self, op: DispatchOp, kernel: Kernel, buffers: Buffers) -> None:
        """Runs a kernel on the buffers of a dispatch, in place."""
        evaluate(kernel, self.views(op, kernel, buffers), self.constants(op, kernel))

    def views(self, op: DispatchOp, kernel: Kernel, buffers: Buffers) -> list[Any]:
        """The part of a buffer that each operand of a dispatch is, of its element type."""
        views: list[Any] = []
        rows = zip(
            kernel.operands, op.resources, op.offsets.exprs, op.lengths.exprs, strict=True
        )
        for operand, resource, offset, length in rows:
            start, size = self._value(offset), self._value(length)
            part = buffers[resource][start : start + size]
            if len(part) != size:
                raise error("HR9504", f"{op.name} reaches behind a resource", at=place_of(op))
            views.append(part if operand.layout.codes else part.view(operand.dtype.numpy_dtype))
        return views

    def constants(self, op: DispatchOp, kernel: Kernel) -> dict[str, int]:
        """The named dimensions of a dispatch's kernel."""
        words = [self._value(scalar_expr(v)) for v in op.constants]
        return dict(zip(kernel.dims, words, strict=True))

    def _copy(self, op: CopyOp, buffers: Buffers) -> None:
        length = self._value(op.length.exprs[0])
        source = self._value(op.source_offset.exprs[0])
        target = self._value(op.target_offset.exprs[0])
        part = buffers[op.source][source : source + length]
        buffers[op.target][target : target + length] = part

    def _fill(self, op: FillOp, buffers: Buffers) -> None:
        start = self._value(op.offset.exprs[0])
        size = self._value(op.length.exprs[0])
        width = op.pattern_bytes
        pattern = (op.pattern.value.data % (1 << 8 * width)).to_bytes(width, "little")
        repeated = (pattern * (size // width + 1))[:size]
        buffers[op.target][start : start + size] = np.frombuffer(repeated, np.uint8)

    def _holds(self, condition: SSAValue, buffers: Buffers) -> bool:
        return bool(buffers[condition][0])

    def _loop(self, op: LoopOp, buffers: Buffers) -> None:
        self.run(op.before.block, buffers)
        for _ in range(MAXIMUM_STEPS):
            if not self._holds(op.condition, buffers):
                return
            self.run(op.body.block, buffers)
        raise error("HR9509", f"a loop runs {MAXIMUM_STEPS} times", at=place_of(op))

    def _call(self, op: CallOp, buffers: Buffers) -> None:
        callee = SymbolTable.lookup_symbol(self._model.ir, op.callee)
        if not isinstance(callee, FuncOp):
            raise error("HR9509", f"there is no function {op.callee}", at=place_of(op))
        block = callee.body.block
        inside: Buffers = {}
        for parameter, argument in zip(block.args, op.arguments, strict=True):
            inside[parameter] = buffers[argument]
        self.run(block, inside)
