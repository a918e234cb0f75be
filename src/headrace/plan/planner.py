"""The plan of a function at given dimensions and budget. Pure: equal questions, equal plans.

What does not hang on the budget (sizes, slab, units, their order) is worked out once in
`prepare`; `Prepared.plan` then answers budget after budget.

**The budget** covers, at every moment, the weights that stay, the ring that others are
brought through, and the rows that are read in place of tables. **The minimum** is what
must stay at every budget (small weights read beside nearly everything, what copies
read), the two largest units that stream (one in use, one arriving; more where a launch
that cannot be cut reads more at once), and the rows. One byte less is refused.

**More budget is never slower and never brings more bytes**: see `levels` and `search`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property

from headrace.artifact.schema import Module, Program
from headrace.base.errors import error
from headrace.plan.assemble import assemble
from headrace.plan.beside import NOTHING, Beside
from headrace.plan.budget import format_bytes, too_little
from headrace.plan.cost import Concurrency, PartTimes, kernel_times_ns
from headrace.plan.levels import Level, Levels
from headrace.plan.memory import plan_slab
from headrace.plan.model import Plan
from headrace.plan.problem import Problem
from headrace.plan.profile import Profile
from headrace.plan.residency import Choice
from headrace.plan.search import choose
from headrace.plan.steps import flatten
from headrace.plan.streaming import analyse


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
    tables_on_host: bool = False,
    concurrency: Concurrency | None = None,
) -> Prepared:
    """What all budgets share.

    Args:
        dims: a size for every dimension of the module.
        threads: workers that run a launch; each needs its scratch. 1 on a GPU.
        variants: the variant of each executable; the first of each where empty.
        tables_on_host: rows of tables that do not stay are read from the host's memory,
            and take none of the device's.
        concurrency: how the device runs slices of a launch; one after another where None.

    Raises:
        HeadraceError HR4101: dimensions do not fit.
        HeadraceError HR3205: a size of the module is impossible at these dimensions.
    """
    flat = flatten(module, program, function_index, dims, variants)
    sizes = tuple(sorted(dims.items()))
    times = kernel_times_ns(flat, profile, sizes)
    slab = plan_slab(flat, threads)
    parts = PartTimes(
        flat.steps, times, concurrency or Concurrency(), profile.launch_overhead_ns
    )
    streaming = analyse(module, flat, times, parts, profile.link_bytes_per_s, tables_on_host)
    runs = flat.runs()
    choice = Choice(flat, streaming, runs, profile)
    return Prepared(
        module,
        function_index,
        sizes,
        profile,
        threads,
        flat,
        slab,
        streaming,
        runs,
        choice,
    )


class Prepared(Problem):
    """A function at its dimensions, ready for any budget."""

    @cached_property
    def levels(self) -> Levels:
        """What budgets choose from."""
        return Levels(self)

    def plan(
        self,
        budget_bytes: int,
        memory_limit_bytes: int | None = None,
        beside: Beside = NOTHING,
    ) -> Plan:
        """The plan at a budget.

        Args:
            budget_bytes: for weights: resident, ring and rows together.
            memory_limit_bytes: for all that the module takes of the device.
            beside: what of it is taken beside this plan's weights, slab and state.

        Raises:
            HeadraceError HR3202: the budget is below the minimum, which it names.
            HeadraceError HR3203: the limit leaves less than the minimum.
        """
        if budget_bytes < self.minimum_budget_bytes:
            raise too_little(budget_bytes, self.minimum_budget_bytes, self.stored_bytes)
        allowed = budget_bytes
        if memory_limit_bytes is not None:
            values = self.slab_bytes + self.variable_bytes
            taken = values + beside.total_bytes
            allowed = min(allowed, memory_limit_bytes - taken)
            if allowed < self.minimum_budget_bytes:
                least = taken + self.minimum_budget_bytes
                parts = (f"{format_bytes(values)} values and scratch", str(beside))
                raise error(
                    "HR3203",
                    f"a memory limit of {format_bytes(memory_limit_bytes)} is too little",
                    notes=(
                        f"the minimum at these sizes is {format_bytes(least)}",
                        f"of this {format_bytes(self.minimum_budget_bytes)} are weights, "
                        + ", ".join(part for part in parts if part),
                    ),
                    helps="raise the memory limit, or make the batch smaller",
                )
        level, schedule = choose(self.levels, allowed)
        resident = self._resident(level, allowed)
        return assemble(self, budget_bytes, level.ring_bytes, schedule, resident)

    def _resident(self, level: Level, allowed_bytes: int) -> list[int]:
        """Units that stay: the level's, then tables and other functions' where all fits."""
        choice, units = self.choice, self.streaming.units
        resident = [*choice.always, *level.stays]
        if len(level.stays) < len(choice.rest):
            return sorted(resident)
        left = allowed_bytes - choice.everything_bytes
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
