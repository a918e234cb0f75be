"""Removes copies that nothing sees.

A copy of the whole of `a` to `b` goes where both may be one resource from the start:

- `a` is an allocation of this function, `b` is written by nothing but the copy and read
  only behind it;
- nothing writes `a` behind the copy (else `b` would see it);
- neither is touched inside a branch or loop, where another order may run.

Copies are looked at in order, so of a value returned twice the first is elided and the
second copies from the output. Correctness is `materialize_copies`' business: this pass
may be left out.

An input that an output takes the place of (`state`) may also be read before `a` is first
written. These copies wait for `emplace_results`, which needs them to see which value is
the input's next.
"""

from __future__ import annotations

from dataclasses import dataclass

from xdsl.dialects.func import FuncOp
from xdsl.ir import Block, BlockArgument, SSAValue
from xdsl.rewriter import Rewriter

from headrace.base.symbols import ZERO
from headrace.ir.model import Model
from headrace.ir.passes import Pass
from headrace.stream.commands import CopyOp
from headrace.stream.dialect import ResourceAllocOp
from headrace.stream.liveness import Touch, touches
from headrace.stream.resources import aligned, argument_io, is_input, size_of
from headrace.stream.types import lifetime_of


@dataclass(frozen=True)
class ElideCopies(Pass):
    """`stream-elide-copies{state=true}`.

    Attributes:
        state: whether copies over inputs are looked at too.
    """

    state: bool = False

    def run(self, model: Model) -> None:
        for function in model.ir.ops:
            if isinstance(function, FuncOp) and function.body.blocks:
                while _elide_one(function.body.block, self.state):
                    pass


def _elide_one(block: Block, state: bool) -> bool:
    """Removes the first copy that may go; whether there was one."""
    known = touches(block)
    for op in block.ops:
        if not isinstance(op, CopyOp) or (is_input(op.target) and not state):
            continue
        if _is_needless(op, known):
            _unify(op)
            return True
    return False


def _is_needless(copy: CopyOp, known: dict[SSAValue, list[Touch]]) -> bool:
    source, target = copy.source, copy.target
    if source is target:
        return copy.source_offset == copy.target_offset
    if not isinstance(source.owner, ResourceAllocOp) or not _is_replaceable(target):
        return False
    length = copy.length.exprs[0]
    sizes = size_of(source), size_of(target)
    if copy.source_offset.exprs[0] != ZERO or copy.target_offset.exprs[0] != ZERO:
        return False
    if sizes[0] != aligned(length) or sizes[1] not in (length, aligned(length)):
        return False
    of_source, of_target = known[source], known[target]
    if any(t.nested for t in (*of_source, *of_target)):
        return False
    at = next(t.position for t in of_source if t.operation is copy)
    if any(t.writes and t.position > at for t in of_source):
        return False
    others = [t for t in of_target if t.operation is not copy]
    if is_input(target):
        first = of_source[0].position
        return all(not t.writes and t.position < first for t in others)
    return not any(t.writes or t.position < at for t in others)


def _is_replaceable(target: SSAValue) -> bool:
    """An allocation, an output nothing else has become yet, or an input to be overwritten."""
    if isinstance(target, BlockArgument):
        return argument_io(target) in ("output", "input")
    return isinstance(target.owner, ResourceAllocOp) and lifetime_of(target) == "transient"


def _unify(copy: CopyOp) -> None:
    """One resource for both sides: the output, or the allocation that is written first."""
    source, target = copy.source, copy.target
    Rewriter.erase_op(copy)
    if source is target:
        return
    kept, gone = (target, source) if isinstance(target, BlockArgument) else (source, target)
    owner = gone.owner
    gone.replace_all_uses_with(kept)
    assert isinstance(owner, ResourceAllocOp)
    Rewriter.erase_op(owner)
