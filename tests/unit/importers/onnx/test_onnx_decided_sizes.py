"""Sizes that data decides, at every stage and compiled for the CPU, against onnxruntime."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest

import headrace
from headrace.base.errors import HeadraceError
from headrace.flow import interp as flow_interp
from headrace.hal import interp as hal_interp
from headrace.importers.onnx.reader import import_model
from headrace.pipeline import Options, compile_to
from headrace.stream import interp as stream_interp
from headrace.targets.table import target
from headrace.tensor import interp as tensor_interp

DRAW = np.random.default_rng(9)


def parsed(text: str) -> onnx.ModelProto:
    return onnx.parser.parse_model('<ir_version: 9, opset_import: ["" : 21]>\n' + text)


def sparse(*shape: int) -> Any:
    array = DRAW.standard_normal(shape).astype(np.float32)
    return np.where(array > 0.6, array, np.float32(0))


SELECTED = """
agraph (float[n, m] x) => (int64[2, k] places, float[p] kept, int64 count) {
  zero = Constant <value = float {0.0}> ()
  places = NonZero (x)
  mask = Greater (x, zero)
  flat = Constant <value = int64[1] {-1}> ()
  row = Reshape (mask, flat)
  kept0 = Compress (x, row)
  kept = Exp (kept0)
  s = Shape <start = 1, end = 2> (places)
  axis = Constant <value = int64[1] {0}> ()
  count = Squeeze (s, axis)
}
"""
UNIQUE = """
agraph (float[n] x) => (float[k] y, int64[k] first, int64[n] inverse, int64[k] counts) {
  y, first, inverse, counts = Unique <sorted = SORTED> (x)
}
"""
COMPUTED = """
agraph (float[n] x) => (int64[k] numbers, float[p] spread, float[q] part) {
  most = ReduceMax <keepdims = 0> (x)
  limit = Cast <to = 7> (most)
  zero = Constant <value = int64 {0}> ()
  one = Constant <value = int64 {1}> ()
  axis = Constant <value = int64[1] {0}> ()
  numbers = Range (zero, limit, one)
  shape = Unsqueeze (limit, axis)
  spread = Expand (most, shape)
  from0 = Constant <value = int64[1] {1}> ()
  part = Slice (x, from0, shape, axis)
}
"""
STACKED = """
agraph (float[n, m] x, int64 trips) => (float[n, m] y, float[k, m] rows) {
  yes = Constant <value = bool {1}> ()
  limit = Constant <value = float {-3.0}> ()
  y, rows = Loop (trips, yes, x) <
    body = g (int64 i, bool go, float[n, m] a) => (bool on, float[n, m] b, float[m] row) {
      one = Constant <value = float {1.0}> ()
      b = Sub (a, one)
      low = ReduceMin <keepdims = 0> (b)
      on = Greater (low, limit)
      axes = Constant <value = int64[1] {0}> ()
      row = ReduceMax <keepdims = 0> (b, axes)
    }
  >
}
"""
SUPPRESSED = """
agraph (float[n, k, 4] boxes, float[n, c, k] scores, int64[1] most) => (int64[m, 3] chosen) {
  overlap = Constant <value = float[1] {0.3}> ()
  least = Constant <value = float[1] {-0.4}> ()
  chosen = NonMaxSuppression <center_point_box = CENTER> (boxes, scores, most, overlap, least)
}
"""

RESIZED = """
agraph (float[1, 2, h, w] x, int64[2] target) => (float[1, 2, p, q] y) {
  fixed = Constant <value = int64[2] {1, 2}> ()
  sizes = Concat <axis = 0> (fixed, target)
  y = Resize <mode = "linear", coordinate_transformation_mode = "RULE"> (x, , , sizes)
}
"""


def detections(batches: int, classes: int, boxes: int, most: int) -> dict[str, Any]:
    """Boxes in clusters, in both orders of their corners; equal scores; one without area."""
    corners = DRAW.uniform(-1, 1, (batches, boxes, 4)) + DRAW.integers(
        0, 3, (batches, boxes, 1)
    )
    corners[:, 0, 2:] = corners[:, 0, :2]
    scores = np.round(DRAW.standard_normal((batches, classes, boxes)), 1)
    return {
        "boxes": corners.astype(np.float32),
        "scores": scores.astype(np.float32),
        "most": np.array([most]),
    }


DETECTED = [detections(2, 3, 40, 7), detections(1, 2, 9, 100), detections(1, 1, 5, 0)]
CASES = {
    "corners": (SUPPRESSED.replace("CENTER", "0"), DETECTED),
    "centers": (SUPPRESSED.replace("CENTER", "1"), DETECTED),
    "selected": (SELECTED, [{"x": sparse(5, 7)}, {"x": sparse(30, 40)}, {"x": np.zeros((2, 3), np.float32)}]),
    "unique": (UNIQUE.replace("SORTED", "1"), [{"x": DRAW.integers(0, 6, 20).astype(np.float32)}]),
    "unsorted": (UNIQUE.replace("SORTED", "0"), [{"x": DRAW.integers(0, 6, 20).astype(np.float32)}]),
    "computed": (COMPUTED, [{"x": np.array([1, 4, 2, 3, 0], np.float32)}, {"x": np.array([0.5, 0, 0], np.float32)}]),
    **{
        f"resized {rule}": (RESIZED.replace("RULE", rule), [
            {"x": DRAW.standard_normal((1, 2, 5, 6)).astype(np.float32), "target": np.array(target)}
            for target in ((7, 9), (3, 1), (1, 4))
        ])
        for rule in ("half_pixel", "pytorch_half_pixel", "align_corners")
    },
    "stacked": (STACKED, [
        {"x": np.ones((2, 3), np.float32), "trips": np.array(trips)} for trips in (2, 50, 0)
    ]),
}  # fmt: skip
MACHINES = {
    "input": tensor_interp,
    "tensor": tensor_interp,
    "flow": flow_interp,
    "stream": stream_interp,
    "hal": hal_interp,
}


def peer(model: onnx.ModelProto, inputs: dict[str, Any]) -> list[Any]:
    session = onnxruntime.InferenceSession(model.SerializeToString())
    return session.run(None, inputs)


def same(model: onnx.ModelProto, got: Any, wanted: list[Any]) -> None:
    for output, want in zip(model.graph.output, wanted, strict=True):
        found = np.asarray(got[output.name])
        if want.size or found.size:
            assert found.shape == want.shape
            np.testing.assert_allclose(found, want, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("phase", MACHINES)
def test_stages_agree(name: str, phase: str) -> None:
    text, inputs = CASES[name]
    model = parsed(text)
    made = compile_to(import_model(model), phase, Options((target("cpu"),)))
    (module,) = made.modules().values()
    for given in inputs[:1]:
        same(model, MACHINES[phase].run(module, given), peer(model, given))


@pytest.mark.parametrize("name", CASES)
def test_compiled(name: str, tmp_path: Path) -> None:
    text, inputs = CASES[name]
    model = parsed(text)
    path = tmp_path / "sizes.hrx"
    headrace.compile(headrace.from_onnx(model), path)
    with headrace.load(path) as module:
        assert module.functions == ("main",)
        assert [o.name for o in module.outputs] == [o.name for o in model.graph.output]
        for given in (*inputs, inputs[0]):
            same(model, module(**given), peer(model, given))
        assert "synchronisation point" in str(module.report())


def test_a_selection_has_an_upper_bound_where_sizes_are_known(tmp_path: Path) -> None:
    model = parsed(SELECTED.replace("[n, m]", "[5, 7]"))
    path = tmp_path / "sizes.hrx"
    headrace.compile(headrace.from_onnx(model), path)
    with headrace.load(path) as module:
        bounds = {d.name: (d.minimum, d.maximum) for d in module.artifact.module.dimensions}
    assert set(bounds.values()) == {(0, 35)}


@pytest.mark.parametrize("mode", ["nearest", "linear", "cubic"])
@pytest.mark.parametrize("rule", ["pytorch_half_pixel", "align_corners"])
def test_an_open_size_may_become_one(mode: str, rule: str, tmp_path: Path) -> None:
    """These rules divide by the steps between the first place and the last."""
    text = """
