"""Results are produced in place of operands that die.

A dispatch whose result may be written over an operand (`in_place.py`: residual adds,
elementwise operations, rows normalised) takes the operand's resource for its result where
the operand is a transient that this dispatch is the last to touch. Both bindings become
one of access `rw`, and the kernel is rewritten so: no target ever sees two names for the
same bytes. Kernels shared with sites that cannot do so keep their executable.

Outputs are the caller's buffers already (`materialize_copies`); results that become an
output are never emplaced, since the output must not be an intermediate's bytes first.

An input that an output takes the place of is written over by the value that is copied to
it in the end, where this dispatch is the last to read it: a row of a cache is then all
that a step writes of it. The copy goes.
"""

from __future__ import annotations

from dataclasses import dataclass

from xdsl.dialects.builtin import ModuleOp, SymbolRefAttr
from xdsl.dialects.func import FuncOp
from xdsl.ir import Block, SSAValue
from xdsl.rewriter import Rewriter

from headrace.base.symbols import ZERO
from headrace.ir.model import Model
from headrace.ir.passes import Pass
from headrace.kernel.description import Kernel
from headrace.kernel.text import print_kernel
from headrace.stream.commands import CopyOp, DispatchOp
from headrace.stream.dialect import ExecutableOp, ResourceAllocOp
from headrace.stream.executables import (
    entry_functions,
    fresh_name,
    kernel_of,
    make_executable,
    symbol_names,
)
from headrace.stream.in_place import in_place_operand, written_in_place
from headrace.stream.liveness import Touch, touches
from headrace.stream.resources import aligned, is_input, size_of
from headrace.stream.types import lifetime_of


@dataclass(frozen=True)
class EmplaceResults(Pass):
    """`stream-emplace-results`."""

    def run(self, model: Model) -> None:
        executables = _Executables(model.ir)
        for function in model.ir.ops:
            if isinstance(function, FuncOp) and function.body.blocks:
                _emplace(function.body.block, executables)
        executables.erase_unused()


class _Executables:
    """Kernels by site, and the executables made for rewritten ones."""

    def __init__(self, module: ModuleOp) -> None:
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
        return self._kernels.get((site.executable_name, site.export_name))

    def reference(self, site: DispatchOp, kernel: Kernel) -> SymbolRefAttr:
        """The entry point for a rewritten kernel; equal ones are shared."""
        text = print_kernel(kernel)
        self._left.add(site.executable_name)
        if text not in self._made:
            name = fresh_name(f"{site.executable_name}_in_place", self._names)
            entry = f"{site.export_name}_in_place"
            before = self._owners[site.executable_name]
            made = make_executable(name, [(entry, kernel)], before.location)
            block = before.parent_block()
            assert block is not None
            block.insert_op_after(made, before)
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


def _emplace(block: Block, executables: _Executables) -> None:
    """Until nothing changes: of a chain of updates the last goes first, then its operand."""
    while _emplace_once(block, executables):
        pass


def _emplace_once(block: Block, executables: _Executables) -> bool:
    known = touches(block)
    changed = False
    for site in [op for op in block.ops if isinstance(op, DispatchOp)]:
        kernel = executables.kernel(site)
        while kernel is not None:
            pair = _pair(site, kernel, known)
            if pair is None:
                break
            result, operand = pair
            kernel = written_in_place(kernel, result, operand)
            reference = executables.reference(site, kernel)
            site = _rewrite(site, result, operand, reference, known)
            changed = True
    return changed


def _pair(
    site: DispatchOp, kernel: Kernel, known: dict[SSAValue, list[Touch]]
) -> tuple[int, int] | None:
    """(result, operand) numbers of the kernel where one may take the other's place."""
    for result in kernel.outputs:
        if not _begins_here(site, result, known):
            continue
        for operand in in_place_operand(kernel, result):
            kept, gone = site.resources[operand], site.resources[result]
            if _ends_here(site, operand, known) and size_of(kept) == size_of(gone):
                return result, operand
            if _is_next(site, operand, gone, known):
                return result, operand
    return None


def _is_next(
    site: DispatchOp, operand: int, result: SSAValue, known: dict[SSAValue, list[Touch]]
) -> bool:
    """Whether a result is what an input becomes, and the site the input's last reader."""
    resource = site.resources[operand]
    size = size_of(resource)
    if not is_input(resource) or size is None or sum(r is resource for r in site.resources) > 1:
        return False
    touched = known[resource]
    copies = [t for t in touched if t.writes]
    if len(copies) != 1 or any(t.nested for t in touched):
        return False
    copy = copies[0].operation
    return (
        isinstance(copy, CopyOp)
        and copy.source is result
        and copy.source_offset == copy.target_offset
        and copy.length.exprs[0] == size
        and size_of(result) == aligned(size)
        and [t.operation for t in touched[-2:]] == [site, copy]
    )


def _is_own_transient(site: DispatchOp, number: int) -> bool:
    resource = site.resources[number]
    return (
        isinstance(resource.owner, ResourceAllocOp)
        and lifetime_of(resource) == "transient"
        and site.offsets.exprs[number] == ZERO
        and sum(r is resource for r in site.resources) == 1
    )


def _begins_here(site: DispatchOp, number: int, known: dict[SSAValue, list[Touch]]) -> bool:
    if not _is_own_transient(site, number):
        return False
    touched = known[site.resources[number]]
    return touched[0].operation is site and not any(t.nested for t in touched)


def _ends_here(site: DispatchOp, number: int, known: dict[SSAValue, list[Touch]]) -> bool:
    if not _is_own_transient(site, number):
        return False
    touched = known[site.resources[number]]
    return touched[-1].operation is site and not any(t.nested for t in touched)


def _rewrite(
    site: DispatchOp,
    result: int,
    operand: int,
    entry_point: SymbolRefAttr,
    known: dict[SSAValue, list[Touch]],
) -> DispatchOp:
    kept, gone = site.resources[operand], site.resources[result]
    rows = list(
        zip(
            site.resources,
            (a.data for a in site.accesses.data),
            site.offsets.exprs,
            site.lengths.exprs,
            strict=True,
        )
    )
    rows[operand] = (kept, "rw", *rows[operand][2:])
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
    owner = gone.owner
    Rewriter.replace_op(site, made)
    gone.replace_all_uses_with(kept)
    assert isinstance(owner, ResourceAllocOp)
    Rewriter.erase_op(owner)
    for touch in known[kept]:
        copy = touch.operation
        if isinstance(copy, CopyOp) and copy.source is copy.target:
            Rewriter.erase_op(copy)
            known[gone] = [t for t in known[gone] if t.operation is not copy]
            known[kept] = [t for t in known[kept] if t.operation is not copy]
            break
    known[kept] += [t for t in known.pop(gone) if t.operation is not site]
    for resource in dict.fromkeys(made.resources):
        known[resource] = [
            Touch(t.position, made, "rw" if resource is kept else t.access)
            if t.operation is site
            else t
            for t in known[resource]
        ]
    return made
