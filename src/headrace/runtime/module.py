"""A module on a device: what `headrace.load` returns."""

from __future__ import annotations

import os
import threading
import weakref
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack
from dataclasses import replace
from statistics import median
from typing import Any

from headrace.artifact import schema
from headrace.artifact.reader import Artifact, open_artifact
from headrace.base.errors import HeadraceError, error
from headrace.plan.beside import NOTHING, Beside
from headrace.plan.budget import format_bytes, parse_budget, parse_size
from headrace.plan.model import Plan
from headrace.plan.profile import Profile
from headrace.runtime.calibrate import measure_kernels
from headrace.runtime.chain import chain_of, followers, results_of, synchronisation_note
from headrace.runtime.drivers.api import Device
from headrace.runtime.drivers.table import open_device
from headrace.runtime.entry import Entry
from headrace.runtime.memory import PAGE_BYTES
from headrace.runtime.needless import needless_streaming
from headrace.runtime.outputs import Outputs
from headrace.runtime.planning import Planning
from headrace.runtime.profiles import keep_profile, open_profile
from headrace.runtime.report import Report, weight_lines
from headrace.runtime.session import Session
from headrace.runtime.signature import TensorInfo, tensor_info
from headrace.runtime.trace import Trace
from headrace.runtime.transfers import transfer_lines

_CLOSED = "the module is closed"


