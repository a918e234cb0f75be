"""A SPIR-V binary assembler, driven by the grammar table.

A `Module` keeps the sections of the logical layout apart and joins them at the end;
types and constants are made once each. Operands are ids (`Id`), integers, strings or the
names of enumerants, as the grammar says for each instruction.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from itertools import chain
from typing import Union

from headrace.base.errors import error
from headrace.targets.vulkan.grammar import ENUMERANTS, EXTENDED, INSTRUCTIONS, MAGIC

VERSION_1_5 = 0x00010500
SECTIONS = (
    "capabilities", "extensions", "imports", "memory_model", "entry_points", "modes", "names",
    "decorations", "globals", "functions",
)  # fmt: skip


class Id(int):
    """The result of an instruction."""

    __slots__ = ()


Operand = Union[Id, int, str]


def string_words(text: str) -> list[int]:
    """UTF-8 with a zero byte, padded to words."""
    data = text.encode() + b"\0"
    data += b"\0" * (-len(data) % 4)
    return list(struct.unpack(f"<{len(data) // 4}I", data))


def _encode(kind: str, operands: Iterator[Operand], words: list[int]) -> None:
    operand = next(operands)
    if kind in ENUMERANTS:
        found = ENUMERANTS[kind].get(str(operand))
        if found is None:
            raise error("HR9411", f"SPIR-V has no {kind} {operand!r}, or one operand too many")
        value, parameters = found
        words.append(value)
        for parameter in parameters:
            _encode(parameter, operands, words)
    elif kind == "LiteralString":
        words += string_words(str(operand))
    elif kind.startswith("Id") != isinstance(operand, Id) or isinstance(operand, str):
        raise error("HR9411", f"a SPIR-V operand of kind {kind} is {operand!r}")
    else:
        words.append(int(operand) & 0xFFFFFFFF)


def instruction(name: str, *operands: Operand) -> list[int]:
    """The words of one instruction.

    Raises:
        HeadraceError HR9411: the operands are not what the grammar says.
    """
    opcode, kinds = INSTRUCTIONS[name]
    words: list[int] = []
    rest = iter(operands)
    try:
        for kind in kinds:
            if kind == "LiteralContextDependentNumber":
                words += [int(word) & 0xFFFFFFFF for word in rest]
            elif kind.endswith("?"):
                for operand in rest:
                    _encode(kind[:-1], chain((operand,), rest), words)
            elif kind.endswith("*"):
                for operand in rest:
                    single = kind[:-1]
                    if single == "IdRef" and not isinstance(operand, Id):
                        raise error("HR9411", f"{name}: {operand!r} is no id")
                    words.append(int(operand))
            else:
                _encode(kind, rest, words)
    except StopIteration:
        raise error("HR9411", f"{name} has too few operands") from None
    if next(rest, None) is not None:
        raise error("HR9411", f"{name} has too many operands")
    return [(len(words) + 1) << 16 | opcode, *words]


class Module:
    """A SPIR-V 1.5 module under construction.

    Attributes:
        addressing_model: `Logical`, or `PhysicalStorageBuffer64` where addresses are used.
        memory_model: `GLSL450`, or `Vulkan` where a capability demands it.
    """

    def __init__(self) -> None:
        self.sections: dict[str, list[int]] = {section: [] for section in SECTIONS}
        self.capabilities: set[str] = set()
        self._bound = 1
        self._unique: dict[tuple[str, Id | None, tuple[Operand, ...]], Id] = {}
        self._extended: Id | None = None
        self.addressing_model = "Logical"
        self.memory_model = "GLSL450"

    def id(self) -> Id:
        """A new id."""
        self._bound += 1
        return Id(self._bound - 1)

    def emit(self, section: str, name: str, *operands: Operand) -> None:
        self.sections[section] += instruction(name, *operands)

    def capability(self, name: str) -> None:
        if name not in self.capabilities:
            self.capabilities.add(name)
            self.emit("capabilities", "OpCapability", name)

    def extension(self, name: str) -> None:
        self.emit("extensions", "OpExtension", name)

    def extended(self, name: str) -> tuple[Id, int]:
        """The import of GLSL.std.450 and an instruction's number in it."""
        if self._extended is None:
            self._extended = self.id()
            self.emit("imports", "OpExtInstImport", self._extended, "GLSL.std.450")
        return self._extended, EXTENDED[name]

    def unique(self, name: str, *operands: Operand, type: Id | None = None) -> Id:
        """A type or (with `type`) a constant, made on first use."""
        key = (name, type, operands)
        found = self._unique.get(key)
        if found is None:
            found = self.id()
            head = (found,) if type is None else (type, found)
            self.emit("globals", name, *head, *operands)
            self._unique[key] = found
        return found

    def integer(self, bits: int, signed: bool) -> Id:
        if bits == 64:
            self.capability("Int64")
        return self.unique("OpTypeInt", bits, int(signed))

    def floating(self, bits: int) -> Id:
        if bits == 64:
            self.capability("Float64")
        return self.unique("OpTypeFloat", bits)

    def pointer(self, storage: str, type: Id) -> Id:
        return self.unique("OpTypePointer", storage, type)

    def unsigned_constant(self, value: int) -> Id:
        return self.unique("OpConstant", value, type=self.integer(32, signed=False))

    def decorate(self, target: Id, *operands: Operand) -> None:
        self.emit("decorations", "OpDecorate", target, *operands)

    def to_bytes(self) -> bytes:
        words = [MAGIC, VERSION_1_5, 0, self._bound, 0]
        for section in SECTIONS:
            words += self.sections[section]
        return struct.pack(f"<{len(words)}I", *words)
