"""`headrace check`: runs test files that compare inside of themselves, case by case.

Cases run in a worker process; where one brings it down (a crash of a parser or of code),
a new worker goes on with the next. Each function of a case is compiled as any model is,
its data as inputs, and what it computes is compared here.
"""

from __future__ import annotations

import contextlib
import json
import os
import selectors
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, BinaryIO, cast

from headrace.base.errors import HeadraceError, error

SECONDS_A_CASE = 120.0
"""A case that takes longer is stopped."""

_SUFFIXES = (".mlir", ".mlirbc")
_UNSUPPORTED = ("HR1004", "HR1101", "HR2432", "HR2401")
"""Codes that say something is missing here, rather than wrong."""


@dataclass(frozen=True)
class CaseResult:
    """The outcome of one case.

    Attributes:
        file: as given.
        case: number in the file, from 0.
        status: `pass`, `fail` (a check does not hold), `unsupported`, `error`.
        message: why, in one line; empty for `pass`.
        seconds: from reading the text to the last comparison.
        interpreted: operations that ran otherwise than as compiled code; always 0 here.
    """

    file: str
    case: int
    status: str
    message: str
    seconds: float
    interpreted: int = 0


def check(
    files: Sequence[Path], target: str = "cpu", level: int = 2, threads: int | None = None
) -> Iterator[CaseResult]:
    """Runs every case of the files, in order.

    Args:
        files: `.mlir` text (StableHLO, or XLA HLO of 2020) and portable artifacts; of
            folders, all such files in them.
        target: what to compile for; it must run here.
        level: of optimisation.
        threads: of the CPU.

    Raises:
        HeadraceError HR0202: there is no such file; HR0203: no file is one of tests.
    """
    jobs = [job for path in _found(files) for job in _jobs(path)]
    worker = _Worker(target, level, threads)
    try:
        for path, case in jobs:
            yield worker.run(path, case)
    finally:
        worker.close()


def _found(files: Iterable[Path]) -> list[Path]:
    found: list[Path] = []
    for path in files:
        if path.is_dir():
            found += sorted(p for p in path.rglob("*") if p.suffix in _SUFFIXES)
        elif path.is_file():
            found.append(path)
        else:
            raise error("HR0202", "there is no such test file", at=str(path))
    return found


def _jobs(path: Path) -> list[tuple[Path, int]]:
    return [(path, n) for n in range(max(1, len(_cases(path))))]


def _cases(path: Path) -> list[bytes | str]:
    from headrace.importers.hlo.check_text import split_cases

    data = path.read_bytes()
    if data.startswith(b"ML\xefR"):
        return [data]
    return list(split_cases(data.decode(errors="replace")))


# -- the worker, seen from outside --------------------------------------------------------


class _Worker:
    """A process that runs cases; started when needed, again after it died."""

    def __init__(self, target: str, level: int, threads: int | None) -> None:
        self._arguments = [target, str(level), str(threads or 0)]
        self._process: subprocess.Popen[bytes] | None = None

    def run(self, path: Path, case: int) -> CaseResult:
        process = self._process or self._start()
        begin = time.perf_counter()
        message = {"path": str(path), "case": case}
        stdin = cast(BinaryIO, process.stdin)
        try:
            stdin.write(json.dumps(message).encode() + b"\n")
            stdin.flush()
        except OSError:
            return self._died(path, case, begin)
        line = self._line(process)
        if not line:
            return self._died(path, case, begin)
        return CaseResult(**json.loads(line))

    def _start(self) -> subprocess.Popen[bytes]:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "headrace.checking", *self._arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        return self._process

    def _line(self, process: subprocess.Popen[bytes]) -> bytes:
        stdout = cast(BinaryIO, process.stdout)
        with selectors.DefaultSelector() as ready:
            ready.register(stdout, selectors.EVENT_READ)
            if not ready.select(SECONDS_A_CASE):
                process.kill()
        return stdout.readline()

    def _died(self, path: Path, case: int, begin: float) -> CaseResult:
        process = self._process
        assert process is not None
        status = process.wait()
        self.close()
        why = f"the process ended with status {status}"
        if status < 0:
            why = f"the process was ended by {signal.Signals(-status).name}"
        seconds = time.perf_counter() - begin
        if seconds >= SECONDS_A_CASE:
            why = f"stopped after {SECONDS_A_CASE:.0f} s"
        return CaseResult(str(path), case, "error", why, round(seconds, 4))

    def close(self) -> None:
        process, self._process = self._process, None
        if process is None:
            return
        for stream in (process.stdin, process.stdout):
            if stream is not None:
                # The process is gone, and what was not sent with it.
                with contextlib.suppress(OSError):
                    stream.close()
        process.kill()
        process.wait()


