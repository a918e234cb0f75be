"""Runs `onnx.backend.test`, unchanged, on `headrace.backend`: every test in a worker process.

As a program it prints counts, and writes the failures by operator and reason:

    python tests/conformance/onnx/scoreboard.py --failures failures.txt [-k PATTERN] [--jobs N]

`--json FILE` writes every node test with what its model holds, for tools/generate_support.py.
A worker that dies takes its one test with it: that test is a crash, a new worker goes on.
"""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import io
import json
import multiprocessing
import os
import re
import time
import traceback
import unittest
import warnings
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import cache
from multiprocessing.connection import Connection, wait
from pathlib import Path
from statistics import median
from typing import Any

from headrace.backend import HeadraceBackend, HeadraceRep
from headrace.backend_strings import StringRep
from headrace.base.errors import HeadraceDefect, HeadraceError

CASE_TIMEOUT_S = 120
"""A test that takes longer is a crash."""


@dataclass(frozen=True)
class Result:
    """What became of one test.

    Attributes:
        name: of the test, without `_cpu`.
        operator: what the test is about.
        kind: `pass`, `refused` (a clear error of ours), `wrong`, `defect` (an error of
            ours that says so), `error` (any other exception), `crash` or `skipped`.
        reason: the error's code and fact.
        specialised: whether contents of inputs had to be compiled in.
        interpreted: operations that ran on the host.
        seconds: compile and run, cold.
    """

    name: str
    operator: str
    kind: str
    reason: str = ""
    specialised: bool = False
    interpreted: int = 0
    seconds: float = 0.0

    @property
    def passed(self) -> bool:
        return self.kind == "pass"

    @property
    def compiled(self) -> bool:
        """It passed, and nothing ran on the host."""
        return self.passed and not self.interpreted


class Recording(HeadraceBackend):
    """The backend, which keeps what it prepared last; every test runs on `on`."""

    last: HeadraceRep | StringRep | None = None
    on = "CPU"

    @classmethod
    def prepare(cls, model: Any, device: str = "CPU", **kwargs: Any) -> HeadraceRep | StringRep:
        """As the backend's."""
        cls.last = None
        cls.last = super().prepare(model, cls.on, **kwargs)
        return cls.last

    @classmethod
    def supports_device(cls, device: str) -> bool:
        """The suite's CPU tests are what runs, on any device: none is opened in a process
        that workers are forked from."""
        return device == "CPU"


@cache
def load_tests() -> dict[str, Any]:
    """The suite's test functions by name: one for each case."""
    import onnx.backend.test

    with warnings.catch_warnings(), contextlib.redirect_stderr(io.StringIO()):
        warnings.simplefilter("ignore")
        suite = onnx.backend.test.BackendTest(Recording, __name__)
    return {
        name.removesuffix("_cpu"): getattr(case, name)
        for case in suite.test_cases.values()
        for name in dir(case)
        if name.startswith("test_") and name.endswith("_cpu")
    }


@dataclass(frozen=True)
class Tested:
    """What the model of a node test holds.

    Attributes:
        operator: what the test is about; see `_operator_of`.
        domain: of its last node; `ai.onnx` is the default one.
        op_type: of its last node.
        opset: the version of that domain that the model names.
        types: element types of the graph's inputs and outputs, by ONNX's names, sorted.
        expanded: the operator stands as the function that ONNX defines it by.
    """

    operator: str
    domain: str
    op_type: str
    opset: int
    types: tuple[str, ...]
    expanded: bool


@cache
def tested() -> dict[str, Tested]:
    """Node test -> what its model holds."""
    from onnx.backend.test.loader import load_model_tests

    with warnings.catch_warnings(), contextlib.redirect_stderr(io.StringIO()):
        warnings.simplefilter("ignore")
        cases = load_model_tests(kind="node")
    return {c.name: _tested(c.name, c.model) for c in cases if c.model is not None}


def _tested(name: str, model: Any) -> Tested:
    last = model.graph.node[-1]
    domain = last.domain or "ai.onnx"
    versions = {o.domain or "ai.onnx": o.version for o in model.opset_import}
    values = [*model.graph.input, *model.graph.output]
    types = sorted({t for v in values for t in _element_types(v.type)})
    operator = _operator_of(name, last)
    expanded = "_expanded" in name
    return Tested(operator, domain, last.op_type, versions[domain], tuple(types), expanded)


