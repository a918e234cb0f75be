"""Parts of a concatenation are produced where it wants them.

A dispatch that does nothing with an operand but copy it whole into a box of its result is
spared that: the operand's producer writes, and its other readers read, the box of the
result's buffer. What is left of the copying kernel writes into a buffer that holds
something (`rw`); where nothing is left, the dispatch goes. IREE's `EmplaceAllocations` does
the same to `stream.async.update`, whose parts are ranges of bytes; here a part is a layout
with the strides of the whole, so a concatenation of channels that stand last is one too.

It is done where

- the operand is a transient of this function, written by one dispatch and then only read
  by dispatches, each of it all, none inside a branch or loop;
- the result is a transient that the copying dispatch is the first to touch;
- the part has the operand's order and at least its halo (`parts.part_layout`), so no reader
  loses what it asked for;
- no convolution reads the operand: it takes the channels and the width of its window for
  one run, which they no longer are.

Only for classes whose targets write parts (`Target.emplaces_parts`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, field

from xdsl.dialects.func import FuncOp
from xdsl.ir import Block, Operation, SSAValue
from xdsl.rewriter import Rewriter

from headrace.base.symbols import ZERO
from headrace.ir.model import Model
from headrace.ir.passes import Pass
from headrace.kernel.classify import classify
from headrace.kernel.description import Kernel, Layout
from headrace.kernel.target import Target
from headrace.stream.commands import DispatchOp
from headrace.stream.dialect import ResourceAllocOp
from headrace.stream.in_place_sites import Executables
from headrace.stream.liveness import Touch, touches
from headrace.stream.parts import (
    Part,
    copied_parts,
    is_run,
    part_layout,
    with_layout,
    without_parts,
)
from headrace.stream.resources import operand_bytes
from headrace.stream.types import lifetime_of

Known = dict[SSAValue, list[Touch]]


@dataclass(frozen=True)
class EmplaceParts(Pass):
    """`stream-emplace-parts`.

    Attributes:
        targets: of the device class; none means any.
    """

    targets: tuple[Target, ...] = ()

    def run(self, model: Model) -> None:
        if not all(target.emplaces_parts for target in self.targets):
            return
        executables = Executables(model.ir)
        for function in model.ir.ops:
            if isinstance(function, FuncOp) and function.body.blocks:
                while _emplace_one(function.body.block, executables):
                    pass
        executables.erase_unused()


def _emplace_one(block: Block, executables: Executables) -> bool:
    """Emplaces the parts of the first result that has some; whether there was one."""
    known = touches(block)
    for site in [op for op in block.ops if isinstance(op, DispatchOp)]:
        kernel = executables.kernel(site)
        for result in () if kernel is None else kernel.outputs:
            assert kernel is not None
            if not _is_whole(site, result) or not _begins_here(site, result, known):
                continue
            layouts: list[tuple[Part, Layout]] = []
            for part in copied_parts(kernel, result):
                layout = _layout(site, kernel, part, known, executables)
                if layout is not None:
                    layouts.append((part, layout))
            if layouts:
                _Emplacing(site, kernel, result, known, executables).run(layouts)
                return True
    return False


def _is_whole(site: DispatchOp, number: int) -> bool:
    """Whether a binding is a transient of the function, from its first byte on, and the
    site's only binding of it."""
    resource = site.resources[number]
    return (
        isinstance(resource.owner, ResourceAllocOp)
        and lifetime_of(resource) == "transient"
        and site.offsets.exprs[number] == ZERO
        and sum(r is resource for r in site.resources) == 1
    )


def _begins_here(site: DispatchOp, number: int, known: Known) -> bool:
    touched = known[site.resources[number]]
    return touched[0].operation is site and not any(t.nested for t in touched)


