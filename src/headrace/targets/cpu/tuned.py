"""The CPU's choices of schedules, and where its tables stand (`targets/tables.py`)."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from headrace.targets.tables import Choice, Kinds, Tables

_SHIPPED = Path(__file__).with_name("tuned.json")


@dataclass(frozen=True)
class ContractChoice(Choice):
    """Of a contraction; see `ContractPlan`."""

    row_block: int
    column_block: int
    rows_outside: bool
    depth_block: int


@dataclass(frozen=True)
class WinogradChoice(Choice):
    """Of a Winograd convolution; see `WinogradPlan`."""

    block: int
    panels: int


@dataclass(frozen=True)
class WindowChoice(Choice):
    """Of a pool or depthwise convolution; see `Schedule`."""

    rows: int
    lanes: int
    turned: bool


_KINDS: Kinds = {
    "contract": ContractChoice,
    "winograd": WinogradChoice,
    "window": WindowChoice,
}


def tables(name: str) -> Tables:
    """The tables of a CPU."""
    return Tables(_SHIPPED, _KINDS, "cpu", name, processor())


def processor() -> str:
    """What this processor is called."""
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    except OSError:
        pass
    return ""