def _element_types(kind: Any) -> list[str]:
    """Of a tensor, and of what a sequence or an optional holds."""
    import onnx

    form = kind.WhichOneof("value")
    if form in ("sequence_type", "optional_type"):
        return _element_types(getattr(kind, form).elem_type)
    held = getattr(kind, form)
    return [onnx.TensorProto.DataType.Name(held.elem_type).lower()]


def operators() -> dict[str, str]:
    """Node test -> the operator it is about."""
    return {name: test.operator for name, test in tested().items()}


def _operator_of(name: str, node: Any) -> str:
    """An expanded function goes by its test's name: its last node says little."""
    if "_expanded" in name:
        return name.partition("_expanded")[0].removeprefix("test_") + " (expanded)"
    return f"{node.domain}.{node.op_type}" if node.domain else node.op_type


def wrongly_interpreted(results: Sequence[Result]) -> list[str]:
    """Tests that ran on the host though they are about neither strings nor pictures."""
    return [
        r.name
        for r in results
        if r.interpreted
        and tested()[r.name].op_type != "ImageDecoder"
        and "string" not in tested()[r.name].types
    ]


def sampled(names: Sequence[str], count: int) -> list[str]:
    """`count` of the names, by their hashes: the same ones everywhere."""
    ranked = sorted(names, key=lambda n: hashlib.sha256(n.encode()).hexdigest())
    return sorted(ranked[:count])


def run_test(name: str) -> Result:
    """Runs one test in this process."""
    held = tested().get(name)
    operator = held.operator if held else name.removeprefix("test_")
    start = time.perf_counter()
    kind, reason = _outcome(load_tests()[name])
    seconds = time.perf_counter() - start
    made = Recording.last
    report = made.report() if made is not None and kind == "pass" else None
    specialised = made is not None and made.specialised
    if made is not None:
        made.close()
    interpreted = report.interpreted if report is not None else 0
    return Result(name, operator, kind, reason, specialised, interpreted, seconds)


def _outcome(test: Any) -> tuple[str, str]:
    quiet = contextlib.redirect_stdout(io.StringIO())
    try:
        with warnings.catch_warnings(), quiet:
            warnings.simplefilter("ignore")
            test(unittest.TestCase())
    except HeadraceDefect as wrong:
        return "defect", _first(wrong)
    except HeadraceError as wrong:
        return "refused", _first(wrong)
    except unittest.SkipTest as why:
        return "skipped", str(why)
    except AssertionError as wrong:
        return "wrong", " ".join(str(wrong).split())[:200]
    except Exception as wrong:
        place = traceback.extract_tb(wrong.__traceback__)[-1]
        at = f"{Path(place.filename).name}:{place.lineno}"
        return "error", f"{type(wrong).__name__}: {wrong} at {at}"[:300]
    return "pass", ""


def _first(wrong: HeadraceError) -> str:
    found = wrong.diagnostics[0]
    notes = f" ({'; '.join(found.notes)})" if found.code.startswith("HR9") else ""
    return f"{found.code}: {found.fact}{notes}"


# -- workers ---------------------------------------------------------------------------


def _work(pipe: Connection, device: str, core: int) -> None:
    Recording.on = device
    if device != "CPU":
        # What it compiles it compiles alone: the other cores have workers too. On the CPU
        # tests run on all cores.
        os.sched_setaffinity(0, {core})
    os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
    while True:
        name = pipe.recv()
        if name is None:
            return
        pipe.send(run_test(name))


class _Worker:
    """A process that runs tests one by one.

    For the CPU it is forked from one that has the suite loaded: starting one is cheap. A
    driver of another device has threads of its own, which no fork brings along.
    """

    def __init__(self, device: str, number: int) -> None:
        cores = sorted(os.sched_getaffinity(0))
        core = cores[number % len(cores)]
        self.pipe, other = multiprocessing.Pipe()
        context = multiprocessing.get_context("fork" if device == "CPU" else "spawn")
        self.process = context.Process(target=_work, args=(other, device, core), daemon=True)
        self.process.start()
        other.close()
        self.name = ""
        self.since = 0.0

    def give(self, name: str | None) -> None:
        self.name, self.since = name or "", time.monotonic()
        self.pipe.send(name)

    def result(self) -> Result | None:
        """What became of its test; None while it runs."""
        late = time.monotonic() - self.since > CASE_TIMEOUT_S
        if not late and not self.pipe.poll():
            return None
        if not late:
            with contextlib.suppress(EOFError, ConnectionResetError):
                return self.pipe.recv()
        self.process.kill()
        self.process.join()
        held = tested().get(self.name)
        operator = held.operator if held else self.name
        why = "took too long" if late else f"the process ended with {self.process.exitcode}"
        return Result(self.name, operator, "crash", why)


