"""Executables with equal bodies become one; their dispatches are redirected."""

from __future__ import annotations

from dataclasses import dataclass
from io import StringIO

from xdsl.dialects.builtin import SymbolRefAttr
from xdsl.dialects.func import FuncOp
from xdsl.printer import Printer

from headrace.flow.dialect import ExecutableOp
from headrace.flow.executables import dispatches, entries, executables, reference
from headrace.ir.locations import fused_location
from headrace.ir.model import Model
from headrace.ir.passes import Pass


@dataclass(frozen=True)
class DeduplicateExecutables(Pass):
    """Keeps the first of equal executables. Texts are compared, without the names."""

    def run(self, model: Model) -> None:
        groups: dict[str, list[ExecutableOp]] = {}
        for executable in executables(model.ir):
            groups.setdefault(_text(executable), []).append(executable)
        redirect: dict[SymbolRefAttr, SymbolRefAttr] = {}
        for first, *others in groups.values():
            if not others:
                continue
            _fuse_locations(first, others)
            for executable in others:
                for old, new in zip(entries(executable), entries(first), strict=True):
                    redirect[reference(executable, old)] = reference(first, new)
                executable.detach()
                executable.erase()
        for dispatch in dispatches(model.ir):
            if dispatch.entry_point in redirect:
                dispatch.entry_point = redirect[dispatch.entry_point]


def _fuse_locations(first: ExecutableOp, others: list[ExecutableOp]) -> None:
    """The one that stays names every place, once: merging pair by pair is quadratic."""
    for number, entry in enumerate(entries(first)):
        entry.location = fused_location([entry, *(entries(o)[number] for o in others)])
    first.location = fused_location([first, *others])


def _text(executable: ExecutableOp) -> str:
    """The text of the entries' bodies and signatures, without their names."""
    parts: list[str] = []
    for entry in entries(executable):
        attributes = [f"{k} = {v}" for k, v in sorted(entry.attributes.items())]
        names = "" if entry.arg_attrs is None else str(entry.arg_attrs)
        parts.append(f"{entry.function_type} {names} {attributes}\n{_body_text(entry)}")
    return "\n".join(parts)


def _body_text(entry: FuncOp) -> str:
    """The text of a body whose values have lost the names that a reader gave them."""
    for block in entry.walk_blocks():
        for value in (*block.args, *(r for op in block.ops for r in op.results)):
            value.name_hint = None
    stream = StringIO()
    Printer(stream).print_region(entry.body)
    return stream.getvalue()
