"""A session: one slab and its variables; calls of one thread after another."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from headrace.base.errors import error
from headrace.plan.model import Plan
from headrace.runtime.chain import ChainExecutor
from headrace.runtime.drivers.api import Span, State, Step
from headrace.runtime.entry import Entry
from headrace.runtime.executor import Executor, Prepared
from headrace.runtime.outputs import Outputs
from headrace.runtime.trace import Trace

if TYPE_CHECKING:
    from headrace.runtime.module import Module

_STEPS_KEPT = 256


class Session:
    """Runs a module's functions on its own slab and state.

    Made by `Module.session()`. Sessions share weights, budget and limit; calls of one
    session wait for each other. `close()` gives the slab back, as does leaving `with`.
    """

    def __init__(self, module: Module) -> None:
        self.module = module
        self.lock = threading.RLock()
        self._state: State | None = None
        self._variables: dict[str, int] = {}
        self._executors: dict[int, Executor | ChainExecutor] = {}
        self._named: dict[str | None, Executor | ChainExecutor] = {}
        self.last: tuple[Executor, Prepared] | None = None
        self._step_ns: deque[int] = deque(maxlen=_STEPS_KEPT)
        self._trace: Trace | None = None
        self._spans: deque[tuple[Span, ...]] = deque(maxlen=2)
        self._closed = False

    def __call__(
        self,
        *args: Any,
        function: str | None = None,
        out: Sequence[Any] | None = None,
        donate: bool | Sequence[str] = (),
        **kwargs: Any,
    ) -> Outputs:
        """Runs one step of a function.

        Args:
            args, kwargs: the inputs, by position or name: numpy arrays of the signature's
                element type. Arrays that are C-contiguous and aligned to their element are
                read where they stand on the cpu, others are copied first.
            function: which entry function; the first where left out.
            out: arrays to write the outputs to, one per output; fresh ones are made
                otherwise. None may share bytes with another output, or with an input whose
                place it does not take.
            donate: names of inputs whose arrays may be overwritten, True for all that an
                output takes the place of: state is then updated where it stands, and the
                output is the very array. Others are copied first and stay as they are.

        Returns:
            The outputs, a tuple that is also indexed by name.

        Raises:
            HeadraceError HR4001: inputs do not fit; every wrong one is listed.
            HeadraceError HR3202, HR3203: budget or limit are too little at these sizes.
            KeyboardInterrupt: Ctrl-C; the session can go on, its variables may be half
                written.
        """
        with self.lock:
            return self.executor(function)(args, kwargs, out, donate)

    def entry(self, name: str) -> Entry:
        """An entry function on this session. Raises HR4007: there is none of that name."""
        return Entry(self, self.module, name)

    def executor(self, function: str | None = None) -> Executor | ChainExecutor:
        """What calls an entry function."""
        if self._closed:
            raise error("HR4005", "the session is closed")
        found = self._named.get(function)
        if found is None:
            # Finding the index takes 2 us.
            found = self._named[function] = self._executor_of(function)
        return found

    def _executor_of(self, function: str | None) -> Executor | ChainExecutor:
        index = self.module.function_index(function)
        found = self._executors.get(index)
        if found is None:
            goes_on = self.module.program.functions[index].following is not None
            found = (ChainExecutor if goes_on else Executor)(self, index)
            self._executors[index] = found
        return found

    def versions(self) -> tuple[int, int]:
        """What prepared steps hang on: the module's budget and this session's slab."""
        state = self._state
        return self.module.version, -1 if state is None else state.generation

    def prepare(self, executor: Executor, dims: Mapping[str, int]) -> tuple[Plan, Step]:
        """A plan at `dims` and its step, the slab made large enough."""
        module = self.module
        state = self._open_state(executor, dims)
        plan = module.plan_for(executor.index, dims, self)
        if module.memory_limit is not None:
            kept = sum(module.artifact.module.segments[s].size_bytes for s in plan.resident)
            if kept + plan.ring_bytes < module.weights.held_bytes:
                # Weights that take less go first: the slab grows into what they leave.
                module.weights.activate(plan)
        state.reserve(plan, exact=module.memory_limit is not None)
        device = module.device
        step = device.prepare(executor.function, plan, module.code, module.weights, state)
        if self._trace is not None:
            step.trace(True)
        return plan, step

    def _open_state(self, executor: Executor, dims: Mapping[str, int]) -> State:
        """The state, with variables of all functions; they are sized once.

        Raises:
            HeadraceError HR4006: a variable would have to change its size.
        """
        if self._state is None:
            for function in self.module.program.functions:
                for resource in function.resources:
                    if resource.lifetime == "variable":
                        size = resource.size_bytes.evaluate(dims)
                        self._variables[resource.name] = max(
                            size, self._variables.get(resource.name, 0)
                        )
            self._state = self.module.device.open_state(self._variables)
        for resource in executor.function.resources:
            if resource.lifetime != "variable":
                continue
            size = resource.size_bytes.evaluate(dims)
            if size > self._variables[resource.name]:
                raise error(
                    "HR4006",
                    f"variable '{resource.name}' would need {size} bytes",
                    notes=f"this session holds {self._variables[resource.name]} for it",
                    helps="open a session for these sizes",
                )
        return self._state

    def note_step(self, executor: Executor, prepared: Prepared, step_ns: int) -> None:
        """Keeps what the report says of the last steps."""
        last = self.last
        if last is None or last[1] is not prepared:
            self.last = (executor, prepared)
            self._step_ns.clear()
            self._spans.clear()
        self._step_ns.append(step_ns)
        if self._trace is not None:
            spans = prepared.step.take_spans()
            self._spans.append(spans)
            self._trace.add_step(prepared.plan, spans)

    @contextmanager
    def trace(self) -> Generator[Trace]:
        """Keeps when every command and transfer of the steps inside `with` ran.

        Vulkan runs traced steps one command at a time, so that nothing hides anything.
        """
        with self.lock:
            self._trace = found = Trace(self.module.program)
            self.forget()
        try:
            yield found
        finally:
            with self.lock:
                self._trace = None
                self.forget()

    @property
    def step_times_ns(self) -> tuple[int, ...]:
        """Times of the last steps with the same plan, the oldest first."""
        return tuple(self._step_ns)

    @property
    def spans(self) -> tuple[tuple[Span, ...], ...]:
        """Of the last two steps with the same plan, where they were traced."""
        return tuple(self._spans)

    @property
    def held_bytes(self) -> int:
        """Bytes of slab, variables and staging."""
        return 0 if self._state is None else self._state.held_bytes

    @property
    def staging_bytes(self) -> int:
        """Bytes of these for inputs and outputs that had to be copied."""
        return 0 if self._state is None else self._state.staging_bytes

    def forget(self) -> None:
        """Drops prepared plans (the budget has changed); slab and variables stay."""
        with self.lock:
            for executor in self._executors.values():
                executor.forget()

    def reset_after_fork(self) -> None:
        self.lock = threading.RLock()

    def close(self) -> None:
        """Gives slab and variables back."""
        with self.lock:
            self._closed = True
            self.forget()
            self.last = None
            if self._state is not None:
                self._state.close()
                self._state = None

    def __enter__(self) -> Session:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
