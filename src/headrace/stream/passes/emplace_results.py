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

from xdsl.dialects.builtin import SymbolRefAttr
from xdsl.dialects.func import FuncOp
from xdsl.ir import Block, SSAValue
from xdsl.rewriter import Rewriter

from headrace.base.symbols import ZERO
from headrace.ir.model import Model
from headrace.ir.passes import Pass
from headrace.kernel.description import Kernel
from headrace.stream.commands import CopyOp, DispatchOp
from headrace.stream.dialect import ResourceAllocOp
from headrace.stream.in_place import in_place_operand, written_in_place
from headrace.stream.in_place_sites import Executables, dispatch_in_place
from headrace.stream.liveness import Touch, touches
from headrace.stream.resources import aligned, is_input, size_of
from headrace.stream.types import lifetime_of


@dataclass(frozen=True)
class EmplaceResults(Pass):
    """`stream-emplace-results`."""

    def run(self, model: Model) -> None:
        executables = Executables(model.ir)
        for function in model.ir.ops:
            if isinstance(function, FuncOp) and function.body.blocks:
                _emplace(function.body.block, executables)
        executables.erase_unused()


def _emplace(block: Block, executables: Executables) -> None:
    """Until nothing changes: of a chain of updates the last goes first, then its operand."""
    while _emplace_once(block, executables):
        pass


def _emplace_once(block: Block, executables: Executables) -> bool:
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
    made = dispatch_in_place(site, result, operand, entry_point)
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
