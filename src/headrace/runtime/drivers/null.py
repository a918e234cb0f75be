"""The null driver: checks every plan and keeps its time, and computes nothing.

For tests, and for plans of devices that are not there: `NullDevice(device_class="cuda")`
prepares the plans that a CUDA device would get. Outputs are left as they are.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from headrace.artifact import schema
from headrace.base.errors import error
from headrace.plan.cost import Concurrency
from headrace.plan.model import Plan, PlannedDispatch
from headrace.plan.profile import Profile
from headrace.runtime.drivers.api import DeviceProperties, Span, StepTimes
from headrace.runtime.drivers.null_check import SimulatedStep, check_plan, simulate
from headrace.runtime.memory import free_host_bytes


class NullCode:
    """The first variant of every executable.

    Attributes:
        program: whose executables they are.
        variants: the chosen variant of each executable.
        concurrency: none: slices run one after another.
        code_bytes: none: no code is looked at.
    """

    code_bytes = 0

    def __init__(self, program: schema.Program) -> None:
        self.program = program
        self.variants = (0,) * len(program.executables)
        self.concurrency = Concurrency()


class NullWeights:
    """Counts what would be held.

    Attributes:
        module: whose weights they are.
        active: the plan whose resident set stands.
    """

    def __init__(self, module: schema.Module) -> None:
        self.module = module
        self.active: Plan | None = None

    @property
    def held_bytes(self) -> int:
        """Resident bytes, and the ring and rows of the active plan."""
        plan = self.active
        if plan is None:
            return 0
        resident = sum(self.module.segments[i].size_bytes for i in plan.resident)
        return resident + plan.ring_bytes + plan.row_bytes

    def activate(self, plan: Plan) -> None:
        """See `api.Weights.activate`."""
        self.active = plan

    def release(self) -> None:
        """See `api.Weights.release`."""
        self.active = None

    def notes(self) -> tuple[str, ...]:
        """See `api.Weights.notes`."""
        return ("the null device computes nothing: outputs mean nothing",)

    def close(self) -> None:
        """Forgets the active plan."""
        self.active = None


class NullState:
    """Counts slab and variables.

    Attributes:
        generation: grows when the slab would move.
    """

    def __init__(self, variables: Mapping[str, int]) -> None:
        self.generation = 0
        self._variable_bytes = sum(variables.values())
        self._slab_bytes = 0

    @property
    def held_bytes(self) -> int:
        """Bytes of slab and variables."""
        return self._slab_bytes + self._variable_bytes

    @property
    def staging_bytes(self) -> int:
        """Nothing is copied."""
        return 0

    def reserve(self, plan: Plan, exact: bool = False) -> None:
        """See `api.State.reserve`."""
        if self._slab_bytes < plan.slab_bytes or (exact and self._slab_bytes > plan.slab_bytes):
            self._slab_bytes = plan.slab_bytes
            self.generation += 1

    def close(self) -> None:
        """Gives all back."""
        self._slab_bytes = self._variable_bytes = 0


class NullStep:
    """A checked plan.

    Attributes:
        simulated: what a steady step would take.
    """

    def __init__(self, plan: Plan, weights: NullWeights, simulated: SimulatedStep) -> None:
        self._plan = plan
        self._weights = weights
        self.simulated = simulated
        self._steps = 0
        self._recording = self._tracing = False
        self._traced = self._now_ns = 0

    def run(self, inputs: Sequence[Any], outputs: Sequence[Any]) -> None:
        """Counts a step; leaves `outputs` as they are."""
        if self._weights.active is not self._plan:
            self._weights.activate(self._plan)
        self._steps += 1
        self._traced += self._tracing

    def take_times(self) -> StepTimes:
        """Simulated times of the steps since it was last asked."""
        steps, self._steps = self._steps, 0
        simulated = self.simulated
        commands = [
            c.predicted_ns if isinstance(c, PlannedDispatch) else 0 for c in self._plan.commands
        ]
        return StepTimes(
            steps,
            simulated.stall_ns * steps,
            [ns * steps for ns in simulated.wait_ns],
            commands if self._recording else [],
        )

    def record(self, on: bool) -> None:
        """See `api.Step.record`."""
        self._recording = on

    def trace(self, on: bool) -> None:
        """See `api.Step.trace`."""
        self._tracing, self._traced = on, 0

    def take_spans(self) -> tuple[Span, ...]:
        """See `api.Step.take_spans`: simulated, one step behind the other."""
        found: list[Span] = []
        simulated = self.simulated
        for _ in range(self._traced):
            now = self._now_ns
            for index, (begin, end) in enumerate(simulated.commands_ns):
                found.append(Span("compute", index, now + begin, now + end))
            for index, (begin, end) in enumerate(simulated.fetches_ns):
                found.append(Span("copy", index, now + begin, now + end, "bring"))
            self._now_ns += simulated.step_ns
        self._traced = 0
        return tuple(sorted(found, key=lambda s: (s.begin_ns, s.end_ns)))


class NullDevice:
    """Stands in for a device of any class.

    Attributes:
        device_class: whose programs it takes.
        profile: the rates it keeps time by.
    """

    name = "null"
    context_bytes = 0

    def __init__(
        self, device_class: str = "cpu", profile: Profile | None = None, threads: int = 1
    ) -> None:
        self.device_class = device_class
        self.profile = profile or Profile("null")
        self._threads = threads

    @property
    def properties(self) -> DeviceProperties:
        """See `api.DeviceProperties`."""
        in_place = self.device_class == "cpu"
        return DeviceProperties("null device", self.device_class, self._threads, (), in_place)

    def free_bytes(self) -> int:
        """See `api.Device.free_bytes`."""
        return free_host_bytes()

    def link(self, program: schema.Program, code: Callable[[int], bytes]) -> NullCode:
        """See `api.Device.link`; no code is looked at."""
        return NullCode(program)

    def open_weights(self, artifact: Any) -> NullWeights:
        """See `api.Device.open_weights`."""
        return NullWeights(artifact.module)

    def open_state(self, variables: Mapping[str, int]) -> NullState:
        """See `api.Device.open_state`."""
        return NullState(variables)

    def prepare(
        self,
        function: schema.EntryFunction,
        plan: Plan,
        code: NullCode,
        weights: NullWeights,
        state: NullState,
    ) -> NullStep:
        """Checks the plan and plays it.

        Raises:
            HeadraceDefect HR9304: the plan cannot be kept; everything wrong is noted.
        """
        facts = check_plan(weights.module, code.program, plan)
        if facts:
            raise error("HR9304", "a plan cannot be kept", notes=facts[:20])
        return NullStep(plan, weights, simulate(plan, self.profile))

    def measure(self, artifact: Any) -> Profile:
        """See `api.Device.measure`."""
        return self.profile

    def close(self) -> None:
        """Nothing is held."""
