"""The interface of every export, from all the places that dispatch it.

One descriptor set holds all bindings in the order of the function's `!stream.binding`
arguments; the other arguments are push constants in theirs. The access of a binding is
merged over all dispatch sites: read where one reads, written where one writes, and
discarded only where *every* writing site discards what was there (anything else would
lose bytes at the site that keeps them). A binding no site uses stays, without access.
"""

from __future__ import annotations

from dataclasses import dataclass

from xdsl.dialects.builtin import ModuleOp
from xdsl.dialects.func import FuncOp
from xdsl.traits import SymbolTable

from headrace.base.errors import Diagnostic, Problems
from headrace.stream.commands import DispatchOp
from headrace.stream.dialect import ExecutableExportOp, ExecutableOp
from headrace.stream.places import place_of
from headrace.stream.types import BindingType


@dataclass(frozen=True)
class BindingAccess:
    """How a binding is used over all sites."""

    read: bool = False
    write: bool = False
    discard: bool = False

    def merged(self, access: str) -> BindingAccess:
        """With one more site of access `ro`, `wo`, `rw` or `xw`."""
        writes = access != "ro"
        keeps = self.write and not self.discard
        return BindingAccess(
            self.read or access in ("ro", "rw"),
            self.write or writes,
            (access == "xw" and not keeps) if writes else self.discard,
        )

    @property
    def suffix(self) -> str:
        """`rw`, `ro`, `xw` or `wo`, tested in that order; empty where no site uses it."""
        if self.read and self.write:
            return "rw"
        if self.read:
            return "ro"
        if self.discard and self.write:
            return "xw"
        return "wo" if self.write else ""


@dataclass(frozen=True)
class BindingLayout:
    """One binding: its place in the interface and its access over all sites."""

    set: int
    ordinal: int
    access: BindingAccess

    @property
    def name(self) -> str:
        """`s0b1_ro`."""
        suffix = self.access.suffix
        return f"s{self.set}b{self.ordinal}" + (f"_{suffix}" if suffix else "")


@dataclass(frozen=True)
class ExportLayout:
    """The interface of one export.

    Attributes:
        push_constants: 32-bit words.
        bindings: in the order of the function's binding arguments.
        sites: every dispatch of it, in the order of the module.
    """

    push_constants: int
    bindings: tuple[BindingLayout, ...]
    sites: tuple[DispatchOp, ...]


class BindingLayoutAnalysis:
    """Looks at all dispatch sites of a module once.

    Raises (when made):
        HeadraceError HR2501, HR2502: a dispatch names no export, or its operands are not
            the function's arguments; all of them at once.
    """

    def __init__(self, module: ModuleOp) -> None:
        problems = Problems()
        exports = _exports(module)
        sites: dict[tuple[str, str], list[DispatchOp]] = {}
        for op in module.walk():
            if not isinstance(op, DispatchOp):
                continue
            key = (op.executable_name, op.export_name)
            if key not in exports:
                problems.add(_unknown(op))
                continue
            sites.setdefault(key, []).append(op)
        self._layouts: dict[tuple[str, str], ExportLayout] = {}
        for key, function in exports.items():
            if function is None:
                continue
            found = sites.get(key, [])
            for site in found:
                _check_operands(site, function, problems)
            if not problems:
                self._layouts[key] = _layout(function, found)
        problems.raise_if_any()

    def of(self, executable: ExecutableOp, export: ExecutableExportOp) -> ExportLayout:
        """The layout of an export of the module."""
        return self._layouts[executable.sym_name.data, export.sym_name.data]


def exported_function(export: ExecutableExportOp) -> FuncOp | None:
    """The function of the inner module that an export names; None where there is none."""
    executable = export.parent_op()
    if not isinstance(executable, ExecutableOp):
        return None
    for op in executable.body.ops:
        if isinstance(op, ModuleOp):
            found = SymbolTable.lookup_symbol(op, export.sym_name)
            return found if isinstance(found, FuncOp) else None
    return None


def _exports(module: ModuleOp) -> dict[tuple[str, str], FuncOp | None]:
    return {
        (executable.sym_name.data, export.sym_name.data): exported_function(export)
        for executable in module.ops
        if isinstance(executable, ExecutableOp)
        for export in executable.body.ops
        if isinstance(export, ExecutableExportOp)
    }


def _unknown(site: DispatchOp) -> Diagnostic:
    return Diagnostic(
        "HR2501",
        f"dispatch of @{site.executable_name}::@{site.export_name}, which no executable exports",
        place_of(site),
    )


def _check_operands(site: DispatchOp, function: FuncOp, problems: Problems) -> None:
    inputs = function.function_type.inputs.data
    bindings = sum(isinstance(i, BindingType) for i in inputs)
    for what, given, wanted in (
        ("resources", len(site.resources), bindings),
        ("constants", len(site.constants), len(inputs) - bindings),
    ):
        if given != wanted:
            problems.add(
                Diagnostic(
                    "HR2502",
                    f"dispatch of @{site.executable_name}::@{site.export_name} "
                    f"with {given} {what}; the function takes {wanted}",
                    place_of(site),
                )
            )
    wanted_types = (i for i in inputs if not isinstance(i, BindingType))
    for number, (value, wanted) in enumerate(zip(site.constants, wanted_types, strict=False)):
        if value.type != wanted:
            problems.add(
                Diagnostic(
                    "HR2502",
                    f"dispatch of @{site.executable_name}::@{site.export_name} passes "
                    f"{value.type} as constant {number}; the function takes {wanted}",
                    place_of(site),
                )
            )


def _layout(function: FuncOp, sites: list[DispatchOp]) -> ExportLayout:
    inputs = function.function_type.inputs.data
    count = sum(isinstance(i, BindingType) for i in inputs)
    accesses = [BindingAccess()] * count
    for site in sites:
        for n, access in enumerate(site.accesses.data):
            accesses[n] = accesses[n].merged(access.data)
    return ExportLayout(
        len(inputs) - count,
        tuple(BindingLayout(0, n, access) for n, access in enumerate(accesses)),
        tuple(sites),
    )
