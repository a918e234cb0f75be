"""Errors in the user's words, with a code, a place, the evidence and the cure.

Codes: HR0xxx usage, HR1xxx import, HR2xxx compile, HR3xxx memory and weights,
HR4xxx run, HR9xxx a defect of ours. The text form::

    error[HR1203]: ONNX operator 'GridSample' is not supported
      --> model.onnx: node 'backbone/GridSample_4'
      note: 1 of 38 operator kinds in this model is missing
      help: docs/howto/add-onnx-op.md adds one

Every problem of one stage is raised together: `Problems` collects and raises once.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Diagnostic:
    """One fact that is wrong.

    Attributes:
        code: `HRnnnn`.
        fact: lower case, no full stop.
        places: where, in the user's model or file; at most a few are printed.
        notes: the evidence.
        helps: the cure, at most two.
    """

    code: str
    fact: str
    places: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    helps: tuple[str, ...] = ()

    def __str__(self) -> str:
        word = "defect" if self.code.startswith("HR9") else "error"
        lines = [f"{word}[{self.code}]: {self.fact}"]
        lines += [f"  --> {place}" for place in self.places[:5]]
        if len(self.places) > 5:
            lines.append(f"  --> and {len(self.places) - 5} more places")
        lines += [f"  note: {note}" for note in self.notes]
        lines += [f"  help: {cure}" for cure in self.helps]
        return "\n".join(lines)


class HeadraceError(Exception):
    """The user's error: one or more diagnostics. The command line exits with 2.

    Attributes:
        diagnostics: everything that is wrong, never empty.
    """

    exit_status = 2

    def __init__(self, diagnostics: Diagnostic | Sequence[Diagnostic]) -> None:
        found = (diagnostics,) if isinstance(diagnostics, Diagnostic) else tuple(diagnostics)
        self.diagnostics: tuple[Diagnostic, ...] = found
        super().__init__("\n".join(str(d) for d in found))

    def __reduce__(self) -> tuple[type[HeadraceError], tuple[tuple[Diagnostic, ...]]]:
        """Crosses process borders whole: a worker's error is the user's."""
        return type(self), (self.diagnostics,)


class HeadraceDefect(HeadraceError):
    """A defect of headrace itself (HR9xxx). The command line exits with 70."""

    exit_status = 70


def error(
    code: str,
    fact: str,
    *,
    at: str | Sequence[str] = (),
    notes: str | Sequence[str] = (),
    helps: str | Sequence[str] = (),
) -> HeadraceError:
    """The exception for one diagnostic; strings stand for one-element lists."""
    diagnostic = Diagnostic(code, fact, _several(at), _several(notes), _several(helps))
    kind = HeadraceDefect if code.startswith("HR9") else HeadraceError
    return kind(diagnostic)


def _several(value: str | Sequence[str]) -> tuple[str, ...]:
    return (value,) if isinstance(value, str) else tuple(value)


class Problems:
    """Collects diagnostics, so that everything wrong is listed at once.

    Two diagnostics of the same code and fact become one with both places.
    """

    def __init__(self) -> None:
        self._found: dict[tuple[str, str], Diagnostic] = {}

    def add(self, diagnostic: Diagnostic) -> None:
        key = (diagnostic.code, diagnostic.fact)
        before = self._found.get(key)
        if before is None:
            self._found[key] = diagnostic
            return
        places = before.places + tuple(p for p in diagnostic.places if p not in before.places)
        self._found[key] = Diagnostic(
            before.code, before.fact, places, before.notes, before.helps
        )

    def __bool__(self) -> bool:
        return bool(self._found)

    @property
    def diagnostics(self) -> tuple[Diagnostic, ...]:
        return tuple(self._found.values())

    def raise_if_any(self) -> None:
        """Raises `HeadraceError` (or `HeadraceDefect`) where anything was added."""
        if not self._found:
            return
        found = self.diagnostics
        defect = any(d.code.startswith("HR9") for d in found)
        raise (HeadraceDefect if defect else HeadraceError)(found)
