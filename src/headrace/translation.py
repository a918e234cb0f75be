"""Has every kernel of the materialised modules turned into code, in parallel processes.

Code that was made before comes from the cache on disk (`code_cache.py`); of equal kernels
for one target one is translated.

Workers are fresh interpreters (`python -m headrace.translation`), not forks: the caller may
be a program with threads of its own (JAX, a notebook), and a script without a main guard
must still work.
"""

from __future__ import annotations

import os
import pickle
import struct
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from typing import Any, BinaryIO, cast

from headrace.base.errors import HeadraceError, error
from headrace.code_cache import code_key, kernel_symbol, read_code, write_code
from headrace.kernel.description import Kernel
from headrace.kernel.target import Code, Target

Progress = Callable[[int, int], None]
"""Called with how many kernels are done and how many there are."""


@dataclass(frozen=True)
class Task:
    """One kernel for one target.

    Attributes:
        executable: name of the `hal.executable`.
        entry_point: name of the function, for errors.
        target: index into the targets.
        kernel: what to translate.
        place: the user's nodes, for errors.
    """

    executable: str
    entry_point: str
    target: int
    kernel: Kernel
    place: str


def tasks_of(module: Any, targets: Sequence[Target]) -> list[Task]:
    """Every kernel of a module whose interfaces are materialised, in order.

    Args:
        module: `builtin.module` after `hal-materialize-interfaces`.
        targets: every target of the compilation; variants name them.
    """
    from xdsl.dialects.builtin import ModuleOp

    from headrace.hal.dialect import ExecutableOp, ExecutableVariantOp
    from headrace.ir.locations import places
    from headrace.kernel.dialect import ExecuteOp

    by_name = {t.name: n for n, t in enumerate(targets)}
    found: list[Task] = []
    for executable in cast(ModuleOp, module).body.block.ops:
        if not isinstance(executable, ExecutableOp):
            continue
        for variant in executable.body.block.ops:
            if not isinstance(variant, ExecutableVariantOp):
                continue
            for op in variant.walk():
                if isinstance(op, ExecuteOp):
                    function: Any = op.parent_op()
                    found.append(
                        Task(
                            executable.sym_name.data,
                            function.sym_name.data,
                            by_name[variant.target.data],
                            op.kernel,
                            ", ".join(places(op)),
                        )
                    )
    return found


def translate(
    tasks: Sequence[Task],
    targets: Sequence[Target],
    jobs: int | None = None,
    progress: Progress | None = None,
) -> list[Code]:
    """The code of each task, in order.

    Args:
        jobs: processes at most; None takes the cores this process may use.

    Raises:
        HeadraceError HR2xxx: kernels that a target cannot express, all of them at once;
            HR9102: a worker died.
    """
    made = translate_each(tasks, targets, jobs, progress)
    failures = [f for f in made if isinstance(f, HeadraceError)]
    if failures:
        found = [d for failure in failures for d in failure.diagnostics]
        raise type(failures[0])(list(dict.fromkeys(found)))
    return [cast(Code, code) for code in made]


def translate_each(
    tasks: Sequence[Task],
    targets: Sequence[Target],
    jobs: int | None = None,
    progress: Progress | None = None,
) -> list[Code | HeadraceError]:
    """As `translate`, with the error of a kernel in the place of its code.

    Raises:
        HeadraceError HR9102: a worker died.
    """
    keys = [code_key(task.kernel, targets[task.target]) for task in tasks]
    known: dict[str, Code | HeadraceError] = {}
    for key in dict.fromkeys(keys):
        code = read_code(key)
        if code is not None:
            known[key] = code
    first = {key: number for number, key in reversed(list(enumerate(keys)))}
    missing = sorted(number for key, number in first.items() if key not in known)
    done = sum(key in known for key in keys)
    _report(progress, done, len(tasks))

    def finished(place: int, result: Code | HeadraceError) -> None:
        nonlocal done
        key = keys[missing[place]]
        known[key] = result
        done += keys.count(key)
        if not isinstance(result, HeadraceError):
            write_code(key, result)
        _report(progress, done, len(tasks))

    _translate_all([tasks[number] for number in missing], targets, jobs, finished)
    return [known[key] for key in keys]


