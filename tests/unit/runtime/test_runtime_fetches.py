"""When weights come and go in a step: never more of them than the ring, all of them once."""

from __future__ import annotations

import ctypes
import struct
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from headrace.plan.model import Address, Fetch, PlannedBranch, PlannedDispatch, PlannedJump
from headrace.runtime.drivers.cpu_commands import Bases, CommandBuilder, build_step
from headrace.runtime.drivers.cpu_fetches import Fetching
from headrace.runtime.drivers.cpu_machine import BuiltIn
from headrace.runtime.drivers.cpu_machine_layout import COMMAND_BYTES, WINDOW_BYTES, Operation
from headrace.runtime.weights.mapping import DONT_NEED

KERNELS = BuiltIn(fill=1, copy=2, advise=3, touch=4, several=5, chain=6)
UNIT = 1 << 20


class Recorder(CommandBuilder):
    """Keeps what is done to which unit of the pool, in order of the commands."""

    def __init__(self) -> None:
        super().__init__(Bases(0, 0, ()), 2)
        self.blocks: dict[int, tuple[str, int]] = {}
        self.done: list[tuple[str, int]] = []

    def block(self, addresses: Any, tail: bytes) -> int:
        at = super().block(addresses, tail)
        place, _, word, _, _ = struct.unpack("<5Q", tail[:40])
        kind = {WINDOW_BYTES: "bring", DONT_NEED: "drop"}[word]
        self.blocks[at] = (kind, place // UNIT)
        return at

    def fetch(self, kernel: int, block: int, next_: int, next_bytes: int, record: int) -> None:
        self.done.append(self.blocks[block])


def launch(waits: tuple[int, ...] = (), releases: tuple[int, ...] = ()) -> PlannedDispatch:
    return PlannedDispatch(
        0, 0, "f", (), (), (), (8, 1, 1), (0, 0, 0), waits, releases, predicted_ns=100_000
    )


def fetch(number: int, command: int, issue_after: int) -> Fetch:
    return Fetch(number, number * UNIT, UNIT, 0, command, command, issue_after)


def play(fetches: list[Fetch], commands: list[Any]) -> list[tuple[str, int]]:
    """What is brought and dropped, with `("run", n)` for launch n; beside it stands before."""
    recorder = Recorder()
    fetching = Fetching(recorder, KERNELS, fetches, commands, 0, 0)
    for number, command in enumerate(commands):
        if isinstance(command, PlannedDispatch):
            fetching.need(command.waits)
            sides = fetching.beside(number)
            assert [kernel for kernel, _ in sides] == [
                {"bring": 4, "drop": 3}[recorder.blocks[b][0]] for _, b in sides
            ]
            recorder.done += [recorder.blocks[block] for _, block in sides]
            recorder.done.append(("run", number))
            fetching.release(command.releases)
        else:
            recorder.done.append(("leave", number))
        if fetching.ends(number):
            fetching.drop_all()
    return recorder.done


def test_the_next_comes_while_this_one_is_used_and_the_last_goes_first() -> None:
    fetches = [fetch(n, n, n - 2) for n in range(4)]
    commands = [launch((n,), (n,)) for n in range(4)]
    assert play(fetches, commands) == [
        ("bring", 0), ("bring", 1), ("run", 0),
        ("drop", 0), ("bring", 2), ("run", 1),
        ("drop", 1), ("bring", 3), ("run", 2),
        ("drop", 2), ("run", 3), ("drop", 3),
    ]  # fmt: skip


def test_nothing_comes_before_its_place_is_free() -> None:
    fetches = [fetch(0, 0, -1), fetch(1, 2, 1)]
    commands = [launch((0,)), launch((), (0,)), launch((1,), (1,))]
    assert play(fetches, commands) == [
        ("bring", 0), ("run", 0), ("run", 1), ("drop", 0), ("bring", 1), ("run", 2), ("drop", 1),
    ]  # fmt: skip


@pytest.mark.parametrize("kind", ["branch", "jump", "target"])
def test_nothing_comes_or_stays_across_a_branch(kind: str) -> None:
    condition = Address("slab", 0)
    between: Any = {
        "branch": PlannedBranch(condition, 4),
        "jump": PlannedJump(3),
        "target": launch(),
    }[kind]
    end: Any = PlannedBranch(condition, 2) if kind == "target" else launch()
    commands = [launch((0,), (0,)), launch(), between, launch((1,), (1,)), end]
    fetches = [fetch(0, 0, -1), fetch(1, 3, -1)]
    done = play(fetches, commands)
    assert done.count(("drop", 0)) == 1
    if kind == "target":
        # The run begins at the target itself: there the next may come, not before.
        order = [("run", 0), ("drop", 0), ("run", 1), ("bring", 1), ("run", 2), ("run", 3)]
        order += [("drop", 1), ("leave", 4)]
    else:
        order = [("run", 0), ("drop", 0), ("run", 1), ("leave", 2), ("bring", 1), ("run", 3)]
    assert [d for d in done if d in order] == order


def built(releases_early: bool) -> list[Operation]:
    """The operations of a launch in three slices, each of which reads a unit of its own.

    Args:
        releases_early: the place of the last is free while the second runs.
    """
    fetches = (fetch(0, 0, -1), fetch(1, 1, -1), fetch(2, 2, 0 if releases_early else 1))
    slices = [
        replace(launch((n,), (n,)), first_workgroup=(0, 8 * n, 0), workgroups=(1, 8, 1))
        for n in range(3)
    ]
    plan: Any = SimpleNamespace(fetches=fetches, commands=(*slices, launch()))
    start, kept = build_step(plan, Bases(0, 0, ()), 2, lambda *_: 7, KERNELS, 0)
    operations: list[Operation] = []
    while not operations or operations[-1] != Operation.END:
        operations.append(Operation(ctypes.c_uint64.from_address(start).value))
        start += COMMAND_BYTES
    del kept
    return operations


def test_slices_of_a_launch_are_one_dispatch_where_their_weights_come_in_time() -> None:
    fetch_, clear, dispatch = Operation.FETCH, Operation.CLEAR, Operation.DISPATCH
    # The last unit is dropped beside the launch that follows.
    tail = [clear, dispatch, Operation.END]
    assert built(True) == [fetch_, clear, dispatch, *tail]
    # Else the first two are one; then a drop and what comes, which the third waits for.
    assert built(False) == [fetch_, clear, dispatch, fetch_, fetch_, dispatch, *tail]
