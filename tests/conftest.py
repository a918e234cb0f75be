"""Every test run has a cache of its own, and no compilation is taken from another."""

from __future__ import annotations

import faulthandler
import os
import signal
import tempfile
from pathlib import Path

import pytest

_FOLDER = tempfile.TemporaryDirectory(prefix="headrace-tests-")
os.environ.setdefault("HEADRACE_CACHE_DIR", _FOLDER.name)
os.environ.setdefault("HEADRACE_MODEL_CACHE", "0")
# Workers inherit it.
_STACKS = Path(os.environ.setdefault("HEADRACE_TESTS_STACKS", _FOLDER.name))

# A shell starts what runs in the background with SIGINT ignored, and children inherit that.
signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.hookimpl(trylast=True)
def pytest_configure(config: pytest.Config) -> None:
    """A worker that dies of native code leaves the stacks of its threads in a file."""
    if hasattr(config, "workerinput"):
        # Kept open: the process writes there as it dies.
        config.stacks = (_STACKS / f"{os.environ['PYTEST_XDIST_WORKER']}.stacks").open("w")
        faulthandler.enable(config.stacks)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Shows them last, where a log that was cut still has them."""
    for path in sorted(_STACKS.glob("*.stacks")):
        if text := path.read_text():
            terminalreporter.section(f"worker {path.stem} died")
            terminalreporter.write(text)
