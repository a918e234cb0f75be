"""A launch with what comes and goes beside it; slices of one launch as one dispatch.

Slices one after another would each end with a wait for the slowest thread, and few of them
divide evenly: three workgroups on two threads take as long as four (ResNet-50 in 4 MB of
weights: 3 ms of 43). So the slices of a launch are one *chain*: a list of items which the
threads take in order, each a range of a slice's workgroups, or a *turn*. A turn drops what
the slice before was the last to read and brings what the next ones will read. It waits
until all of the slice before is done, and stands behind so many items of its own slice
that by then every other thread is there; what reads a unit waits for the turn that brings
it. Items wait only for items before them, which somebody has taken: nothing waits for ever.

Each slice has a counter: its items add 1 when they are done, its turn adds `TURN`.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from headrace.runtime.drivers.cpu_machine_layout import CHAIN_HEADER_WORDS, MAXIMUM_CHUNKS

if TYPE_CHECKING:
    from headrace.runtime.drivers.cpu_commands import CommandBuilder
    from headrace.runtime.drivers.cpu_machine import BuiltIn

TURN = 1 << 32
NO_GATE = -1


@dataclass(frozen=True)
class Item:
    """A range of a kernel's tiles.

    Attributes:
        function: its address.
        block: of its arguments.
        begin, end: tiles.
        gate, least: the slice whose counter must have come so far before; `NO_GATE` for none.
        slice: whose counter grows by `amount` when this is done.
    """

    function: int
    block: int
    begin: int
    end: int
    gate: int
    least: int
    slice: int
    amount: int


class Chain:
    """Collects the slices of one launch; `finish` adds their command.

    Attributes:
        items: in the order in which threads take them.
        threads: how many share them.
    """

    def __init__(
        self,
        builder: CommandBuilder,
        kernels: BuiltIn,
        context: int,
        scratch: tuple[int, int],
        record: int,
    ) -> None:
        """`context` is the address of the context of the runs; scratch and record are the
        launch's."""
        self.items: list[Item] = []
        self.threads = builder.threads
        self._builder = builder
        self._kernels = kernels
        self._context = context
        self._scratch = scratch
        self._record = record
        self._whole: list[int] = []  # what the counter of each slice comes to
        self._slice_of: dict[int, int] = {}  # by the planned command
        self._gate = NO_GATE
        self._alone: tuple[int, int, int, int] | None = None

    def has_room(self, chunks: int) -> bool:
        """Whether another slice of so many ranges fits a dispatch."""
        return len(self.items) + chunks < MAXIMUM_CHUNKS

    def add(
        self,
        command: int,
        function: int,
        block: int,
        tiles: int,
        chunks: int,
        sides: Sequence[tuple[int, int]],
        brought: Sequence[int],
    ) -> None:
        """Adds a slice.

        Args:
            command: the planned one it is.
            function, block: its kernel and the block of its arguments.
            sides: kernels over ranges of the pool and their blocks, run one after another.
            brought: commands beside which what it reads comes.
        """
        number = len(self._whole)
        self._slice_of[command] = number
        gate = self._gate = max(
            [self._gate, *(self._slice_of.get(c, NO_GATE) for c in brought)]
        )
        least = TURN if gate != NO_GATE else 0
        borders = [tiles * n // chunks for n in range(chunks + 1)]
        items = [
            Item(function, block, begin, end, gate, least, number, 1)
            for begin, end in itertools.pairwise(borders)
        ]
        self._alone = None if number or sides else (function, block, tiles, chunks)
        if number or sides:
            place = min(self.threads - 1, chunks) if number else 0
            items.insert(place, self._turn(command, number, sides))
        self.items += items
        self._whole.append(sum(item.amount for item in items))

    def _turn(self, command: int, number: int, sides: Sequence[tuple[int, int]]) -> Item:
        block = self._builder.pointing([self._context, command, len(sides)], sides)
        before, least = (number - 1, self._whole[-1]) if number else (NO_GATE, 0)
        return Item(self._kernels.several, block, 0, 1, before, least, number, TURN)

    def finish(self) -> None:
        """Adds the command of all of it; nothing where no slice was added."""
        builder = self._builder
        if self._alone is not None:
            function, block, tiles, chunks = self._alone
            builder.dispatch(function, block, tiles, chunks, self._scratch, self._record)
            return
        if not self.items:
            return
        counters = builder.block((), bytes(8 * len(self._whole)))
        head = [self._context] + [0] * (CHAIN_HEADER_WORDS - 1)
        table = builder.chain(head, self.items, counters)
        builder.clear(counters, 8 * len(self._whole))
        count = len(self.items)
        builder.dispatch(self._kernels.chain, table, count, count, self._scratch, self._record)
