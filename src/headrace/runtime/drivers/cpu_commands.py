"""A plan as machine commands: dispatches with their argument blocks, fetches and drops.

Built once per plan and session. A step changes nothing in it but the addresses of
external buffers, which the machine's PATCH command writes.
"""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from headrace.base.errors import error
from headrace.plan.model import (
    Address,
    Plan,
    PlannedCommand,
    PlannedCopy,
    PlannedDispatch,
    PlannedFill,
    PlannedJump,
)
from headrace.runtime.drivers.cpu_chains import NO_GATE, Chain, Item
from headrace.runtime.drivers.cpu_fetches import Fetching
from headrace.runtime.drivers.cpu_machine import BuiltIn
from headrace.runtime.drivers.cpu_machine_layout import (
    COMMAND_BYTES,
    MAXIMUM_CHUNKS,
    TILE_BYTES,
    Operation,
)

_ALIGNMENT = 64
CHUNKS_PER_THREAD = 8
"""Oversplitting evens out threads that the system takes away (measured: 4 to 8)."""

INLINE_NS = 4_000
"""A dispatch predicted shorter than this runs on the calling thread: waking costs 14 us."""

CHUNK_NS = 2_000
"""No chunk is cut shorter than this where the time is known."""


@dataclass(frozen=True)
class Bases:
    """Where the symbolic spaces of a plan stand."""

    slab: int
    pool: int
    variables: tuple[int, ...]


class Memory:
    """Bytes at a fixed address, aligned 64, that the machine reads."""

    def __init__(self, data: bytes) -> None:
        self._buffer = ctypes.create_string_buffer(len(data) + _ALIGNMENT)
        start = ctypes.addressof(self._buffer)
        self.address = (start + _ALIGNMENT - 1) & -_ALIGNMENT
        ctypes.memmove(self.address, data, len(data))