Finished = Callable[[int, "Code | HeadraceError"], None]
"""Called with the number of a task and what became of it."""


def _translate_all(
    tasks: Sequence[Task], targets: Sequence[Target], jobs: int | None, finished: Finished
) -> None:
    serial = min((targets[task.target].serial_kernels for task in tasks), default=0)
    share = max(1, serial // 2)
    count = min(jobs or len(os.sched_getaffinity(0)), max(1, len(tasks) // share))
    if len(tasks) <= serial or count == 1:
        for number, task in enumerate(tasks):
            finished(number, _translate_one(targets[task.target], task))
    else:
        _in_workers(tasks, targets, count, finished)


def _report(progress: Progress | None, done: int, total: int) -> None:
    if progress is not None:
        progress(done, total)


def _translate_one(target: Target, task: Task) -> Code | HeadraceError:
    try:
        return target.translate(kernel_symbol(task.kernel), task.kernel)
    except HeadraceError as refused:
        return _placed(refused, task.place)
    except Exception as crash:
        return error(
            "HR9103",
            f"target '{target.name}' failed on '{task.entry_point}': "
            f"{type(crash).__name__}: {crash}",
            at=task.place,
            notes="this is a bug in headrace, not in your model",
        )


def _placed(refused: HeadraceError, place: str) -> HeadraceError:
    """The same error naming the user's nodes, which a target does not know."""
    found = [replace(d, places=d.places or (place,)) for d in refused.diagnostics]
    return type(refused)(found) if place else refused


def _in_workers(
    tasks: Sequence[Task], targets: Sequence[Target], count: int, finished: Finished
) -> None:
    import selectors

    left = set(range(len(tasks)))
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)}
    with ExitStack() as stack, selectors.DefaultSelector() as ready:
        for first in range(count):
            worker = subprocess.Popen(
                [sys.executable, "-m", "headrace.translation"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                env=environment,
            )
            stack.callback(_stop, worker)
            # Neighbours have like costs, so every n-th kernel is an even share.
            share = [(n, tasks[n]) for n in range(first, len(tasks), count)]
            _send(cast(BinaryIO, worker.stdin), (tuple(targets), share))
            ready.register(cast(BinaryIO, worker.stdout), selectors.EVENT_READ)
        while ready.get_map():
            for key, _ in ready.select():
                stream = cast(BinaryIO, key.fileobj)
                message = _receive(stream)
                if message is None:
                    ready.unregister(stream)
                    continue
                number, result = message
                left.discard(number)
                finished(number, result)
    if left:
        missing = [tasks[n].entry_point for n in sorted(left)]
        raise error("HR9102", "a compiling process died", notes=f"at: {', '.join(missing[:3])}")


def _stop(worker: subprocess.Popen[bytes]) -> None:
    worker.kill()
    worker.wait()
    for stream in (worker.stdin, worker.stdout):
        if stream is not None:
            stream.close()


def _send(stream: BinaryIO, message: Any) -> None:
    data = pickle.dumps(message)
    stream.write(struct.pack("<Q", len(data)))
    stream.write(data)
    stream.flush()


def _receive(stream: BinaryIO) -> Any:
    header = stream.read(8)
    if len(header) < 8:
        return None
    (size,) = struct.unpack("<Q", header)
    data = stream.read(size)
    # Only ever from a process started here: no file is read this way.
    return pickle.loads(data) if len(data) == size else None


def _worker_results(
    targets: Sequence[Target], share: Sequence[tuple[int, Task]]
) -> Iterator[tuple[int, Code | HeadraceError]]:
    for number, task in share:
        yield number, _translate_one(targets[task.target], task)


def worker() -> None:
    """The loop of a worker: one share in, its results out, as they are made."""
    message = _receive(sys.stdin.buffer)
    if message is None:
        return
    targets, share = message
    for result in _worker_results(targets, share):
        _send(sys.stdout.buffer, result)


if __name__ == "__main__":
    from headrace.translation import worker as _run

    _run()
