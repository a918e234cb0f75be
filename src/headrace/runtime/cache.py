"""The folder for what can be made again: linked machines and profiles."""

from __future__ import annotations

import contextlib
import os
import tempfile

from headrace.base.knobs import cache_directory


def read_cached(name: str) -> bytes | None:
    """The bytes kept under `name`, None where there are none or they cannot be read."""
    try:
        return (cache_directory() / name).read_bytes()
    except OSError:
        return None


def write_cached(name: str, data: bytes) -> bool:
    """Keeps `data` under `name`, whole or not at all.

    Returns False where the folder cannot be written: the cache is a convenience, and a
    read-only home must not stop a run.
    """
    path = cache_directory() / name
    try:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=path.name)
    except OSError:
        return False
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
        os.replace(temporary, path)
    except OSError:
        with contextlib.suppress(OSError):
            os.unlink(temporary)
        return False
    return True
