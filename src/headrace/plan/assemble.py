"""Puts a plan together: commands with addresses, and fetches that name commands."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Literal, TypeAlias

from headrace.base.errors import error
from headrace.plan.levels import Schedule
from headrace.plan.memory import aligned
from headrace.plan.model import (
    Address,
    Fetch,
    Plan,
    PlannedBranch,
    PlannedCommand,
    PlannedCopy,
    PlannedDispatch,
    PlannedFill,
    PlannedJump,
    Prediction,
)
from headrace.plan.problem import Problem
from headrace.plan.steps import Operand, Step
from headrace.plan.streaming import Piece, pieces_of

Space: TypeAlias = Literal["slab", "pool", "external", "variable"]

RESIDENT = -1
IN_PLACE = -2


def assemble(
    problem: Problem,
    budget_bytes: int,
    ring_bytes: int,
    schedule: Schedule,
    resident_units: Sequence[int],
) -> Plan:
    """The plan of a schedule."""
    return _Assembly(problem, schedule, resident_units).run(budget_bytes, ring_bytes)


class _Assembly:
    def __init__(
        self, problem: Problem, schedule: Schedule, resident_units: Sequence[int]
    ) -> None:
        self._problem = problem
        self._schedule = schedule
        self._stays = set(resident_units)
        self._all_stay = len(self._stays) == len(problem.streaming.units)
        self._flat = problem.flat
        self._addresses: dict[int, tuple[Space, int, int]] = {}
        self._away = {n for n in range(len(problem.streaming.units)) if n not in self._stays}
        # By resource and offset: what no fetch changes.
        self._lasting = dict(problem.values)
        self._fetch_of: dict[int, int] = {}  # segment -> fetch that holds it now
        self._place_resources()

    def _place_resources(self) -> None:
        """Space, base and index of every resource but constants."""
        flat, slab = self._flat, self._problem.slab
        signatures = (*flat.function.inputs, *flat.function.outputs)
        external: dict[int, int] = {}
        for index, signature in enumerate(signatures):
            external.setdefault(signature.resource, index)
        variables = 0
        for index, resource in enumerate(flat.function.resources):
            if resource.lifetime == "external":
                self._addresses[index] = ("external", 0, external.get(index, -1))
            elif resource.lifetime == "variable":
                self._addresses[index] = ("variable", 0, variables)
                variables += 1
            elif resource.lifetime != "constant":
                self._addresses[index] = ("slab", slab.offsets.get(index, 0), -1)

    # -- addresses ----------------------------------------------------------------

    def _address(self, operand: Operand) -> Address:
        key = (operand.resource, operand.offset_bytes)
        address = self._lasting.get(key)
        if address is not None:
            return address
        weight = self._flat.function.resources[operand.resource].weight
        if weight is not None:
            offset = self._problem.module.weights[weight].offset_bytes + operand.offset_bytes
            holder = self._holder(offset, operand.size_bytes)
            address = Address("pool", offset, holder)
            if holder < 0 and operand.size_bytes:
                self._lasting[key] = address
            return address
        space, base, index = self._addresses[operand.resource]
        if space == "external" and index < 0:
            name = self._flat.function.resources[operand.resource].name
            raise error("HR3205", f"'{name}' is neither an input nor an output")
        address = Address(space, base + operand.offset_bytes, index)
        self._lasting[key] = self._problem.values[key] = address
        return address

    def _holder(self, offset: int, size_bytes: int) -> int:
        """The fetch that brings a byte of the pool, or why there is none."""
        streaming = self._problem.streaming
        if self._all_stay or not size_bytes:
            return RESIDENT
        segment = streaming.segment_at(offset)
        unit = streaming.unit_of_segment[segment]
        if unit in self._stays:
            return RESIDENT
        if streaming.units[unit].in_place:
            return IN_PLACE
        return self._fetch_of[segment]

    # -- commands -----------------------------------------------------------------

    def run(self, budget_bytes: int, ring_bytes: int) -> Plan:
        pieces = pieces_of(self._problem.streaming, self._schedule.streams)
        command_of_atom: list[int] = []
        first_command: dict[int, int] = {}
        for number, piece in enumerate(pieces):
            command_of_atom.extend([number] * (piece.last_atom + 1 - len(command_of_atom)))
            first_command.setdefault(piece.atom.step, number)
        fetches = self._fetches(command_of_atom, first_command)
        waits: dict[int, list[int]] = {}
        releases: dict[int, list[int]] = {}
        for number, fetch in enumerate(fetches):
            waits.setdefault(fetch.needed_by, []).append(number)
            releases.setdefault(fetch.released_after, []).append(number)
        steps = self._flat.steps
        first_command[len(steps)] = len(pieces)
        commands: list[PlannedCommand] = []
        for number, piece in enumerate(pieces):
            for fetch in waits.get(number, ()):
                self._fetch_of[fetches[fetch].segment] = fetch
            step = steps[piece.atom.step]
            if step.kind == "dispatch":
                commands.append(
                    self._dispatch(
                        step,
                        piece,
                        tuple(waits.get(number, ())),
                        tuple(releases.get(number, ())),
                    )
                    if self._reads_away(piece)
                    else self._resident_dispatch(step, piece)
                )
            else:
                commands.append(self._other(step, first_command))
        return self._plan(budget_bytes, ring_bytes, fetches, commands, first_command)

    def _reads_away(self, piece: Piece) -> bool:
        """Whether it reads a unit that does not stay."""
        atoms, away = self._problem.streaming.atoms, self._away
        if piece.atom.whole:
            return not away.isdisjoint(piece.atom.units)
        read = atoms[piece.first_atom : piece.last_atom + 1]
        return any(not away.isdisjoint(atom.units) for atom in read)

    def _resident_dispatch(self, step: Step, piece: Piece) -> PlannedDispatch:
        """A launch all of whose weights stay: the same one in every plan."""
        key = piece.first_atom, piece.last_atom, piece.together_ns
        known = self._problem.resident_dispatches
        found = known.get(key)
        if found is None:
            found = known[key] = self._dispatch(step, piece, (), ())
        return found

    def _dispatch(
        self,
        step: Step,
        piece: Piece,
        waits: tuple[int, ...],
        releases: tuple[int, ...],
    ) -> PlannedDispatch:
        atom, workgroups, first = piece.atom, step.workgroups, (0, 0, 0)
        addresses = [self._address(o) for o in step.operands]
        if step.slice is not None:
            binding, axis, step_bytes = step.slice
            if piece.count != workgroups[axis]:
                counts, firsts = list(workgroups), [0, 0, 0]
                counts[axis], firsts[axis] = piece.count, atom.first
                workgroups = (counts[0], counts[1], counts[2])
                first = (firsts[0], firsts[1], firsts[2])
                addresses[binding] = self._slice_address(
                    step.operands[binding], addresses[binding], atom.first * step_bytes
                )
        scratch = aligned(step.scratch_bytes)
        return PlannedDispatch(
            step.executable,
            step.entry_point,
            step.symbol,
            tuple(addresses),
            tuple([o.size_bytes for o in step.operands]),
            step.constants,
            workgroups,
            first,
            waits,
            releases,
            step.command,
            piece.compute_ns,
            piece.together_ns,
            self._problem.slab.scratch.get(atom.step, 0),
            scratch,
        )

    def _slice_address(self, operand: Operand, whole: Address, skipped_bytes: int) -> Address:
        """The address of the whole weight, held by what holds the slice's first byte."""
        weight = self._flat.function.resources[operand.resource].weight
        if weight is None:
            return whole
        begin = whole.offset_bytes + skipped_bytes
        return Address("pool", whole.offset_bytes, self._holder(begin, 1))

    def _other(self, step: Step, first_command: dict[int, int]) -> PlannedCommand:
        if step.kind == "copy":
            source, target = step.operands
            return PlannedCopy(self._address(source), self._address(target), source.size_bytes)
        if step.kind == "fill":
            (target,) = step.operands
            return PlannedFill(
                self._address(target), target.size_bytes, step.pattern, step.pattern_bytes
            )
        if step.kind == "branch":
            return PlannedBranch(self._address(step.operands[0]), first_command[step.target])
        return PlannedJump(first_command[step.target])

    # -- fetches ------------------------------------------------------------------

    def _fetches(
        self, command_of_atom: list[int], first_command: dict[int, int]
    ) -> list[Fetch]:
        """Fetches in order of use: one for each segment of each transfer."""
        problem, schedule = self._problem, self._schedule
        units, segments = problem.streaming.units, problem.module.segments
        events = schedule.events
        several = len(problem.runs) > 1
        total = command_of_atom[-1] + 1 if command_of_atom else 0

        def end_of(event: int) -> int:
            return command_of_atom[events[event].last_atom] if event >= 0 else -1

        found: list[Fetch] = []
        for transfer in schedule.transfers:
            unit = units[transfer.unit]
            needed = command_of_atom[events[transfer.first].first_atom]
            after, previous = end_of(transfer.after), end_of(transfer.previous)
            if several:
                run = problem.runs[events[transfer.first].run]
                after, previous = max(after, first_command[run[0]] - 1), total - 1
            if after >= 0:
                previous = -1
            for segment in range(unit.first, unit.last + 1):
                at = segments[segment]
                ring = transfer.offset_bytes + at.offset_bytes - unit.offset_bytes
                found.append(
                    Fetch(
                        segment,
                        at.offset_bytes,
                        at.size_bytes,
                        ring,
                        needed,
                        end_of(transfer.last),
                        after,
                        previous,
                        transfer.at_begin,
                    )
                )
        return found

    # -- the whole ----------------------------------------------------------------

    def _plan(
        self,
        budget_bytes: int,
        ring_bytes: int,
        fetches: list[Fetch],
        commands: list[PlannedCommand],
        first_command: dict[int, int],
    ) -> Plan:
        problem, schedule = self._problem, self._schedule
        streaming, slab = problem.streaming, problem.slab
        resident = tuple(
            s
            for s in range(len(problem.module.segments))
            if streaming.unit_of_segment[s] in self._stays
        )
        kept = sum(streaming.units[u].size_bytes for u in self._stays)
        rows = any(u not in self._stays for u in problem.choice.tables)
        row_bytes = streaming.row_bytes if rows else 0
        largest = max(
            (i for i in slab.scratch),
            key=lambda i: (self._flat.steps[i].scratch_bytes, -i),
            default=-1,
        )
        scratch_bytes = 0
        if largest >= 0:
            scratch_bytes = aligned(self._flat.steps[largest].scratch_bytes) * problem.threads
        placements = tuple(
            replace(
                p,
                first_command=first_command[p.first_command],
                last_command=first_command[p.last_command + 1] - 1,
            )
            for p in slab.placements
        )
        compute = problem.compute_ns
        prediction = Prediction(
            schedule.timing.step_ns,
            compute,
            schedule.timing.stall_ns,
            sum(f.size_bytes for f in fetches),
            slab.allocated_bytes + kept + ring_bytes + row_bytes,
        )
        return Plan(
            problem.function_index,
            problem.dims,
            budget_bytes,
            problem.minimum_budget_bytes,
            problem.stored_bytes,
            slab.slab_bytes,
            scratch_bytes,
            slab.scratch.get(largest, 0),
            ring_bytes,
            row_bytes,
            resident,
            tuple(fetches),
            tuple(commands),
            placements,
            prediction,
        )
