"""Small loops become one dispatch, whose kernel goes round by itself.

A trip of `stream.cmd.loop` runs a dispatch for each part of its body and reads the condition
back. Where all of that is little work, that is most of the time: on a GPU each trip waits for
the host. Here the body becomes one kernel that loops (`kernel/loops.py`), what it carries
staying where it stands:

    stream.cmd.loop {before} while %c {a; b; c}
 -> stream.cmd.loop {before} while %c {a kernel: while c at most N trips: a; b; c}

The loop around it stays: it decides whether there is a first trip, and it goes on after N
trips, between which a step can be cancelled and a device's watchdog is content. Loops within
are part of the kernel where it is known how often they run at most.

A loop stays as it is where

- the targets of the class do not take it (`Target.loop_points`), or a trip has more points
  than they wish for, or a number of points that is not known;
- it branches, calls, computes complex numbers or reads packed or transformed weights, or
  weights of more than `_WEIGHT_BYTES`, which are better streamed;
- a buffer is seen as tensors of several element types, or written with a halo.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from xdsl.dialects.func import FuncOp
from xdsl.ir import Block, Operation
from xdsl.rewriter import Rewriter

from headrace.base.symbols import ONE, ceildiv
from headrace.ir.locations import fused_location
from headrace.ir.model import Model
from headrace.ir.passes import Pass
from headrace.ir.types import exprs_attr
from headrace.kernel.join import Round, join
from headrace.kernel.target import LoopPoints, Target
from headrace.stream.commands import COMMANDS, DispatchOp, IfOp, LoopOp
from headrace.stream.in_place_sites import Executables
from headrace.stream.loop_bodies import LoopBody, Unfit

_ANY_POINTS = LoopPoints(trip=1 << 16, dispatch=1 << 22)


@dataclass(frozen=True)
class CompileLoops(Pass):
    """`stream-compile-loops`.

    Attributes:
        targets: of the device class; none means any.
    """

    targets: tuple[Target, ...] = ()

    def run(self, model: Model) -> None:
        points = [t.loop_points for t in self.targets] or [_ANY_POINTS]
        known = [p for p in points if p is not None]
        if len(known) < len(points):
            return
        most = LoopPoints(min(p.trip for p in known), min(p.dispatch for p in known))
        ranges = {
            name: (low, high)
            for name, (low, high) in model.dimension_ranges.items()
            if high is not None
        }
        executables = Executables(model.ir)
        for function in model.ir.ops:
            if isinstance(function, FuncOp) and function.body.blocks:
                _Loops(executables, ranges, most).block(function.body.block)
        executables.erase_unused()


@dataclass(frozen=True)
class _Loops:
    executables: Executables
    ranges: Mapping[str, tuple[int, int]]
    most: LoopPoints

    def block(self, block: Block) -> None:
        """Every loop of a block, an outer one before those within."""
        for op in list(block.ops):
            if isinstance(op, LoopOp) and self._compiled(op):
                continue
            if isinstance(op, (LoopOp, IfOp)):
                for region in op.regions:
                    self.block(region.block)

    def _compiled(self, loop: LoopOp) -> bool:
        body = LoopBody(loop, self.executables, self.ranges)
        try:
            steps = body.read()
            if body.points > self.most.trip:
                return False
            trips = max(1, self.most.dispatch // body.points)
            likely = min(trips, body.likely_trips(loop))
            kernel = join(
                body.operands, [Round(steps, body.number(loop.condition), trips, likely)]
            )
        except Unfit:
            return False
        first, *others = body.sites
        reference = self.executables.reference(first, kernel, "loop")
        for site in others:
            self.executables.leave(site)
        made = DispatchOp(
            reference,
            [ONE, ONE, ONE],
            [body.dims[name] for name in kernel.dims],
            *body.bindings(),
        )
        made.location = fused_location(body.commands)
        _replace_body(loop, body.kept, made)
        if loop.trip_count is not None:
            loop.trip_count = exprs_attr([ceildiv(loop.trip_count.exprs[0], trips)])
        return True


def _replace_body(loop: LoopOp, kept: Sequence[Operation], made: DispatchOp) -> None:
    """Leaves of a loop's body allocations and scalars, and one dispatch."""
    block = loop.body.block
    for op in kept:
        op.detach()
        first = next((o for o in block.ops if isinstance(o, COMMANDS)), None)
        assert first is not None
        block.insert_op_before(op, first)
    block.add_op(made)
    for op in list(block.ops):
        if isinstance(op, COMMANDS) and op is not made:
            Rewriter.erase_op(op, safe_erase=False)
