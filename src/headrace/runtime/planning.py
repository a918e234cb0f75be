"""Plans of one module on one device, kept: what does not hang on the budget, and plans."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from headrace.artifact import schema
from headrace.plan.beside import Beside
from headrace.plan.cost import Concurrency
from headrace.plan.model import Plan
from headrace.plan.planner import Prepared, prepare
from headrace.plan.profile import Profile

_MOST_KEPT = 128

Dims = tuple[tuple[str, int], ...]


def _trim(table: dict[Any, Any]) -> None:
    while len(table) >= _MOST_KEPT:
        del table[next(iter(table))]


class Planning:
    """Plans by function, dimensions, budget and limit.

    Attributes:
        profile: the rates that predictions use.
    """

    def __init__(
        self,
        module: schema.Module,
        program: schema.Program,
        profile: Profile,
        threads: int,
        variants: tuple[int, ...],
        tables_on_host: bool,
        concurrency: Concurrency,
    ) -> None:
        self._module = module
        self._program = program
        self.profile = profile
        self._threads = threads
        self._variants = variants
        self._tables_on_host = tables_on_host
        self._concurrency = concurrency
        self._prepared: dict[tuple[int, Dims], Prepared] = {}
        self._plans: dict[tuple[int, Dims, int, int | None, Beside], Plan] = {}

    def prepared(self, function: int, dims: Mapping[str, int]) -> Prepared:
        """A function at its dimensions, ready for any budget."""
        key = (function, tuple(sorted(dims.items())))
        found = self._prepared.get(key)
        if found is None:
            _trim(self._prepared)
            found = self._prepared[key] = prepare(
                self._module,
                self._program,
                function,
                dims,
                self.profile,
                threads=self._threads,
                variants=self._variants,
                tables_on_host=self._tables_on_host,
                concurrency=self._concurrency,
            )
        return found

    def plan(
        self,
        function: int,
        dims: Mapping[str, int],
        budget_bytes: int,
        limit_bytes: int | None,
        beside: Beside,
    ) -> Plan:
        """The plan; the same object for the same question."""
        key = (function, tuple(sorted(dims.items())), budget_bytes, limit_bytes, beside)
        found = self._plans.get(key)
        if found is None:
            _trim(self._plans)
            prepared = self.prepared(function, dims)
            found = self._plans[key] = prepared.plan(budget_bytes, limit_bytes, beside)
        return found

    def use_profile(self, profile: Profile) -> None:
        """Plans anew with other rates."""
        self.profile = profile
        self._prepared.clear()
        self._plans.clear()
