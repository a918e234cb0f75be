"""Kernels round-trip through text, bit for bit."""

from __future__ import annotations

import math
import struct

import kernel_examples as examples
import pytest
from xdsl.parser import Parser
from xdsl.utils.exceptions import ParseError

from headrace.ir.context import make_context
from headrace.kernel.classify import classify
from headrace.kernel.description import Constant
from headrace.kernel.dialect import KERNEL
from headrace.kernel.text import KernelTextError, parse_kernel, print_kernel


@pytest.mark.parametrize("name", sorted(examples.ALL))
def test_round_trip(name):
    text = examples.ALL[name].strip()
    kernel = parse_kernel(text)
    assert print_kernel(kernel) == text
    assert parse_kernel(print_kernel(kernel)) == kernel


def test_a_transform_is_told():
    text = examples.ALL["convolution"].strip()
    line = next(i for i in text.splitlines() if " constant w " in i)
    told = (
        line + " layout [1024 tile 16 by 1, 16, 256, 64] offset 0 size 4096 transform winograd"
    )
    changed = text.replace(line, told)
    kernel = parse_kernel(changed)
    assert [o.layout.transform for o in kernel.operands].count("winograd") == 1
    assert print_kernel(kernel) == changed


FAMILIES = {
    "softmax": "row",
    "convolution": "convolution",
    "argmax": "reduce",
    "gather": "gather",
    "variance": "row",
    "padded": "map",
    "loop": "loop",
}


@pytest.mark.parametrize("name", sorted(FAMILIES))
def test_family(name):
    assert classify(parse_kernel(examples.ALL[name])) == FAMILIES[name]


def bits(value: float) -> bytes:
    return struct.pack("<d", value)


FLOATS = [
    0.0, -0.0, 0.1, 1e300, 5e-324, math.inf, -math.inf, math.nan,
    struct.unpack("<d", b"\x01\0\0\0\0\0\xf8\xff")[0],
]  # fmt: skip


@pytest.mark.parametrize("value", FLOATS)
def test_floats_are_exact(value):
    text = examples.CONVOLUTION
    kernel = parse_kernel(text)
    body = kernel.phases[1].body
    changed = parse_kernel(
        print_kernel(kernel).replace("constant 0.0", f"constant {spelt(value, kernel)}")
    )
    constant = changed.phases[1].body[3]
    assert isinstance(constant, Constant) and isinstance(body[3], Constant)
    assert bits(constant.value) == bits(value)


def spelt(value, kernel):
    from headrace.kernel.text import print_scalar

    return print_scalar(value)


def test_an_error_says_where():
    with pytest.raises(KernelTextError, match="there is no operand 'z'") as caught:
        parse_kernel(examples.SOFTMAX.replace("to y[", "to z["))
    assert examples.SOFTMAX.replace("to y[", "to z[")[caught.value.offset] == "z"


MODULE = """
func.func @f(%a: tensor<2x3xf32>) -> tensor<2x3xf32> {{
  %0 = kernel.execute <{}>(%a) : (tensor<2x3xf32>) -> tensor<2x3xf32>
  func.return %0 : tensor<2x3xf32>
}}
"""


def test_in_a_module():
    context = make_context([("kernel", lambda: KERNEL)])
    module = Parser(context, MODULE.format(examples.PADDED)).parse_module()
    module.verify()
    assert str(Parser(context, str(module)).parse_module()) == str(module)
    with pytest.raises(ParseError, match="no operand 'z'"):
        Parser(context, MODULE.format(examples.PADDED.replace("y[", "z["))).parse_module()
