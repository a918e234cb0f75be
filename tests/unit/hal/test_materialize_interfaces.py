"""Seed 2's pass with Target objects, and what stays of locations."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
from xdsl.dialects.arith import Arith
from xdsl.dialects.builtin import ModuleOp, StringAttr
from xdsl.dialects.func import FuncOp
from xdsl.parser import Parser

from headrace.base.errors import HeadraceDefect, HeadraceError
from headrace.hal import verify
from headrace.hal.dialect import HAL, ExecutableVariantOp
from headrace.hal.interfaces import InterfaceBindingSubspanOp
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


ASKING = """
builtin.module {
  stream.executable private @ex {
    stream.executable.export public @entry workgroup_size [8, 1, 1]
    builtin.module {
      func.func private @helper() -> index {
        %s = stream.dispatch.workgroup.size[0] : index
        func.return %s : index
      }
      func.func @entry(%o: index {stream.alignment = 4 : index}, %0: !stream.binding) {
        %x = stream.binding.subspan %0[%o] {note = "kept"} : !stream.binding -> memref<4xf32>
        %i = stream.dispatch.workgroup.id[0] : index
        %s = stream.dispatch.workgroup.size[0] : index
        func.return
      }
    }
  }
}
"""


@dataclass(frozen=True)
class Choosy:
    """A target that takes only kernels whose result has a name of these."""

    name: str
    takes: str

    def accepts(self, kernel: Kernel) -> bool:
        return kernel.operands[0].name in self.takes


def parsed(text: str) -> Model:
    dialects = {"stream": STREAM, "hal": HAL, "kernel": KERNEL, "hr": HR, "arith": Arith}
    context = make_context([(name, lambda d=d: d) for name, d in dialects.items()])
    return Model(Parser(context, text).parse_module(), {}, "test")


def variants(module: ModuleOp) -> list[str]:
    return [op.target.data for op in module.walk() if isinstance(op, ExecutableVariantOp)]


def test_target_objects_may_decline() -> None:
    model = parsed(TEXT)
    MaterializeInterfaces(targets=(Choosy("cpu:a", "x"), Choosy("cpu:b", "y"))).run(model)  # pyright: ignore
    assert variants(model.ir) == ["cpu:b"]
    verify.verify(model.ir)


def test_a_target_takes_an_executable_whole_or_not_at_all() -> None:
    execute = TEXT[TEXT.index("        kernel.execute") : TEXT.index("        func.return")]
    both = execute + execute.replace("wo y", "wo z").replace("to y", "to z")
    model = parsed(TEXT.replace(execute, both))
    targets = (Choosy("cpu:a", "y"), Choosy("cpu:b", "z"), Choosy("cpu:c", "yz"))
    MaterializeInterfaces(targets=targets).run(model)  # pyright: ignore
    assert variants(model.ir) == ["cpu:c"]


def test_all_targets_decline() -> None:
    with pytest.raises(HeadraceError, match=r"HR2602.*tried = \[ cpu:a \]"):
        MaterializeInterfaces(targets=(Choosy("cpu:a", "x"),)).run(parsed(TEXT))  # pyright: ignore


def test_everything_wrong_is_listed_at_once_with_places() -> None:
    model = parsed(TEXT.replace("%0: !stream.binding", "%0: !stream.binding, %1: i8, %2: f16"))
    for op in model.ir.walk():
        op.location = location("node 'Relu_4'")
    with pytest.raises(HeadraceError) as caught:
        MaterializeInterfaces().run(model)
    assert [d.code for d in caught.value.diagnostics] == ["HR2601", "HR2603", "HR2604"]
    assert all(d.places == ("node 'Relu_4'",) for d in caught.value.diagnostics)


def test_locations_travel() -> None:
    model = parsed(ASKING)
    for op in model.ir.walk():
        op.location = location("node 'Relu_4'")
    MaterializeInterfaces(targets=("cpu",)).run(model)
    made = list(model.ir.walk())
    assert len(made) == 18 and all(op.location == location("node 'Relu_4'") for op in made)


def test_no_attribute_of_an_argument_outlives_it() -> None:
    model = parsed(ASKING)
    MaterializeInterfaces(targets=("cpu",)).run(model)
    functions = [op for op in model.ir.walk() if isinstance(op, FuncOp)]
    assert [f.sym_name.data for f in functions] == ["helper", "entry"]
    assert all(f.arg_attrs is None for f in functions)


def test_attributes_of_a_view_travel() -> None:
    model = parsed(ASKING)
    MaterializeInterfaces(targets=("cpu",)).run(model)
    (view,) = (op for op in model.ir.walk() if isinstance(op, InterfaceBindingSubspanOp))
    assert view.attributes["note"] == StringAttr("kept")


def test_verify_refuses_an_executable_left_over() -> None:
    model = parsed(TEXT)
    with pytest.raises(HeadraceDefect, match="HR9601"):
        verify.verify(model.ir)
    assert any(isinstance(op, ExecutableOp) for op in model.ir.ops)
