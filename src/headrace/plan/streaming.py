"""Which parts of the pool each launch reads, and how launches are cut for it.

An *atom* is a launch, or a slice of one that reads one segment of the weight it is cut
along. A *unit* is what stays or streams as one: a segment, or several in a row where a
launch that cannot be cut there reads across their borders.
"""

from __future__ import annotations

import itertools
import math
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass

from headrace.artifact.schema import Module
from headrace.base.errors import error
from headrace.plan.cost import Event, PartTimes
from headrace.plan.steps import FlatFunction, Operand, Step

_PAGE_BYTES = 4096
_LEAST_INDEX_BYTES = 4
_LINK_DECIDES = 1.25
"""How many times the computing of a step bringing what streams takes, that branches are left out.

A decoder on an H200: at least 10 with 1 and 128 tokens, with 2,048 from 0.8 (75 % stay) to 2 (`min`)."""


@dataclass(slots=True)
class Atom:
    """One launch or slice, copy, fill, branch or jump.

    Attributes:
        step: index of the step it is (a part of).
        first, count: workgroups along the slice's axis; all of them where not cut.
        units: that it reads, ascending.
        whole: whether it is the whole step.
    """

    step: int
    first: int
    count: int
    units: tuple[int, ...]
    whole: bool
    compute_ns: int


@dataclass(frozen=True)
class Unit:
    """Segments `first` to `last` of the pool, which stay or stream together.

    Attributes:
        in_place: a table whose rows are read where they stand, unless it is resident.
        uses: how many steps read it; 0 where another entry function does.
    """

    first: int
    last: int
    offset_bytes: int
    size_bytes: int
    in_place: bool
    uses: int
    fixed: bool


@dataclass(frozen=True)
class Streaming:
    """Attributes:
    atoms: in order.
    units: in order of the pool.
    unit_of_segment: index of the unit a segment belongs to.
    row_bytes: the most that rows read in place take of the device at a time.
    segment_starts: offset of each segment in the pool.
    parts: what slices take.
    pays: of each step, whether its slices gain by running beside one another.
    whole_ns: of a step whose launches are not cut.
    apart_ns: of one whose launches are all cut, slices one after another.
    link_bytes_per_s: how fast units come.
    """

    atoms: list[Atom]
    units: list[Unit]
    unit_of_segment: list[int]
    row_bytes: int
    segment_starts: list[int]
    parts: PartTimes
    pays: list[bool]
    whole_ns: int = 0
    apart_ns: int = 0
    link_bytes_per_s: float = math.inf

    def branching(self, streams: Sequence[bool]) -> list[bool]:
        """Of each step, whether its slices run beside one another when these units stream.

        None do where the link decides: slices one after another hide behind it, and branches
        of a graph hold transfers up, a decoder's of 16 layers by 19 us each (H200; 2,048 tokens
        at `min`: 130.6 ms for the 123.8 predicted, with 201 branches).
        """
        if not self.parts.branch_ns:
            return self.pays
        streamed_bytes = sum(
            [u.size_bytes for u, s in zip(self.units, streams, strict=True) if s]
        )
        bring_ns = streamed_bytes / self.link_bytes_per_s * 1e9
        share = streamed_bytes / max(sum([u.size_bytes for u in self.units]), 1)
        computing_ns = self.whole_ns + share * (self.apart_ns - self.whole_ns)
        return (
            [False] * len(self.pays) if bring_ns > _LINK_DECIDES * computing_ns else self.pays
        )

    def segment_at(self, offset_bytes: int) -> int:
        """The segment that holds a byte of the pool."""
        return bisect_right(self.segment_starts, offset_bytes) - 1


def analyse(
    module: Module,
    flat: FlatFunction,
    times_ns: Sequence[int],
    parts: PartTimes,
    link_bytes_per_s: float,
    tables_on_host: bool = False,
) -> Streaming:
    """Atoms and units of a function.

    Args:
        times_ns: of each step run whole.
        parts: what slices take.
        link_bytes_per_s: how fast weights come.
        tables_on_host: rows read in place take nothing of the device.

    Raises:
        HeadraceError HR3205: a slice rule does not fit the weight it cuts.
    """
    return _Analysis(module, flat, times_ns, parts, link_bytes_per_s, tables_on_host).run()