def command(operation: Operation, *operands: int) -> bytes:
    """One command; operands left out are 0, negative ones wrap."""
    words = [int(operation), *(o & 0xFFFFFFFFFFFFFFFF for o in operands)]
    words += [0] * (COMMAND_BYTES // 8 - len(words))
    return struct.pack("<8Q", *words)


def chunk_count(tiles: int, threads: int, predicted_ns: int) -> int:
    """Into how many ranges a dispatch is cut; the results do not depend on it."""
    if tiles <= 1 or 0 < predicted_ns < INLINE_NS:
        return 1
    chunks = min(tiles, CHUNKS_PER_THREAD * threads, MAXIMUM_CHUNKS)
    if predicted_ns:
        chunks = min(chunks, max(threads, predicted_ns * threads // CHUNK_NS))
    return max(1, chunks)


class CommandBuilder:
    """Collects commands and argument blocks; `finish` fixes their addresses."""

    def __init__(self, bases: Bases, threads: int) -> None:
        self._bases = bases
        self.threads = threads
        self._commands: list[bytes] = []
        self._arguments = bytearray()
        # (command, offset of its argument block).
        self._blocks: list[tuple[int, int]] = []
        # (offset of the slot in the argument blocks, external index, offset).
        self._patches: list[tuple[int, int, int]] = []
        # The same for word 1 of a command.
        self._command_patches: list[tuple[int, int, int]] = []
        # (offset of a word in the argument blocks, offset of the block it points to).
        self._pointers: list[tuple[int, int]] = []
        # (command, word, planned command to go to).
        self._targets: list[tuple[int, int, int]] = []
        self._starts: list[int] = []

    def mark(self) -> None:
        """The next planned command starts here."""
        self._starts.append(len(self._commands))

    def add(self, operation: Operation, *operands: int) -> None:
        self._commands.append(command(operation, *operands))

    def jump(self, target: int) -> None:
        self._targets.append((len(self._commands), 1, target))
        self.add(Operation.JUMP)

    def branch(self, condition: Address, target: int) -> None:
        self._targets.append((len(self._commands), 2, target))
        if condition.space == "external":
            place = (len(self._commands), condition.index, condition.offset_bytes)
            self._command_patches.append(place)
            self.add(Operation.BRANCH)
        else:
            self.add(Operation.BRANCH, self._resolve(condition, 0))

    def dispatch(
        self,
        function: int,
        block: int,
        tiles: int,
        chunks: int,
        scratch: tuple[int, int],
        record: int,
    ) -> None:
        """Adds a dispatch with an argument block that `block` has made."""
        self._blocks.append((len(self._commands), block))
        self.add(Operation.DISPATCH, function, 0, tiles, chunks, scratch[0], scratch[1], record)

    def fetch(self, kernel: int, block: int, next_: int, next_bytes: int, record: int) -> None:
        """Adds work on a range of the pool, with its argument block."""
        self._blocks.append((len(self._commands), block))
        self.add(Operation.FETCH, kernel, 0, 1, 1, next_, next_bytes, record)

    def block(self, addresses: Sequence[Address], tail: bytes) -> int:
        """An argument block of addresses, then `tail`; what names it."""
        at = len(self._arguments)
        for number, address in enumerate(addresses):
            self._arguments += struct.pack("<Q", self._resolve(address, at + 8 * number))
        self._arguments += tail
        self._arguments += bytes(-len(self._arguments) % 16)
        return at

    def clear(self, block: int, size_bytes: int) -> None:
        """Adds the setting to 0 of a block."""
        self._blocks.append((len(self._commands), block))
        self.add(Operation.CLEAR, size_bytes)

    def pointing(self, head: Sequence[int], pairs: Sequence[tuple[int, int]]) -> int:
        """An argument block of words, then pairs of a word and the address of a block."""
        words = [*head, *(word for value, _ in pairs for word in (value, 0))]
        at = self.block((), struct.pack(f"<{len(words)}Q", *words))
        for number, (_, block) in enumerate(pairs):
            self._pointers.append((at + 8 * (len(head) + 2 * number + 1), block))
        return at

    def chain(self, head: Sequence[int], items: Sequence[Item], counters: int) -> int:
        """The argument block of the machine's `chain`; `counters` is a block of a word a slice."""
        at = len(self._arguments)
        words = list(head)
        for item in items:
            place = at + 8 * len(words)
            self._pointers.append((place + 8, item.block))
            if item.gate != NO_GATE:
                self._pointers.append((place + 32, counters + 8 * item.gate))
            self._pointers.append((place + 48, counters + 8 * item.slice))
            words += [item.function, 0, item.begin, item.end, 0, item.least, 0, item.amount]
        return self.block((), struct.pack(f"<{len(words)}Q", *words))

    def scratch(self, planned: PlannedDispatch) -> tuple[int, int]:
        """Address of worker 0's scratch and the stride to the next worker's."""
        if not planned.scratch_bytes:
            return 0, 0
        return self._bases.slab + planned.scratch_offset_bytes, planned.scratch_bytes

    def _resolve(self, address: Address, slot: int) -> int:
        if address.space == "slab":
            return self._bases.slab + address.offset_bytes
        if address.space == "pool":
            return self._bases.pool + address.offset_bytes
        if address.space == "variable":
            return self._bases.variables[address.index] + address.offset_bytes
        self._patches.append((slot, address.index, address.offset_bytes))
        return 0

    def finish(self) -> tuple[int, list[Memory]]:
        """The address of the first command, and the memory to keep alive."""
        arguments = Memory(bytes(self._arguments))
        for word, block in self._pointers:
            pointer = ctypes.c_uint64.from_address(arguments.address + word)
            pointer.value = arguments.address + block
        commands = self._commands
        for number, at in self._blocks:
            _set_word(commands, number, 2, arguments.address + at)
        # The planned commands may be left behind the last one.
        self._starts.append(len(commands))
        for number, word, target in self._targets:
            _set_word(commands, number, word, COMMAND_BYTES * (self._starts[target] - number))
        commands.append(command(Operation.END))
        buffer = Memory(b"".join(commands))
        patches = [(arguments.address + slot, i, o) for slot, i, o in self._patches]
        patches += [
            (buffer.address + COMMAND_BYTES * number + 8, i, o)
            for number, i, o in self._command_patches
        ]
        if not patches:
            return buffer.address, [arguments, buffer]
        # The patches run first, then jump to the step itself.
        table = Memory(b"".join(struct.pack("<QQQ", *patch) for patch in patches))
        patch = command(Operation.PATCH, table.address, len(patches))
        head = Memory(patch + bytes(COMMAND_BYTES))
        distance = buffer.address - (head.address + COMMAND_BYTES)
        jump = command(Operation.JUMP, distance)
        ctypes.memmove(head.address + COMMAND_BYTES, jump, COMMAND_BYTES)
        return head.address, [arguments, buffer, table, head]


def _set_word(commands: list[bytes], number: int, word: int, value: int) -> None:
    old = commands[number]
    packed = struct.pack("<Q", value & 0xFFFFFFFFFFFFFFFF)
    commands[number] = old[: 8 * word] + packed + old[8 * word + 8 :]


def build_step(
    plan: Plan,
    bases: Bases,
    threads: int,
    function: Callable[[int, str], int],
    kernels: BuiltIn,
    context: int,
    beside: bool = True,
) -> tuple[int, list[Memory]]:
    """Commands of one step.

    Args:
        function: the address of a symbol of an executable.
        kernels: the machine's own.
        context: address of the context of the runs.
        beside: whether weights come while launches run that do not need them yet; not
            where launches are timed.

    Returns:
        The address of the commands and the memory they live in.
    """
    builder = CommandBuilder(bases, threads)
    fetching = Fetching(builder, kernels, plan.fetches, plan.commands, bases.pool, context)
    chain: Chain | None = None
    for number, planned in enumerate(plan.commands):
        if chain is not None and not _goes_on(chain, planned, fetching):
            chain.finish()
            chain = None
        builder.mark()
        if isinstance(planned, PlannedDispatch):
            if chain is None:
                fetching.need(planned.waits)
                scratch = builder.scratch(planned)
                chain = Chain(builder, kernels, context, scratch, number)
            _add_dispatch(builder, planned, function, number, fetching, chain, beside)
            fetching.release(planned.releases)
        elif isinstance(planned, PlannedFill):
            tail = struct.pack("<Q", planned.size_bytes) + _eight_bytes(planned)
            _add_built_in(builder, kernels.fill, [planned.target], tail, planned, number)
        elif isinstance(planned, PlannedCopy):
            tail = struct.pack("<Q", planned.size_bytes)
            places = [planned.target, planned.source]
            _add_built_in(builder, kernels.copy, places, tail, planned, number)
        elif isinstance(planned, PlannedJump):
            builder.jump(planned.target)
        else:
            builder.branch(planned.condition, planned.target)
        if chain is not None and (not beside or fetching.ends(number)):
            chain.finish()
            chain = None
        if fetching.ends(number):
            fetching.drop_all()
    return builder.finish()


def _goes_on(chain: Chain, planned: PlannedCommand, fetching: Fetching) -> bool:
    """Whether a command is one more slice of the launch, and what it reads comes in time."""
    return (
        isinstance(planned, PlannedDispatch)
        and any(planned.first_workgroup)
        and fetching.has(planned.waits)
        and chain.has_room(CHUNKS_PER_THREAD * chain.threads)
    )


def _add_dispatch(
    builder: CommandBuilder,
    planned: PlannedDispatch,
    function: Callable[[int, str], int],
    number: int,
    fetching: Fetching,
    chain: Chain,
    beside: bool,
) -> None:
    x, y, z = planned.workgroups
    tiles = x * y * z
    if not tiles:
        return
    tail = struct.pack("<6I", x, y, z, *planned.first_workgroup)
    tail += struct.pack(f"<{len(planned.constants)}I", *planned.constants)
    code = function(planned.executable, planned.symbol)
    block = builder.block(planned.addresses, tail)
    chunks = chunk_count(tiles, builder.threads, planned.predicted_ns)
    shared = chunks > 1 or any(planned.first_workgroup)
    sides = fetching.beside(number) if beside and shared else []
    brought = fetching.launches(planned.waits)
    chain.add(number, code, block, tiles, chunks, sides, brought)


def _add_built_in(
    builder: CommandBuilder,
    kernel: int,
    places: Sequence[Address],
    tail: bytes,
    planned: PlannedCopy | PlannedFill,
    number: int,
) -> None:
    tiles = -(-planned.size_bytes // TILE_BYTES)
    threads = builder.threads
    # About 10 bytes per ns on one thread.
    chunks = chunk_count(tiles, threads, max(1, planned.size_bytes // 10 // threads))
    if tiles:
        builder.dispatch(kernel, builder.block(places, tail), tiles, chunks, (0, 0), number)


def _eight_bytes(fill: PlannedFill) -> bytes:
    if fill.pattern_bytes not in (1, 2, 4, 8):
        raise error("HR9302", f"a fill pattern has {fill.pattern_bytes} bytes")
    one = (fill.pattern & ((1 << 8 * fill.pattern_bytes) - 1)).to_bytes(
        fill.pattern_bytes, "little"
    )
    return one * (8 // fill.pattern_bytes)
