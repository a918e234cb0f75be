"""The meaning of the hal stage in numpy: the stream stage's machine on hal executables.

Also checks what materialised interfaces promise: each kernel's bindings are the interface
bindings its function asks for, in order, and a dispatch's accesses are within them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from xdsl.dialects.builtin import ModuleOp
from xdsl.dialects.func import FuncOp

from headrace.base.errors import error
from headrace.hal import dialect as hal
from headrace.ir.model import Model
from headrace.kernel.description import Kernel
from headrace.kernel.dialect import ExecuteOp
from headrace.stream.interp import run_program
from headrace.stream.places import place_of


def run(
    model: Model, inputs: Mapping[str, Any], function: str = "main", target: str | None = None
) -> dict[str, Any]:
    """Runs a program function on named arrays; see `stream/interp.run`.

    Args:
        target: whose variants to run; None takes the first of each executable.
    """
    return run_program(model, kernels_of(model.ir, target), inputs, function)


def kernels_of(module: ModuleOp, target: str | None = None) -> dict[tuple[str, str], Kernel]:
    """The kernel of every `@executable::@entry_point` in a target's variants.

    Raises:
        HeadraceDefect HR9607: a kernel's bindings are not its interface's.
    """
    found: dict[tuple[str, str], Kernel] = {}
    for executable in module.ops:
        if not isinstance(executable, hal.ExecutableOp):
            continue
        for variant in executable.body.ops:
            if not isinstance(variant, hal.ExecutableVariantOp):
                continue
            if target is not None and variant.target.data != target:
                continue
            for name, kernel in _kernels(variant).items():
                found.setdefault((executable.sym_name.data, name), kernel)
    return found


def _kernels(variant: hal.ExecutableVariantOp) -> dict[str, Kernel]:
    entries = {
        op.sym_name.data
        for op in variant.body.ops
        if isinstance(op, hal.ExecutableEntryPointOp)
    }
    found: dict[str, Kernel] = {}
    for inner in variant.body.ops:
        if not isinstance(inner, ModuleOp):
            continue
        for function in inner.ops:
            if isinstance(function, FuncOp) and function.sym_name.data in entries:
                kernel = _kernel(function)
                if kernel is not None:
                    found[function.sym_name.data] = kernel
    return found


def _kernel(function: FuncOp) -> Kernel | None:
    executes = [op for op in function.walk() if isinstance(op, ExecuteOp)]
    if len(executes) != 1:
        return None
    (execute,) = executes
    numbers: list[int] = []
    for argument in execute.arguments[: len(execute.kernel.operands)]:
        view = argument.owner
        if not isinstance(view, hal.InterfaceBindingSubspanOp):
            raise error("HR9607", "a kernel's operand is no binding", at=place_of(execute))
        numbers.append(int(view.binding_name.partition("b")[2].partition("_")[0]))
    if numbers != list(range(len(numbers))):
        raise error("HR9607", "a kernel's bindings are out of order", at=place_of(execute))
    return execute.kernel
