"""A readable listing of a SPIR-V module: `%12 = OpFAdd %float %10 %11`.

Types, constants and named ids read by what they are (`%float`, `%int_4`), all others by
number. For `inspect --disassemble` and dumps; it reads what our assembler writes.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence

from headrace.base.errors import error
from headrace.targets.vulkan.grammar import ENUMERANTS, EXTENDED, INSTRUCTIONS, MAGIC

_BY_OPCODE = {opcode: (name, kinds) for name, (opcode, kinds) in INSTRUCTIONS.items()}
_BY_VALUE = {
    kind: {value: (name, kinds) for name, (value, kinds) in table.items()}
    for kind, table in ENUMERANTS.items()
}
_EXTENDED_BY_NUMBER = {number: name for name, number in EXTENDED.items()}


def _string(words: Sequence[int]) -> tuple[str, int]:
    """A literal string and how many words it takes."""
    data = struct.pack(f"<{len(words)}I", *words)
    end = data.index(0)
    return data[:end].decode(), end // 4 + 1


class _Listing:
    def __init__(self) -> None:
        self.names: dict[int, str] = {}
        self.types: dict[int, tuple[str, int]] = {}
        self.lines: list[str] = []

    def name(self, number: int) -> str:
        return "%" + self.names.get(number, str(number))

    def number(self, type: int, words: Sequence[int]) -> str:
        kind, bits = self.types.get(type, ("uint", 32))
        data = struct.pack(f"<{len(words)}I", *words)
        if kind == "float":
            return repr(struct.unpack("<f" if bits == 32 else "<d", data)[0])
        return str(int.from_bytes(data, "little", signed=kind == "int"))

    def define(self, opcode: int, words: Sequence[int]) -> None:
        """Gives types, constants and named ids their readable names."""
        name = _BY_OPCODE[opcode][0] if opcode in _BY_OPCODE else ""
        if name == "OpName":
            self.names[words[0]] = _string(words[1:])[0]
        elif name in ("OpTypeInt", "OpTypeFloat"):
            kind = "float" if name == "OpTypeFloat" else ("int" if words[2] else "uint")
            self.types[words[0]] = (kind, words[1])
            self.names[words[0]] = kind if words[1] == 32 else f"{kind}{words[1]}"
        elif name in ("OpTypeVoid", "OpTypeBool"):
            self.names[words[0]] = name.removeprefix("OpType").lower()
        elif name == "OpConstant":
            text = self.number(words[0], words[2:]).replace("-", "n").replace("+", "")
            self.names[words[1]] = f"{self.name(words[0])[1:]}_{text}"
        elif name in ("OpConstantTrue", "OpConstantFalse"):
            self.names[words[1]] = name.removeprefix("OpConstant").lower()

    def instruction(self, opcode: int, words: list[int]) -> None:
        if opcode not in _BY_OPCODE:
            raise error("HR9412", f"SPIR-V opcode {opcode} is not in the grammar table")
        name, kinds = _BY_OPCODE[opcode]
        result = ""
        parts: list[str] = []
        at = 0
        for kind in kinds:
            if kind == "IdResult":
                result = f"{self.name(words[at])} = "
                at += 1
            elif kind == "LiteralContextDependentNumber":
                parts.append(self.number(words[0], words[at:]))
                at = len(words)
            elif kind.endswith("?"):
                if at < len(words):
                    at = self.operand(kind[:-1], words, at, parts)
            elif kind.endswith("*"):
                parts += [self.name(word) for word in words[at:]]
                at = len(words)
            else:
                at = self.operand(kind, words, at, parts)
        self.lines.append(" ".join([f"{result}{name}", *parts]))

    def operand(self, kind: str, words: list[int], at: int, parts: list[str]) -> int:
        if kind in _BY_VALUE:
            name, parameters = _BY_VALUE[kind][words[at]]
            parts.append(name)
            at += 1
            for parameter in parameters:
                at = self.operand(parameter, words, at, parts)
            return at
        if kind == "LiteralString":
            text, length = _string(words[at:])
            parts.append(f'"{text}"')
            return at + length
        if kind == "LiteralExtInstInteger":
            parts.append(_EXTENDED_BY_NUMBER[words[at]])
        elif kind.startswith("Id"):
            parts.append(self.name(words[at]))
        else:
            parts.append(str(words[at]))
        return at + 1


def disassemble(data: bytes) -> str:
    """The listing of a module, one instruction a line.

    Raises:
        HeadraceError HR9412: it is no module of ours.
    """
    words = struct.unpack(f"<{len(data) // 4}I", data)
    if not words or words[0] != MAGIC:
        raise error("HR9412", "these bytes are no SPIR-V module")
    version = f"{words[1] >> 16}.{words[1] >> 8 & 255}"
    listing = _Listing()
    listing.lines.append(f"; SPIR-V {version}, bound {words[3]}")
    instructions: list[tuple[int, list[int]]] = []
    at = 5
    while at < len(words):
        length, opcode = words[at] >> 16, words[at] & 0xFFFF
        instructions.append((opcode, list(words[at + 1 : at + length])))
        at += length
    for opcode, operands in instructions:
        listing.define(opcode, operands)
    for opcode, operands in instructions:
        listing.instruction(opcode, operands)
    return "\n".join(listing.lines) + "\n"
