"""One suite for all drivers: `device` is each of them in turn."""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "unit" / "runtime"))
os.environ.setdefault("HEADRACE_CACHE_DIR", tempfile.mkdtemp(prefix="headrace-test-cache-"))


@pytest.fixture(scope="session")
def streaming_path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An MLP of 8 layers of 4 MiB."""
    from runtime_models import Mlp

    return Mlp((1024,) * 9, seed=3).write(tmp_path_factory.mktemp("drivers") / "mlp.hrx")


@pytest.fixture(params=["cpu", "cpu-1", "null"])
def device(request: pytest.FixtureRequest):
    """Each driver that runs the CPU's programs, opened."""
    from headrace.runtime.drivers.table import open_device

    opened = {
        "cpu": lambda: open_device("cpu", threads=2),
        "cpu-1": lambda: open_device("cpu", threads=1),
        "null": lambda: open_device("null", threads=2),
    }[request.param]()
    yield opened
    opened.close()