agraph (float[1, 1, h, w] x) => (float[1, 1, p, q] y) {
  scales = Constant <value = float[4] {1.0, 1.0, 0.5, 0.25}> ()
  y = Resize <mode = "MODE", coordinate_transformation_mode = "RULE"> (x, , scales)
}
"""
    model = parsed(text.replace("MODE", mode).replace("RULE", rule))
    path = tmp_path / "resized.hrx"
    headrace.compile(headrace.from_onnx(model), path)
    with headrace.load(path) as module:
        for size in ((2, 4), (6, 8)):
            x = DRAW.standard_normal((1, 1, *size)).astype(np.float32)
            same(model, module(x=x), peer(model, {"x": x}))


def test_a_ratio_that_is_kept_needs_sizes() -> None:
    text = RESIZED.replace("RULE", "half_pixel").replace(
        '"linear",', '"linear", keep_aspect_ratio_policy = "not_larger",'
    )
    with pytest.raises(HeadraceError, match="keep_aspect_ratio_policy"):
        headrace.from_onnx(parsed(text))


def test_a_negative_size_is_said(tmp_path: Path) -> None:
    path = tmp_path / "sizes.hrx"
    headrace.compile(headrace.from_onnx(parsed(COMPUTED)), path)
    with (
        headrace.load(path) as module,
        pytest.raises(HeadraceError, match="data gives size 'numbers_size' the value -2"),
    ):
        module(x=np.array([-2, -3], np.float32))


def test_a_size_inside_a_loop_is_refused_with_its_place() -> None:
    text = """
agraph (float[n] x, int64 trips) => (float[n] y) {
  y = Loop (trips, , x) <
    body = g (int64 i, bool go, float[n] a) => (bool on, float[n] b) {
      on = Identity (go)
      p = NonZero (a)
      f = Cast <to = 1> (p)
      s = ReduceSum <keepdims = 0> (f)
      b = Add (a, s)
    }
  >
}
"""
    with pytest.raises(HeadraceError, match="data decides a size inside a branch or loop"):
        headrace.from_onnx(parsed(text))


def test_outputs_cannot_be_given_beforehand(tmp_path: Path) -> None:
    path = tmp_path / "sizes.hrx"
    headrace.compile(headrace.from_onnx(parsed(COMPUTED)), path)
    with headrace.load(path) as module, pytest.raises(HeadraceError, match="HR4016"):
        module(x=np.ones(3, np.float32), out=[np.zeros(3, np.float32)] * 3)
