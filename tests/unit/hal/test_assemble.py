"""From materialised modules to what a `.hrx` says, and to an answer."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from stream_texts import STREAM_PASSES, TWO_LAYERS, parsed, passed, two_layers_reference

import headrace
from headrace.artifact import schema
from headrace.artifact.check import check_module
from headrace.artifact.writer import write_artifact
from headrace.assemble import assemble
from headrace.assemble.facts import gathered_row_bytes, operation_count
from headrace.base.errors import HeadraceDefect
from headrace.base.symbols import as_expr
from headrace.ir.model import Model
from headrace.kernel.description import Kernel
from headrace.kernel.target import Code, Launch, SliceRule, Specialisation
from headrace.kernel.text import parse_kernel
from headrace.targets.table import target
from headrace.tensor.interp import evaluate_source
from headrace.translation import tasks_of, translate

PROVENANCE = schema.Provenance("test", "test.mlir", "", ("cpu",), ())


class Fake:
    """A target whose code is the kernel's number; slices weights where told to."""

    device_class = "cpu"

    def __init__(self, name: str, steps: list[int]) -> None:
        self.name = name
        self.steps = steps

    def code(self, number: int) -> Code:
        step = self.steps[number]
        rule = SliceRule(1, 0, as_expr(step)) if step else None
        launch = Launch(f"f{number}", (as_expr("n"), as_expr(1), as_expr(1)), slice=rule)
        return Code("fake", b"code%d" % number, (Specialisation((), (launch,)),), ("avx2",))


def materialised(text: str = TWO_LAYERS, targets: str = "a,b") -> Model:
    return passed(
        parsed(text), *STREAM_PASSES, f"hal-materialize-interfaces{{targets={targets}}}"
    )


def built(steps: list[int], other_steps: list[int]):
    fakes = [Fake("a", steps), Fake("b", other_steps)]
    names = ["product", "sum", "sum_in_place"]
    codes = [(name, fake, fake.code(n)) for n, name in enumerate(names) for fake in fakes]
    return assemble({"cpu": materialised()}, codes, "m", {"n": (1, 8)}, PROVENANCE)  # pyright: ignore


def test_program() -> None:
    parts, weights = built([0, 0, 0], [0, 0, 0])
    (program,) = parts.programs
    (function,) = program.functions
    assert [s.name for s in function.inputs] == ["x"]
    assert [(s.name, [str(e) for e in s.shape]) for s in function.outputs] == [
        ("y", ["n", "4"]),
        ("flat", ["4*n"]),
        ("x_too", ["n", "4"]),
    ]
    lifetimes = [r.lifetime for r in function.resources]
    assert lifetimes.count("external") == 4 and lifetimes.count("constant") == 1
    kinds = [type(c).__name__ for c in function.body.commands]
    assert kinds == ["Dispatch"] * 4 + ["Copy"] * 2
    third = function.body.commands[2]
    assert isinstance(third, schema.Dispatch)
    assert [b.access for b in third.bindings] == ["ro", "rw"]
    assert [str(c) for c in third.constants] == ["n"]
    assert str(third.operations) == "4*n"
    entries = [e.entry_points[0] for e in program.executables]
    assert [(e.bindings, e.push_constants) for e in entries] == [
        (("ro", "ro", "wo"), 1),
        (("ro", "ro", "wo"), 1),
        (("ro", "rw"), 1),
    ]
    assert [v.target for v in program.executables[0].variants] == ["a", "b"]
    assert len({e.digest for e in program.executables}) == 3
    assert len(parts.code) == 3  # both targets gave the same bytes
    assert parts.dimensions == (schema.DimensionRange("n", 1, 8),)
    assert [(w.name, w.size_bytes, w.step_bytes) for w in weights] == [("w", 64, 0)]
    weight = schema.Weight("w", 0, 64, "", weights[0].dtype, weights[0].shape)
    segment = schema.Segment(0, 4096, "")
    module = schema.Module(
        "m", parts.dimensions, parts.programs, (weight,), (segment,), PROVENANCE
    )
    assert check_module(module, 4096, 3) == []


@pytest.mark.parametrize(
    ("one", "other", "step"),
    [(16, 16, 16), (16, 32, 32), (8, 12, 24), (16, 0, 0), (64, 64, 0)],
)
def test_a_weight_is_cut_where_every_variant_may(one: int, other: int, step: int) -> None:
    _, weights = built([one, 0, 0], [other, 0, 0])
    assert weights[0].step_bytes == step


