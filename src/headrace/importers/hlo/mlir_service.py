"""Asks MLIR's own parser for the generic text of a module, in a process apart.

One process serves all modules of this one; it starts with the first, and again after one
that ended it. See `mlir_process.py` for what it may do.
"""

from __future__ import annotations

import atexit
import contextlib
import importlib.util
import os
import re
import selectors
import signal
import subprocess
import sys
import threading
import time
from typing import BinaryIO, cast

from headrace.base.errors import HeadraceError, error
from headrace.importers.hlo.mlir_process import ANSWER, ARRAY, JOB

MODULE_BYTES = 4 << 30
"""The largest module that is parsed."""
TEXT_BYTES = 1 << 30
"""The longest answer that is taken, without the elements of large constants."""
SECONDS = 120.0
"""A module that takes longer is refused; the process that parses it ends."""
_ENVIRONMENT = ("PATH", "PYTHONPATH", "LD_LIBRARY_PATH", "HOME", "LANG")
"""What of the environment the process needs to find jaxlib."""
_POSITION = re.compile(r'error: "-":(\d+):(\d+): (.*)')
_LOCK = threading.Lock()


def is_installed() -> bool:
    """Whether jaxlib can be asked."""
    return importlib.util.find_spec("jaxlib") is not None


def generic_text(module: bytes, source: str) -> tuple[str, list[bytes]]:
    """Generic text of a module, and what `dense_resource<__elided__>` stands for in it.

    Args:
        module: text in any form, or MLIR bytecode.
        source: names it in messages.

    Raises:
        HeadraceError HR1001: MLIR refuses the module, with its place; the module ended
            the parser, or took too long; HR1003: jaxlib is missing; HR1101: it holds what
            no dialect has.
    """
    if not is_installed():
        raise error(
            "HR1003",
            "reading this module needs jaxlib, which is not installed",
            at=source,
            helps="pip install 'headrace[stablehlo]'",
        )
    if len(module) > MODULE_BYTES:
        fact = f"the module has {len(module)} bytes, of which {MODULE_BYTES} are read"
        raise error("HR1001", fact, at=source)
    with _LOCK:
        refused, text, arrays = _SERVICE.ask(module, source)
    if refused:
        raise _refusal(text, source)
    return text, arrays


def _refusal(text: str, source: str) -> HeadraceError:
    """What MLIR says of a module, at the line and column that it names."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    found = next((m for m in map(_POSITION.search, lines) if m), None)
    at = f"{source}:{found.group(1)}:{found.group(2)}" if found else source
    notes = [found.group(3)] if found else lines[:6]
    if any("unregistered dialect" in line for line in lines):
        return error("HR1101", "the module holds what no known dialect has", at=at, notes=notes)
    return error("HR1001", "this is no valid StableHLO module", at=at, notes=notes)


class _Stopped(Exception):
    """The process gave no whole answer; the text says why."""


class _Service:
    """The process, seen from outside."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None

    def ask(self, module: bytes, source: str) -> tuple[bool, str, list[bytes]]:
        process = self._process
        if process is None or process.poll() is not None:
            process = self._start()
        answer = _Answer(process)
        sender = threading.Thread(target=_send, args=(process, module), daemon=True)
        sender.start()
        try:
            refused, text_bytes, count = ANSWER.unpack(answer.take(ANSWER.size))
            if text_bytes > TEXT_BYTES:
                raise _Stopped(f"its text has more than {TEXT_BYTES} bytes")
            text = answer.take(text_bytes).decode(errors="replace")
            arrays: list[bytes] = []
            for _ in range(count):
                (length,) = ARRAY.unpack(answer.take(ARRAY.size))
                if length > MODULE_BYTES:
                    raise _Stopped(f"a constant has more than {MODULE_BYTES} bytes")
                arrays.append(answer.take(length))
        except _Stopped as why:
            reason = self._stop(str(why))
            raise error(
                "HR1001",
                "MLIR's parser cannot read this module",
                at=source,
                notes=reason,
            ) from None
        sender.join()
        return bool(refused), text, arrays

    def _start(self) -> subprocess.Popen[bytes]:
        kept = {k: os.environ[k] for k in _ENVIRONMENT if k in os.environ}
        self._process = subprocess.Popen(
            [sys.executable, "-m", "headrace.importers.hlo.mlir_process"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env={**kept, "PYTHONDONTWRITEBYTECODE": "1"},
            close_fds=True,
        )
        return self._process

    def _stop(self, why: str) -> str:
        """Ends the process; how it ended, where it did so by itself."""
        process, self._process = self._process, None
        assert process is not None
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(0.5)
        status = process.poll()
        self.end(process)
        if status is not None and status < 0:
            return f"the parser was ended by {signal.Signals(-status).name}"
        if status:
            return f"the parser ended with status {status}"
        return why

    def end(self, process: subprocess.Popen[bytes] | None = None) -> None:
        process = process or self._process
        if process is None:
            return
        process.kill()
        process.wait()
        for stream in (process.stdin, process.stdout):
            if stream is not None:
                with contextlib.suppress(OSError):
                    stream.close()


def _send(process: subprocess.Popen[bytes], module: bytes) -> None:
    # A process that ends meanwhile is told by its answer.
    with contextlib.suppress(OSError, ValueError):
        stdin = cast(BinaryIO, process.stdin)
        stdin.write(JOB.pack(len(module)))
        stdin.write(module)
        stdin.flush()


class _Answer:
    """Reads an answer within the time for one module."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self._stream = cast(BinaryIO, process.stdout).fileno()
        self._until = time.monotonic() + SECONDS

    def take(self, count: int) -> bytes:
        found = bytearray()
        with selectors.DefaultSelector() as ready:
            ready.register(self._stream, selectors.EVENT_READ)
            while len(found) < count:
                left = self._until - time.monotonic()
                if left <= 0 or not ready.select(left):
                    raise _Stopped(f"the parser took longer than {SECONDS:.0f} s")
                piece = os.read(self._stream, min(1 << 20, count - len(found)))
                if not piece:
                    raise _Stopped("the parser ended")
                found += piece
        return bytes(found)


_SERVICE = _Service()
atexit.register(_SERVICE.end)
