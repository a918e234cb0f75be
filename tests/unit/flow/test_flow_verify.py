"""The table of legal operations of the flow stage, each rule broken once."""

from __future__ import annotations

import pytest

from headrace.base.errors import HeadraceError
from headrace.flow.verify import verify
from headrace.ir.passes import make_pass
from headrace.ir.text import parse_module
from headrace.pipeline import context

TEXT = """
builtin.module {
  flow.executable @ex {
    builtin.module {
      func.func @entry(%a: tensor<4xf32>) -> tensor<4xf32> attributes {hr.ordinal = 0 : i32, hr.workload = #hr.exprs<["4", "1", "1"]>} {
        %b = tensor.negate %a : (tensor<4xf32>) -> tensor<4xf32>
        func.return %b : tensor<4xf32>
      }
    }
  }
  func.func public @main(%x: tensor<2x2xf32>) -> tensor<4xf32> {
    %y = flow.tensor.reshape %x : (tensor<2x2xf32>) -> tensor<4xf32>
    %z = flow.dispatch @ex::@entry[<["4", "1", "1"]>] (%y) : (tensor<4xf32>) -> tensor<4xf32>
    func.return %z : tensor<4xf32>
  }
}
"""


def parsed(text):
    return parse_module(text, "test.mlir", context())


def test_legal():
    verify(parsed(TEXT))


BROKEN = [
    ("@ex::@entry[", "@ex::@exit[", "there is no entry point"),
    (
        "flow.tensor.reshape %x",
        "tensor.reshape %x",
        "'tensor.reshape' is not legal in a function",
    ),
    (
        "func.return %b",
        "%p = tensor.parameter @p : tensor<4xf32>\n func.return %b",
        "'tensor.parameter' is not legal in an entry point",
    ),
    ("hr.ordinal = 0 : i32, ", "", "lacks hr.ordinal"),
    ("(%a: tensor<4xf32>)", "(%c: tensor<5xf32>, %a: tensor<4xf32>)", "does not have the type"),
]


@pytest.mark.parametrize(("old", "new", "fact"), BROKEN)
def test_illegal(old, new, fact):
    assert old in TEXT
    with pytest.raises(HeadraceError, match="HR922") as caught:
        verify(parsed(TEXT.replace(old, new)))
    assert fact in str(caught.value)


def test_a_kernel_must_fit_its_operation():
    from headrace.ir.model import Model

    model = Model(parsed(TEXT), {}, "test")
    make_pass("flow-convert-to-kernels").run(model)
    verify(model.ir)
    text = str(model.ir).replace("ro in0 : f32[4]", "ro in0 : f32[5]")
    assert "f32[5]" in text
    with pytest.raises(HeadraceError, match="operand 'in0' of a kernel is no"):
        verify(parsed(text))
    text = str(model.ir).replace("negate(%v0)", "negate(%v7)")
    with pytest.raises(HeadraceError, match="not yet set"):
        verify(parsed(text))
