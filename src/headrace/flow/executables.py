"""Looks into executables: entry points by reference, and their dispatches."""

from __future__ import annotations

from xdsl.dialects.builtin import ModuleOp, SymbolRefAttr
from xdsl.dialects.func import FuncOp

from headrace.flow.dialect import DispatchOp, ExecutableOp
from headrace.kernel.description import Kernel
from headrace.kernel.dialect import ExecuteOp


def executables(module: ModuleOp) -> list[ExecutableOp]:
    """Every executable of a module, in order."""
    return [op for op in module.ops if isinstance(op, ExecutableOp)]


def entries(executable: ExecutableOp) -> list[FuncOp]:
    """The entry points of an executable, in order of their ordinals."""
    return [op for op in executable.module.ops if isinstance(op, FuncOp)]


def reference(executable: ExecutableOp, entry: FuncOp) -> SymbolRefAttr:
    """`@executable::@entry`."""
    return SymbolRefAttr(executable.sym_name.data, [entry.sym_name.data])


def entry_functions(module: ModuleOp) -> dict[SymbolRefAttr, FuncOp]:
    """Every entry point by its reference."""
    return {
        reference(executable, entry): entry
        for executable in executables(module)
        for entry in entries(executable)
    }


def dispatches(module: ModuleOp) -> list[DispatchOp]:
    """Every dispatch of a module, in order."""
    return [op for op in module.walk() if isinstance(op, DispatchOp)]


def kernel_of(entry: FuncOp) -> Kernel | None:
    """The kernel of an entry point, None while its body is tensor operations."""
    first = entry.body.block.first_op
    return first.kernel if isinstance(first, ExecuteOp) else None
