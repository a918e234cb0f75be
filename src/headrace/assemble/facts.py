"""What a kernel tells the planner: where it may be cut, which rows it gathers, its work."""

from __future__ import annotations

import math

from headrace.artifact import schema
from headrace.base.symbols import ZERO, Expr, product
from headrace.kernel.description import Compute, Kernel, Load
from headrace.kernel.loops import likely_runs


def slice_step(executable: schema.Executable, binding: int) -> int:
    """Bytes at which every launch of every variant may cut a weight; 0 where one may not."""
    steps: list[int] = []
    for variant in executable.variants:
        for specialisation in variant.entry_points[0]:
            for launch in specialisation.launches:
                rule = launch.slice
                if rule is None or rule.binding != binding or not rule.step_bytes.is_constant:
                    return 0
                steps.append(rule.step_bytes.value)
    return math.lcm(*steps) if steps and all(steps) else 0


def gathered_row_bytes(kernel: Kernel, number: int) -> int:
    """Bytes of the rows a kernel gathers from an operand by data; 0 where it reads otherwise.

    A kernel that loops makes its indices itself: nobody can fetch rows before it runs.
    Rows are contiguous runs along all dimensions but the first, of a table that is
    row-major: only then a row can be fetched where it stands.
    """
    operand = kernel.operands[number]
    if kernel.loops:
        return 0
    if operand.access != "ro" or len(operand.shape) < 2:
        return 0
    row = product(operand.shape[1:])
    stride = operand.layout.dimensions[0]
    if stride.tile != 1 or stride.stride != row or not row.is_constant:
        return 0
    found = False
    for phase in kernel.phases:
        values = {op.result for op in phase.body}
        for op in phase.body:
            if isinstance(op, Load) and op.operand == number:
                found = True
                if not op.index[0].names & values:
                    return 0
    return row.value * operand.dtype.size_bytes if found else 0


def operation_count(kernel: Kernel) -> Expr:
    """Scalar operations of one dispatch; a multiplication that is summed counts as one."""
    total = ZERO
    for number, phase in enumerate(kernel.phases):
        points = kernel.outer_size * likely_runs(kernel, number)
        for axis in (*phase.parallel, *phase.reduction_axes):
            points = points * axis.size
        computed = sum(isinstance(op, Compute) for op in phase.body)
        total = total + points * max(1, computed)
    return total
