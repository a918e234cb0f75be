"""Writes `runtime/drivers/vulkan_stream_code.py`: the two kernels weights stream by.

    python tools/generate_vulkan_stream.py

The run time imports no assembler, so the modules' words are checked in. What they do is told in
`runtime/drivers/vulkan_streamer.py`; the words of the buffer they share are named here.
"""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Sequence
from pathlib import Path

from headrace.base.dtypes import BY_NAME
from headrace.kernel.lanes.machine import Value
from headrace.targets.vulkan.assembler import Id
from headrace.targets.vulkan.builder import Buffer, ShaderBuilder

LANES, GROUPS, FOURS = 1024, 2, 4
"""Few workgroups, with much on its way each: 84 kB must be for 50 GB/s. Beside 4 of them
ResNet-50 at half its weights took 10 % longer than beside 2 on an H200, beside 8 of 512 lanes 19 %."""

LARGE_FOURS = 2 << 20 >> 4
"""Rows from here on: all subgroups of a workgroup meet behind them. Those that have drifted apart
brought 6 MB at 42 GB/s instead of 47 (H200); behind small rows, waiting costs more (1.5 us)."""

ROW_WORDS = 6
"""Of the table: source and target address (low, high), fours of 32 bits, release."""

PROGRESS, STEPS, ROUNDS, ARRIVED = 0, 1, 16, 128
"""Words of the shared buffer: commands done, steps done, rounds of each workgroup, and of
each row how many lanes have brought their part."""

_DEVICE_SCOPE = 1
_ACQUIRE, _RELEASE, _BOTH, _STORAGE_BUFFERS = 0x2, 0x4, 0x8, 0x40
_FOUR_BYTES = 16
_WORD = BY_NAME["ui32"]


class _Shared:
    """Atomic words of a binding, seen by all kernels of the device."""

    def __init__(self, made: ShaderBuilder, binding: int, failed: int) -> None:
        self._made = made
        self._binding = binding
        self._failed = failed

    def _number(self, value: int) -> Id:
        return self._made.module.unsigned_constant(value)

    def _place(self, index: Value) -> Id:
        return self._made.element_pointer(self._binding, index)

    def load(self, index: Value) -> Value:
        made = self._made
        found = made.operation(
            "OpAtomicLoad",
            made.type_id("u32"),
            self._place(index),
            self._number(_DEVICE_SCOPE),
            self._number(_ACQUIRE | _STORAGE_BUFFERS),
        )
        return Value(made, "u32", found).bitcast("i32")

    def store(self, index: Value, value: Value) -> None:
        self._made.instruct(
            "OpAtomicStore",
            self._place(index),
            self._number(_DEVICE_SCOPE),
            self._number(_RELEASE | _STORAGE_BUFFERS),
            value.bitcast("u32").handle,
        )

    def count(self, index: Value, number: Value) -> None:
        """Adds a number."""
        made = self._made
        made.operation(
            "OpAtomicIAdd",
            made.type_id("u32"),
            self._place(index),
            self._number(_DEVICE_SCOPE),
            self._number(_RELEASE | _STORAGE_BUFFERS),
            number.bitcast("u32").handle,
        )

    def fence(self) -> None:
        """What this lane has read and written before comes before what it does after."""
        scope = self._number(_DEVICE_SCOPE)
        self._made.instruct("OpMemoryBarrier", scope, self._number(_BOTH | _STORAGE_BUFFERS))

    def wait(self, index: Value, value: Value, polls: Value) -> None:
        """Until the word has come to `value`, which may have wrapped; notes it in the
        binding of failures where it has not after so many looks."""
        made = self._made
        left = made.variable("i32")
        made.write(left, polls)

        def look() -> None:
            there = (self.load(index) - value).ge(0)
            made.write(left, there.select(made.constant("i32", -1), made.read(left) - 1))

        _while(made, lambda: made.read(left).gt(0), look)
        zero = made.constant("i32", 0)
        made.guarded(
            made.read(left).eq(0),
            lambda: made.store(self._failed, zero, made.constant("u32", 1)),
        )


def _while(made: ShaderBuilder, holds: Callable[[], Value], body: Callable[[], None]) -> None:
    """Runs a body as long as something holds."""
    header, check, inside, again, after = (made.module.id() for _ in range(5))
    made.instruct("OpBranch", header)
    made._label(header)
    made.instruct("OpLoopMerge", after, again, "None")
    made.instruct("OpBranch", check)
    made._label(check)
    made.instruct("OpBranchConditional", holds().handle, inside, after)
    made._label(inside)
    body()
    made.instruct("OpBranch", again)
    made._label(again)
    made.instruct("OpBranch", header)
    made._label(after)