class _Analysis:
    def __init__(
        self,
        module: Module,
        flat: FlatFunction,
        times_ns: Sequence[int],
        parts: PartTimes,
        link_bytes_per_s: float,
        tables_on_host: bool,
    ) -> None:
        self._part_times = parts
        self._link_bytes_per_s = link_bytes_per_s
        self._module = module
        self._tables_on_host = tables_on_host
        self._flat = flat
        self._times = times_ns
        self._starts = module.segment_starts
        # Where each resource begins in the pool; -1 for what is no weight.
        self._pool = [
            -1 if r.weight is None else module.weights[r.weight].offset_bytes
            for r in flat.function.resources
        ]
        # The last segment of the unit that a segment begins or continues.
        self._joined = [False] * len(module.segments)  # with the segment before
        self._in_place = module.gathered_segments
        self._external = {
            t.resource: t.dtype for t in (*flat.function.inputs, *flat.function.outputs)
        }
        self._parts: list[tuple[int, int, int, tuple[tuple[int, int], ...], bool]] = []
        self._copied: set[int] = set()
        self._row_bytes = 0

    def _segment(self, offset_bytes: int) -> int:
        return bisect_right(self._starts, offset_bytes) - 1

    def run(self) -> Streaming:
        for index, step in enumerate(self._flat.steps):
            self._step(index, step)
        return self._build()

    def _step(self, index: int, step: Step) -> None:
        if step.kind in ("branch", "jump"):
            self._parts.append((index, 0, 1, (), True))
            return
        reads: list[tuple[int, int]] = []
        sliced: tuple[int, int] | None = None
        cut = step.slice[0] if step.slice is not None else -1
        for position, operand in enumerate(step.operands):
            start = self._pool[operand.resource]
            if start < 0 or not operand.size_bytes:
                continue
            start += operand.offset_bytes
            end = start + operand.size_bytes
            if position == cut:
                sliced = (start, end)
                continue
            first = bisect_right(self._starts, start) - 1
            last = bisect_right(self._starts, end - 1) - 1
            reads.append((first, last))
            if first != last:
                self._join(first, last)
            if step.kind == "copy":
                self._copied.add(first)
            elif not self._tables_on_host and all(self._in_place[first : last + 1]):
                self._count_rows(step, position, operand.size_bytes)
        if sliced is None or step.slice is None:
            self._parts.append((index, 0, self._groups(step), tuple(reads), True))
            return
        self._slice(index, step, step.slice, sliced, tuple(reads))

    @staticmethod
    def _groups(step: Step) -> int:
        return step.workgroups[step.slice[1]] if step.slice is not None else 1

    def _join(self, first: int, last: int) -> None:
        for segment in range(first + 1, last + 1):
            self._joined[segment] = True

    def _slice(
        self,
        index: int,
        step: Step,
        rule: tuple[int, int, int],
        pool: tuple[int, int],
        reads: tuple[tuple[int, int], ...],
    ) -> None:
        """Cuts a launch at the borders of segments inside the weight it is cut along."""
        _, axis, step_bytes = rule
        start, end = pool
        groups = step.workgroups[axis]
        first_segment, last_segment = self._segment(start), self._segment(end - 1)
        if first_segment == last_segment or groups <= 0:
            segments = (first_segment, last_segment)
            self._join(*segments)
            self._parts.append((index, 0, max(groups, 0), (*reads, segments), True))
            return
        if step_bytes <= 0 or (groups - 1) * step_bytes >= end - start:
            raise error(
                "HR3205",
                f"the slices of '{step.symbol}' do not fit its weight",
                helps="compile the model again",
            )
        borders = [0]
        for segment in range(first_segment + 1, last_segment + 1):
            group = min((self._starts[segment] - start) // step_bytes, groups)
            if group > borders[-1]:
                borders.append(group)
        if borders[-1] < groups:
            borders.append(groups)
        for low, high in itertools.pairwise(borders):
            stop = end if high == groups else start + high * step_bytes
            segments = (
                self._segment(start + low * step_bytes),
                self._segment(min(stop, end) - 1),
            )
            self._join(*segments)
            whole = (low, high) == (0, groups)
            self._parts.append((index, low, high - low, (*reads, segments), whole))

    def _count_rows(self, step: Step, position: int, size_bytes: int) -> None:
        """Bounds what a launch reads of a table: a row for each index it may be given."""
        resources, weights = self._flat.function.resources, self._module.weights
        weight = weights[resources[step.operands[position].resource].weight or 0]
        rows = max(1, sum(self._indices(o) for o in step.operands if o.reads))
        per_row = -(-weight.row_bytes // _PAGE_BYTES) * _PAGE_BYTES + _PAGE_BYTES
        self._row_bytes = max(self._row_bytes, min(rows * per_row, size_bytes))

    def _indices(self, operand: Operand) -> int:
        """How many indices an operand may hold; between launches types are not known."""
        resource = self._flat.function.resources[operand.resource]
        if resource.weight is not None:
            dtype = self._module.weights[resource.weight].dtype
        elif operand.resource in self._external:
            dtype = self._external[operand.resource]
        else:
            return operand.size_bytes // _LEAST_INDEX_BYTES
        return operand.size_bytes // dtype.size_bytes if dtype.is_integer else 0

    # -- units --------------------------------------------------------------------

    def _build(self) -> Streaming:
        unit_of: list[int] = []
        spans: list[tuple[int, int]] = []
        for segment in range(len(self._starts)):
            if self._joined[segment]:
                spans[-1] = (spans[-1][0], segment)
            else:
                spans.append((segment, segment))
            unit_of.append(len(spans) - 1)
        in_place = [all(self._in_place[a : b + 1]) for a, b in spans]
        uses = [0] * len(spans)
        fixed = {unit_of[s] for s in self._copied}
        atoms: list[Atom] = []
        known: dict[tuple[tuple[int, int], ...], tuple[int, ...]] = {}
        for step, first, count, reads, whole in self._parts:
            units = known.get(reads)
            if units is None:
                units = known[reads] = tuple(sorted({unit_of[a] for a, _ in reads}))
            for unit in units:
                uses[unit] += 1
            share = self._times[step]
            if not whole and self._part_times.slots[step]:
                share = self._part_times.part_ns(step, count)
            elif not whole:
                share = share * count // max(self._groups(self._flat.steps[step]), 1)
            atoms.append(Atom(step, first, count, units, whole, share))
        units_found: list[Unit] = []
        for index, (a, b) in enumerate(spans):
            last = self._module.segments[b]
            offset = self._starts[a]
            units_found.append(
                Unit(
                    a,
                    b,
                    offset,
                    last.offset_bytes + last.size_bytes - offset,
                    in_place[index],
                    uses[index],
                    index in fixed,
                )
            )
        return Streaming(
            atoms,
            units_found,
            unit_of,
            self._row_bytes,
            self._starts,
            self._part_times,
            self._pays(atoms),
            sum(self._times),
            sum(atom.compute_ns for atom in atoms),
            self._link_bytes_per_s,
        )

    def _pays(self, atoms: Sequence[Atom]) -> list[bool]:
        """Whether the slices of each step save more waves than their branches cost."""
        parts = self._part_times
        # The first slice needs no branch.
        gain_ns = [parts.branch_ns - whole for whole in self._times]
        for atom in atoms:
            gain_ns[atom.step] += atom.compute_ns - parts.branch_ns
        return [gain >= 0 and may for gain, may in zip(gain_ns, parts.together, strict=True)]


def events_of(
    streaming: Streaming, streams: Sequence[bool], runs: Sequence[tuple[int, int]]
) -> list[Event]:
    """Atoms gathered into events by which of the units that stream they read."""
    events: list[Event] = []
    last: Event | None = None
    run = 0
    end = runs[0][1] if runs else 0
    kept: dict[tuple[int, ...], tuple[int, ...]] = {}
    parts, pays = streaming.parts, streaming.branching(streams)
    # The launch whose parts come, and how many workgroups of it the last event has.
    launch, count = -1, 0
    in_head = False  # whether the last event has nothing but a part it goes on with
    # What the launch's atom before reads, and how many slices it has beside its first: in
    # all, and in the last event.
    read: tuple[int, ...] = ()
    beside = beside_here = 0
    for index, atom in enumerate(streaming.atoms):
        units = kept.get(atom.units)
        if units is None:
            units = kept[atom.units] = tuple([u for u in atom.units if streams[u]])
        if atom.step >= end:
            last = None
            while atom.step >= runs[run][1]:
                run += 1
            end = runs[run][1]
        ns, cut = atom.compute_ns, not atom.whole and parts.slots[atom.step] > 0
        if not cut or atom.step != launch:
            launch, count = (atom.step if cut else -1), 0
            in_head = False
            beside = beside_here = 0
        elif units != read and pays[launch]:
            beside, beside_here = beside + 1, beside_here + 1
            ns += parts.branch_ns
        elif units != read:
            count = 0  # a part of its own, behind the one before
        read = units
        if last is not None and (not units or units == last.units):
            if count:
                ns += parts.part_ns(launch, count + atom.count) - parts.part_ns(launch, count)
                ns -= atom.compute_ns
            if units:
                last.using_ns += last.trailing_ns + ns
                last.trailing_ns = 0
                last.last_atom = index
            else:
                last.trailing_ns += ns
        else:
            goes_on = False
            if last is not None and count and pays[launch]:
                goes_on = True
                here = beside_here - 1  # the slice that begins now is the next event's
                last.open_ns = parts.part_ns(launch, count) + here * parts.branch_ns
                if in_head:
                    last.open_ns = -1
            last = Event(units, ns, 0, index, index, run)
            events.append(last)
            in_head, count, beside_here = goes_on, 0, int(goes_on)
        count += atom.count
        if in_head:
            last.head_ns = parts.part_ns(launch, count) + beside_here * parts.branch_ns
            last.together_ns = parts.part_ns(launch, atom.first + atom.count)
            last.together_ns += beside * parts.branch_ns
    return events


@dataclass(slots=True)
class Piece:
    """Atoms that run as one command.

    Attributes:
        atom: the first; `count` is that of the whole piece.
        first_atom, last_atom: their indices.
        compute_ns: of the piece alone.
        together_ns: see `model.PlannedDispatch.together_ns`.
    """

    atom: Atom
    count: int
    first_atom: int
    last_atom: int
    compute_ns: int
    together_ns: int = 0


def pieces_of(streaming: Streaming, streams: Sequence[bool]) -> list[Piece]:
    """Atoms gathered into commands: slices next to one another that wait for the same."""
    found: list[Piece] = []
    parts, pays = streaming.parts, streaming.branching(streams)
    previous: tuple[int, ...] = ()
    beside = 0
    for index, atom in enumerate(streaming.atoms):
        if atom.whole:
            found.append(Piece(atom, atom.count, index, index, atom.compute_ns))
            continue
        needs = tuple([u for u in atom.units if streams[u]])
        if not (atom.first and found[-1].atom.step == atom.step and needs == previous):
            found.append(Piece(atom, 0, index, index, 0))
            previous = needs
            beside = beside + 1 if atom.first else 0
        piece = found[-1]
        piece.count += atom.count
        piece.last_atom = index
        if not parts.slots[atom.step]:
            piece.compute_ns += atom.compute_ns
            continue
        piece.compute_ns = parts.part_ns(atom.step, piece.count)
        if piece.atom.first and pays[atom.step]:
            piece.together_ns = parts.part_ns(atom.step, atom.first + atom.count)
            piece.together_ns += beside * parts.branch_ns
    return found
