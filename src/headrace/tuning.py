"""What `headrace tune` does: measures schedules of a model's kernels on this machine.

The model is compiled once up to its kernels. Each round gives every kernel that may be
tuned its next alternative, compiles, and runs some steps with every command timed: so a
kernel is measured where it runs, among the others, with all threads. The fastest wins if
it is faster than the rule's schedule by more than the noise.

Kernels are translated some rounds ahead, side by side. A kernel is known to the code cache by
its own schedule alone, so a round translates nothing that stays as it was. When the time is
used up what was measured counts; alternatives are tried in the order of their estimates.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from headrace.base.errors import error
from headrace.code_cache import kernel_symbol
from headrace.plan.model import PlannedDispatch
from headrace.runtime.arrays import aligned_array

if TYPE_CHECKING:
    from headrace.runtime.module import Module
    from headrace.targets.tables import Choice, Problem, Table, TunedTarget
    from headrace.translation import Task

_WARM_STEPS = 2
_WORTH = 0.97
"""A schedule must be at least 3 % faster than the rule's: less is noise."""

_ROUNDS_AHEAD = 4
"""Translated at once: 6 products in 4 rounds are 24 kernels for 16 cores."""


@dataclass(frozen=True)
class Row:
    """What came out for one problem; times of one launch in ns."""

    key: str
    rule: Choice
    rule_ns: int
    best: Choice
    best_ns: int

    @property
    def changed(self) -> bool:
        return self.best != self.rule


@dataclass(frozen=True)
class Tuning:
    """What came out for a model.

    Attributes:
        rows: one for each problem.
        rounds: that were measured, and that there are.
    """

    rows: tuple[Row, ...]
    rounds: tuple[int, int]


@dataclass(frozen=True)
class Request:
    """What to tune.

    Attributes:
        target: `cpu` or `cuda` with what may stand behind it; its device is opened.
        dims: of the named dimensions, which all must be given.
        steps: timed in each round.
        table: the file to enter what was found into; None for that of the cache folder.
        seconds: after which no round begins but the last one; None for all rounds.
    """

    model: Path
    target: str = "cpu"
    dims: Mapping[str, int] = field(default_factory=dict[str, int])
    threads: int | None = None
    steps: int = 12
    table: Path | None = None
    seconds: float | None = None


def tune_model(
    request: Request, progress: Callable[[int, int], None] | None = None
) -> dict[str, Any]:
    """Tunes and keeps the result. Returns what `--json` prints.

    Raises: as `api.compile` and `api.load`; HR0115 to HR0119: there is nothing to tune, or
        a table cannot be read or written.
    """
    from headrace.runtime.drivers.table import open_device
    from headrace.runtime.module import load_module
    from headrace.targets.tables import NO_TABLE

    end = None if request.seconds is None else time.monotonic() + request.seconds
    target = _tuned_target(request.target)
    tables = target.tables
    work = _work(request, target.with_table(NO_TABLE))
    device = open_device(tables.device_class, threads=request.threads)
    try:
        processor = tables.processor or device.properties.name

        def load(path: Path) -> Module:
            return load_module(path, device, weight_budget="max")

        made = tune(work, load, request.dims, request.steps, end, progress)
    finally:
        device.close()
    path = request.table or tables.own_path
    # What another GPU of the architecture was measured with counts until this one is.
    before = tables.read(path, processor if request.table is None else None)
    known = {key for key, _ in tables.all().entries}
    kept = {r.key: r.best for r in made.rows if r.changed or r.key in known}
    _write(path, tables.text(before.updated(kept), processor))
    return tuning_data(made, path)


def _tuned_target(spelling: str) -> TunedTarget:
    from headrace.targets.table import target

    found = target(spelling)
    if not hasattr(found, "with_table") or found.device_class != found.name.partition(":")[0]:
        raise error(
            "HR0118", f"target '{spelling}' has no schedules to tune", helps="say cpu or cuda"
        )
    return cast("TunedTarget", found)


