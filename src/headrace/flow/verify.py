"""What is legal when the flow stage ends: dispatches of outlined bodies, and nothing else
that computes. Everything that is wrong is listed at once, with its places."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeAlias

from xdsl.dialects.builtin import ModuleOp, SymbolRefAttr
from xdsl.dialects.func import FuncOp
from xdsl.dialects.func import ReturnOp as FuncReturnOp
from xdsl.ir import Operation

from headrace.base.dtypes import I1
from headrace.base.errors import Diagnostic, Problems
from headrace.base.symbols import product
from headrace.flow.control import CONTROL, IfOp, WhileOp
from headrace.flow.dialect import DispatchOp, ExecutableOp, TensorReshapeOp
from headrace.flow.executables import entry_functions
from headrace.ir.locations import places
from headrace.ir.types import dtype_of, shape_of, tensor_type
from headrace.kernel.dialect import ExecuteOp
from headrace.kernel.verify import problems_of
from headrace.tensor import dialect as t

LEGAL_IN_MODULE: frozenset[type[Operation]] = frozenset({FuncOp, ExecutableOp})
LEGAL_IN_FUNCTION: frozenset[type[Operation]] = frozenset(
    {t.ParameterOp, DispatchOp, TensorReshapeOp, FuncReturnOp, *CONTROL}
)
LEGAL_IN_ENTRY: frozenset[type[Operation]] = frozenset(
    {*t.TENSOR_OPERATIONS, ExecuteOp, FuncReturnOp}
    - {t.ParameterOp, t.DefineDimensionOp, *t.CONTROL}
)
"""The table of legal operations of the stage, by where they stand."""

Entries: TypeAlias = Mapping[SymbolRefAttr, FuncOp]


def verify(module: ModuleOp) -> None:
    """Checks a module.

    Raises:
        HeadraceDefect HR9220: an operation does not belong where it stands; HR9221: a
            dispatch does not fit its entry point; HR9222: a kernel does not fit its
            function; HR9223: a reshape changes elements; HR9225: a branch or loop does not
            fit its functions.
    """
    problems = Problems()
    entries = entry_functions(module)
    functions = {op.sym_name.data: op for op in module.ops if isinstance(op, FuncOp)}
    for operation in module.ops:
        if type(operation) not in LEGAL_IN_MODULE:
            _illegal(operation, "a module of the flow stage", problems)
        elif isinstance(operation, ExecutableOp):
            for entry in operation.module.ops:
                if isinstance(entry, FuncOp):
                    _entry(entry, problems)
                else:
                    _illegal(entry, "an executable", problems)
        elif isinstance(operation, FuncOp):
            for inner in operation.body.block.ops:
                _in_function(inner, entries, problems)
                if isinstance(inner, CONTROL):
                    _control(inner, functions, problems)
    problems.raise_if_any()


def _illegal(operation: Operation, where: str, problems: Problems) -> None:
    fact = f"'{operation.name}' is not legal in {where}"
    problems.add(Diagnostic("HR9220", fact, places(operation)))


def _in_function(operation: Operation, entries: Entries, problems: Problems) -> None:
    if type(operation) not in LEGAL_IN_FUNCTION:
        _illegal(operation, "a function of the flow stage", problems)
    elif isinstance(operation, DispatchOp):
        _dispatch(operation, entries, problems)
    elif isinstance(operation, TensorReshapeOp):
        before, after = shape_of(operation.operand), shape_of(operation.result)
        same_type = dtype_of(operation.operand) == dtype_of(operation.result)
        if product(before) != product(after) or not same_type:
            fact = f"a reshape of {operation.operand.type} to {operation.result.type}"
            problems.add(Diagnostic("HR9223", fact, places(operation)))


def _dispatch(dispatch: DispatchOp, entries: Entries, problems: Problems) -> None:
    where = places(dispatch)
    entry = entries.get(dispatch.entry_point)
    if entry is None:
        fact = f"there is no entry point {dispatch.entry_point}"
        problems.add(Diagnostic("HR9221", fact, where))
        return
    given = tuple(v.type for v in dispatch.arguments)
    made = tuple(r.type for r in dispatch.results)
    kind = entry.function_type
    if given != kind.inputs.data or made != kind.outputs.data:
        fact = f"a dispatch does not have the type of @{entry.sym_name.data}: {kind}"
        problems.add(Diagnostic("HR9221", fact, where))


def _control(
    operation: IfOp | WhileOp, functions: Mapping[str, FuncOp], problems: Problems
) -> None:
    results = tuple(r.type for r in operation.results)
    flag = (tensor_type(I1, ()),)
    if isinstance(operation, IfOp):
        names = (operation.then.root_reference.data, operation.otherwise.root_reference.data)
        given, returned = tuple(v.type for v in operation.arguments), (results, results)
        fits = (operation.condition.type,) == flag
    else:
        names = operation.callees()
        given, returned = tuple(v.type for v in operation.operands), (flag, results)
        fits = tuple(v.type for v in operation.inputs) == results
    for name, wanted in zip(names, returned, strict=True):
        found = functions.get(name)
        kind = found.function_type if found is not None else None
        if kind is None or (kind.inputs.data, kind.outputs.data) != (given, wanted):
            fits = False
    if not fits:
        fact = f"'{operation.name}' does not fit its functions"
        problems.add(Diagnostic("HR9225", fact, places(operation)))


def _entry(entry: FuncOp, problems: Problems) -> None:
    for key in ("hr.ordinal", "hr.workload"):
        if key not in entry.attributes:
            fact = f"entry point @{entry.sym_name.data} lacks {key}"
            problems.add(Diagnostic("HR9220", fact, places(entry)))
    for operation in entry.body.block.ops:
        if type(operation) not in LEGAL_IN_ENTRY:
            _illegal(operation, "an entry point", problems)
        elif isinstance(operation, ExecuteOp):
            _kernel(operation, problems)


def _kernel(operation: ExecuteOp, problems: Problems) -> None:
    where = places(operation)
    kernel = operation.kernel
    for fact in problems_of(kernel):
        problems.add(Diagnostic("HR9222", fact, where))
    written = set(kernel.outputs)
    reads = [o for n, o in enumerate(kernel.operands) if n not in written]
    writes = [kernel.operands[n] for n in kernel.outputs]
    sides = (("operand", reads, operation.arguments), ("result", writes, operation.results))
    for word, wanted, values in sides:
        if len(wanted) != len(values):
            fact = f"a kernel has {len(wanted)} {word}s, its operation {len(values)}"
            problems.add(Diagnostic("HR9222", fact, where))
            continue
        for operand, value in zip(wanted, values, strict=True):
            if shape_of(value) != operand.shape or dtype_of(value) != operand.dtype:
                fact = f"{word} '{operand.name}' of a kernel is no {value.type}"
                problems.add(Diagnostic("HR9222", fact, where))
