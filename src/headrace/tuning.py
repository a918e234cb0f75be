"""What `headrace tune` does: measures schedules of a model's kernels on this machine.

The model is compiled once up to its kernels. Each round gives every kernel that may be
tuned its next alternative, compiles, and runs some steps with every command timed: so a
kernel is measured where it runs, among the others, with all threads. The fastest wins if
it is faster than the rule's schedule by more than the noise.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from headrace.base.errors import error
from headrace.code_cache import kernel_symbol
from headrace.plan.model import PlannedDispatch
from headrace.runtime.arrays import aligned_array

if TYPE_CHECKING:
    from headrace.runtime.module import Module
    from headrace.targets.tables import Choice, Problem, TunedTarget
    from headrace.translation import Task

_WARM_STEPS = 2
_WORTH = 0.97
"""A schedule must be at least 3 % faster than the rule's: less is noise."""


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
class Request:
    """What to tune.

    Attributes:
        target: `cpu` or `cuda` with what may stand behind it; its device is opened.
        dims: of the named dimensions, which all must be given.
        steps: timed in each round.
        table: the file to enter what was found into; None for that of the cache folder.
    """

    model: Path
    target: str = "cpu"
    dims: Mapping[str, int] = field(default_factory=dict[str, int])
    threads: int | None = None
    steps: int = 12
    table: Path | None = None


def tune_model(
    request: Request, progress: Callable[[int, int], None] | None = None
) -> dict[str, Any]:
    """Tunes and keeps the result. Returns what `--json` prints.

    Raises: as `api.compile` and `api.load`; HR0115 to HR0119: there is nothing to tune, or
        a table cannot be read or written.
    """
    from headrace.runtime.module import load_module
    from headrace.targets.tables import NO_TABLE

    target = _tuned_target(request.target)
    tables = target.tables
    work = _work(request, target.with_table(NO_TABLE))
    options = {} if request.threads is None else {"threads": request.threads}
    processor = tables.processor

    def load(path: Path) -> Module:
        nonlocal processor
        module = load_module(path, tables.device_class, weight_budget="max", **options)
        processor = processor or module.device.properties.name
        return module

    rows = tune(work, load, request.dims, request.steps, progress)
    path = request.table or tables.own_path
    # What another GPU of the architecture was measured with counts until this one is.
    before = tables.read(path, processor if request.table is None else None)
    known = {key for key, _ in tables.all().entries}
    kept = {r.key: r.best for r in rows if r.changed or r.key in known}
    _write(path, tables.text(before.updated(kept), processor))
    return tuning_data(rows, path)


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

    def write(other: TunedTarget, path: Path) -> None:
        codes = translate(tasks, (other,))
        parts, weights = assemble(
            made.classes,
            [(t.executable, other, code) for t, code in zip(tasks, codes, strict=True)],
            imported.name,
            imported.dimension_ranges,
            Provenance("headrace tune", request.model.name, "", (other.name,), ()),
        )
        write_artifact(path, parts, weights, evaluate_source)

    return Work(target, tasks, write)


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
        write: makes a `.hrx` of them at a path with the code of another table's target.
    """

    target: TunedTarget
    tasks: Sequence[Task]
    write: Callable[[TunedTarget, Path], None]


def tune(
    work: Work,
    load: Callable[[Path], Module],
    sizes: Mapping[str, int],
    steps: int,
    progress: Callable[[int, int], None] | None = None,
) -> list[Row]:
    """Measures the alternatives of every problem of a model.

    Args:
        load: opens a compiled file with all weights resident.
        sizes: of the named dimensions.
        steps: timed in each round.

    Raises:
        HeadraceError HR0117: no kernel of the model has anything to tune.
    """
    symbols, problems = _problems(work)
    if not problems:
        raise error(
            "HR0117",
            "no kernel of this model has a schedule to tune",
            helps="only products, convolutions and windows of known sizes have one: pass --dim",
        )
    # The rule's schedules run first and last: a machine that warms up favours nobody.
    rounds = 1 + max(len(p.others) for p in problems.values()) + 1
    found: dict[str, dict[Choice, int]] = {key: {} for key in problems}
    with tempfile.TemporaryDirectory(prefix="headrace-tune-") as place:
        for number in range(rounds):
            choices = {
                key: ((p.chosen, *p.others)[number] if number <= len(p.others) else p.chosen)
                for key, p in problems.items()
            }
            path = Path(place) / f"{number}.hrx"
            work.write(work.target.with_table(work.target.table.updated(choices)), path)
            with load(path) as module:
                times = _launch_times(module, sizes, steps)
            path.unlink()
            for symbol, key in symbols.items():
                if symbol in times:
                    known = found[key].get(choices[key], times[symbol])
                    found[key][choices[key]] = min(known, times[symbol])
            if progress is not None:
                progress(number + 1, rounds)
    return [_row(problems[key], times) for key, times in found.items() if times]


def _problems(work: Work) -> tuple[dict[str, str], dict[str, Problem]]:
    """The problem of each kernel's symbol, and the problems by key."""
    symbols: dict[str, str] = {}
    problems: dict[str, Problem] = {}
    for task in work.tasks:
        problem = work.target.problem(task.kernel)
        if problem is not None and problem.others:
            symbols[kernel_symbol(task.kernel)] = problem.key
            problems.setdefault(problem.key, problem)
    return symbols, problems


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
    lines = [f"{data['tuned']} of {data['problems']} problems are faster otherwise"]
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


def tuning_data(rows: Sequence[Row], table: Path) -> dict[str, Any]:
    """The result for programs; times in ns."""
    return {
        "problems": len(rows),
        "tuned": sum(r.changed for r in rows),
        "table": str(table),
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