def _work(request: Request, target: TunedTarget) -> Work:
    from headrace.artifact.schema import Provenance
    from headrace.artifact.writer import write_artifact
    from headrace.assemble import assemble
    from headrace.given import given
    from headrace.pipeline import Options, compile_to
    from headrace.tensor.interp import evaluate_source
    from headrace.translation import tasks_of, translate

    imported = given(request.model).load(request.dims)
    made = compile_to(imported, "hal", Options((target,)))
    tasks = [t for module in made.classes.values() for t in tasks_of(module.ir, (target,))]
    problems = [target.problem(task.kernel) for task in tasks]
    keys = [None if p is None else p.key for p in problems]

    def write(other: TunedTarget, path: Path) -> None:
        alone, targets = _alone(tasks, keys, target, other.table)
        codes = translate(alone, targets)
        parts, weights = assemble(
            made.classes,
            [(t.executable, other, code) for t, code in zip(tasks, codes, strict=True)],
            imported.name,
            imported.dimension_ranges,
            Provenance("headrace tune", request.model.name, "", (other.name,), ()),
        )
        write_artifact(path, parts, weights, evaluate_source)

    return Work(target, tasks, problems, write)


def _alone(
    tasks: Sequence[Task], keys: Sequence[str | None], target: TunedTarget, table: Table
) -> tuple[list[Task], list[TunedTarget]]:
    """The tasks, each for a target that knows the schedule of its own problem alone."""
    from headrace.targets.tables import NO_TABLE

    places: dict[str, int] = {}
    targets: list[TunedTarget] = []
    alone: list[Task] = []
    for task, key in zip(tasks, keys, strict=True):
        choice = None if key is None else table.get(key)
        own = NO_TABLE if key is None or choice is None else NO_TABLE.updated({key: choice})
        if own.digest not in places:
            places[own.digest] = len(targets)
            targets.append(target.with_table(own))
        alone.append(replace(task, target=places[own.digest]))
    return alone, targets