class Module:
    """A compiled model on one device, inside one weight budget. Callable.

    Attributes:
        artifact: the opened file.
        device: where it runs.
        program: the part of the file for this class of device.
        version: grows when the budget or the profile changes.
        memory_limit: bytes, or None.
    """

    def __init__(
        self,
        artifact: Artifact,
        device: Device,
        weight_budget: int | str = "auto",
        memory_limit: int | str | None = None,
        profile: Profile | None = None,
        owns_device: bool = True,
    ) -> None:
        """See `load_module`; `close` closes the device where the module owns it."""
        self._owns_device = owns_device
        self.artifact = artifact
        self.device = device
        self.program = _program_for(artifact, device)
        self.version = 0
        self.memory_limit = (
            None if memory_limit is None else parse_size(memory_limit, of="memory limit")
        )
        self._lock = threading.RLock()
        self._sessions: weakref.WeakSet[Session] = weakref.WeakSet()
        self._session: Session | None = None
        self._closed = False
        self._request: int | str = weight_budget
        self._last: tuple[int, dict[str, int]] = (0, self.default_dims())
        with ExitStack() as undo:
            self.code = device.link(self.program, artifact.code)
            undo.callback(self._unlink)
            self.weights = device.open_weights(artifact)
            undo.callback(self.weights.close)
            self._planning = Planning(
                artifact.module,
                self.program,
                profile or open_profile(artifact, device),
                device.properties.workers,
                self.code.variants,
                not device.properties.weights_in_place,
                self.code.concurrency,
            )
            self._free_bytes = device.free_bytes()
            self._activate(self._plan_last())
            undo.pop_all()
        _modules.add(self)

    # -- what it is ----------------------------------------------------------------

    @property
    def functions(self) -> tuple[str, ...]:
        """Names of the entry functions; the first is the default."""
        hidden = followers(self.program)
        return tuple(f.name for n, f in enumerate(self.program.functions) if n not in hidden)

    @property
    def inputs(self) -> tuple[TensorInfo, ...]:
        """Inputs of the default function."""
        return self.inputs_of(None)

    @property
    def outputs(self) -> tuple[TensorInfo, ...]:
        """Outputs of the default function."""
        return self.outputs_of(None)

    def inputs_of(self, function: str | None) -> tuple[TensorInfo, ...]:
        """Inputs of an entry function."""
        signatures = self.program.functions[self.function_index(function)].inputs
        return tuple(tensor_info(s) for s in signatures)

    def outputs_of(self, function: str | None) -> tuple[TensorInfo, ...]:
        """Outputs of an entry function."""
        signatures = results_of(self.program, self.function_index(function))
        return tuple(tensor_info(s) for s in signatures)

    def function_index(self, name: str | None) -> int:
        """The index of an entry function; 0 for None.

        Raises:
            HeadraceError HR4007: there is no such function.
        """
        if name is None:
            name = self.functions[0]
        names = self.functions
        if name not in names:
            raise error(
                "HR4007",
                f"the module has no function '{name}'",
                notes=f"it has {', '.join(names)}",
            )
        return next(n for n, f in enumerate(self.program.functions) if f.name == name)

    def default_dims(self) -> dict[str, int]:
        """The least size of every dimension."""
        return {d.name: d.minimum for d in self.artifact.module.dimensions}

    # -- running -------------------------------------------------------------------

    def __call__(
        self,
        *args: Any,
        function: str | None = None,
        out: Sequence[Any] | None = None,
        donate: bool | Sequence[str] = (),
        **kwargs: Any,
    ) -> Outputs:
        """Runs one step on the module's own session; see `Session.__call__`."""
        session = self._session or self._own_session()
        with session.lock:
            return session.executor(function)(args, kwargs, out, donate)

    def _own_session(self) -> Session:
        with self._lock:
            self._session = self._session or self.session()
            return self._session

    def trace(self) -> AbstractContextManager[Trace]:
        """Traces the calls inside `with`, of the module's own session; see `Session.trace`."""
        return self._own_session().trace()

    def entry(self, name: str) -> Entry:
        """An entry function, callable by itself. Raises HR4007: there is none of that name."""
        return Entry(self, self, name)

    def session(self) -> Session:
        """A new session with its own slab and state: one per thread."""
        with self._lock:
            if self._closed:
                raise error("HR4005", _CLOSED)
            session = Session(self)
            self._sessions.add(session)
            return session

    # -- budget and plans ----------------------------------------------------------

    @property
    def weight_budget(self) -> int:
        """Bytes that weights may take at the sizes last run; may be set at any time.

        It takes bytes, a size (`25MB`, `2GiB`), a percentage of the stored bytes, `min`,
        `max` or `auto`. Setting it waits for the step that runs, then moves weights.

        Raises:
            HeadraceError HR3201, HR3202: no size, or less than the minimum; HR3013: the
                device has no room. The budget then stays as it was.
        """
        return self._plan_last().budget_bytes

    @weight_budget.setter
    def weight_budget(self, value: int | str) -> None:
        with self._lock:
            if self._closed:
                raise error("HR4005", _CLOSED)
            before = self._request, self._free_bytes
            self._request = value
            # What this module holds it may hold again.
            self._free_bytes = self.device.free_bytes() + self.weights.held_bytes
            try:
                plan = self._plan_last()
                self.version += 1
                self._activate(plan)
            except HeadraceError:
                # Where the device had no room the next step brings the old budget's again.
                self._request, self._free_bytes = before
                raise

    def _activate(self, plan: Plan) -> None:
        """Brings what stays; where the device has no room for it, the error names the least."""
        try:
            self.weights.activate(plan)
        except HeadraceError as problem:
            first, *others = problem.diagnostics
            if first.code != "HR3013":
                raise
            least = f"the minimum at these sizes is {format_bytes(plan.minimum_budget_bytes)}"
            named = replace(first, notes=(*first.notes, least))
            raise HeadraceError([named, *others]) from problem

    @property
    def minimum_weight_budget(self) -> int:
        """The least budget at the sizes last run."""
        function, dims = self._last
        return self._planning.prepared(function, dims).minimum_budget_bytes

    @property
    def stored_bytes(self) -> int:
        """All weights in the file."""
        return sum(s.size_bytes for s in self.artifact.module.segments)

    def plan(
        self,
        dims: Mapping[str, int] | None = None,
        *,
        function: str | None = None,
        weight_budget: int | str | None = None,
    ) -> Plan:
        """The plan of a function at sizes and a budget; nothing runs or moves.

        Args:
            dims: named sizes; those left out have their least size.
            function: the first where left out.
            weight_budget: the module's where left out.
        """
        sizes = {**self.default_dims(), **(dims or {})}
        index = self.function_index(function)
        request = self._request if weight_budget is None else weight_budget
        with self._lock:
            return self._plan(index, sizes, request, None)

    def plan_for(self, function: int, dims: Mapping[str, int], session: Session) -> Plan:
        """The plan that a session is about to run."""
        with self._lock:
            plan = self._plan(function, dims, self._request, session)
            self._last = (function, dict(dims))
            return plan

    def _plan_last(self) -> Plan:
        with self._lock:
            function, dims = self._last
            return self._plan(function, dims, self._request, self._session)

    def _plan(
        self,
        function: int,
        dims: Mapping[str, int],
        request: int | str,
        session: Session | None,
    ) -> Plan:
        prepared = self._planning.prepared(function, dims)
        limit = self.memory_limit
        beside = NOTHING
        free = self._free_bytes - prepared.slab_bytes - prepared.variable_bytes
        if limit is not None:
            beside = self._beside(function, dims, session)
            values = prepared.slab_bytes + prepared.variable_bytes
            free = min(free, limit - beside.total_bytes - values)
        least = prepared.minimum_budget_bytes
        # The limit's own error names the minimum; `auto` must not hide it behind another.
        free = max(free, -(-least * 10 // 9) if limit is not None else 0)
        budget = parse_budget(request, prepared.stored_bytes, least, max(0, free))
        return self._planning.plan(function, dims, budget, limit, beside)

    def _beside(
        self, function: int, dims: Mapping[str, int], session: Session | None
    ) -> Beside:
        entry = self.program.functions[function]
        staging = 0
        aliased = {after for after, _ in entry.aliases}
        outputs = (o for n, o in enumerate(entry.outputs) if n not in aliased)
        for signature in (*entry.inputs, *outputs):
            size = signature.dtype.size_bytes
            for expr in signature.shape:
                size *= expr.evaluate(dims)
            staging += -(-size // 64) * 64
        # Slab, variables and staging are whole pages.
        staging += 3 * PAGE_BYTES
        others = sum(s.held_bytes for s in self._sessions if s is not session)
        return Beside(self.device.context_bytes, self.code.code_bytes, staging, others)

    # -- profile -------------------------------------------------------------------

    @property
    def held_bytes(self) -> int:
        """Slabs, variables and staging of all sessions."""
        return sum(s.held_bytes for s in tuple(self._sessions))

    @property
    def profile(self) -> Profile:
        """The rates that predictions use."""
        return self._planning.profile

    def calibrate(
        self, dims: Mapping[str, int] | None = None, *, function: str | None = None
    ) -> Profile:
        """Measures the kernels of a function on this device; takes a few steps.

        The result is kept for this module and device, and used from the next step on.

        Args:
            dims: named sizes; those left out have the sizes last run.
            function: the first where left out.
        """
        sizes = {**self._last[1], **(dims or {})}
        with self.session() as session:
            measured = measure_kernels(session, function, sizes)
        with self._lock:
            profile = self._planning.profile
            profile = replace(profile, kernel_ns={**profile.kernel_ns, **measured})
            self._planning.use_profile(profile)
            self.version += 1
            keep_profile(self.artifact, self.device, profile)
        return profile

    # -- report --------------------------------------------------------------------

    def report(self, session: Session | None = None) -> Report:
        """What the last plan promised and what was measured since it first ran.

        Measured times are those since the last report, the peak is what is held now.
        """
        session = session or self._session
        with self._lock:
            sessions = tuple(self._sessions)
        last = session.last if session is not None else None
        times = last[1].step.take_times() if last is not None else None
        plan = last[1].plan if last is not None else self._plan_last()
        step_times = session.step_times_ns if session is not None else ()
        steps = max(1, times.steps) if times is not None else 1
        waits = [ns // steps for ns in (times.wait_ns if times else ())]
        stalls = [(number, ns) for number, ns in enumerate(waits) if ns]
        stalls.sort(key=lambda stall: (-stall[1], stall[0]))
        spans = session.spans if session is not None else ()
        properties, made = self.device.properties, self.artifact.module
        beside = sum(s.held_bytes - s.staging_bytes for s in sessions)
        return Report(
            device=properties.name,
            driver=properties.driver,
            function=self.program.functions[plan.function].name.partition("$")[0],
            dims=plan.dims,
            steps=len(step_times),
            predicted_step_ns=plan.prediction.step_ns,
            measured_step_ns=int(median(step_times)) if step_times else 0,
            predicted_stall_ns=plan.prediction.stall_ns,
            measured_stall_ns=times.stall_ns // steps if times is not None else 0,
            predicted_peak_bytes=plan.prediction.peak_bytes,
            measured_peak_bytes=self.weights.held_bytes + beside,
            staging_bytes=sum(s.staging_bytes for s in sessions),
            context_bytes=self.device.context_bytes,
            code_bytes=self.code.code_bytes,
            weight_budget_bytes=plan.budget_bytes,
            minimum_budget_bytes=plan.minimum_budget_bytes,
            stored_bytes=plan.stored_bytes,
            streamed_bytes=sum(f.size_bytes for f in plan.fetches),
            weights=weight_lines(made, plan),
            transfers=transfer_lines(made, self.program, plan, self.profile, waits, spans),
            stalls=tuple(stalls),
            interpreted=0,
            notes=(
                *self.weights.notes(),
                *needless_streaming(self, plan),
                *self._synchronisation(plan.function),
            ),
        )

    def warnings(self, plan: Plan | None = None) -> tuple[str, ...]:
        """What the last step's plan, or `plan`, costs without need: weights stream that would
        fit."""
        return needless_streaming(self, self._plan_last() if plan is None else plan)

    def _synchronisation(self, function: int) -> tuple[str, ...]:
        hidden = followers(self.program)
        for head in range(len(self.program.functions)):
            if head not in hidden and function in chain_of(self.program, head):
                note = synchronisation_note(self.program, head)
                return (note,) if note else ()
        return ()

    # -- end -----------------------------------------------------------------------

    def close(self) -> None:
        """Gives weights and all sessions back; the module cannot run any more."""
        with self._lock:
            if self._closed:
                return
            self._closed = True
            sessions = tuple(self._sessions)
            self._session = None
        # Not with the lock held: a session that runs may be about to ask for a plan.
        for session in sessions:
            session.close()
        self.weights.close()
        self._unlink()
        if self._owns_device:
            self.device.close()

    def _unlink(self) -> None:
        """On a device that stays open the code would stay, too."""
        unlink = getattr(self.device, "unlink", None)
        if unlink is not None:
            unlink(self.code)

    def __enter__(self) -> Module:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<headrace module '{self.artifact.module.name}' on {self.device.name}>"

    def reset_after_fork(self) -> None:
        """Locks that another thread held at the fork would never open in the child."""
        self._lock = threading.RLock()
        for session in tuple(self._sessions):
            session.reset_after_fork()


_modules: weakref.WeakSet[Module] = weakref.WeakSet()


def _reset_modules() -> None:
    for module in tuple(_modules):
        module.reset_after_fork()


os.register_at_fork(after_in_child=_reset_modules)


def _program_for(artifact: Artifact, device: Device) -> schema.Program:
    for program in artifact.module.programs:
        if program.device_class == device.device_class:
            return program
    classes = ", ".join(p.device_class for p in artifact.module.programs)
    raise error(
        "HR4008",
        f"the module holds no program for device '{device.name}'",
        at=artifact.path,
        notes=f"it was compiled for {classes or 'nothing'}",
        helps=f"compile it with --target {device.device_class} too",
    )


def load_module(
    path: str | os.PathLike[str],
    device: str | Device = "cpu",
    weight_budget: int | str = "auto",
    memory_limit: int | str | None = None,
    **options: Any,
) -> Module:
    """Opens a `.hrx` on a device, brings the weights that stay, and is ready to run.

    Args:
        path: the compiled model.
        device: `cpu`, ..., or an opened device, which stays open when the module closes.
        weight_budget: see `Module.weight_budget`.
        memory_limit: bytes or a size: caps all that is taken of the device: weights, slab,
            variables, staging, code and the driver's context together.
        options: of the driver, e.g. `threads=` for `cpu`.

    Raises:
        HeadraceError: HR31xx the file; HR32xx budget or limit too little, which it names;
            HR40xx the device or its code.
    """
    artifact = open_artifact(path)
    opened: Device = open_device(device, **options) if isinstance(device, str) else device
    try:
        owns = opened is not device
        return Module(artifact, opened, weight_budget, memory_limit, owns_device=owns)
    except BaseException:
        if opened is not device:
            opened.close()
        raise