def _layout(
    site: DispatchOp, kernel: Kernel, part: Part, known: Known, executables: Executables
) -> Layout | None:
    """The layout of a part in the result's buffer; None where it may not stand there."""
    if not _is_whole(site, part.operand):
        return None
    gone = site.resources[part.operand]
    first, *others = known[gone]
    if first.access != "wo" or any(t.writes for t in others):
        return None
    operand = kernel.operands[part.operand]
    layout = part_layout(kernel.operands[part.result], operand, part.begin)
    if layout is None:
        return None
    run = is_run(layout, operand.shape)
    for touch in known[gone]:
        other = touch.operation
        if touch.nested or not isinstance(other, DispatchOp):
            return None
        read = executables.kernel(other)
        numbers = _bindings(other, gone)
        if read is None or any(other.offsets.exprs[n] != ZERO for n in numbers):
            return None
        # Through a reshape it may be another tensor, which is no box.
        seen = [read.operands[n] for n in numbers]
        if any((o.shape, o.layout) != (operand.shape, operand.layout) for o in seen):
            return None
        if touch is not first and not run and classify(read) == "convolution":
            return None
    return layout


def _bindings(site: DispatchOp, resource: SSAValue) -> list[int]:
    return [n for n, r in enumerate(site.resources) if r is resource]


@dataclass
class _Emplacing:
    """One dispatch that is spared copies.

    Attributes:
        site, kernel: the dispatch.
        result: its operand that holds the parts.
        now: what stands for a dispatch that was rewritten.
    """

    site: DispatchOp
    kernel: Kernel
    result: int
    known: Known
    executables: Executables
    now: dict[Operation, DispatchOp] = field(default_factory=dict[Operation, DispatchOp])

    def run(self, layouts: Sequence[tuple[Part, Layout]]) -> None:
        kept = self.site.resources[self.result]
        gone = [self.site.resources[part.operand] for part, _ in layouts]
        for resource, (_, layout) in zip(gone, layouts, strict=True):
            self._move(resource, kept, layout)
        parts = [part for part, _ in layouts]
        left = without_parts(self.kernel, self.result, parts)
        if left is None:
            Rewriter.erase_op(self.site)
            self.executables.leave(self.site)
        else:
            self._replace(self.site, left, {}, {p.operand for p in parts})
        for resource in gone:
            assert isinstance(resource.owner, ResourceAllocOp)
            Rewriter.erase_op(resource.owner)

    def _move(self, gone: SSAValue, kept: SSAValue, layout: Layout) -> None:
        """Lets all that touch one resource touch a box of another."""
        before, after = gone.owner, kept.owner
        assert isinstance(before, ResourceAllocOp) and isinstance(after, ResourceAllocOp)
        if before.is_before_in_block(after):
            block = before.parent_block()
            assert block is not None
            after.detach()
            block.insert_op_before(after, before)
        for touched in dict.fromkeys(t.operation for t in self.known[gone]):
            if touched is self.site:
                continue
            assert isinstance(touched, DispatchOp)
            other = self.now.get(touched, touched)
            old = self.executables.kernel(other)
            assert old is not None
            numbers = _bindings(other, gone)
            made = with_layout(old, numbers, layout)
            self.now[touched] = self._replace(other, made, dict.fromkeys(numbers, kept))

    def _replace(
        self,
        site: DispatchOp,
        kernel: Kernel,
        moved: Mapping[int, SSAValue],
        without: Set[int] = frozenset(),
    ) -> DispatchOp:
        """A site with another kernel, some bindings of another resource, some left out."""
        kept = [n for n in range(len(site.resources)) if n not in without]
        made = DispatchOp(
            self.executables.reference(site, kernel, "part"),
            site.workload.exprs,
            tuple(site.constants),
            [moved.get(n, site.resources[n]) for n in kept],
            [operand.access for operand in kernel.operands],
            [site.offsets.exprs[n] for n in kept],
            [
                operand_bytes(operand) if n in moved else site.lengths.exprs[n]
                for n, operand in zip(kept, kernel.operands, strict=True)
            ],
        )
        made.attributes.update(site.attributes)
        made.location = site.location
        Rewriter.replace_op(site, made)
        return made
