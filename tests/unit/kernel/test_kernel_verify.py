"""Each rule of a well-formed kernel, broken once."""

from __future__ import annotations

import kernel_examples as examples
import pytest

from headrace.base.errors import HeadraceError
from headrace.kernel.text import parse_kernel
from headrace.kernel.verify import problems_of, verify_kernel


@pytest.mark.parametrize("name", sorted(examples.ALL))
def test_examples_are_well_formed(name):
    assert problems_of(parse_kernel(examples.ALL[name])) == []


BROKEN = [
    ("softmax", "dims(batch) ", "", "no named dimension"),
    ("softmax", "local s : f32", "local s : f64", "of another type"),
    ("softmax", "%v2 = read m[]", "%v2 = read s[]", "before a phase has set it"),
    ("softmax", "from -inf", "from 3", "is 3, no f32"),
    ("softmax", "subtract(%v1, %v2)", "subtract(%v1, %v9)", "not yet set"),
    ("softmax", "subtract(%v1, %v2)", "subtract(%v1)", "1 operands, not 2"),
    ("softmax", "exponential(%v3) : f32", "exponential(%v3) : f64", "takes f32 and gives f64"),
    ("softmax", "exponential(%v3)", "exponent(%v3)", "no such operation"),
    ("softmax", "load x[%d0, %r0]", "load x[%d0, %r1]", "unknown there"),
    ("softmax", "load x[%d0, %r0]", "load x[%d0]", "with 1 indices"),
    ("softmax", "load x[%d0, %r0]", "load y[%d0, %r0]", "before a phase has written it"),
    ("softmax", "store %v10 to y[%d0, %d1]", "store %v10 to x[%d0, %d1]", "read-only"),
    ("softmax", "store %v10 to y[%d0, %d1]", "store %v10 to y[%d0, 0]", "once for each %d1"),
    ("softmax", "map(%d1 = 10)", "map(%d0 = 10)", "two axes named '%d0'"),
    ("softmax", "local s : f32\n", "local s : f32\n  local s : f32\n", "named 's'"),
    ("convolution", "map() {\n    %v3", "map(%d4 = 2) {\n    %v3", "once for each %d4"),
    ("convolution", " otherwise 0.0", "", "must say what it loads outside"),
    ("convolution", "otherwise 0.0", "otherwise 0", "no f32"),
    ("convolution", "%d3 = 6", "%d3 = 5", "elements of 'y' are written"),
    ("argmax", "GE(", "GT_(", "has attribute 'GT_'"),
    ("argmax", "from -inf, 0", "from -inf", "unequal numbers"),
    ("loop", "kernel()", "kernel(%d9 = 1)", "has an outer domain"),
    ("loop", "rw goes_on : i1[]", "rw goes_on : i32[]", "no i1 scalar"),
    ("loop", "while goes_on", "while n", "no i1 scalar"),
    ("loop", "at_most 4", "at_most 0", "has no trips"),
    ("nested", "while more", "while even", "before a phase has written it"),
    ("nested", "store %v7 to even[]", "store %v7 to more[]", "never writes 'even'"),
    ("argmax", "select(%c0, %a0, %b0)", "select(%a0, %a0, %b0)", "by f32, not i1"),
]


@pytest.mark.parametrize(("name", "old", "new", "fact"), BROKEN)
def test_a_broken_rule_is_told(name, old, new, fact):
    text = examples.ALL[name]
    assert old in text
    with pytest.raises(HeadraceError) as caught:
        verify_kernel(parse_kernel(text.replace(old, new, 1)), ["node 'n'"])
    assert fact in str(caught.value)
    assert "node 'n'" in str(caught.value)
