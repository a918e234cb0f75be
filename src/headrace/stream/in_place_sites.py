"""Dispatches whose kernel was rewritten to place a result: their executables and bindings."""

from __future__ import annotations

import re

from xdsl.dialects.builtin import ModuleOp, SymbolRefAttr
from xdsl.rewriter import Rewriter

from headrace.kernel.description import Kernel
from headrace.kernel.text import print_kernel
from headrace.stream.commands import DispatchOp
from headrace.stream.dialect import ExecutableOp
from headrace.stream.executables import (
    entry_functions,
    fresh_name,
    kernel_of,
    make_executable,
    symbol_names,
)


class Executables:
    """Kernels by site, and the executables made for rewritten ones."""

    def __init__(self, module: ModuleOp) -> None:
        """Of a module in the stream stage."""
        self._module = module
        self._names = symbol_names(module)
        self._kernels: dict[tuple[str, str], Kernel] = {}
        self._owners: dict[str, ExecutableOp] = {}
        self._made: dict[str, SymbolRefAttr] = {}
        self._left: set[str] = set()
        for op in module.ops:
            if isinstance(op, ExecutableOp):
                self._owners[op.sym_name.data] = op
                for export, function in entry_functions(op):
                    kernel = kernel_of(function)
                    if kernel is not None:
                        self._kernels[op.sym_name.data, export.sym_name.data] = kernel

    def kernel(self, site: DispatchOp) -> Kernel | None:
        """The kernel of a site; None where its executable holds none."""
        return self._kernels.get((site.executable_name, site.export_name))

    def leave(self, site: DispatchOp) -> None:
        """Notes that a site is no more."""
        self._left.add(site.executable_name)

    def reference(
        self, site: DispatchOp, kernel: Kernel, suffix: str = "in_place"
    ) -> SymbolRefAttr:
        """The entry point for a rewritten kernel; equal ones are shared. `suffix` goes
        behind the names of a new one."""
        text = print_kernel(kernel)
        self._left.add(site.executable_name)
        if text not in self._made:
            # Rewritten twice, it is called as if once.
            wished, entry = (
                re.sub(rf"_{suffix}(_\d+)?$", "", name) + f"_{suffix}"
                for name in (site.executable_name, site.export_name)
            )
            name = fresh_name(wished, self._names)
            owner = self._owners[site.executable_name]
            made = make_executable(name, [(entry, kernel)], owner.location)
            block = owner.parent_block()
            assert block is not None
            block.insert_op_after(made, owner)
            self._owners[name] = made
            self._kernels[name, entry] = kernel
            self._made[text] = SymbolRefAttr(name, [entry])
        return self._made[text]

    def erase_unused(self) -> None:
        """Erases private executables that lost their last site to a rewritten kernel."""
        used = {op.executable_name for op in self._module.walk() if isinstance(op, DispatchOp)}
        for name in sorted(self._left - used):
            owner = self._owners[name]
            if owner.sym_visibility is not None and owner.sym_visibility.data == "private":
                Rewriter.erase_op(owner)


def dispatch_in_place(
    site: DispatchOp, result: int, operand: int, entry_point: SymbolRefAttr
) -> DispatchOp:
    """The site with one `rw` binding, the operand's, for operand and result.

    Args:
        entry_point: of `written_in_place(kernel, result, operand)`.
    """
    rows = list(
        zip(
            site.resources,
            (a.data for a in site.accesses.data),
            site.offsets.exprs,
            site.lengths.exprs,
            strict=True,
        )
    )
    rows[operand] = (rows[operand][0], "rw", *rows[operand][2:])
    del rows[result]
    made = DispatchOp(
        entry_point,
        site.workload.exprs,
        tuple(site.constants),
        [r[0] for r in rows],
        [r[1] for r in rows],
        [r[2] for r in rows],
        [r[3] for r in rows],
    )
    made.attributes.update(site.attributes)
    made.location = site.location
    return made
