"""The public suites in `../shared/conformance`, run by `headrace check`."""

from __future__ import annotations

import hashlib
import tarfile
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from statistics import median

from headrace.checking import CaseResult, check

ARCHIVES = Path(__file__).parents[4] / "shared" / "conformance"


def unpacked(name: str, folder: Path) -> Path | None:
    """The suite of that name in a folder; None where this machine has no such data."""
    archive = ARCHIVES / f"{name}.tar.gz"
    if not archive.is_file():
        return None
    if not (folder / name).is_dir():
        with tarfile.open(archive) as file:
            file.extractall(folder, filter="data")
    return folder / name


def with_checks(folder: Path) -> list[Path]:
    """The files that check something, sorted."""
    files = sorted(folder.rglob("*.mlir"))
    return [f for f in files if "check." in f.read_text(errors="replace")]


def sampled(files: Iterable[Path], count: int) -> list[Path]:
    """`count` of the files, by the hash of their names: the same ones everywhere."""
    ranked = sorted(files, key=lambda f: hashlib.sha256(f.name.encode()).hexdigest())
    return sorted(ranked[:count])


def run(files: Sequence[Path], level: int = 2, target: str = "cpu") -> list[CaseResult]:
    """Every case of the files."""
    return list(check(files, target, level))


def summary(results: Sequence[CaseResult]) -> str:
    """One line: how many pass, what became of the others, the median time."""
    counts = Counter(r.status for r in results)
    others = ", ".join(f"{n} {s}" for s, n in sorted(counts.items()) if s != "pass")
    rate = 100 * counts["pass"] / max(len(results), 1)
    seconds = median(r.seconds for r in results) if results else 0.0
    return (
        f"{counts['pass']} of {len(results)} pass ({rate:.1f} %); {others or 'no others'}; "
        f"median {seconds:.3f} s a case"
    )
