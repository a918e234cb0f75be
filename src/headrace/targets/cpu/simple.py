"""What the simple families share: one launch of one nest under a schedule."""

from __future__ import annotations

from dataclasses import dataclass

from headrace.base.symbols import ONE
from headrace.kernel.description import Kernel
from headrace.kernel.target import Launch, Specialisation
from headrace.targets.cpu.complex_parts import has_complex, split_complex
from headrace.targets.cpu.emit import NestEmitter, Schedule
from headrace.targets.cpu.ir_text import Module
from headrace.targets.cpu.machine import Machine
from headrace.targets.cpu.nest import Nest, lower


@dataclass(frozen=True)
class SimplePlan:
    """A nest and how it becomes loops."""

    nest: Nest
    schedule: Schedule


def lowered(kernel: Kernel, machine: Machine) -> Nest:
    """The kernel on offsets, complex values in two parts."""
    nest = lower(kernel, split=True, ordered=machine.ordered_sums)
    return split_complex(nest) if has_complex(nest) else nest


def emit_simple(
    module: Module, symbol: str, kernel: Kernel, schedule: SimplePlan, machine: Machine
) -> tuple[Specialisation, ...]:
    """One function, one launch, for all sizes."""
    emitter = NestEmitter(module, symbol, kernel, schedule.nest, schedule.schedule, machine)
    emitter.emit()
    launch = Launch(
        symbol,
        (emitter.tiles(), ONE, ONE),
        emitter.scratch_bytes,
        family=schedule.schedule.family,
    )
    return (Specialisation((), (launch,)),)
