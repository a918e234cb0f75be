"""Seed 2's pass with Target objects, and what stays of locations."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
from xdsl.dialects.arith import Arith
from xdsl.dialects.builtin import ModuleOp
from xdsl.parser import Parser

from headrace.base.errors import HeadraceDefect, HeadraceError
from headrace.hal import verify
from headrace.hal.dialect import HAL, ExecutableVariantOp
from headrace.hal.passes.materialize_interfaces import MaterializeInterfaces
from headrace.ir.context import make_context
from headrace.ir.locations import location
from headrace.ir.model import Model
from headrace.kernel.description import Kernel
from headrace.kernel.dialect import KERNEL
from headrace.stream.dialect import STREAM, ExecutableOp
from headrace.tensor.dialect import HR

TEXT = """
builtin.module {
  stream.executable private @ex {
    stream.executable.export public @entry
    builtin.module {
      func.func @entry(%0: !stream.binding) {
        kernel.execute <kernel() {
          wo y : f32[1]
          map() {
            %v0 = constant 1.0 : f32
            store %v0 to y[0]
          }
        }>() : () -> ()
        func.return
      }
    }
  }
}
"""


@dataclass(frozen=True)
class Choosy:
    """A target that takes kernels or not."""

    name: str
    takes: bool

    def accepts(self, kernel: Kernel) -> bool:
        assert kernel.operands[0].name == "y"
        return self.takes


def parsed(text: str) -> Model:
    dialects = {"stream": STREAM, "hal": HAL, "kernel": KERNEL, "hr": HR, "arith": Arith}
    context = make_context([(name, lambda d=d: d) for name, d in dialects.items()])
    return Model(Parser(context, text).parse_module(), {}, "test")


def variants(module: ModuleOp) -> list[str]:
    return [op.target.data for op in module.walk() if isinstance(op, ExecutableVariantOp)]


def test_target_objects_may_decline() -> None:
    model = parsed(TEXT)
    MaterializeInterfaces(targets=(Choosy("cpu:a", False), Choosy("cpu:b", True))).run(model)  # pyright: ignore
    assert variants(model.ir) == ["cpu:b"]
    verify.verify(model.ir)


def test_all_targets_decline() -> None:
    with pytest.raises(HeadraceError, match=r"HR2602.*tried = \[ cpu:a \]"):
        MaterializeInterfaces(targets=(Choosy("cpu:a", False),)).run(parsed(TEXT))  # pyright: ignore


def test_everything_wrong_is_listed_at_once_with_places() -> None:
    model = parsed(TEXT.replace("%0: !stream.binding", "%0: !stream.binding, %1: i8, %2: f16"))
    for op in model.ir.walk():
        op.location = location("node 'Relu_4'")
    with pytest.raises(HeadraceError) as caught:
        MaterializeInterfaces().run(model)
    assert [d.code for d in caught.value.diagnostics] == ["HR2601", "HR2603", "HR2604"]
    assert all(d.places == ("node 'Relu_4'",) for d in caught.value.diagnostics)


def test_locations_travel() -> None:
    model = parsed(TEXT)
    for op in model.ir.walk():
        op.location = location("node 'Relu_4'")
    MaterializeInterfaces(targets=("cpu",)).run(model)
    made = [op for op in model.ir.walk() if op.name.startswith("hal.")]
    assert len(made) == 7 and all(op.location == location("node 'Relu_4'") for op in made)


def test_verify_refuses_an_executable_left_over() -> None:
    model = parsed(TEXT)
    with pytest.raises(HeadraceDefect, match="HR9601"):
        verify.verify(model.ir)
    assert any(isinstance(op, ExecutableOp) for op in model.ir.ops)
