"""What a plan is: plain frozen data that an executor turns into commands.

`plan(program, dims, budget, profile) -> Plan` is pure. Addresses are symbolic places
(slab, pool, ring, an external buffer); the driver adds its own bases. On a device whose
weights are used in place (CPU: the mapped file) ring places are ignored and the pool
address serves; what counts there is which bytes are resident at a time.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias, Union


@dataclass(frozen=True, slots=True)
class Address:
    """A place in memory.

    `slab` and `scratch` count from the slab's start; `pool` from the start of the weight
    pool; `external` is buffer `index` of the call (inputs, then outputs); `variable` is
    state `index` of the session. For `pool`, `index` is the fetch that brings it, or -1
    where it is resident, or -2 where it is read in place from the file (rows of a table
    that is only gathered from; see `artifact.schema.Weight.row_bytes`). A fetch that
    brings only the first part of what a command reads is followed by others at adjacent
    places of the ring.
    """

    space: Literal["slab", "pool", "external", "variable"]
    offset_bytes: int
    index: int = -1


@dataclass(frozen=True, slots=True)
class Fetch:
    """One transfer of a segment (or part of one) from the file.

    Attributes:
        segment: index into the module's segments.
        offset_bytes, size_bytes: the range of the pool it brings, 4 KiB aligned.
        ring_offset_bytes: where in the ring it lands.
        needed_by: index of the first planned command that reads it.
        released_after: index of the last planned command that reads it.
        issue_after: index of the planned command after which its place in the ring is
            free (-1: from the start of the step; it may be issued during the step before).
        previous_issue_after: where `issue_after` is -1, index of the planned command *of
            the step before* after which its place is free; -1 where nothing of that step
            ever stood there. Fetches are issued in order, those of a step after all of
            the step before.
        at_begin: it is issued when its step begins, not before.
    """

    segment: int
    offset_bytes: int
    size_bytes: int
    ring_offset_bytes: int
    needed_by: int
    released_after: int
    issue_after: int
    previous_issue_after: int = -1
    at_begin: bool = False


@dataclass(frozen=True, slots=True)
class PlannedDispatch:
    """One launch, or a slice of one, with everything evaluated.

    Attributes:
        executable, entry_point, symbol: which code.
        addresses: one per binding.
        sizes_bytes: one per binding.
        constants: push constants as unsigned 32-bit values.
        workgroups: x, y, z counts of this slice.
        first_workgroup: x, y, z of the first workgroup of this slice.
        waits: fetches that must have arrived.
        releases: fetches whose place is free afterwards.
        command: index of the dispatch in the block it came from (for reports).
        predicted_ns: by the profile.
        together_ns: of a slice that may run beside those of its launch before it: what the
            launch takes up to here with all weights there. 0 where it runs after them.
        scratch_offset_bytes, scratch_bytes: this launch's scratch: worker `w`'s stands at
            `scratch_offset_bytes + w * scratch_bytes` of the slab (a GPU launch has one);
            aligned 64. Each launch has its own place: transients may stand there when
            another one runs.
    """

    executable: int
    entry_point: int
    symbol: str
    addresses: tuple[Address, ...]
    sizes_bytes: tuple[int, ...]
    constants: tuple[int, ...]
    workgroups: tuple[int, int, int]
    first_workgroup: tuple[int, int, int]
    waits: tuple[int, ...] = ()
    releases: tuple[int, ...] = ()
    command: int = -1
    predicted_ns: int = 0
    together_ns: int = 0
    scratch_offset_bytes: int = 0
    scratch_bytes: int = 0


@dataclass(frozen=True, slots=True)
class PlannedCopy:
    """Copies bytes between places."""

    source: Address
    target: Address
    size_bytes: int


@dataclass(frozen=True, slots=True)
class PlannedFill:
    """Fills bytes with a pattern."""

    target: Address
    size_bytes: int
    pattern: int
    pattern_bytes: int


@dataclass(frozen=True, slots=True)
class PlannedBranch:
    """Goes on at command `target` where the boolean byte at `condition` is false.

    `If` and `Loop` become branches and jumps over a flat list of commands. `target` may
    be the number of commands: the end of the step. A fetch never stands on the other
    side of a branch, jump or target from the command that needs it: from the first
    command of a straight run to its last, everything it reads is fetched and released.
    """

    condition: Address
    target: int


@dataclass(frozen=True, slots=True)
class PlannedJump:
    """Goes on at command `target`."""

    target: int


PlannedCommand: TypeAlias = Union[
    PlannedDispatch, PlannedCopy, PlannedFill, PlannedBranch, PlannedJump
]


@dataclass(frozen=True, slots=True)
class Placement:
    """Where a transient stands in the slab and from which to which command it lives."""

    resource: int
    offset_bytes: int
    size_bytes: int
    first_command: int
    last_command: int


@dataclass(frozen=True)
class Prediction:
    """What a step should cost.

    Attributes:
        step_ns: predicted time of a steady step.
        compute_ns: the same with every weight resident.
        stall_ns: the part spent waiting for weights.
        streamed_bytes: bytes fetched per step.
        peak_bytes: slab with scratch, in whole pages + resident weights + ring + rows.
    """

    step_ns: int
    compute_ns: int
    stall_ns: int
    streamed_bytes: int
    peak_bytes: int


@dataclass(frozen=True)
class Plan:
    """How one entry function runs at one set of dims and one budget.

    Attributes:
        function: index of the entry function.
        dims: named sizes, sorted.
        budget_bytes: weights resident and in flight together never pass it.
        minimum_budget_bytes: the least budget at these dims.
        stored_bytes: all weights of the module.
        slab_bytes: transients and scratch.
        scratch_bytes, scratch_offset_bytes: of the launch with most scratch, all its
            workers together, for reports; each dispatch carries its own place.
        ring_bytes: bytes reserved for streaming weights.
        row_bytes: the most that rows of tables take which are read in place; 0 where tables
            stay, or where the device reads them from the host.
        resident: indices of segments that stay.
        fetches: in order of use.
        commands: of the whole step, in order.
        placements: of the transients, for the picture.
        prediction: by the profile.
    """

    function: int
    dims: tuple[tuple[str, int], ...]
    budget_bytes: int
    minimum_budget_bytes: int
    stored_bytes: int
    slab_bytes: int
    scratch_bytes: int
    scratch_offset_bytes: int
    ring_bytes: int
    row_bytes: int
    resident: tuple[int, ...]
    fetches: tuple[Fetch, ...]
    commands: tuple[PlannedCommand, ...]
    placements: tuple[Placement, ...]
    prediction: Prediction
