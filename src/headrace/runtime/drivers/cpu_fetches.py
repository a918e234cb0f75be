"""Where in a step weights come and go: beside launches that do not need them, or before.

Bringing is a byte read in every window of 64 KiB: at each the kernel maps all pages of
the window that the page cache holds, or the whole page of 2 MiB where the file lies in
such. `MADV_POPULATE_READ` asks for page after page instead: 1.75 MiB that lie across two
pages of 2 MiB took 60 us by windows and 110 us by asking. One thread does it: two that map
parts of one large page write the same counters of it, and take longer (135 us). A page that
cannot be read stops the run (`cpu_machine_signals`).

So that the other threads do not wait, a fetch comes beside a launch before the one that needs
it (`cpu_chains`), as early as its place in the ring is free: a thread takes it while the others
compute, and what is dropped goes first, so that no more is ever there than the plan says.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import TYPE_CHECKING

from headrace.plan.model import Fetch, PlannedBranch, PlannedCommand, PlannedJump
from headrace.runtime.drivers.cpu_machine import BuiltIn
from headrace.runtime.drivers.cpu_machine_layout import WINDOW_BYTES, TraceKind
from headrace.runtime.weights.mapping import DONT_NEED

if TYPE_CHECKING:
    from headrace.runtime.drivers.cpu_commands import CommandBuilder


class Fetching:
    """Adds the fetches of a plan to the commands of a step, in order.

    Attributes:
        kernels: the machine's own.
        context: address of the context of the runs.
    """

    def __init__(
        self,
        builder: CommandBuilder,
        kernels: BuiltIn,
        fetches: Sequence[Fetch],
        commands: Sequence[PlannedCommand],
        pool: int,
        context: int,
    ) -> None:
        """`pool` is the address of the mapping."""
        self.kernels = kernels
        self._builder = builder
        self._fetches = fetches
        self._pool = pool
        self.context = context
        self._brought = 0
        self._beside: dict[int, int] = {}  # launch beside which a fetch comes
        self._to_drop: list[int] = []
        self._run_ends = _run_ends(commands)

    def need(self, waits: Sequence[int]) -> None:
        """What the next launch reads is there: what has not come yet comes now."""
        for number in waits:
            while self._brought <= number:
                self.drop_all()
                # After the last fetch of a step comes the first of the next.
                following = self._fetches[(self._brought + 1) % len(self._fetches)]
                self._bring(following, self._brought)
                self._brought += 1

    def has(self, waits: Sequence[int]) -> bool:
        """Whether all of these fetches have come, or come beside a launch before."""
        return all(number < self._brought for number in waits)

    def launches(self, waits: Sequence[int]) -> list[int]:
        """The launches beside which those of these fetches come that come beside one."""
        return [self._beside[number] for number in waits if number in self._beside]

    def beside(self, number: int) -> list[tuple[int, int]]:
        """Kernels and argument blocks of what goes and comes while launch `number` runs."""
        sides = [self._drop_block(fetch) for fetch in self._to_drop]
        self._to_drop.clear()
        if self._brought == len(self._fetches):
            return sides
        fetch = self._fetches[self._brought]
        ahead = number < fetch.needed_by <= self._run_ends[number]
        if ahead and fetch.issue_after < number:
            sides.append((self.kernels.touch, self._block(self._brought, WINDOW_BYTES)))
            self._beside[self._brought] = number
            self._brought += 1
        return sides

    def release(self, releases: Sequence[int]) -> None:
        """The launch just added was the last to read these."""
        self._to_drop += releases

    def ends(self, number: int) -> bool:
        """Whether command `number` is the last of a run: behind it nothing may be left."""
        return self._run_ends[number] == number

    def drop_all(self) -> None:
        """Adds the giving back of all that is not needed any more."""
        for number in self._to_drop:
            kernel, block = self._drop_block(number)
            self._builder.fetch(kernel, block, 0, 0, number)
        self._to_drop.clear()

    def _bring(self, following: Fetch, number: int) -> None:
        """Adds the bringing of a fetch; `following` is announced where that pays."""
        place = self._pool + following.offset_bytes
        block = self._block(number, WINDOW_BYTES)
        self._builder.fetch(self.kernels.touch, block, place, following.size_bytes, number)

    def _drop_block(self, number: int) -> tuple[int, int]:
        return self.kernels.advise, self._block(number, DONT_NEED)

    def _block(self, number: int, word: int) -> int:
        fetch = self._fetches[number]
        place, size = self._pool + fetch.offset_bytes, fetch.size_bytes
        kind = TraceKind.DROP if word == DONT_NEED else TraceKind.BRING
        words = (place, size, word, self.context, size, kind, number)
        return self._builder.block((), struct.pack("<7Q", *words))


def _run_ends(commands: Sequence[PlannedCommand]) -> list[int]:
    """For each command the last of its straight run: no branch, jump or target inside.

    A branch or jump is a run of its own: what belongs before it must not stand behind it.
    """
    leaving = [n for n, c in enumerate(commands) if isinstance(c, (PlannedBranch, PlannedJump))]
    targets = {c.target for c in commands if isinstance(c, (PlannedBranch, PlannedJump))}
    begins = targets | set(leaving) | {n + 1 for n in leaving}
    ends: list[int] = []
    end = len(commands) - 1
    for number in reversed(range(len(commands))):
        if number + 1 in begins:
            end = number
        ends.append(end)
    return ends[::-1]