def test_missing_code_is_a_defect() -> None:
    with pytest.raises(HeadraceDefect, match="HR9701"):
        assemble({"cpu": materialised()}, [], "m", {}, PROVENANCE)


def test_written_loaded_and_run(tmp_path: Path) -> None:
    cpu = target("cpu")
    model = materialised(targets=cpu.name)
    tasks = tasks_of(model.ir, [cpu])
    codes = translate(tasks, [cpu], jobs=1)
    parts, weights = assemble(
        {"cpu": model},
        [(t.executable, cpu, c) for t, c in zip(tasks, codes, strict=True)],
        "two_layers",
        {},
        PROVENANCE,
    )
    write_artifact(tmp_path / "m.hrx", parts, weights, evaluate_source)
    with headrace.load(tmp_path / "m.hrx") as module:
        for n in (1, 5):
            x = np.random.default_rng(n).standard_normal((n, 4)).astype(np.float32)
            got = module(x=x)
            for name, wanted in two_layers_reference(model, x).items():
                np.testing.assert_allclose(got[name], wanted, rtol=1e-5, atol=1e-5)


CONTROL = """
builtin.module {
  func.func private @inner(%a: !stream.resource<external> {stream.size = #hr.exprs<["4"]>}, %b: !stream.resource<external> {stream.size = #hr.exprs<["4"]>}) {
    %t = stream.resource.alloc "t" : !stream.resource<transient>{64}
    stream.cmd.copy %a[0], %t[0], 4 : !stream.resource<external> -> !stream.resource<transient>
    stream.cmd.copy %t[0], %b[0], 4 : !stream.resource<transient> -> !stream.resource<external>
    func.return
  }
  func.func @main(%x: !stream.resource<external> {stream.io = "input", hr.name = "x", hr.type = tensor<4xi8>, stream.size = #hr.exprs<["4"]>}, %y: !stream.resource<external> {stream.io = "output", hr.name = "y", hr.type = tensor<4xi8>, stream.size = #hr.exprs<["4"]>}) {
    stream.cmd.if %x : !stream.resource<external> {
      stream.cmd.call @inner(%x, %y : !stream.resource<external>, !stream.resource<external>)
    } else {
      stream.cmd.fill %y[0 for 4] -2 : i8, !stream.resource<external>
    }
    stream.cmd.loop {
    } while %x : !stream.resource<external> trip_count 3 {
      stream.cmd.fill %x[0 for 1] 0 : i8, !stream.resource<external>
    }
    func.return
  }
}
"""


def test_branches_loops_and_calls() -> None:
    parts, _ = assemble({"cpu": parsed(CONTROL)}, [], "m", {}, PROVENANCE)
    inner, main = parts.programs[0].functions
    branch, loop = main.body.commands
    assert isinstance(branch, schema.If) and isinstance(loop, schema.Loop)
    (call,) = branch.then.commands
    assert call == schema.Call(0, (0, 1, 2))  # the callee's transient is the caller's third
    assert [r.name for r in main.resources] == ["x", "y", "t"]
    assert len(call.resources) == len(inner.resources)  # pyright: ignore
    (fill,) = branch.otherwise.commands
    assert fill == schema.Fill(1, as_expr(0), as_expr(4), 254, 1)
    assert loop.trip_count == as_expr(3)


GATHER = """kernel(%d0 = 5, %d1 = 8) {
  ro ids : i64[5]
  ro constant table : f32[100, 8]
  wo y : f32[5, 8]
  map() {
    %v0 = load ids[%d0]
    %v1 = load table[INDEX, %d1]
    store %v1 to y[%d0, %d1]
  }
}"""


@pytest.mark.parametrize(
    ("index", "layout", "row"),
    [("%v0", "", 32), ("%d0", "", 0), ("%v0", " layout [1, 100] offset 0 size 800", 0)],
)
def test_rows_of_tables(index: str, layout: str, row: int) -> None:
    text = GATHER.replace("INDEX", index).replace("f32[100, 8]", "f32[100, 8]" + layout)
    kernel: Kernel = parse_kernel(text)
    assert gathered_row_bytes(kernel, 1) == row
    assert gathered_row_bytes(kernel, 0) == 0
    assert operation_count(kernel).value == 40
