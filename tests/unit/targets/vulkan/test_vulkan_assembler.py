"""The assembler keeps to the grammar and the disassembler reads it back."""

import pytest

from headrace.base.errors import HeadraceDefect
from headrace.targets.vulkan.assembler import Module, instruction, string_words
from headrace.targets.vulkan.disassembler import disassemble


def test_strings_end_with_a_zero_byte() -> None:
    assert string_words("abc") == [0x00636261]
    assert string_words("abcd") == [0x64636261, 0]


def test_operands_are_checked_against_the_grammar() -> None:
    module = Module()
    one, two = module.id(), module.id()
    assert instruction("OpStore", one, two) == [3 << 16 | 62, 1, 2]
    for operands in ((one,), (one, two, one), (one, 7)):
        with pytest.raises(HeadraceDefect, match="HR9411"):
            instruction("OpStore", *operands)
    with pytest.raises(HeadraceDefect, match="HR9411"):
        instruction("OpTypeInt", one, two, 0)


def test_types_and_constants_are_made_once() -> None:
    module = Module()
    kind = module.integer(32, signed=True)
    assert module.integer(32, signed=True) == kind
    assert module.integer(32, signed=False) != kind
    assert module.unique("OpConstant", 5, type=kind) == module.unique(
        "OpConstant", 5, type=kind
    )
    assert module.capabilities == set()
    module.integer(64, signed=True)
    assert module.capabilities == {"Int64"}


def test_the_listing_names_types_and_constants() -> None:
    module = Module()
    kind = module.floating(32)
    module.unique("OpConstant", 0xBF800000, type=kind)
    module.unique("OpConstant", 0xFFFFFFFE, type=module.integer(32, signed=True))
    lines = disassemble(module.to_bytes()).splitlines()
    assert lines == [
        "; SPIR-V 1.5, bound 5",
        "%float = OpTypeFloat 32",
        "%float_n1.0 = OpConstant %float -1.0",
        "%int = OpTypeInt 32 1",
        "%int_n2 = OpConstant %int -2",
    ]
    with pytest.raises(HeadraceDefect, match="HR9412"):
        disassemble(b"ELF!1234")
