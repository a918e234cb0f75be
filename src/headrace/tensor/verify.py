"""What is legal when the tensor stage ends: its operations, each of the type its rule gives.

Everything that is wrong is listed at once, with the places in the user's model.
"""

from __future__ import annotations

from xdsl.dialects.builtin import ModuleOp
from xdsl.dialects.func import FuncOp
from xdsl.dialects.func import ReturnOp as FuncReturnOp
from xdsl.ir import Operation

from headrace.base.errors import Diagnostic, Problems
from headrace.ir.locations import places
from headrace.ir.model import Model
from headrace.ir.types import dtype_of, shape_of
from headrace.tensor import dialect as d
from headrace.tensor.typing_rules import inferred_types

LEGAL: frozenset[type[Operation]] = frozenset(
    {ModuleOp, FuncOp, FuncReturnOp, *d.TENSOR_OPERATIONS}
)
"""The table of legal operations of the stage."""

_BODY = (d.ElementwiseOp, d.ConstantOp, d.BroadcastInDimOp, d.ReshapeOp, d.ReturnOp)


def verify(module: ModuleOp | Model) -> None:
    """Checks a module; given a `Model`, its parameter table too.

    Raises:
        HeadraceError HR2101: an operation does not belong here; HR2102: operands, types or
            properties break an operation's rule; HR2103: a parameter is not in the table
            or is another tensor there.
    """
    model = module if isinstance(module, Model) else None
    root = module.ir if isinstance(module, Model) else module
    problems = Problems()
    for operation in root.walk():
        if type(operation) not in LEGAL:
            fact = f"'{operation.name}' is not legal in the tensor stage"
            problems.add(Diagnostic("HR2101", fact, places(operation)))
            continue
        reason = _broken_rule(operation)
        if reason:
            fact = f"'{operation.name}': {reason}"
            problems.add(Diagnostic("HR2102", fact, places(operation)))
        elif isinstance(operation, d.ParameterOp) and model is not None:
            _verify_parameter(operation, model, problems)
    problems.raise_if_any()


def _broken_rule(operation: Operation) -> str | None:
    if isinstance(operation, ModuleOp):
        return None
    if isinstance(operation, FuncOp):
        return None if len(operation.body.blocks) == 1 else "a function has one block"
    if isinstance(operation, FuncReturnOp):
        return _broken_return(operation)
    inside = isinstance(operation.parent_op(), d.BODIES)
    scalar = isinstance(operation, _BODY) and not any(shape_of(v) for v in operation.operands)
    if inside and not scalar:
        return "the body of a reduction computes with scalars"
    if isinstance(operation, d.ReturnOp):
        ends = inside or isinstance(operation.parent_op(), d.CONTROL)
        return None if ends else "it ends the body of a reduction or a region"
    try:
        expected = inferred_types(operation)
    except (ValueError, TypeError, IndexError, KeyError) as wrong:
        return str(wrong)
    for result, wanted in zip(operation.results, expected, strict=False):
        if result.type != wanted:
            return f"its type is {result.type}, its rule gives {wanted}"
    if len(expected) != len(operation.results):
        return f"it has {len(operation.results)} results, its rule gives {len(expected)}"
    return None


def _broken_return(operation: FuncReturnOp) -> str | None:
    function = operation.parent_op()
    if not isinstance(function, FuncOp):
        return "it ends a function"
    declared = list(function.function_type.outputs)
    returned = [v.type for v in operation.operands]
    return None if declared == returned else "the function declares other results"


def _verify_parameter(operation: d.ParameterOp, model: Model, problems: Problems) -> None:
    name = operation.parameter.root_reference.data
    source = model.parameters.get(name)
    if source is None:
        fact = f"parameter '{name}' is not in the table"
        problems.add(Diagnostic("HR2103", fact, places(operation)))
        return
    shape = tuple(s.value for s in shape_of(operation.result))
    kind = dtype_of(operation.result)
    if source.dtype != kind or source.shape != shape:
        fact = (
            f"parameter '{name}' is {source.dtype}{list(source.shape)} in the table and "
            f"{kind}{list(shape)} where it is read"
        )
        problems.add(Diagnostic("HR2103", fact, places(operation)))
