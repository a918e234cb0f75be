"""Schedules that were measured: by problem, what `headrace tune` found to be fastest.

A table maps a *problem* (a line that names the sizes which decide a schedule: rows, columns,
terms) to a *choice*, the schedule's free numbers. One is shipped with a target
(`tuned.json`, made by the tool), another one stands in the cache folder as
`tuned/CLASS-NAME.json`; its entries come first. What no table knows is scheduled by rule.

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
from typing import Any, Protocol, Self

from headrace.base.errors import HeadraceError, error
from headrace.base.knobs import TUNED, cache_directory
from headrace.kernel.description import Kernel
from headrace.kernel.target import Target

FORMAT = 1
"""Of a file; raised when a choice's numbers come to mean something else."""


@dataclass(frozen=True)
class Choice:
    """The free numbers of a schedule; each kind of problem has its own."""


Kinds = Mapping[str, type[Choice]]
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


class TunedTarget(Target, Protocol):
    """A target whose schedules may stand in tables."""

    @property
    def table(self) -> Table:
        """What it takes schedules from."""
        ...

    @property
    def tables(self) -> Tables:
        """Where those of its kind are kept."""
        ...

    def with_table(self, table: Table) -> Self:
        """The same target with other measured schedules."""
        ...

    def problem(self, kernel: Kernel) -> Problem | None:
        """What may be tuned of a kernel, None where nothing may."""
        ...


@dataclass(frozen=True)
class Tables:
    """The files of one target.

    Attributes:
        shipped: the file of its package.
        kinds: of choices.
        device_class, name: `cpu` and `x86-64-v3`, `cuda` and `sm_90`.
        processor: entries of the cache folder that were made elsewhere do not count; empty
            where any do, because code is made for the architecture and not for this machine.
    """

    shipped: Path
    kinds: Kinds
    device_class: str
    name: str
    processor: str = ""

    @property
    def own_path(self) -> Path:
        """Where what is measured here stands in the cache folder."""
        return cache_directory() / "tuned" / f"{self.device_class}-{self.name}.json"

    def all(self) -> Table:
        """The shipped table, and over it the entries that were made here.

        Raises:
            HeadraceError HR0116: a file is damaged.
        """
        shipped = self.read(self.shipped)
        if not TUNED.enabled:
            return shipped
        own = self.read(self.own_path, self.processor or None)
        return shipped.updated(dict(own.entries))

    def read(self, path: Path, wanted: str | None = None) -> Table:
        """The entries in a file; none where there is no file, or it is of another format or
        (where one is wanted) processor.

        Raises:
            HeadraceError HR0116: the file is damaged.
        """
        try:
            data = json.loads(path.read_text())
            if data["format"] != FORMAT or (wanted is not None and data["processor"] != wanted):
                return Table()
            rows: dict[str, Any] = data["tables"].get(self.name, {})
            entries = ((key, self._choice(key, row)) for key, row in rows.items())
            return Table(tuple(sorted(entries)))
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

    def _choice(self, key: str, row: Mapping[str, Any]) -> Choice:
        made = self.kinds[key.split(" ", 1)[0]](**row)
        if any(not isinstance(v, int) or v < 0 for v in asdict(made).values()):
            raise ValueError(f"'{key}' has numbers that are none")
        return made

    def text(self, table: Table, made_on: str) -> str:
        """A file's text."""
        rows = {key: asdict(choice) for key, choice in table.entries}
        lines = ",\n".join(f"      {json.dumps(k)}: {json.dumps(v)}" for k, v in rows.items())
        body = f"{{\n{lines}\n    }}" if rows else "{}"
        return (
            f'{{\n  "format": {FORMAT},\n  "processor": {json.dumps(made_on)},\n'
            f'  "tables": {{\n    {json.dumps(self.name)}: {body}\n  }}\n}}\n'
        )


def unfit(key: str) -> HeadraceError:
    """A choice that its problem cannot have: the file is none of ours, or was changed."""
    return error(
        "HR0115",
        f"a table of schedules has one for '{key}' that does not fit it",
        helps="run headrace tune again, or delete 'tuned' in the cache folder",
    )


def sizes_text(sizes: Iterable[int]) -> str:
    """`56x56`; `1` for none."""
    return "x".join(str(s) for s in sizes) or "1"
