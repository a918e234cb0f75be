"""The plan of a function at given dimensions and budget. Pure: equal questions, equal plans.

What does not hang on the budget (sizes, slab, units, their order) is worked out once in
`prepare`; `Prepared.plan` then answers budget after budget.

**The budget** covers, at every moment, the weights that stay, the ring that others are
brought through, and the rows that are read in place of tables. **The minimum** is what
must stay at every budget (small weights read beside nearly everything, what copies
read), the two largest units that stream (one in use, one arriving; more where a launch
that cannot be cut reads more at once), and the rows. One byte less is refused.

**More budget is never slower and never brings more bytes.** All budgets share one list
of *levels*: first the ring grows to its depth, then one unit after another stays. A
budget takes, of the levels it can pay, the one that is predicted fastest, of equal ones
the last. A larger budget can pay the same levels and later ones.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TypeAlias

from headrace.artifact.schema import Module, Program
from headrace.base.errors import error
from headrace.plan.assemble import assemble
from headrace.plan.budget import format_bytes, too_little
from headrace.plan.cost import Event, Timing, Transfer, kernel_times_ns, simulate, transfer_ns
from headrace.plan.fetch import place_ring, transfers_of
from headrace.plan.memory import SlabLayout, aligned, plan_slab
from headrace.plan.model import Plan
from headrace.plan.profile import Profile
from headrace.plan.residency import Choice, choose
from headrace.plan.steps import FlatFunction, flatten
from headrace.plan.streaming import Streaming, analyse, fewer

_DEPTHS = (0, 1, 2, 4)
_LARGE = 1.5  # times the middle unit: worth levels of its own before it
_MOST_EXTRA = 16


@dataclass(frozen=True)
class Level:
    """The first `kept` units of the order stay, and `extra` ones after them.

    Attributes:
        extra: positions in the order.
        cost_bytes: the least budget that can pay it.
    """

    kept: int
    ring_bytes: int
    cost_bytes: int
    extra: tuple[int, ...] = ()


_LevelKey: TypeAlias = tuple[int, int, tuple[int, ...]]


@dataclass(frozen=True)
class Schedule:
    """A level played through."""

    streams: list[bool]
    events: list[Event]
    transfers: list[Transfer]
    timing: Timing


def plan(
    module: Module,
    program: Program,
    function_index: int,
    dims: Mapping[str, int],
    budget_bytes: int,
    memory_limit_bytes: int | None,
    profile: Profile,
    *,
    threads: int,
    variants: Sequence[int] = (),
) -> Plan:
    """The plan of one entry function. See `prepare` and `Prepared.plan`."""
    prepared = prepare(
        module, program, function_index, dims, profile, threads=threads, variants=variants
    )
    return prepared.plan(budget_bytes, memory_limit_bytes)


def minimum_budget_bytes(
    module: Module,
    program: Program,
    function_index: int,
    dims: Mapping[str, int],
    *,
    threads: int = 1,
    variants: Sequence[int] = (),
) -> int:
    """The least weight budget at these dimensions; one byte less is refused.

    It depends on neither threads nor profile.
    """
    return prepare(
        module, program, function_index, dims, Profile(), threads=threads, variants=variants
    ).minimum_budget_bytes


def prepare(
    module: Module,
    program: Program,
    function_index: int,
    dims: Mapping[str, int],
    profile: Profile,
    *,
    threads: int,
    variants: Sequence[int] = (),
) -> Prepared:
    """What all budgets share.

    Args:
        dims: a size for every dimension of the module.
        threads: workers that run a launch; each needs its scratch. 1 on a GPU.
        variants: the variant of each executable; the first of each where empty.

    Raises:
        HeadraceError HR4101: dimensions do not fit.
        HeadraceError HR3205: a size of the module is impossible at these dimensions.
    """
    flat = flatten(module, program, function_index, dims, variants)
    sizes = tuple(sorted(dims.items()))
    times = kernel_times_ns(flat, profile, sizes)
    slab = plan_slab(flat, threads)
    streaming = analyse(module, flat, times)
    runs = flat.runs()
    choice = choose(flat, streaming, runs, profile)
    return Prepared(
        module,
        function_index,
        sizes,
        profile,
        threads,
        flat,
        times,
        slab,
        streaming,
        runs,
        choice,
    )


@dataclass
class Prepared:
    """A function at its dimensions, ready for any budget.

    Attributes:
        minimum_budget_bytes: the least budget.
        slab_bytes: transients and scratch.
    """

    module: Module
    function_index: int
    dims: tuple[tuple[str, int], ...]
    profile: Profile
    threads: int
    flat: FlatFunction
    times_ns: list[int]
    slab: SlabLayout
    streaming: Streaming
    runs: list[tuple[int, int]]
    choice: Choice
    _levels: list[Level] = field(default_factory=list[Level])
    _played: dict[_LevelKey, Schedule] = field(default_factory=dict[_LevelKey, Schedule])

    @property
    def minimum_budget_bytes(self) -> int:
        return self.choice.minimum_bytes

    @cached_property
    def _compute_ns(self) -> int:
        return sum(a.compute_ns for a in self.streaming.atoms)

    @property
    def stored_bytes(self) -> int:
        """All weights of the module."""
        return sum(s.size_bytes for s in self.module.segments)

    @property
    def slab_bytes(self) -> int:
        return self.slab.slab_bytes

    @property
    def variable_bytes(self) -> int:
        """State kept between steps."""
        return sum(
            aligned(size)
            for size, resource in zip(
                self.flat.sizes_bytes, self.flat.function.resources, strict=True
            )
            if resource.lifetime == "variable"
        )

    def plan(self, budget_bytes: int, memory_limit_bytes: int | None = None) -> Plan:
        """The plan at a budget.

        Args:
            budget_bytes: for weights: resident, ring and rows together.
            memory_limit_bytes: for the budget, slab and state together; what else the
                run time owns it takes off before.

        Raises:
            HeadraceError HR3202: the budget is below the minimum, which it names.
            HeadraceError HR3203: the limit leaves less than the minimum.
        """
        if budget_bytes < self.minimum_budget_bytes:
            raise too_little(budget_bytes, self.minimum_budget_bytes, self.stored_bytes)
        allowed = budget_bytes
        if memory_limit_bytes is not None:
            taken = self.slab_bytes + self.variable_bytes
            allowed = min(allowed, memory_limit_bytes - taken)
            if allowed < self.minimum_budget_bytes:
                least = taken + self.minimum_budget_bytes
                raise error(
                    "HR3203",
                    f"a memory limit of {format_bytes(memory_limit_bytes)} is too little",
                    notes=(
                        f"the minimum at these sizes is {format_bytes(least)}",
                        f"of this {format_bytes(self.minimum_budget_bytes)} are weights and "
                        f"{format_bytes(taken)} values and scratch",
                    ),
                    helps="raise the memory limit, or make the batch smaller",
                )
        level, schedule = self._choose_level(allowed)
        resident = self._resident(level, allowed)
        return assemble(self, budget_bytes, level.ring_bytes, schedule, resident)

    # -- levels -------------------------------------------------------------------

    def _base_bytes(self) -> int:
        return self.choice.minimum_bytes - self.choice.ring_bytes

    @property
    def levels(self) -> list[Level]:
        """From the least budget to all units of the function staying."""
        if not self._levels:
            self._levels.extend(self._make_levels())
        return self._levels

    def _make_levels(self) -> list[Level]:
        base = self._base_bytes()
        order = self.choice.order
        sizes = [self.streaming.units[u].size_bytes for u in order]
        everything = Level(len(order), 0, base + sum(sizes))
        if not order:
            return [everything]
        least = self.choice.ring_bytes
        unit = sorted(sizes)[len(sizes) // 2]
        depth = self._best_depth(unit)
        rings = [least + d * unit for d in range(depth + 1)]
        levels = [Level(0, ring, base + ring) for ring in rings]
        kept = 0
        for position, size in enumerate(sizes[:-1]):
            if size > unit * _LARGE:
                levels.extend(self._before_large(position, sizes, rings[-1], base + kept))
            kept += size
            levels.append(Level(position + 1, rings[-1], base + kept + rings[-1]))
        levels = [level for level in levels if level.cost_bytes < everything.cost_bytes]
        return [*self._bringing_ever_less(levels), everything]

    def _bringing_ever_less(self, levels: list[Level]) -> list[Level]:
        """Leaves out levels that bring more than one before them.

        There are some only where a unit is brought twice in a step: what stays instead
        of it may be larger and yet save less.
        """
        sizes = [u.size_bytes for u in self.streaming.units]
        base = transfers_of(self.choice.events, sizes)
        if len(base) == len(self.choice.order):
            return levels
        kept: list[Level] = []
        least = sum(t.size_bytes for t in base)
        for level in levels:
            streams = self._streams(level)
            events = fewer(self.choice.events, streams)
            brought = sum(t.size_bytes for t in transfers_of(events, sizes))
            if brought <= least:
                kept.append(level)
                least = brought
        return kept

    @staticmethod
    def _before_large(
        position: int, sizes: Sequence[int], ring_bytes: int, kept_bytes: int
    ) -> Iterator[Level]:
        """Levels for budgets that cannot yet pay the large unit next in the order: later
        ones stay instead, as long as all of them are smaller than it."""
        extra: list[int] = []
        total = 0
        for later in range(position + 1, len(sizes)):
            if len(extra) == _MOST_EXTRA:
                return
            if total + sizes[later] >= sizes[position]:
                continue
            extra.append(later)
            total += sizes[later]
            cost = kept_bytes + total + ring_bytes
            yield Level(position, ring_bytes, cost, tuple(extra))

    def _best_depth(self, unit_bytes: int) -> int:
        """How many units more than the least the ring should hold: predicted at three
        budgets, where a deeper ring keeps as many units fewer."""
        count = len(self.choice.order)
        best: tuple[int, int] | None = None
        for depth in _DEPTHS:
            ring = self.choice.ring_bytes + depth * unit_bytes
            kept = [max(0, count * quarter // 4 - depth) for quarter in (1, 2, 3)]
            if depth and depth >= count // 4:
                break
            total = sum(self._play(Level(k, ring, 0)).timing.step_ns for k in kept)
            # A little faster is not worth a deeper ring: it is bytes that do not stay.
            if best is None or total * 1.005 < best[0]:
                best = (total, depth)
        assert best is not None
        return best[1]

    def _choose_level(self, allowed_bytes: int) -> tuple[Level, Schedule]:
        best: tuple[Level, Schedule] | None = None
        for level, floor in zip(reversed(self.levels), reversed(self._floors_ns), strict=True):
            if level.cost_bytes > allowed_bytes:
                continue
            if best is not None and floor >= best[1].timing.step_ns:
                break
            schedule = self._play(level)
            if best is None or schedule.timing.step_ns < best[1].timing.step_ns:
                best = (level, schedule)
        assert best is not None
        return best

    def _streaming(self, level: Level) -> list[int]:
        """The units that stream."""
        extra = set(level.extra)
        order = self.choice.order
        return [order[p] for p in range(level.kept, len(order)) if p not in extra]

    def _streams(self, level: Level) -> list[bool]:
        """For each unit whether it streams."""
        streams = [False] * len(self.streaming.units)
        for unit in self._streaming(level):
            streams[unit] = True
        return streams

    @cached_property
    def _floors_ns(self) -> list[int]:
        """For each level, a time that neither it nor any before it can beat."""
        order = self.choice.order
        times = [transfer_ns(self.streaming.units[u].size_bytes, self.profile) for u in order]
        left = [sum(times)]
        for time in times:
            left.append(left[-1] - time)
        floors: list[int] = []
        for level in self.levels:
            busy = left[level.kept] - sum(times[p] for p in level.extra)
            floor = max(busy, self._compute_ns + int(busy * self.profile.contention))
            floors.append(min(floor, floors[-1]) if floors else floor)
        return floors

    def _play(self, level: Level) -> Schedule:
        key = (level.kept, level.ring_bytes, level.extra)
        known = self._played.get(key)
        if known is not None:
            return known
        units = self.streaming.units
        streams = self._streams(level)
        events = fewer(self.choice.events, streams)
        transfers = transfers_of(events, [u.size_bytes for u in units])
        place_ring(transfers, level.ring_bytes, events)
        timing = simulate(events, transfers, self.profile)
        schedule = self._played[key] = Schedule(streams, events, transfers, timing)
        return schedule

    def _resident(self, level: Level, allowed_bytes: int) -> list[int]:
        """Units that stay: the level's, then tables and other functions' where all fits."""
        choice, units = self.choice, self.streaming.units
        resident = [*choice.always, *choice.order[: level.kept]]
        resident.extend(choice.order[p] for p in level.extra)
        if level.kept < len(choice.order):
            return sorted(resident)
        left = allowed_bytes - level.cost_bytes
        rows = self.streaming.row_bytes if choice.tables else 0
        tables = sum(units[u].size_bytes for u in choice.tables)
        if choice.tables and tables <= left + rows:
            resident.extend(choice.tables)
            left += rows - tables
        for unit in choice.unused:
            if units[unit].size_bytes <= left:
                resident.append(unit)
                left -= units[unit].size_bytes
        return sorted(resident)
