"""Every test run has a cache of its own, and no compilation is taken from another."""

from __future__ import annotations

import os
import signal
import tempfile

_FOLDER = tempfile.TemporaryDirectory(prefix="headrace-tests-")
os.environ.setdefault("HEADRACE_CACHE_DIR", _FOLDER.name)
os.environ.setdefault("HEADRACE_MODEL_CACHE", "0")

# A shell starts what runs in the background with SIGINT ignored, and children inherit that.
signal.signal(signal.SIGINT, signal.default_int_handler)
