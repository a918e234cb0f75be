"""Executables of kernels: how the stream stage makes them and reads them back."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from xdsl.dialects.arith import ConstantOp
from xdsl.dialects.builtin import IndexType, IntegerAttr, LocationAttr, ModuleOp, StringAttr
from xdsl.dialects.func import FuncOp, ReturnOp
from xdsl.ir import Attribute, Block, Operation, Region

from headrace.ir.types import tensor_type
from headrace.kernel.description import Kernel
from headrace.kernel.dialect import BodyAttr, ExecuteOp
from headrace.stream.dialect import BindingSubspanOp, ExecutableExportOp, ExecutableOp
from headrace.stream.types import BindingType


def make_executable(
    name: str,
    entries: Sequence[tuple[str, Kernel]],
    location: LocationAttr,
    visibility: str | None = "private",
) -> ExecutableOp:
    """An executable with an export a kernel, in order."""
    exports: list[Operation] = [ExecutableExportOp(entry, "public") for entry, _ in entries]
    functions = [kernel_function(entry, kernel) for entry, kernel in entries]
    made = ExecutableOp(name, Region(Block([*exports, ModuleOp(functions)])), visibility)
    for op in made.walk():
        op.location = location
    return made


def kernel_function(entry: str, kernel: Kernel) -> FuncOp:
    """The function that runs a kernel: bindings in the kernel's order, then its dims."""
    kinds: list[Attribute] = [BindingType() for _ in kernel.operands]
    kinds += [IndexType() for _ in kernel.dims]
    block = Block(arg_types=kinds)
    zero = ConstantOp(IntegerAttr(0, IndexType()))
    zero.result.name_hint = "zero"
    views: list[BindingSubspanOp] = []
    for argument, operand in zip(block.args, kernel.operands, strict=False):
        hint = value_name(operand.name)
        argument.name_hint = f"{hint}_binding"
        kind = tensor_type(operand.dtype, operand.shape)
        view = BindingSubspanOp(argument, zero.result, kind)
        view.result.name_hint = hint
        views.append(view)
    scalars = block.args[len(kernel.operands) :]
    for argument, dim in zip(scalars, kernel.dims, strict=True):
        argument.name_hint = value_name(dim)
    execute = ExecuteOp.build(
        operands=[[*(view.result for view in views), *scalars]],
        properties={"body": BodyAttr(kernel)},
        result_types=[[]],
    )
    block.add_ops([zero, *views, execute, ReturnOp()])
    return FuncOp(entry, (kinds, []), Region(block))


def value_name(text: str) -> str | None:
    """A name as an SSA value may have it: `encoder/x.1` is `encoder_x_1`.

    xDSL drops a number at the end, and takes no empty name: `7` is `v_7`.
    """
    cleaned = re.sub(r"\W", "_", text, flags=re.ASCII)
    name = f"_{cleaned}" if cleaned[:1].isdigit() else cleaned
    return f"v{name}" if re.fullmatch(r"(_\d+)+", name) else name or None


def entry_functions(executable: ExecutableOp) -> Iterator[tuple[ExecutableExportOp, FuncOp]]:
    """The exports of an executable with their functions."""
    functions = {
        op.sym_name.data: op
        for inner in executable.body.ops
        if isinstance(inner, ModuleOp)
        for op in inner.ops
        if isinstance(op, FuncOp)
    }
    for export in executable.body.ops:
        if isinstance(export, ExecutableExportOp) and export.sym_name.data in functions:
            yield export, functions[export.sym_name.data]


def kernel_of(function: FuncOp) -> Kernel | None:
    """The kernel a function runs on its bindings, as `make_executable` wrote it."""
    executes = [op for op in function.walk() if isinstance(op, ExecuteOp)]
    if len(executes) != 1:
        return None
    views = [a.owner for a in executes[0].arguments]
    bindings = [v.binding for v in views if isinstance(v, BindingSubspanOp)]
    arguments = [a for a in function.body.block.args if isinstance(a.type, BindingType)]
    return executes[0].kernel if bindings == arguments else None


def fresh_name(name: str, taken: set[str]) -> str:
    """`name`, or `name_0`, `name_1`, ... where taken; adds it to `taken`."""
    found, n = name, 0
    while found in taken:
        found, n = f"{name}_{n}", n + 1
    taken.add(found)
    return found


def symbol_names(module: ModuleOp) -> set[str]:
    """The names of all symbols of a module's top level."""
    names: set[str] = set()
    for op in module.ops:
        name = op.get_attr_or_prop("sym_name")
        if isinstance(name, StringAttr):
            names.add(name.data)
    return names
