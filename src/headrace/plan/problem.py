"""A function at its dimensions: everything about it that does not hang on a budget."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property

from headrace.artifact.schema import Module
from headrace.plan.memory import SlabLayout, aligned
from headrace.plan.model import Address, PlannedDispatch
from headrace.plan.profile import Profile
from headrace.plan.residency import Choice
from headrace.plan.steps import FlatFunction
from headrace.plan.streaming import Streaming, pieces_of


@dataclass
class Problem:
    """What every budget shares.

    Attributes:
        dims: named sizes, sorted.
        threads: workers that run a launch.
        flat: the function with every size a number.
        slab: where values and scratch stand.
        streaming: what launches read of the pool, and how they are cut for it.
        runs: straight runs of steps (first, end).
        choice: what always stays, the order of the rest, the minimum.
        values: places of values by resource and offset, as plans ask for them.
        resident_dispatches: launches all of whose weights stay, by first and last atom and
            `together_ns`: the same in every plan.
    """

    module: Module
    function_index: int
    dims: tuple[tuple[str, int], ...]
    profile: Profile
    threads: int
    flat: FlatFunction
    slab: SlabLayout
    streaming: Streaming
    runs: list[tuple[int, int]]
    choice: Choice
    values: dict[tuple[int, int], Address] = field(
        default_factory=dict[tuple[int, int], Address], init=False
    )
    resident_dispatches: dict[tuple[int, int, int], PlannedDispatch] = field(
        default_factory=dict[tuple[int, int, int], PlannedDispatch], init=False
    )

    @property
    def minimum_budget_bytes(self) -> int:
        """The least weight budget."""
        return self.choice.minimum_bytes

    @cached_property
    def compute_ns(self) -> int:
        """Computing of one step with every weight there."""
        streaming = self.streaming
        return sum(p.compute_ns for p in pieces_of(streaming, [False] * len(streaming.units)))

    @property
    def stored_bytes(self) -> int:
        """All weights of the module."""
        return sum(s.size_bytes for s in self.module.segments)

    @property
    def slab_bytes(self) -> int:
        """Transients and scratch."""
        return self.slab.allocated_bytes

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
