"""What to show of a model while it is compiled."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from headrace.base.errors import error

if TYPE_CHECKING:
    from headrace.ir.model import Model


@dataclass(frozen=True)
class Inspection:
    """What to show while compiling.

    Attributes:
        print_after: names of passes or phases to print after; `all` for every one.
        dump_to: folder for a numbered file after every pass.
        echo: prints a text.
    """

    print_after: frozenset[str] = frozenset()
    dump_to: Path | None = None
    echo: Callable[[str], None] = print
    _count: list[int] = field(default_factory=lambda: [0], repr=False)

    @property
    def shows(self) -> bool:
        """Whether there is anything to print or dump."""
        return bool(self.print_after) or self.dump_to is not None

    def observe(self, name: str, model: Model) -> None:
        """Shows the model after the pass `name` (`pass@class` where classes parted)."""
        wanted = self.print_after & {"all", name, name.partition("@")[0]}
        if not wanted and self.dump_to is None:
            return
        from headrace.ir.text import print_module

        text = print_module(model.ir)
        if wanted:
            self.echo(f"// ----- after {name}\n{text}")
        if self.dump_to is not None:
            self.dump_to.mkdir(parents=True, exist_ok=True)
            self._count[0] += 1
            path = self.dump_to / f"{self._count[0]:03}-{name.replace('@', '-')}.mlir"
            path.write_text(text + "\n")

    def check_names(self) -> None:
        """Raises HeadraceError HR0101 where a pass or phase to print after is none."""
        from headrace.ir.passes import pass_table
        from headrace.pipeline import PHASES

        known = {"all", *PHASES, *pass_table()}
        missing = sorted({name.partition("@")[0] for name in self.print_after} - known)
        if missing:
            raise error(
                "HR0101",
                f"there is no pass or phase named '{missing[0]}'",
                helps=f"one of: all, {', '.join(PHASES)}, {', '.join(sorted(pass_table()))}",
            )
