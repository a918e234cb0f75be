"""Array locals in a scratch buffer of 32-bit words.

Element by element for all lanes, so that neighbouring lanes touch neighbouring words:
word `w` of a lane stands at `w * lanes + lane`. Booleans and narrow values take a word
in their compute type, 64-bit values two.
"""

from __future__ import annotations

from collections.abc import Sequence

from headrace.base.symbols import ZERO, Expr, product
from headrace.kernel.description import Kernel, Local
from headrace.kernel.lanes.indices import Indices
from headrace.kernel.lanes.lower import lane_count
from headrace.kernel.lanes.machine import BITS, Machine, MachineType, Value, compute_type
from headrace.kernel.lanes.scalar import element_dtype


def parts(local: Local) -> int:
    """Machine values an element takes: two where it is complex."""
    return 2 if local.dtype.kind == "complex" else 1


def part_type(local: Local) -> MachineType:
    return compute_type(element_dtype(local.dtype))


def words(local: Local) -> Expr:
    """Scratch words that one lane needs for an array local."""
    return product(local.shape) * parts(local) * (2 if BITS[part_type(local)] == 64 else 1)


def size_bytes(kernel: Kernel, locals: Sequence[Local]) -> Expr:
    """Of the scratch buffer of a whole launch."""
    total = ZERO
    for local in locals:
        total = total + words(local)
    return total * lane_count(kernel) * 4


class Scratch:
    """Emits the loads and stores of array locals to one binding of `ui32` elements."""

    def __init__(
        self, machine: Machine, binding: int, kernel: Kernel, locals: Sequence[Local]
    ) -> None:
        self._machine = machine
        self._binding = binding
        self._locals = {local.name: local for local in locals}
        self._bases: dict[str, Value] = {}
        if not locals:
            return
        sizes = Indices(machine, kernel.dims)
        self._lanes = sizes.value(lane_count(kernel))
        total = ZERO
        for local in locals:
            self._bases[local.name] = sizes.value(total)
            total = total + words(local)

    def __contains__(self, name: str) -> bool:
        return name in self._locals

    def _place(self, name: str, offset: Value, word: int) -> Value:
        wide = BITS[part_type(self._locals[name])] == 64
        number = offset * 2 + word if wide else offset
        return (self._bases[name] + number) * self._lanes + self._machine.lane()

    def _word(self, name: str, offset: Value, word: int) -> Value:
        zero = self._machine.constant("u32", 0)
        return self._machine.load(self._binding, self._place(name, offset, word), None, zero)

    def load(self, name: str, offset: Value) -> Value:
        kind = part_type(self._locals[name])
        low = self._word(name, offset, 0)
        if kind == "bool":
            return low.ne(0)
        if BITS[kind] == 32:
            return low.bitcast(kind)
        high = self._word(name, offset, 1)
        return ((high.to("u64") << 32) | low.to("u64")).bitcast(kind)

    def store(self, name: str, offset: Value, value: Value) -> None:
        if value.type == "bool":
            value = value.select(self._machine.constant("u32", 1), 0)
        if BITS[value.type] == 32:
            self._store(name, offset, 0, value.bits)
            return
        self._store(name, offset, 0, value.bits.to("u32"))
        self._store(name, offset, 1, (value.bits >> 32).to("u32"))

    def _store(self, name: str, offset: Value, word: int, value: Value) -> None:
        self._machine.store(self._binding, self._place(name, offset, word), value)
