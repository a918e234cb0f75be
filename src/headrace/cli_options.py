"""Options and helpers that several commands of the command line share."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from headrace.base.errors import error

if TYPE_CHECKING:
    from headrace.runtime.module import Module

JSON = click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
DEVICE = click.option("--device", default="cpu", show_default=True, help="Where to run.")
BUDGET = click.option(
    "--weight-budget",
    default="auto",
    show_default=True,
    metavar="SIZE",
    help="Bytes that weights may take: 25MB, 2GiB, 40%, min, max or auto.",
)
LIMIT = click.option(
    "--memory-limit", default=None, metavar="SIZE", help="Caps everything the module allocates."
)
HOST_LIMIT = click.option(
    "--host-limit", default=None, metavar="SIZE",
    help="Host memory that weights are pinned in (cuda); beyond it they stream from the disk.",
)  # fmt: skip
DIMS = click.option(
    "--dim",
    "dims",
    multiple=True,
    metavar="NAME=SIZE",
    help="A named size, e.g. seq=128; when compiling also bounds, e.g. batch=1..64.",
)
TARGETS = click.option(
    "--target",
    "targets",
    multiple=True,
    default=("cpu",),
    show_default=True,
    help="What to compile for: cpu[:native|x86-64-v3|generic], "
    "cuda[:native|sm_80|sm_90], rocm (compiled only), vulkan.",
)
LEVEL = click.option(
    "-O", "level", type=click.IntRange(0, 2), default=2, show_default=True, help="Optimisation."
)
NUMERICS = click.option(
    "--numerics", type=click.Choice(["fast", "exact"]), default="fast", show_default=True,
    help="exact: sums in the order written, no Winograd; slower.",
)  # fmt: skip
PRECISION = click.option(
    "--precision", type=click.Choice(["ieee", "tf32"]), default="ieee", show_default=True,
    help="tf32: products of f32 on tensor cores, 10 bits of each factor count; cuda, rocm.",
)  # fmt: skip
THREADS = click.option("--threads", type=click.IntRange(1), default=None, help="CPU threads.")
FUNCTION = click.option(
    "--entry", "--function", "function", default=None,
    help="Entry function; the first by default.",
)  # fmt: skip


def given_models(texts: Sequence[str]) -> Path | dict[str, Path]:
    """One model file, or several by the names of their entry functions.

    Raises: as `given.parse_entries`.
    """
    from headrace.given import parse_entries

    if len(texts) == 1 and ("=" not in texts[0] or Path(texts[0]).is_file()):
        return Path(texts[0])
    return parse_entries(texts)


def parse_dims(given: Sequence[str]) -> dict[str, int | tuple[int, int | None]]:
    """`batch=8`, `batch=1..64`, `batch=1..` as sizes and bounds.

    Raises:
        HeadraceError HR0104: the text is neither.
    """
    found: dict[str, int | tuple[int, int | None]] = {}
    for item in given:
        name, equals, text = item.partition("=")
        low, dots, high = text.partition("..")
        try:
            if not equals or not name:
                raise ValueError
            found[name] = (int(low), int(high) if high else None) if dots else int(low)
            if int(low) < 1 or (high and int(high) < int(low)):
                raise ValueError
        except ValueError:
            raise error(
                "HR0104",
                f"'{item}' is no size",
                helps="write NAME=128 or NAME=1..64, the least first and at least 1",
            ) from None
    return found


def sizes(given: Sequence[str], module: Module | None = None) -> dict[str, int]:
    """The named sizes for a call; names are checked where the module is given.

    Raises:
        HeadraceError HR0104: bounds instead of a size; HR0107: the model has no such
            dimension.
    """
    known = [d.name for d in module.artifact.module.dimensions] if module else []
    found: dict[str, int] = {}
    for name, value in parse_dims(given).items():
        if not isinstance(value, int):
            raise error("HR0104", f"'{name}' needs one size here", helps=f"write {name}=128")
        if module and name not in known:
            listed = ", ".join(known) if known else "none"
            raise error(
                "HR0107", f"there is no dimension '{name}'", notes=f"the model has {listed}"
            )
        found[name] = value
    return found


def compiled_path(model: Path, device: str, quiet: bool) -> Path:
    """A `.hrx` as it is; a model file compiled into the cache, once per content."""
    from headrace import api

    if model.suffix == ".hrx":
        return model
    with Progress("compiling", quiet) as progress:
        return api.compile_cached(model, device, progress)


class Progress:
    """A progress bar on the terminal; nothing where output is piped or JSON."""

    def __init__(self, what: str, quiet: bool) -> None:
        self.what = what
        self.quiet = quiet or not sys.stderr.isatty()
        self.bar: Any = None

    def __enter__(self) -> Callable[[int, int], None] | None:
        if self.quiet:
            return None
        from rich.console import Console
        from rich.progress import Progress as Bar

        self.bar = Bar(console=Console(stderr=True), transient=True)
        self.bar.start()
        task = self.bar.add_task(self.what, total=None)

        def show(done: int, total: int) -> None:
            self.bar.update(task, completed=done, total=total)

        return show

    def __exit__(self, *_: object) -> None:
        if self.bar is not None:
            self.bar.stop()
