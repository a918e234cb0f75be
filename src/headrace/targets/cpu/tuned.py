"""Schedules that were measured: by problem, what `headrace tune` found to be fastest.

A table maps a *problem* (a line that names the sizes which decide a schedule: rows, columns,
terms) to a *choice*, the schedule's free numbers. One is shipped with the target
(`tuned.json`, made by the tool), another one stands in the cache folder as
`tuned/cpu-NAME.json`, of this processor; its entries come first. What no table knows is
scheduled by rule.

A choice says how work is cut. It may change the last bits of a result (a tile of few rows
adds partial sums), so a table counts like a version of headrace: it is part of what code
and models are kept under (`repr` of the target holds its digest).
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, TypeAlias, Union

from headrace.base.errors import HeadraceError, error
from headrace.base.knobs import TUNED, cache_directory

FORMAT = 1
"""Of a file; raised when a choice's numbers come to mean something else."""

_SHIPPED = Path(__file__).with_name("tuned.json")


@dataclass(frozen=True)
class ContractChoice:
    """Of a contraction; see `ContractPlan`."""

    row_block: int
    column_block: int
    rows_outside: bool
    depth_block: int


@dataclass(frozen=True)
class WinogradChoice:
    """Of a Winograd convolution; see `WinogradPlan`."""

    block: int
    panels: int


@dataclass(frozen=True)
class WindowChoice:
    """Of a pool or depthwise convolution; see `Schedule`."""

    rows: int
    lanes: int
    turned: bool


Choice: TypeAlias = Union[ContractChoice, WinogradChoice, WindowChoice]

_KINDS: dict[str, type[Choice]] = {
    "contract": ContractChoice,
    "winograd": WinogradChoice,
    "window": WindowChoice,
}
"""First word of a problem -> its choices."""


@dataclass(frozen=True)
class Problem:
    """A kernel that may be tuned.

    Attributes:
        key: the line that names it.
        chosen: what it has now.
        others: what may be tried instead.
    """

    key: str
    chosen: Choice
    others: tuple[Choice, ...]


@dataclass(frozen=True, repr=False)
class Table:
    """Choices by problem, in the order of their keys."""

    entries: tuple[tuple[str, Choice], ...] = ()

    @cached_property
    def _by_key(self) -> dict[str, Choice]:
        return dict(self.entries)

    @cached_property
    def digest(self) -> str:
        """Of all entries: equal tables have equal digests."""
        return hashlib.sha256(repr(self.entries).encode()).hexdigest()[:16]

    def __repr__(self) -> str:
        return f"Table({self.digest})"

    def get(self, key: str) -> Choice | None:
        """The choice for a problem, None where there is none."""
        return self._by_key.get(key)

    def __hash__(self) -> int:
        return hash(self.digest)

    def updated(self, more: Mapping[str, Choice]) -> Table:
        """This table with further entries, or others in their place."""
        return Table(tuple(sorted({**self._by_key, **more}.items())))


NO_TABLE = Table()


def unfit(key: str) -> HeadraceError:
    """A choice that its problem cannot have: the file is none of ours, or was changed."""
    return error(
        "HR0115",
        f"a table of schedules has one for '{key}' that does not fit it",
        helps="run headrace tune again, or delete 'tuned' in the cache folder",
    )


# -- files --------------------------------------------------------------------------


def table_of(name: str) -> Table:
    """The shipped table of a CPU, and over it the entries that were made here.

    Raises:
        HeadraceError HR0116: a file is damaged.
    """
    shipped = read_table(_SHIPPED, name)
    if not TUNED.enabled:
        return shipped
    return shipped.updated(dict(read_table(own_path(name), name, processor()).entries))


def own_path(name: str) -> Path:
    """Where the table of a CPU stands in the cache folder."""
    return cache_directory() / "tuned" / f"cpu-{name}.json"


def processor() -> str:
    """What this processor is called."""
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    except OSError:
        pass
    return ""


def read_table(path: Path, name: str, wanted: str | None = None) -> Table:
    """The entries for the CPU `name` in a file; none where there is no file, or it is of
    another format or (where one is wanted) processor.

    Raises:
        HeadraceError HR0116: the file is damaged.
    """
    try:
        data = json.loads(path.read_text())
        if data["format"] != FORMAT or (wanted is not None and data["processor"] != wanted):
            return Table()
        rows: dict[str, Any] = data["tables"].get(name, {})
        return Table(tuple(sorted((key, _choice(key, row)) for key, row in rows.items())))
    except OSError:
        return Table()
    except (ValueError, KeyError, TypeError, AttributeError) as wrong:
        raise error(
            "HR0116",
            "a table of schedules cannot be read",
            at=str(path),
            notes=f"{type(wrong).__name__}: {wrong}",
            helps="delete it, or run headrace tune again",
        ) from wrong


def _choice(key: str, row: Mapping[str, Any]) -> Choice:
    kind = _KINDS[key.split(" ", 1)[0]]
    made = kind(**row)
    if any(not isinstance(v, int) or v < 0 for v in asdict(made).values()):
        raise ValueError(f"'{key}' has numbers that are none")
    return made


def table_text(name: str, table: Table, made_on: str) -> str:
    """A file's text."""
    rows = {key: asdict(choice) for key, choice in table.entries}
    lines = ",\n".join(f"      {json.dumps(k)}: {json.dumps(v)}" for k, v in rows.items())
    body = f"{{\n{lines}\n    }}" if rows else "{}"
    return (
        f'{{\n  "format": {FORMAT},\n  "processor": {json.dumps(made_on)},\n'
        f'  "tables": {{\n    {json.dumps(name)}: {body}\n  }}\n}}\n'
    )


def sizes_text(sizes: Iterable[int]) -> str:
    """`56x56`; `1` for none."""
    return "x".join(str(s) for s in sizes) or "1"
