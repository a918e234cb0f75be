"""The dispatches of a program with the value behind each operand of their kernels."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from xdsl.dialects.builtin import ModuleOp, SymbolRefAttr
from xdsl.dialects.func import FuncOp, ReturnOp
from xdsl.ir import BlockArgument, SSAValue

from headrace.base.errors import error
from headrace.flow.control import CONTROL
from headrace.flow.dialect import DispatchOp, TensorReshapeOp
from headrace.flow.executables import dispatches, entry_functions
from headrace.flow.layouts.wishes import merged_wishes
from headrace.ir.locations import places
from headrace.kernel.description import Kernel
from headrace.kernel.dialect import ExecuteOp
from headrace.kernel.target import LayoutWish, Target
from headrace.tensor.dialect import ParameterOp


@dataclass(frozen=True)
class Entry:
    """An entry point: its kernel and which argument or result each operand is.

    Attributes:
        places: for each operand of the kernel, (is it a result, its number).
    """

    execute: ExecuteOp
    places: tuple[tuple[bool, int], ...]

    @property
    def kernel(self) -> Kernel:
        return self.execute.kernel


def read_entry(function: FuncOp) -> Entry:
    """Reads a function that is one `kernel.execute` between arguments and return.

    Raises:
        HeadraceDefect HR9224: it is anything else.
    """
    executes = [op for op in function.body.block.ops if isinstance(op, ExecuteOp)]
    terminator = function.body.block.last_op
    if len(executes) != 1 or not isinstance(terminator, ReturnOp):
        raise error(
            "HR9224",
            f"@{function.sym_name.data} is no single kernel when flow ends",
            at=places(function),
        )
    (execute,) = executes
    arguments, results = iter(execute.arguments), iter(execute.results)
    returned = list(terminator.arguments)
    found: list[tuple[bool, int]] = []
    for operand in execute.kernel.operands:
        if operand.access == "ro":
            argument = next(arguments)
            assert isinstance(argument, BlockArgument)
            found.append((False, argument.index))
        else:
            found.append((True, returned.index(next(results))))
    return Entry(execute, tuple(found))


@dataclass(frozen=True, eq=False)
class Site:
    """One dispatch.

    Attributes:
        places: for each operand of the kernel, (is it a result, its number).
        values: the tensor behind each operand of the kernel.
        wishes: what the class's targets wish, by operand.
    """

    dispatch: DispatchOp
    function: FuncOp
    kernel: Kernel
    places: tuple[tuple[bool, int], ...]
    values: tuple[SSAValue, ...]
    wishes: Mapping[int, LayoutWish]


@dataclass
class Value:
    """A tensor of a program.

    Attributes:
        producer: (site, operand) that writes it; None for inputs and weights.
        readers: (site, operand) of every kernel that reads it.
        plain: no dispatch writes it, it is an output, an operand of control flow or seen
            through a reshape: row-major, no halo.
        parameter: the operation it comes from where it is a weight (through reshapes).
    """

    ssa: SSAValue
    producer: tuple[Site, int] | None = None
    readers: list[tuple[Site, int]] = field(default_factory=list[tuple[Site, int]])
    plain: bool = False
    parameter: ParameterOp | None = None


def sites_of(module: ModuleOp, targets: Sequence[Target]) -> list[Site]:
    """Every dispatch, in order; kernels shared by sites are asked about once."""
    functions = entry_functions(module)
    entries = {reference: read_entry(function) for reference, function in functions.items()}
    wishes: dict[SymbolRefAttr, Mapping[int, LayoutWish]] = {}
    found: list[Site] = []
    for dispatch in dispatches(module):
        key = dispatch.entry_point
        entry = entries[key]
        if key not in wishes:
            wishes[key] = merged_wishes(functions[key], entry.kernel, targets)
        values = tuple(
            dispatch.results[number] if is_result else dispatch.arguments[number]
            for is_result, number in entry.places
        )
        function = functions[dispatch.entry_point]
        found.append(Site(dispatch, function, entry.kernel, entry.places, values, wishes[key]))
    return found


def values_of(module: ModuleOp, sites: Sequence[Site]) -> dict[SSAValue, Value]:
    """Every tensor of the program functions, in order."""
    found: dict[SSAValue, Value] = {}
    for function in module.ops:
        if not isinstance(function, FuncOp) or not function.body.blocks:
            continue
        for argument in function.body.block.args:
            found[argument] = Value(argument, plain=True)
        for op in function.body.block.ops:
            for result in op.results:
                found[result] = Value(result)
            if isinstance(op, ParameterOp):
                found[op.result].parameter = op
            if isinstance(op, TensorReshapeOp):
                found[op.result].parameter = found[op.operand].parameter
                found[op.result].plain = found[op.operand].plain = True
            if isinstance(op, (ReturnOp, *CONTROL)):
                for value in (*op.operands, *op.results):
                    found[value].plain = True
    for site in sites:
        for number, ssa in enumerate(site.values):
            if site.kernel.operands[number].access == "ro":
                found[ssa].readers.append((site, number))
            else:
                found[ssa].producer = (site, number)
    for value in found.values():
        if value.producer is None and value.parameter is None:
            value.plain = True
    return found
