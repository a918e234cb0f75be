"""Limits that control groups set on this process, versions 1 and 2."""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path

_ROOT = Path("/sys/fs/cgroup")
_UNLIMITED = 1 << 60


def memory_rooms() -> list[int]:
    """Limit less use in bytes, for each group from this process' up to the root.

    Clean page cache is given back under pressure, so it counts as free.
    """
    rooms: list[int] = []
    for version, folder in _folders("memory"):
        if version == 1:
            names = ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file")
        else:
            names = ("memory.max", "memory.current", "inactive_file")
        limit, used = _number(folder / names[0]), _number(folder / names[1])
        if limit is not None and used is not None and limit < _UNLIMITED:
            cached = _value(folder / "memory.stat", names[2])
            rooms.append(max(0, limit - used + cached))
    return rooms


def processor_limits() -> list[int]:
    """Processors' worth of time that each group allows, rounded up."""
    limits: list[int] = []
    for version, folder in _folders("cpu"):
        if version == 1:
            quota = _number(folder / "cpu.cfs_quota_us")
            period = _number(folder / "cpu.cfs_period_us")
        else:
            words = _text(folder / "cpu.max").split()
            quota, period = (_integer(w) for w in words) if len(words) == 2 else (None, None)
        if quota and period and quota > 0:
            limits.append(max(1, math.ceil(quota / period)))
    return limits


def _folders(controller: str) -> Iterator[tuple[int, Path]]:
    """Version and folder of each group of a controller, this process' own first."""
    for line in _text(Path("/proc/self/cgroup")).splitlines():
        _, _, rest = line.partition(":")
        controllers, _, path = rest.partition(":")
        if controllers == "":
            places = [(2, _ROOT), (2, _ROOT / "unified")]
        elif controller in controllers.split(","):
            places = [(1, _ROOT / controller), (1, _ROOT / controllers)]
        else:
            continue
        for version, root in dict.fromkeys(places):
            folder = root / path.strip("/")
            while folder == root or root in folder.parents:
                yield version, folder
                folder = folder.parent


def _text(path: Path) -> str:
    try:
        return path.read_text()
    except OSError:
        return ""


def _integer(text: str) -> int | None:
    text = text.strip()
    return int(text) if text.isdigit() else None


def _number(path: Path) -> int | None:
    return _integer(_text(path))


def _value(path: Path, key: str) -> int:
    for line in _text(path).splitlines():
        name, _, value = line.partition(" ")
        if name == key:
            return int(value)
    return 0
