"""What a loop carries is updated where it stands.

From flow, each trip of a loop makes the next values beside the carried ones and copies them
there in the end. Such a copy goes, and the next value is written to the carried one's place
from the start, where nothing of the trip still reads the value before:

- all readers of the carried value stand before the first writer of the next one; a writer
  waits behind a later reader where nothing between them minds (a counter is stepped last);
- or the first writer itself is the last reader and may write over what it reads
  (`in_place.py`): of what a loop stacks, a trip then writes one row;
- or the next value is the carried one: both copies go.

A recurrence of n steps that keeps n rows moved 2 n * n rows before.
"""

from __future__ import annotations

from dataclasses import dataclass

from xdsl.ir import Block, SSAValue
from xdsl.rewriter import Rewriter

from headrace.base.symbols import ZERO
from headrace.ir.model import Model
from headrace.ir.passes import Pass
from headrace.stream.commands import CopyOp, DispatchOp, LoopOp
from headrace.stream.dialect import ResourceAllocOp
from headrace.stream.in_place import in_place_operand, written_in_place
from headrace.stream.in_place_sites import Executables, dispatch_in_place
from headrace.stream.liveness import Touch, touches
from headrace.stream.resources import aligned, size_of
from headrace.stream.types import lifetime_of

Touches = dict[SSAValue, list[Touch]]


@dataclass(frozen=True)
class CarryInPlace(Pass):
    """`stream-carry-in-place`."""

    def run(self, model: Model) -> None:
        executables = Executables(model.ir)
        for loop in [op for op in model.ir.walk() if isinstance(op, LoopOp)]:
            while _carry_one(loop.body.block, executables):
                pass
        executables.erase_unused()


def _carry_one(body: Block, executables: Executables) -> bool:
    """Removes the first copy of a trip that may go, or moves a writer; whether there was one."""
    known = touches(body)
    for copy in [op for op in body.ops if isinstance(op, CopyOp)]:
        if _is_last_word(copy, body, known) and _removed(copy, known, executables):
            return True
    return False


def _is_last_word(copy: CopyOp, body: Block, known: Touches) -> bool:
    """Whether a copy is all that a next value is for in the end, and all that writes the
    carried one."""
    following, carried = copy.source, copy.target
    length = copy.length.exprs[0]
    if not all(_is_transient(r, length) for r in (following, carried)):
        return False
    if copy.source_offset.exprs[0] != ZERO or copy.target_offset.exprs[0] != ZERO:
        return False
    of_following = known[following]
    inside = {t.operation for t in of_following}
    uses = {use.operation for use in following.uses}
    return (
        uses == inside
        and all(op.parent is body for op in inside)
        and following is not carried
        and of_following[0].operation is not copy
        and of_following[0].access == "wo"
        and of_following[-1].operation is copy
        and [t.operation for t in known[carried] if t.writes] == [copy]
    )


def _is_transient(resource: SSAValue, length: object) -> bool:
    return (
        isinstance(resource.owner, ResourceAllocOp)
        and lifetime_of(resource) == "transient"
        and size_of(resource) == aligned(length)  # pyright: ignore
    )


def _removed(copy: CopyOp, known: Touches, executables: Executables) -> bool:
    """Whether the copy is gone, or its writer now stands where it can go."""
    following, carried = copy.source, copy.target
    writer = known[following][0]
    readers = [t for t in known[carried] if not t.writes and not _is_behind(t, copy, known)]
    last = max((t.position for t in readers), default=-1)
    if last < writer.position:
        _unify(copy)
        return True
    if last > writer.position:
        return _waits(writer, last, known) and _moved_behind(writer, last, copy, known)
    if sum(t.operation is writer.operation for t in readers) > 1:
        return False
    if isinstance(writer.operation, CopyOp):
        return _is_kept(writer.operation, copy, known)
    return isinstance(writer.operation, DispatchOp) and _written_over(
        copy, writer.operation, executables
    )


def _is_behind(touch: Touch, copy: CopyOp, known: Touches) -> bool:
    """Whether a command runs behind the copy."""
    at = next(t.position for t in known[copy.source] if t.operation is copy)
    return touch.position > at


def _waits(writer: Touch, last: int, known: Touches) -> bool:
    """Whether the first writer may run behind position `last`.

    Until there nothing touches what it writes, and nothing writes what it reads.
    """
    for touched in known.values():
        own = [t for t in touched if t.operation is writer.operation]
        between = [t for t in touched if writer.position < t.position <= last]
        if any(t.writes for t in own) and between:
            return False
        if own and any(t.writes for t in between):
            return False
    return True


def _moved_behind(writer: Touch, last: int, copy: CopyOp, known: Touches) -> bool:
    """Moves the writer behind the last reader, which stands at position `last`."""
    reader = next(t.operation for t in known[copy.target] if t.position == last)
    body = copy.parent_block()
    while reader.parent is not body:
        outer = reader.parent_op()
        assert outer is not None
        reader = outer
    assert body is not None
    writer.operation.detach()
    body.insert_op_after(writer.operation, reader)
    return True


def _is_kept(first: CopyOp, copy: CopyOp, known: Touches) -> bool:
    """Takes both copies away where the carried value comes back as it was."""
    same = (
        first.source is copy.target
        and first.length.exprs[0] == copy.length.exprs[0]
        and first.source_offset.exprs[0] == ZERO
        and first.target_offset.exprs[0] == ZERO
        and not any(t.writes for t in known[copy.source][1:])
    )
    if same:
        Rewriter.erase_op(first)
        _unify(copy)
    return same


def _written_over(copy: CopyOp, site: DispatchOp, executables: Executables) -> bool:
    """Lets the writer write over the carried value that it reads, where its kernel may."""
    kernel = executables.kernel(site)
    numbers = [n for n, r in enumerate(site.resources) if r is copy.source]
    if kernel is None or len(numbers) != 1:
        return False
    (result,) = numbers
    for operand in in_place_operand(kernel, result):
        if site.resources[operand] is not copy.target:
            continue
        if site.offsets.exprs[operand] != ZERO or site.offsets.exprs[result] != ZERO:
            continue
        reference = executables.reference(site, written_in_place(kernel, result, operand))
        Rewriter.replace_op(site, dispatch_in_place(site, result, operand, reference))
        _unify(copy)
        return True
    return False


def _unify(copy: CopyOp) -> None:
    following, carried = copy.source, copy.target
    owner = following.owner
    assert isinstance(owner, ResourceAllocOp)
    Rewriter.erase_op(copy)
    following.replace_all_uses_with(carried)
    Rewriter.erase_op(owner)
