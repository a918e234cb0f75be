"""How long commands of a step take among others, for benchmarks."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any


def repeated_ns(step: Any, numbers: Sequence[int], repeats: int, rounds: int) -> int:
    """Nanoseconds that some commands of a `CudaStep` take: no event stands between them.

    They are put `repeats` times into a graph of their own, which runs `rounds` times; the
    least is counted. Inputs and outputs stay on the device. The step must have run, with
    nothing that streams; what it left in memory is written over.
    """
    calls, stream, commands = step._calls, step.device.stream, step._commands

    def body() -> None:
        follows = False
        for number in itertools.chain.from_iterable([numbers] * repeats):
            commands.issue(number, stream, follows)
            follows = commands.launches(number)

    with step.device.lock:
        calls.enter()
        graph = step._capture(body)
        before, after = step.handles.event(True), step.handles.event(True)
        found: list[int] = []
        for _ in range(rounds + 1):
            calls.record(before, stream)
            calls.launch_graph(graph, stream)
            calls.record(after, stream)
            calls.finish(stream)
            found.append(calls.elapsed_ns(before, after))
        step.handles.graphs.remove(graph)
        calls.destroy_graph(graph)
    return min(found[1:]) // repeats
