"""What is legal when the stream stage ends.

`LEGAL` names every operation that may stand in a program function and in a kernel
function. Beyond names: entry functions return nothing and take resources whose size is
said, dispatches fit the functions they run, ranges of known size lie inside their
resource, and every allocation is written before it is read.
"""

from __future__ import annotations

from xdsl.dialects.builtin import ModuleOp
from xdsl.dialects.func import FuncOp
from xdsl.ir import Block, BlockArgument, Operation, SSAValue

from headrace.base.errors import Diagnostic, Problems
from headrace.base.symbols import Expr
from headrace.stream.analysis.binding_layout import BindingLayoutAnalysis
from headrace.stream.commands import CallOp, CopyOp, DispatchOp, FillOp, IfOp, LoopOp, touched
from headrace.stream.dialect import ExecutableOp, ResourceAllocOp
from headrace.stream.places import place_of
from headrace.stream.resources import argument_io, size_of
from headrace.stream.types import ResourceType, lifetime_of

SCALARS = (
    "arith.constant", "arith.index_cast", "arith.trunci", "arith.extui", "arith.extsi",
    "arith.shrui", "arith.bitcast", "stream.size",
)  # fmt: skip

LEGAL: dict[str, frozenset[str]] = {
    "program": frozenset(
        (
            "func.func", "func.return", *SCALARS, "stream.resource.alloc",
            "stream.resource.constant", "stream.cmd.dispatch", "stream.cmd.copy",
            "stream.cmd.fill", "stream.cmd.if", "stream.cmd.loop", "stream.cmd.call",
        )
    ),
    "kernel": frozenset(
        (
            "builtin.module", "func.func", "func.return", "func.call", *SCALARS,
            "arith.addi", "arith.muli", "arith.shli", "arith.ori", "stream.executable",
            "stream.executable.export", "stream.binding.subspan",
            "stream.dispatch.workgroup.id", "stream.dispatch.workgroup.count",
            "stream.dispatch.workgroup.size", "kernel.execute",
        )
    ),
}  # fmt: skip
"""Operations that may stand in program functions, and in executables."""


def verify(module: ModuleOp) -> None:
    """Checks a whole module at the end of the stage.

    Raises:
        HeadraceDefect HR9501 to HR9506: everything illegal, with its places.
        HeadraceError HR2501, HR2502: a dispatch that fits no export.
    """
    problems = Problems()
    for op in module.ops:
        if isinstance(op, ExecutableOp):
            check_names(op, LEGAL["kernel"], "stream", problems)
        else:
            check_names(op, LEGAL["program"], "stream", problems)
            if isinstance(op, FuncOp):
                check_program(op, problems)
    problems.raise_if_any()
    BindingLayoutAnalysis(module)


def check_names(root: Operation, legal: frozenset[str], stage: str, problems: Problems) -> None:
    """Adds a problem for every operation under `root` that the table does not name."""
    for op in root.walk():
        if op.name not in legal:
            problems.add(
                Diagnostic("HR9501", f"{op.name} is not legal when {stage} ends", place_of(op))
            )


def check_program(function: FuncOp, problems: Problems) -> None:
    """Adds what is wrong with one program function."""
    name = function.sym_name.data
    if function.function_type.outputs.data:
        problems.add(
            Diagnostic(
                "HR9502", f"@{name} returns values; outputs are arguments", place_of(function)
            )
        )
    if not function.body.blocks:
        return
    for argument in function.body.block.args:
        if not isinstance(argument.type, ResourceType):
            problems.add(
                Diagnostic(
                    "HR9503",
                    f"argument {argument.index} of @{name} is no resource",
                    place_of(function),
                )
            )
    if not problems:
        _check_ranges(function, problems)
        _check_order(function, problems)


def _ranges(op: Operation) -> list[tuple[SSAValue, Expr, Expr]]:
    if isinstance(op, DispatchOp):
        return list(zip(op.resources, op.offsets.exprs, op.lengths.exprs, strict=True))
    if isinstance(op, CopyOp):
        length = op.length.exprs[0]
        return [
            (op.source, op.source_offset.exprs[0], length),
            (op.target, op.target_offset.exprs[0], length),
        ]
    if isinstance(op, FillOp):
        return [(op.target, op.offset.exprs[0], op.length.exprs[0])]
    return []


def _check_ranges(function: FuncOp, problems: Problems) -> None:
    for op in function.walk():
        for resource, offset, length in _ranges(op):
            size = size_of(resource)
            if size is None:
                continue
            beyond = offset + length - size
            if (offset.is_constant and offset.value < 0) or (
                beyond.is_constant and beyond.value > 0
            ):
                problems.add(
                    Diagnostic(
                        "HR9504",
                        f"{op.name} reaches bytes [{offset}, {offset + length}) "
                        f"of a resource of {size}",
                        place_of(op),
                    )
                )


def _check_order(function: FuncOp, problems: Problems) -> None:
    """Every allocation is written before it is read, constants are never written."""
    written: set[SSAValue] = set()
    _walk_order(function.body.block, written, problems)


def _walk_order(block: Block, written: set[SSAValue], problems: Problems) -> None:
    for op in block.ops:
        if isinstance(op, LoopOp):
            _walk_order(op.before.block, written, problems)
        if isinstance(op, (DispatchOp, CopyOp, FillOp, IfOp, LoopOp, CallOp)):
            _check_touched(op, written, problems)
        if isinstance(op, IfOp):
            branches = (set(written), set(written))
            for region, seen in zip((op.then, op.otherwise), branches, strict=True):
                _walk_order(region.block, seen, problems)
            written |= branches[0] & branches[1]
        if isinstance(op, LoopOp):
            _walk_order(op.body.block, set(written), problems)


def _check_touched(
    op: DispatchOp | CopyOp | FillOp | IfOp | LoopOp | CallOp,
    written: set[SSAValue],
    problems: Problems,
) -> None:
    for resource, access in touched(op):
        if access in ("ro", "rw") and not isinstance(op, CallOp):
            fresh = isinstance(resource.owner, ResourceAllocOp) or _is_output(resource)
            if fresh and resource not in written:
                problems.add(
                    Diagnostic(
                        "HR9505",
                        f"{op.name} reads a resource nothing has written",
                        place_of(op),
                    )
                )
        if access != "ro":
            if lifetime_of(resource) == "constant":
                problems.add(Diagnostic("HR9506", f"{op.name} writes a constant", place_of(op)))
            written.add(resource)


def _is_output(resource: SSAValue) -> bool:
    return isinstance(resource, BlockArgument) and argument_io(resource) == "output"