def _write(path: Path, text: str) -> None:
    """Whole or not at all."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=path.name)
        with open(handle, "w") as file:
            file.write(text)
        Path(temporary).replace(path)
    except OSError as wrong:
        raise error(
            "HR0119",
            "the table of schedules cannot be written",
            at=str(path),
            notes=wrong.strerror or str(wrong),
        ) from wrong


@dataclass(frozen=True)
class Work:
    """A model as far as its kernels.

    Attributes:
        target: that they are for.
        tasks: its kernels.
        problems: of each of them, None where nothing may be tuned.
        write: makes a `.hrx` of them at a path with the code of another table's target.
    """

    target: TunedTarget
    tasks: Sequence[Task]
    problems: Sequence[Problem | None]
    write: Callable[[TunedTarget, Path], None]


def tune(
    work: Work,
    load: Callable[[Path], Module],
    sizes: Mapping[str, int],
    steps: int,
    end: float | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> Tuning:
    """Measures the alternatives of every problem of a model.

    Args:
        load: opens a compiled file with all weights resident.
        sizes: of the named dimensions.
        steps: timed in each round.
        end: of `time.monotonic`; the rule's schedules are measured twice in any case.

    Raises:
        HeadraceError HR0117: no kernel of the model has anything to tune.
    """
    problems = {p.key: p for p in work.problems if p is not None and p.others}
    if not problems:
        raise error(
            "HR0117",
            "no kernel of this model has a schedule to tune",
            helps="only products, convolutions and windows of known sizes have one: pass --dim",
        )
    # The rule's schedules run first and last: a machine that warms up favours nobody.
    last = 1 + max(len(p.others) for p in problems.values())
    tried = {key: [p.chosen, *p.others] for key, p in problems.items()}
    found: dict[str, dict[Choice, int]] = {key: {} for key in problems}

    def measure(number: int, place: str) -> None:
        choices = {k: c[number] if number < len(c) else c[0] for k, c in tried.items()}
        for key, took_ns in _measure(work, load, choices, sizes, steps, Path(place)).items():
            choice = choices[key]
            found[key][choice] = min(found[key].get(choice, took_ns), took_ns)

    number = 0
    with tempfile.TemporaryDirectory(prefix="headrace-tune-") as place:
        while number < last and (number == 0 or end is None or time.monotonic() < end):
            if number % _ROUNDS_AHEAD == 0:
                _translate_ahead(work, tried, number)
            measure(number, place)
            number += 1
            if progress is not None:
                progress(number, last + 1)
        measure(last, place)
    if progress is not None:
        progress(last + 1, last + 1)
    rows = tuple(_row(problems[key], times) for key, times in found.items() if times)
    return Tuning(rows, (number + 1, last + 1))


def _translate_ahead(work: Work, tried: Mapping[str, list[Choice]], number: int) -> None:
    """Fills the code cache for some rounds from this one on; a choice that its kernel cannot
    be translated with (no room for its tiles, say) gives way to the rule's.

    Raises: as `translate`, where the rule's schedule itself is refused.
    """
    from headrace.base.errors import HeadraceError
    from headrace.targets.tables import NO_TABLE
    from headrace.translation import translate_each

    asked: list[tuple[str, int]] = []
    tasks: list[Task] = []
    targets: list[TunedTarget] = []
    for task, problem in zip(work.tasks, work.problems, strict=True):
        choices = tried.get(problem.key, []) if problem is not None else []
        for place in range(number, min(number + _ROUNDS_AHEAD, len(choices))):
            assert problem is not None
            table = NO_TABLE.updated({problem.key: choices[place]})
            asked.append((problem.key, place))
            tasks.append(replace(task, target=len(targets)))
            targets.append(work.target.with_table(table))
    for (key, place), code in zip(asked, translate_each(tasks, targets), strict=True):
        if isinstance(code, HeadraceError):
            if place == 0:
                raise code
            tried[key][place] = tried[key][0]


def _measure(
    work: Work,
    load: Callable[[Path], Module],
    choices: Mapping[str, Choice],
    sizes: Mapping[str, int],
    steps: int,
    folder: Path,
) -> dict[str, int]:
    """The least time of a launch of each problem with these choices, in ns."""
    path = folder / "round.hrx"
    work.write(work.target.with_table(work.target.table.updated(choices)), path)
    with load(path) as module:
        times = _launch_times(module, sizes, steps)
    path.unlink()
    found: dict[str, int] = {}
    for task, problem in zip(work.tasks, work.problems, strict=True):
        took_ns = times.get(kernel_symbol(task.kernel))
        if problem is not None and problem.key in choices and took_ns is not None:
            found[problem.key] = min(found.get(problem.key, took_ns), took_ns)
    return found


def _row(problem: Problem, times: Mapping[Choice, int]) -> Row:
    rule_ns = times[problem.chosen]
    best = min(times, key=lambda choice: times[choice])
    if times[best] > rule_ns * _WORTH:
        best = problem.chosen
    return Row(problem.key, problem.chosen, rule_ns, best, times[best])


def _launch_times(module: Module, sizes: Mapping[str, int], steps: int) -> dict[str, int]:
    """By symbol the least time of a launch over some steps on inputs of zeros, in ns."""
    with module.session() as session, session.lock:
        executor = session.executor(None).head
        arrays: list[Any] = []
        for given in executor.function.inputs:
            shape = tuple(e.evaluate(sizes) for e in given.shape)
            array = aligned_array(shape, given.dtype.numpy_dtype)
            array[...] = np.zeros((), given.dtype.numpy_dtype)
            arrays.append(array)
        prepared = executor.prepare(arrays)
        outputs = [aligned_array(shape, dtype) for shape, dtype in prepared.outputs]
        step: Any = prepared.step
        samples: list[Sequence[int]] = []
        step.record(True)
        try:
            for number in range(_WARM_STEPS + steps):
                step.run(arrays, outputs)
                times = step.take_times().command_ns
                if number >= _WARM_STEPS:
                    samples.append(times)
        finally:
            step.record(False)
    found: dict[str, int] = {}
    for command, times in zip(prepared.plan.commands, zip(*samples, strict=True), strict=True):
        if isinstance(command, PlannedDispatch) and min(times):
            known = found.get(command.symbol, min(times))
            found[command.symbol] = min(known, min(times))
    return found


def tuning_text(data: Mapping[str, Any]) -> str:
    """The result for people."""
    done, rounds = data["rounds"]
    lines = [f"{data['tuned']} of {data['problems']} problems are faster otherwise"]
    if done < rounds:
        lines.append(f"{done} of {rounds} rounds were measured in the time given")
    for row in data["rows"]:
        if row["choice"] is not None:
            gain = 100 * (1 - row["best_ns"] / row["rule_ns"])
            numbers = ", ".join(f"{k} {v}" for k, v in row["choice"].items())
            lines.append(
                f"  {row['problem']}: {row['rule_ns'] / 1e3:.1f} us to "
                f"{row['best_ns'] / 1e3:.1f} us ({gain:.0f} % less): {numbers}"
            )
    lines.append(f"kept in {data['table']}")
    return "\n".join(lines)


def tuning_data(made: Tuning, table: Path) -> dict[str, Any]:
    """The result for programs; times in ns."""
    rows = made.rows
    return {
        "problems": len(rows),
        "tuned": sum(r.changed for r in rows),
        "table": str(table),
        "rounds": list(made.rounds),
        "rows": [
            {
                "problem": row.key,
                "rule_ns": row.rule_ns,
                "best_ns": row.best_ns,
                "choice": asdict(row.best) if row.changed else None,
            }
            for row in rows
        ],
    }
