"""Portable artifacts written by hand: what is in them comes out, and what lies is refused."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from headrace.base.errors import HeadraceError
from headrace.importers import stablehlo
from headrace.importers.hlo.bytecode.byte_cursor import ByteCursor
from headrace.importers.hlo.tree import HloModule, HloTensorType

STRINGS = ["builtin", "vhlo", "module", "func_v1", "add_v1", "return_v1", "constant_v1", "main"]


def number(value: int) -> bytes:
    """A variable-width integer."""
    for length in range(1, 9):
        if value < 1 << (7 * length):
            return (((value << 1) | 1) << (length - 1)).to_bytes(length, "little")
    return b"\0" + value.to_bytes(8, "little")


def signed(value: int) -> bytes:
    return number(((value << 1) ^ (value >> 63)) & ((1 << 64) - 1))


def listed(values: Sequence[int]) -> bytes:
    return number(len(values)) + b"".join(map(number, values))


def section(which: int, data: bytes) -> bytes:
    return bytes([which]) + number(len(data)) + data


def attribute(*parts: int | bytes) -> bytes:
    return b"".join(number(p) if isinstance(p, int) else p for p in parts)


# Types: 0 f32, 1 tensor<2xf32>, 2 (1) -> 1. Attributes: 0 [], 1 the type 2, 2 "main", 3 "",
# 4 a constant, 5 an unknown place of the builtin dialect.
TYPES = [attribute(4), attribute(20, number(1) + signed(2), 0), attribute(8, 1, 1, 1, 1)]
FLOATS = np.array([1.5, -2.0], np.float32).tobytes()
ATTRIBUTES = [
    attribute(1, 0),
    attribute(17, 2),
    attribute(14, 7),
    attribute(14, 8),
    attribute(15, 1, len(FLOATS), FLOATS),
]


def operation(name: int, mask: int, *parts: bytes) -> bytes:
    return number(name) + bytes([mask]) + number(5) + b"".join(parts)


CONSTANT = operation(4, 0x42, number(1), listed([1]))
ADD = operation(2, 0x06, listed([1]), listed([0, 1]))
RETURN = operation(3, 0x04, listed([2]))


def artifact(
    body: Sequence[bytes] = (CONSTANT, ADD, RETURN),
    attributes: Sequence[bytes] = ATTRIBUTES,
    types: Sequence[bytes] = TYPES,
    values: int = 3,
    properties: Sequence[bytes] = (attribute(0, 1, 0, 2, 3), attribute(4)),
) -> bytes:
    """A file of one function over tensor<2xf32>, in format 6."""
    strings = [s.encode() + b"\0" for s in [*STRINGS, ""]]
    lengths = b"".join(number(len(s)) for s in reversed(strings))
    found = number(len(strings)) + lengths + b"".join(strings)
    dialects = number(2) + number(0) + number(1 << 1) + number(5)
    dialects += number(0) + listed([2 << 1])
    dialects += number(1) + listed([n << 1 for n in (3, 4, 5, 6)])
    place = attribute(15)
    offsets = number(len(attributes) + 1) + number(len(types))
    for dialect, entries in ((1, attributes), (0, [place]), (1, types)):
        offsets += number(dialect) + listed([(len(e) << 1) | 1 for e in entries])
    block = number((len(body) << 1) | 1) + listed([1 << 1]) + b"\0" + b"".join(body)
    region = section(4, number(1) + number(values) + block)
    function = operation(1, 0x50, number(0), number((1 << 1) | 1), region)
    inner = section(4, number(1) + number(0) + number(1 << 1) + function)
    module = number(1 << 1) + operation(0, 0x10, number((1 << 1) | 1), inner)
    return (
        b"ML\xefR" + number(6) + b"StableHLO_v1.2.0\0" + section(0, found)
        + section(1, dialects) + section(2, b"".join([*attributes, place, *types]))
        + section(3, offsets) + section(4, module)
        + section(8, number(len(properties)) + b"".join(number(len(p)) + p for p in properties))
    )  # fmt: skip


def read(data: bytes) -> HloModule:
    return stablehlo.read_tree(data, "a.mlirbc")


@pytest.mark.parametrize("value", [0, 1, 127, 128, 1 << 14, (1 << 35) - 1, 1 << 56, (1 << 64) - 1])  # fmt: skip
def test_integers_of_every_width(value: int) -> None:
    cursor = ByteCursor(memoryview(number(value)), "a")
    assert (cursor.varint(), cursor.left) == (value, 0)


@pytest.mark.parametrize("value", [0, -1, 1, -300, (1 << 63) - 1, -(1 << 63)])
def test_signed_integers(value: int) -> None:
    assert ByteCursor(memoryview(signed(value)), "a").signed() == value


def test_a_function_with_its_constant() -> None:
    (function,) = read(artifact()).functions
    assert (function.name, function.public) == ("main", True)
    constant, add, end = function.body.operations
    kind = function.result_types[0]
    assert isinstance(kind, HloTensorType) and str(kind) == "tensor<2xf32>"
    assert [op.name for op in (constant, add, end)] == [
        "stablehlo.constant", "stablehlo.add", "func.return",
    ]  # fmt: skip
    np.testing.assert_array_equal(constant.attributes["value"], [1.5, -2.0])
    assert add.operands == ["%0", "%1"] and end.operands == add.results
    assert add.place.startswith("byte ")


def test_every_part_of_a_file_is_refused_as_a_whole() -> None:
    whole = artifact()
    for length in range(4, len(whole)):
        with pytest.raises(HeadraceError, match="HR1001"):
            read(whole[:length])


@pytest.mark.parametrize(
    ("data", "fact"),
    [
        (artifact(values=1), "more values than it says"),
        (artifact(values=1 << 40), "do not fit"),
        (artifact([ADD, CONSTANT, RETURN]), "not defined yet"),
        (artifact([operation(9, 0), RETURN]), "no operation 9"),
        (artifact([operation(2, 0x08), RETURN]), "successors"),
        (artifact([operation(4, 0x42, number(7), listed([1])), RETURN]), "no properties 7"),
        (artifact(properties=[attribute(0, 1, 0, 2, 3), attribute(4, 4)]), "not known"),
        (artifact(properties=[attribute(0, 1, 0, 2, 3), attribute(99)]), "no attribute 99"),
        (artifact(properties=[attribute(0, 0, 0, 2, 3), attribute(4)]), "without a name or"),
        (artifact(attributes=[*ATTRIBUTES[:4], attribute(15, 1, 4, FLOATS[:4] + b"x")]), "left"),
        (artifact(attributes=[*ATTRIBUTES[:4], attribute(15, 1, 3, FLOATS[:3])]), "no whole"),
        (artifact(attributes=[*ATTRIBUTES[:4], attribute(15, 1, 12, FLOATS * 2)[:15]]), "hold"),
        (artifact(attributes=[*ATTRIBUTES[:4], attribute(98)]), "attributes of code 98"),
        (artifact(attributes=[*ATTRIBUTES[:4], attribute(3, 9)]), "no value of the enum"),
        (artifact(types=[attribute(97), *TYPES[1:]]), "types of code 97"),
        (artifact(types=[attribute(1, 0), *TYPES[1:]]), "deep"),
        (artifact(types=[TYPES[0], attribute(20, 1, signed(-5), 0), TYPES[2]]), "sizes"),
        (artifact(types=[TYPES[0], attribute(20, 1 << 30), TYPES[2]]), "do not fit"),
        (b"ML\xefR" + number(7), "bytecode of version 7"),
        (b"ML\xefR", "too early"),
    ],
)  # fmt: skip
def test_what_lies_is_refused_with_its_byte(data: bytes, fact: str) -> None:
    with pytest.raises(HeadraceError, match="HR1001") as refused:
        read(data)
    assert fact in str(refused.value) and "a.mlirbc: byte" in str(refused.value)


def test_entries_that_unfold_without_end_are_refused() -> None:
    """Each tuple names the one before it twice: 2 to the power of 40 parts in 200 bytes."""
    doubled = [attribute(23, 2, 3 + n - 1, 3 + n - 1) for n in range(1, 41)]
    types = [TYPES[0], TYPES[1], attribute(8, 1, 43, 1, 43), attribute(23, 2, 1, 1), *doubled]
    with pytest.raises(HeadraceError, match=r"unfolds to more than|deep"):
        read(artifact(types=types))


def test_regions_have_a_deepest() -> None:
    inner = RETURN
    for _ in range(100):
        inner = operation(
            2, 0x10, number(1 << 1), number(1) + number(0) + number(1 << 1), inner
        )
    with pytest.raises(HeadraceError, match="regions stand 64 deep"):
        read(artifact([inner]))


def test_changed_bytes_are_read_or_refused() -> None:
    whole = artifact()
    random = np.random.default_rng(5)
    for _ in range(2000):
        data = bytearray(whole)
        for place in random.integers(4, len(whole), random.integers(1, 4)):
            data[place] = random.integers(256)
        try:
            read(bytes(data))
        except HeadraceError as refused:
            assert refused.diagnostics[0].code in ("HR1001", "HR1003", "HR1101", "HR1102")


def test_other_bytecode_needs_jaxlib(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("headrace.importers.hlo.mlir_service.is_installed", lambda: False)
    data = artifact().replace(b"vhlo\0", b"shlo\0")
    with pytest.raises(HeadraceError, match="HR1003"):
        read(data)