def run_tests(
    names: Sequence[str], jobs: int = 1, echo: Any = None, device: str = "CPU"
) -> list[Result]:
    """Runs tests in worker processes; results in the order of names."""
    Recording.on = device
    load_tests()
    tested()
    queue = list(reversed(names))
    found: dict[str, Result] = {}
    workers: list[_Worker] = []
    started = 0
    while len(found) < len(names):
        while queue and len(workers) < jobs:
            workers.append(_Worker(device, started))
            started += 1
            workers[-1].give(queue.pop())
        wait([w.pipe for w in workers], timeout=1)
        for worker in list(workers):
            result = worker.result()
            if result is None:
                continue
            found[result.name] = result
            if echo is not None:
                echo(result, len(found))
            if result.kind == "crash":
                workers.remove(worker)
            elif queue:
                worker.give(queue.pop())
            else:
                worker.give(None)
                workers.remove(worker)
                worker.process.join()
    return [found[name] for name in names]


# -- what it says ------------------------------------------------------------------------


def summary(results: Sequence[Result]) -> str:
    """One line of counts."""
    counts = Counter(r.kind for r in results)
    passed = [r for r in results if r.passed]
    others = ", ".join(f"{n} {k}" for k, n in sorted(counts.items()) if k != "pass")
    rate = 100 * len(passed) / max(1, len(results))
    times = median([r.seconds for r in passed] or [0.0])
    return (
        f"{len(passed)} of {len(results)} pass ({rate:.1f} %), "
        f"{sum(r.specialised for r in passed)} with contents of inputs compiled in, "
        f"{sum(r.interpreted > 0 for r in passed)} with operations interpreted; "
        f"{others or 'no others'}; median {times:.3f} s"
    )


def failure_text(results: Sequence[Result]) -> str:
    """Failures by operator, the most first, then by reason."""
    by_operator: dict[str, list[Result]] = defaultdict(list)
    for result in results:
        if not result.passed:
            by_operator[result.operator].append(result)
    lines: list[str] = []
    for operator, group in sorted(by_operator.items(), key=lambda p: (-len(p[1]), p[0])):
        lines.append(f"{operator}: {len(group)}")
        reasons: dict[str, list[str]] = defaultdict(list)
        for result in group:
            reasons[f"{result.kind}: {result.reason}"].append(result.name)
        for reason, names in sorted(reasons.items(), key=lambda p: (-len(p[1]), p[0])):
            lines.append(f"    {reason}")
            lines += [f"        {name}" for name in names]
    return "\n".join(lines) + "\n"


def json_text(results: Sequence[Result], device: str) -> str:
    """The node tests among the results with what their models hold, a test a line."""
    import onnx

    lines = [
        json.dumps({**asdict(tested()[r.name]), **asdict(r), "device": device})
        for r in results
        if r.name in tested()
    ]
    head = json.dumps({"suite": "onnx", "version": onnx.__version__})
    return "\n".join([head, *lines]) + "\n"


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("-k", default="", help="a regular expression that names must match")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--sample", type=int, help="only so many, by the hash of their names")
    parser.add_argument("--device", default="CPU", help="CPU, CUDA or VULKAN")
    parser.add_argument("--list", type=Path, help="a file of names: only these")
    parser.add_argument("--failures", type=Path, help="a file for the failures")
    parser.add_argument("--json", type=Path, help="a file for the node tests, a line each")
    given = parser.parse_args()
    names = [n for n in sorted(load_tests()) if re.search(given.k, n)]
    if given.list:
        listed = set(given.list.read_text().split())
        names = [n for n in names if n in listed]
    if given.sample:
        names = sampled(names, given.sample)

    def echo(result: Result, done: int) -> None:
        if done % 200 == 0:
            print(f"{done} of {len(names)}", flush=True)

    results = run_tests(names, given.jobs, echo, given.device)
    if given.json:
        given.json.write_text(json_text(results, given.device))
    text = failure_text(results)
    if given.failures:
        given.failures.write_text(text)
    elif len(names) <= 300:
        print(text)
    print(summary(results))


if __name__ == "__main__":
    main()
