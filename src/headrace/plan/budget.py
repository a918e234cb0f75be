"""Weight budgets as people write them: `25MB`, `2GiB`, `50%`, `min`, `max`, `auto`."""

from __future__ import annotations

import re
from operator import index

from headrace.base.errors import HeadraceError, error

_UNITS = {
    "": 1,
    "b": 1,
    "k": 10**3,
    "kb": 10**3,
    "m": 10**6,
    "mb": 10**6,
    "g": 10**9,
    "gb": 10**9,
    "t": 10**12,
    "tb": 10**12,
    "ki": 2**10,
    "kib": 2**10,
    "mi": 2**20,
    "mib": 2**20,
    "gi": 2**30,
    "gib": 2**30,
    "ti": 2**40,
    "tib": 2**40,
}
# No size has more digits, and Python refuses to read thousands of them.
_NUMBER = re.compile(r"\s*(\d{1,40}(?:\.\d{1,40})?)\s*([A-Za-z]*|%)\s*")
_MOST_SHOWN = 40
AUTO_MARGIN = 0.1
_RAISE = "raise the weight budget, or say 'min'"


def format_bytes(size_bytes: int) -> str:
    """`25.2 MB (25165824 bytes)`; whole bytes alone below 10 kB."""
    if size_bytes < 10_000:
        return f"{size_bytes} bytes"
    power = min(4, (len(str(size_bytes)) - 1) // 3)
    unit = ("bytes", "kB", "MB", "GB", "TB")[power]
    return f"{size_bytes / 1000**power:.1f} {unit} ({size_bytes} bytes)"


def parse_size(value: int | str, whole_bytes: int | None = None, *, of: str) -> int:
    """Bytes of `25MB`, `2GiB`, `1.5g`, `4096` or, given `whole_bytes`, `50%`.

    Args:
        of: what the size is of, as the user knows it: `memory limit`.

    Raises:
        HeadraceError HR3201: it is no size, or negative.
    """
    if not isinstance(value, str):
        return _whole(value, whole_bytes, of)
    match = _NUMBER.fullmatch(value)
    if match is None:
        raise _no_size(value, whole_bytes, of)
    number, unit = match[1], match[2].lower()
    if unit == "%":
        if whole_bytes is None:
            raise _no_size(value, whole_bytes, of)
        return _scaled(number, whole_bytes, 100)
    factor = _UNITS.get(unit)
    # `0.5` would be no byte at all, and is rarely meant so.
    if factor is None or (factor == 1 and "." in number):
        raise _no_size(value, whole_bytes, of)
    return _scaled(number, factor, 1)


def _whole(value: int, whole_bytes: int | None, of: str) -> int:
    """An integer as it is, numpy's too."""
    try:
        size = -1 if isinstance(value, bool) else index(value)
    except TypeError:
        size = -1
    if size < 0:
        raise _no_size(value, whole_bytes, of)
    return size


def _scaled(number: str, factor: int, divisor: int) -> int:
    """`number * factor / divisor` rounded down, in integers: no float is exact enough."""
    whole, _, fraction = number.partition(".")
    return int(whole + fraction) * factor // (divisor * 10 ** len(fraction))


def _no_size(value: object, whole_bytes: int | None, of: str) -> HeadraceError:
    text = str(value)
    if len(text) > _MOST_SHOWN:
        text = f"{text[:_MOST_SHOWN]}..."
    cure = "write bytes: 25MB, 2GiB"
    if whole_bytes is not None:
        cure = "write bytes (25MB, 2GiB), a percentage of the weights (50%), min, max or auto"
    return error("HR3201", f"'{text}' is no size", at=of, helps=cure)


def parse_budget(
    value: int | str, stored_bytes: int, minimum_bytes: int, free_bytes: int
) -> int:
    """The weight budget in bytes, never more than `stored_bytes` is worth.

    Args:
        value: bytes, a size, a percentage of the stored bytes, `min`, `max` or `auto`;
            0 means `min`.
        stored_bytes: all weights.
        minimum_bytes: what the plan needs at least (`planner.minimum_budget_bytes`).
        free_bytes: what is free for weights now; `auto` takes it less a tenth, but
            never more than all weights.

    Raises:
        HeadraceError HR3201: it is no size.
        HeadraceError HR3202: it is less than the minimum, which the error names.
    """
    notes: tuple[str, ...] = ()
    cure = _RAISE
    word = value.strip().lower() if isinstance(value, str) else value
    if word == "min":
        return minimum_bytes
    if word == "max":
        return max(stored_bytes, minimum_bytes)
    if word == "auto":
        wanted = min(int(free_bytes * (1 - AUTO_MARGIN)), max(stored_bytes, minimum_bytes))
        notes = (f"'auto' takes nine tenths of the {format_bytes(free_bytes)} that are free",)
        cure = "free memory, or say 'min', which leaves no margin"
    else:
        wanted = parse_size(value, stored_bytes, of="weight budget")
        if wanted == 0:
            return minimum_bytes
    if wanted < minimum_bytes:
        raise too_little(wanted, minimum_bytes, stored_bytes, notes, cure)
    return min(wanted, max(stored_bytes, minimum_bytes))


def too_little(
    wanted_bytes: int,
    minimum_bytes: int,
    stored_bytes: int,
    notes: tuple[str, ...] = (),
    cure: str = _RAISE,
) -> HeadraceError:
    """The error for a budget below the minimum."""
    return error(
        "HR3202",
        f"a weight budget of {format_bytes(wanted_bytes)} is too little",
        notes=(
            *notes,
            f"the minimum at these sizes is {format_bytes(minimum_bytes)}",
            f"the weights are {format_bytes(stored_bytes)}",
        ),
        helps=cure,
    )