class _Fours:
    """Sixteen bytes at a time through addresses of the device."""

    def __init__(self, made: ShaderBuilder) -> None:
        module = made.module
        module.capability("PhysicalStorageBufferAddresses")
        module.addressing_model = "PhysicalStorageBuffer64"
        self._made = made
        word = made.type_id("u32")
        self._four = module.unique("OpTypeVector", word, 4)
        self._pair = module.unique("OpTypeVector", word, 2)
        array, block = module.id(), module.id()
        module.emit("globals", "OpTypeRuntimeArray", array, self._four)
        module.decorate(array, "ArrayStride", _FOUR_BYTES)
        module.emit("globals", "OpTypeStruct", block, array)
        module.decorate(block, "Block")
        module.emit("decorations", "OpMemberDecorate", block, 0, "Offset", 0)
        self._base = module.pointer("PhysicalStorageBuffer", block)
        self._element = module.pointer("PhysicalStorageBuffer", self._four)

    def base(self, low: Value, high: Value) -> Id:
        """The array at an address."""
        words = [low.bitcast("u32").handle, high.bitcast("u32").handle]
        pair = self._made.operation("OpCompositeConstruct", self._pair, *words)
        return self._made.operation("OpBitcast", self._base, pair)

    def place(self, base: Id, at: Value) -> Id:
        zero = self._made.module.unsigned_constant(0)
        return self._made.operation("OpAccessChain", self._element, base, zero, at.handle)

    def copy(self, source: Id, target: Id, places: Sequence[Value]) -> None:
        """Copies some fours, all of them on their way at once."""
        made = self._made
        loaded = [
            made.operation("OpLoad", self._four, self.place(source, at), "Aligned", _FOUR_BYTES)
            for at in places
        ]
        for at, four in zip(places, loaded, strict=True):
            made.instruct("OpStore", self.place(target, at), four, "Aligned", _FOUR_BYTES)


def stream() -> bytes:
    """Brings all rows of the table in order, each once its place is free.

    Subgroups do not meet behind small rows: one begins with a row while others are at the end of
    the one before, so the link does not idle between them.
    """
    buffers = [Buffer(_WORD, False), Buffer(_WORD, True, coherent=True), Buffer(_WORD, True)]
    made = ShaderBuilder("stream", buffers, ["rows", "commands", "polls"], LANES)
    shared, fours = _Shared(made, 1, 2), _Fours(made)
    lane, group = made.local_index(), made.workgroup()[0]
    place, together = made.subgroup()
    rounds = made.variable("i32")
    made.write(rounds, shared.load(group + ROUNDS))
    base = made.read(rounds) * made.dimension("commands")
    made.barrier()  # all have read what one of them will change
    at, stride = group * (FOURS * LANES) + lane, FOURS * LANES * GROUPS

    def word(row: Value, number: int) -> Value:
        zero = made.constant("u32", 0)
        return made.load(0, row * ROW_WORDS + number, None, zero).bitcast("i32")

    def bring(row: Value) -> None:
        source = fours.base(word(row, 0), word(row, 1))
        target = fours.base(word(row, 2), word(row, 3))
        count, release = word(row, 4), word(row, 5)
        polls, progress = made.dimension("polls"), made.constant("i32", PROGRESS)
        waits = place.eq(0) & release.gt(0)
        made.guarded(waits, lambda: shared.wait(progress, base + release, polls))
        made.subgroup_barrier()

        def turn(number: Value) -> None:
            here = number * stride + at
            # Behind the end the first four is copied again.
            later = [here + LANES * number for number in range(1, FOURS)]
            places = (here, *(p.lt(count).select(p, here) for p in later))
            made.guarded(here.lt(count), lambda: fours.copy(source, target, places))

        made.loop((count + (stride - 1)) / stride, turn)
        shared.fence()
        made.subgroup_barrier()
        made.guarded(place.eq(0), lambda: shared.count(row + ARRIVED, together))
        made.guarded(count.ge(LARGE_FOURS), made.barrier)

    made.loop(made.dimension("rows"), bring)
    made.guarded(lane.eq(0), lambda: shared.store(group + ROUNDS, made.read(rounds) + 1))
    return made.finish()


def gate() -> bytes:
    """Says how many commands are done, then waits for a row."""
    buffers = [Buffer(_WORD, True, coherent=True), Buffer(_WORD, True)]
    names = ["commands", "polls", "done", "row", "ends"]
    made = ShaderBuilder("gate", buffers, names, lanes=1)
    shared = _Shared(made, 0, 1)
    done, row, ends = (made.dimension(name) for name in names[2:])

    index, progress = made.constant("i32", STEPS), made.constant("i32", PROGRESS)
    steps = shared.load(index)
    value = steps * made.dimension("commands") + done
    shared.fence()
    made.guarded(done.gt(0), lambda: shared.store(progress, value))
    arrived, polls = (steps + 1) * (GROUPS * LANES), made.dimension("polls")
    made.guarded(row.ge(0), lambda: shared.wait(row + ARRIVED, arrived, polls))
    shared.fence()
    made.guarded(ends.gt(0), lambda: shared.store(index, steps + 1))
    return made.finish()


def _constant(name: str, code: bytes) -> list[str]:
    lines = textwrap.wrap(code.hex(), 92)
    return [f"{name} = bytes.fromhex(", *(f'    "{line}"' for line in lines), ")"]


def generate() -> str:
    """The module's text."""
    return "\n".join(
        [
            '"""The kernels that stream weights; written by tools/generate_vulkan_stream.py."""',
            "",
            "from __future__ import annotations",
            "",
            f"GROUPS = {GROUPS}",
            f"LANES = {LANES}",
            f"ROW_WORDS = {ROW_WORDS}",
            f"ARRIVED = {ARRIVED}",
            "",
            *_constant("STREAM", stream()),
            "",
            *_constant("GATE", gate()),
            "",
        ]
    )


if __name__ == "__main__":
    folder = Path(__file__).parent.parent / "src" / "headrace" / "runtime" / "drivers"
    (folder / "vulkan_stream_code.py").write_text(generate())
