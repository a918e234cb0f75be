"""What every driver gives the run time: a device, linked code, weights, steps.

A driver knows one kind of device and nothing of models. `runtime.module` makes a plan,
has the driver *prepare* it into a `Step`, and runs the step with host arrays; moving
them to the device where it has its own memory is the driver's work.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

from headrace.artifact import schema
from headrace.plan.cost import Concurrency
from headrace.plan.model import Plan
from headrace.plan.profile import Profile


@dataclass(frozen=True)
class DeviceProperties:
    """What a report says of a device.

    Attributes:
        name: as the maker calls it.
        driver: the driver and its version.
        workers: threads or multiprocessors that share one dispatch.
        features: device features that variants may ask for, sorted.
        weights_in_place: weights are used where the file is mapped; nothing is copied.
            Elsewhere rows of tables that do not stay are read from the host's memory.
    """

    name: str
    driver: str
    workers: int
    features: tuple[str, ...]
    weights_in_place: bool


@dataclass
class StepTimes:
    """What was measured of steps, added up until it is taken.

    Attributes:
        steps: how many.
        stall_ns: waiting for weights.
        wait_ns: the same per fetch of the plan.
        command_ns: per planned command, the mean of its runs; empty unless recording was
            on; 0 for one that did not run.
    """

    steps: int = 0
    stall_ns: int = 0
    wait_ns: list[int] = field(default_factory=list[int])
    command_ns: list[int] = field(default_factory=list[int])


@dataclass(frozen=True)
class Span:
    """When a command or a transfer of a traced step ran.

    Attributes:
        row: `compute` for a command of the plan, `copy` for a fetch.
        index: of the command or fetch.
        begin_ns, end_ns: by a clock that all spans of a step share.
        what: of a fetch: `bring`, or `drop` where its bytes are given back.
    """

    row: Literal["compute", "copy"]
    index: int
    begin_ns: int
    end_ns: int
    what: str = ""


class Code(Protocol):
    """Linked executables of one program."""

    @property
    def variants(self) -> tuple[int, ...]:
        """The chosen variant of each executable."""
        ...

    @property
    def concurrency(self) -> Concurrency:
        """How the device runs slices of one launch."""
        ...

    @property
    def code_bytes(self) -> int:
        """Of the device's memory; 0 where code is not counted with it."""
        ...


class Weights(Protocol):
    """The weights of one module on the device: resident ones and the ring."""

    @property
    def held_bytes(self) -> int:
        """Bytes of weights that stay now, with the ring reserved for the active plan."""
        ...

    def activate(self, plan: Plan) -> None:
        """Makes the resident set of `plan` stand and its ring ready, between steps.

        Raises:
            HeadraceError HR3xxx, HR4xxx: the weights cannot be read any more.
        """
        ...

    def release(self) -> None:
        """Gives everything back that it holds; the next `activate` brings it again."""
        ...

    def notes(self) -> tuple[str, ...]:
        """What a report should say openly: a slower way taken, and why."""
        ...

    def close(self) -> None: ...


class State(Protocol):
    """A session's memory on the device: one slab and its variables.

    Attributes:
        generation: grows when the slab moves; steps prepared before are then stale.
    """

    generation: int

    @property
    def held_bytes(self) -> int:
        """Bytes of slab, variables and staging."""
        ...

    @property
    def staging_bytes(self) -> int:
        """Bytes of these that inputs and outputs are copied through."""
        ...

    def reserve(self, plan: Plan, exact: bool = False) -> None:
        """Makes room for `plan`; with `exact`, no more than that is kept."""
        ...

    def close(self) -> None: ...


class Step(Protocol):
    """A plan made ready to run on one session's state."""

    def run(self, inputs: Sequence[Any], outputs: Sequence[Any]) -> None:
        """Runs it: C-contiguous numpy arrays of the planned sizes, in signature order.

        An output that takes an input's place (`schema.EntryFunction.aliases`) is the same
        array as the input, aligned 64 bytes, and is found changed.

        Raises:
            KeyboardInterrupt: Ctrl-C stopped it.
            HeadraceError HR3xxx, HR4xxx: weights could not be read.
        """
        ...

    def take_times(self) -> StepTimes:
        """What was measured since it was last asked."""
        ...

    def record(self, on: bool) -> None:
        """Whether to time every command too (a few tens of ns each)."""
        ...

    def trace(self, on: bool) -> None:
        """Whether to keep when each command and transfer runs, from the next step on."""
        ...

    def take_spans(self) -> tuple[Span, ...]:
        """What the traced steps since it was last asked did when, by begin."""
        ...


class Device(Protocol):
    """One opened device."""

    @property
    def name(self) -> str:
        """As the user spells it: `cpu`, `cuda`, `vulkan`, `null`."""
        ...

    @property
    def device_class(self) -> str:
        """Which program of a module it runs."""
        ...

    @property
    def properties(self) -> DeviceProperties: ...

    @property
    def context_bytes(self) -> int:
        """Device memory that the driver itself took when it was opened; 0 where none is."""
        ...

    def free_bytes(self) -> int:
        """Memory that may still be taken, limits of the surroundings honoured."""
        ...

    def link(self, program: schema.Program, code: Callable[[int], bytes]) -> Code:
        """Picks a variant of each executable and makes its code callable.

        Raises:
            HeadraceError HR4xxx: no variant runs here; says which features are missing.
        """
        ...

    def open_weights(self, artifact: Any) -> Weights:
        """The weights of an opened `.hrx` (`artifact.reader.Artifact`)."""
        ...

    def open_state(self, variables: Mapping[str, int]) -> State:
        """A session's memory: no slab yet, and variables `{name: bytes}` at zero."""
        ...

    def prepare(
        self,
        function: schema.EntryFunction,
        plan: Plan,
        code: Any,
        weights: Any,
        state: Any,
    ) -> Step:
        """Turns a plan into commands; code, weights and state are this device's own."""
        ...

    def measure(self, artifact: Any) -> Profile:
        """A profile without kernels: how fast weights arrive, measured on a part of the
        file, and the default rates of such a device."""
        ...

    def close(self) -> None: ...
