"""Which weights a device reads from host memory."""

from __future__ import annotations

from bisect import bisect_right

from headrace.artifact.schema import Module
from headrace.plan.model import Plan
from headrace.runtime.ranges import merged


def host_ranges(module: Module, plan: Plan) -> list[tuple[int, int]]:
    """Whole segments that stream, and those of tables that do not stay: bytes of the pool."""
    starts = [s.offset_bytes for s in module.segments]
    wanted = {f.segment for f in plan.fetches}
    for weight in module.weights:
        if weight.row_bytes and weight.size_bytes:
            last = weight.offset_bytes + weight.size_bytes - 1
            first = bisect_right(starts, weight.offset_bytes) - 1
            wanted |= set(range(first, bisect_right(starts, last)))
    segments = [module.segments[s] for s in sorted(wanted - set(plan.resident))]
    return merged([(s.offset_bytes, s.offset_bytes + s.size_bytes) for s in segments])
