"""Weights on a CPU: used where the file is mapped; what stays and what comes by the plan.

Nothing is copied. A *resident* segment is populated when the plan becomes active. What
streams comes and goes in the step itself: see `cpu_fetches`.
"""

from __future__ import annotations

from headrace.artifact import schema
from headrace.plan.model import Plan
from headrace.runtime.drivers.cpu_machine import Machine
from headrace.runtime.memory import PAGE_BYTES, advise
from headrace.runtime.ranges import merged, without
from headrace.runtime.weights.mapping import PoolMapping

_NO_HUGE_PAGE = 15


def _inner_pages(begin: int, end: int) -> tuple[int, int]:
    """The whole pages inside a range."""
    return -(-begin // PAGE_BYTES) * PAGE_BYTES, end // PAGE_BYTES * PAGE_BYTES


class CpuWeights:
    """The mapped pool of one module.

    `begin_step` and `end_step` are called with `Machine.lock` held; `activate`, `release`
    and `close` take it.
    """

    def __init__(self, machine: Machine, mapping: PoolMapping, module: schema.Module) -> None:
        self._machine = machine
        self.mapping = mapping
        self._segments = module.segments
        self._tables = merged(
            [
                _inner_pages(w.offset_bytes, w.offset_bytes + w.size_bytes)
                for w in module.weights
                if w.row_bytes
            ]
        )
        for begin, end in self._tables:
            # Only rows of a table are read: no page of 2 MiB may be mapped for one.
            advise(mapping.address + begin, end - begin, _NO_HUGE_PAGE)
        self._plan: Plan | None = None
        self._resident: list[tuple[int, int]] = []
        self._ring_bytes = self._row_bytes = 0
        self._borders: set[int] = set()
        machine.watch(self)

    @property
    def held_bytes(self) -> int:
        """Resident bytes, and the ring and rows of the active plan."""
        resident = sum(end - begin for begin, end in self._resident)
        return resident + self._ring_bytes + self._row_bytes

    def activate(self, plan: Plan) -> None:
        """See `api.Weights.activate`."""
        with self._machine.lock:
            self.mapping.check_unchanged()
            self._activate(plan)

    def _activate(self, plan: Plan) -> None:
        """Moves from what stays now to what stays with `plan`; only the difference moves."""
        if self._plan is plan:
            return
        self._plan = None
        mapping, before = self.mapping, self._resident
        wanted = merged(
            [
                (s.offset_bytes, s.offset_bytes + s.size_bytes)
                for s in (self._segments[index] for index in plan.resident)
            ]
        )
        # First out, then in: the two together must not pass the budget.
        for begin, end in without(before, wanted):
            mapping.drop(begin, end)
        self._resident = wanted
        self._ring_bytes = min(plan.ring_bytes, sum(f.size_bytes for f in plan.fetches))
        self._row_bytes = plan.row_bytes
        if wanted != [(0, mapping.size_bytes)]:
            borders = {p for r in (*wanted, *self._tables) for p in r}
            for fetch in plan.fetches:
                borders |= {fetch.offset_bytes, fetch.offset_bytes + fetch.size_bytes}
            if borders != self._borders:
                mapping.cut_at(sorted(borders))
                self._borders = borders
        try:
            for begin, end in without(wanted, before):
                mapping.populate(begin, end)
        except BaseException:
            self._release()
            raise
        self._plan = plan

    def _drop_all_but_resident(self) -> None:
        for begin, end in without([(0, self.mapping.size_bytes)], self._resident):
            self.mapping.drop(begin, end)

    def begin_step(self, plan: Plan) -> None:
        """Before a step of `plan`. Raises HeadraceError where weights cannot be read."""
        if self._plan is not plan:
            self.mapping.check_unchanged()
            self._activate(plan)

    def end_step(self, finished: bool) -> None:
        """After a step: gives back the rows that it read, or what it left half-way."""
        if not finished:
            self._drop_all_but_resident()
        elif self._tables:
            for begin, end in without(self._tables, self._resident):
                self.mapping.drop(begin, end)

    def release(self) -> None:
        """See `api.Weights.release`."""
        with self._machine.lock:
            self._release()

    def _release(self) -> None:
        self._plan = None
        self._resident = []
        self._ring_bytes = self._row_bytes = 0
        self._drop_all_but_resident()

    def notes(self) -> tuple[str, ...]:
        """See `api.Weights.notes`."""
        if self.mapping.populates:
            return ()
        return ("this kernel cannot populate mappings (Linux 5.14): pages are touched instead",)

    def reset_after_fork(self) -> None:
        """In a forked child no page of the pool is mapped yet."""
        self._plan = None
        self._resident = []

    def close(self) -> None:
        """Unmaps the pool; steps prepared before must not run."""
        with self._machine.lock:
            self._plan = None
            self.mapping.close()