# -- the worker, from inside --------------------------------------------------------------


def run_case(path: Path, case: int, target: str, level: int, device: Any) -> CaseResult:
    """Runs one case in this process; a native crash takes the process along.

    Args:
        device: opened, for the target.
    """
    begin = time.perf_counter()
    try:
        status, message = _run(path, case, target, level, device)
    except HeadraceError as refused:
        codes = [d.code for d in refused.diagnostics]
        known = all(code in _UNSUPPORTED for code in codes)
        status = "unsupported" if known else "error"
        message = "; ".join(f"{d.code} {d.fact}" for d in refused.diagnostics[:3])
    except Exception as crash:
        status, message = "error", f"{type(crash).__name__}: {crash}"
    seconds = time.perf_counter() - begin
    return CaseResult(str(path), case, status, " ".join(message.split()), round(seconds, 4))


def _run(path: Path, case: int, target: str, level: int, device: Any) -> tuple[str, str]:
    from headrace.importers.hlo.checks import checked_functions
    from headrace.importers.table import read_checked

    cases = _cases(path)
    if not cases:
        return "unsupported", "the file holds no case"
    tree = read_checked(cases[case], path.name)
    try:
        functions = checked_functions(tree)
    except ValueError as wrong:
        return "unsupported", str(wrong)
    if not functions:
        return "unsupported", "nothing in it checks anything"
    for function in functions:
        reason = _check_function(function, target, level, device)
        if reason is not None:
            return "fail", f"@{function.name}: {reason}"
    return "pass", ""


def _check_function(function: Any, target: str, level: int, device: Any) -> str | None:
    from headrace.comparing import difference

    results = _results(function, target, level, device)
    for check in function.checks:
        actual, expected = (
            r.data if r.result is None else results[r.result]
            for r in (check.actual, check.expected)
        )
        reason = difference(check.kind, actual, expected, check.attributes)
        if reason is not None:
            return f"{check.place}: {reason}"
    return None


def _results(function: Any, target: str, level: int, device: Any) -> list[Any]:
    """Compiles the function and runs it; nothing where nothing is computed."""
    import numpy as np

    from headrace import api
    from headrace.importers.hlo.convert import convert_module
    from headrace.runtime.module import load_module

    if not function.module.functions[0].result_types:
        return []
    model = convert_module(function.module, function.name)
    folder = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
    with tempfile.TemporaryDirectory(prefix="headrace-check-", dir=folder) as place:
        made = api.compile(model, Path(place) / "case.hrx", targets=(target,), level=level)
        with load_module(made, device) as module:
            names = [info.name for info in module.inputs_of(None)]
            outputs = module(**dict(zip(names, function.inputs, strict=True)))
            return [np.array(array) for array in dict(outputs.items()).values()]


def _load_compiler() -> None:
    """Imports what every case needs, so that the first is not charged for it."""
    import importlib

    for name in ("importers.stablehlo", "translation", "pipeline", "assemble", "tensor.interp"):
        importlib.import_module(f"headrace.{name}")


def worker(target: str, level: int, threads: int) -> None:
    """The loop of a worker: a case a line in, its result a line out."""
    from headrace.runtime.drivers.table import open_device

    # Whatever a library prints must not stand between results.
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    device = open_device(target.partition(":")[0], threads=threads or None)
    _load_compiler()
    for line in sys.stdin.buffer:
        job = json.loads(line)
        result = run_case(Path(job["path"]), job["case"], target, level, device)
        answers.write(json.dumps(asdict(result)).encode() + b"\n")
        answers.flush()


if __name__ == "__main__":
    worker(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))
