"""Which SPIR-V instruction a primitive of a lane machine is."""

from __future__ import annotations

import struct

from headrace.kernel.lanes.machine import MachineType

ARITHMETIC = {
    "add": ("OpIAdd", "OpIAdd", "OpFAdd"),
    "sub": ("OpISub", "OpISub", "OpFSub"),
    "mul": ("OpIMul", "OpIMul", "OpFMul"),
    "div": ("OpSDiv", "OpUDiv", "OpFDiv"),
    "rem": ("OpSRem", "OpUMod", ""),
    "neg": ("OpSNegate", "OpSNegate", "OpFNegate"),
    "and": ("OpBitwiseAnd", "OpBitwiseAnd", ""),
    "or": ("OpBitwiseOr", "OpBitwiseOr", ""),
    "xor": ("OpBitwiseXor", "OpBitwiseXor", ""),
    "not": ("OpNot", "OpNot", ""),
    "shl": ("OpShiftLeftLogical", "OpShiftLeftLogical", ""),
    "shr": ("OpShiftRightArithmetic", "OpShiftRightLogical", ""),
    "eq": ("OpIEqual", "OpIEqual", "OpFOrdEqual"),
    "ne": ("OpINotEqual", "OpINotEqual", "OpFUnordNotEqual"),
    "lt": ("OpSLessThan", "OpULessThan", "OpFOrdLessThan"),
    "le": ("OpSLessThanEqual", "OpULessThanEqual", "OpFOrdLessThanEqual"),
    "gt": ("OpSGreaterThan", "OpUGreaterThan", "OpFOrdGreaterThan"),
    "ge": ("OpSGreaterThanEqual", "OpUGreaterThanEqual", "OpFOrdGreaterThanEqual"),
}
"""Opcodes for signed, unsigned and float operands."""
LOGICAL = {
    "and": "OpLogicalAnd",
    "or": "OpLogicalOr",
    "xor": "OpLogicalNotEqual",
    "not": "OpLogicalNot",
    "eq": "OpLogicalEqual",
    "ne": "OpLogicalNotEqual",
}
CONTRACTIBLE = frozenset(("OpFAdd", "OpFSub", "OpFMul", "OpFDiv", "OpFNegate"))


def float_words(type: MachineType, value: float) -> tuple[int, ...]:
    """The words of a float constant; beyond `f32` it is infinite."""
    if type == "f64":
        return struct.unpack("<2I", struct.pack("<d", value))
    try:
        data = struct.pack("<f", value)
    except OverflowError:
        data = struct.pack("<f", float("inf") if value > 0 else float("-inf"))
    return struct.unpack("<I", data)
