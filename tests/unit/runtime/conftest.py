"""The helpers beside the tests are importable, and the cache is a folder of its own."""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))
# Before any machine is built: tests must not depend on the user's cache, nor leave a
# profile of a loaded machine in it.
os.environ.setdefault("HEADRACE_CACHE_DIR", tempfile.mkdtemp(prefix="headrace-test-cache-"))


@pytest.fixture(scope="session")
def mlp_path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small MLP with 6 layers of 4 MiB, which streams at small budgets."""
    from runtime_models import Mlp

    return Mlp((1024,) * 7).write(tmp_path_factory.mktemp("mlp") / "mlp.hrx")
