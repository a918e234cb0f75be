"""What is legal when the hal stage ends.

`LEGAL` names every operation that may stand in a program function and in an executable.
Beyond names: a `stream.executable` is left only where it exports nothing, kernels take no
arguments, entry points have ordinals 0, 1, ... in order and name an interface that the
variant's module holds, every dispatch names the interface bindings of its resources, and
its constants have 32 bits.
"""

from __future__ import annotations

from xdsl.dialects.builtin import ArrayAttr, IndexType, IntegerType, ModuleOp, SymbolRefAttr
from xdsl.dialects.func import FuncOp
from xdsl.traits import SymbolTable

from headrace.base.errors import Diagnostic, Problems
from headrace.hal import dialect as hal
from headrace.stream import dialect as stream
from headrace.stream import verify as stream_verify
from headrace.stream.commands import DispatchOp
from headrace.stream.places import place_of

LEGAL: dict[str, frozenset[str]] = {
    "program": stream_verify.LEGAL["program"],
    "kernel": stream_verify.LEGAL["kernel"]
    - {
        "stream.executable", "stream.executable.export", "stream.binding.subspan",
        "stream.dispatch.workgroup.id", "stream.dispatch.workgroup.count",
        "stream.dispatch.workgroup.size",
    }
    | {
        "hal.executable", "hal.executable.variant", "hal.executable.entry_point",
        "hal.interface", "hal.interface.binding", "hal.interface.load.constant",
        "hal.interface.binding.subspan", "hal.interface.workgroup.id",
        "hal.interface.workgroup.count", "hal.interface.workgroup.size",
    },
}  # fmt: skip
"""Operations that may stand in program functions, and in executables."""


def verify(module: ModuleOp) -> None:
    """Checks a whole module at the end of the stage.

    Raises:
        HeadraceDefect HR9501 to HR9506, HR9601 to HR9605: everything illegal, with its
            places.
    """
    problems = Problems()
    for op in module.ops:
        if isinstance(op, stream.ExecutableOp):
            _check_left_over(op, problems)
        elif isinstance(op, hal.ExecutableOp):
            stream_verify.check_names(op, LEGAL["kernel"], "hal", problems)
            _check_executable(op, problems)
        else:
            stream_verify.check_names(op, LEGAL["program"], "hal", problems)
            if isinstance(op, FuncOp):
                stream_verify.check_program(op, problems)
    known = _bindings(module)
    for op in module.walk():
        if isinstance(op, DispatchOp):
            _check_dispatch(op, known, problems)
    problems.raise_if_any()


def _check_left_over(source: stream.ExecutableOp, problems: Problems) -> None:
    if any(isinstance(op, stream.ExecutableExportOp) for op in source.body.ops):
        problems.add(
            Diagnostic(
                "HR9601",
                f"stream.executable @{source.sym_name.data} has exports but no interface",
                place_of(source),
            )
        )


def _check_executable(executable: hal.ExecutableOp, problems: Problems) -> None:
    for variant in executable.body.ops:
        if not isinstance(variant, hal.ExecutableVariantOp):
            continue
        entries = [op for op in variant.body.ops if isinstance(op, hal.ExecutableEntryPointOp)]
        inner = next((op for op in variant.body.ops if isinstance(op, ModuleOp)), None)
        if inner is None or [e.number for e in entries] != list(range(len(entries))):
            problems.add(
                Diagnostic(
                    "HR9602",
                    f"variant @{variant.sym_name.data} needs a module and ordinals in order",
                    place_of(variant),
                )
            )
            continue
        for entry in entries:
            _check_entry(entry, inner, problems)


def _check_entry(
    entry: hal.ExecutableEntryPointOp, inner: ModuleOp, problems: Problems
) -> None:
    name = entry.sym_name.data
    function = SymbolTable.lookup_symbol(inner, entry.sym_name)
    if not isinstance(function, FuncOp) or function.function_type.inputs.data:
        problems.add(
            Diagnostic(
                "HR9603",
                f"entry point @{name} is no function without arguments",
                place_of(entry),
            )
        )
    interface = SymbolTable.lookup_symbol(inner, entry.interface)
    if not isinstance(interface, hal.InterfaceOp):
        problems.add(
            Diagnostic(
                "HR9604",
                f"the module of entry point @{name} lacks its interface",
                place_of(entry),
            )
        )


def _bindings(module: ModuleOp) -> set[SymbolRefAttr]:
    """`@executable::@interface::@binding` for all there are."""
    return {
        SymbolRefAttr(executable.sym_name, [interface.sym_name, binding.sym_name])
        for executable in module.ops
        if isinstance(executable, hal.ExecutableOp)
        for interface in executable.body.ops
        if isinstance(interface, hal.InterfaceOp)
        for binding in interface.bindings
    }


def _check_dispatch(site: DispatchOp, known: set[SymbolRefAttr], problems: Problems) -> None:
    given = site.attributes.get("hal.interface.bindings")
    named = given.data if isinstance(given, ArrayAttr) else ()
    if len(named) != len(site.resources) or any(b not in known for b in named):
        problems.add(
            Diagnostic(
                "HR9605",
                f"dispatch of @{site.executable_name}::@{site.export_name} does not name "
                "the interface bindings of its resources",
                place_of(site),
            )
        )
    for value in site.constants:
        if not isinstance(value.type, IndexType) and value.type != IntegerType(32):
            problems.add(
                Diagnostic("HR9606", f"a push constant of type {value.type}", place_of(site))
            )
