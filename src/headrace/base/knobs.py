"""Every environment variable headrace reads: a typed, documented row each.

Nothing else reads the environment.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Knob:
    """An environment variable.

    Attributes:
        name: as set in the environment.
        meaning: one line for the documentation.
        default: text where it is not set.
    """

    name: str
    meaning: str
    default: str = ""

    @property
    def text(self) -> str:
        """Its value now."""
        return os.environ.get(self.name, self.default)

    @property
    def enabled(self) -> bool:
        """Whether it is set to anything but nothing, 0, false or no."""
        return self.text.lower() not in ("", "0", "false", "no")


DEBUG = Knob("HEADRACE_DEBUG", "prints the Python traceback of an error", "0")
CACHE_DIR = Knob(
    "HEADRACE_CACHE_DIR", "where compiled models, machine code and device profiles are kept"
)
XDG_CACHE_HOME = Knob("XDG_CACHE_HOME", "the folder of all caches, where CACHE_DIR is not set")
MODEL_CACHE = Knob(
    "HEADRACE_MODEL_CACHE",
    "0 compiles a model anew although the cache holds it as it would be (kernels still come from there)",
    "1",
)

TUNED = Knob(
    "HEADRACE_TUNED",
    "0 leaves out the schedules that `headrace tune` kept in the cache folder",
    "1",
)

HIDE_DEVICE_MEMORY = Knob(
    "HEADRACE_HIDE_DEVICE_MEMORY", "bytes of a GPU's free memory to leave alone, for tests"
)
GPU_SYNCHRONOUS = Knob(
    "HEADRACE_GPU_SYNCHRONOUS",
    "waits for every command on a GPU, so that an error names the one that fails",
    "0",
)

KNOBS = (
    DEBUG,
    CACHE_DIR,
    XDG_CACHE_HOME,
    MODEL_CACHE,
    TUNED,
    HIDE_DEVICE_MEMORY,
    GPU_SYNCHRONOUS,
)


def cache_directory() -> Path:
    """The cache folder; not created here."""
    if CACHE_DIR.text:
        return Path(CACHE_DIR.text)
    root = XDG_CACHE_HOME.text
    return (Path(root) if root else Path.home() / ".cache") / "headrace"
