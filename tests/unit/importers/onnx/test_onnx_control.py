"""If, Loop and Scan whose trips and conditions only data decides, against onnxruntime."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx_graphs import check_on_cpu

import headrace
from headrace import api
from headrace.base.errors import HeadraceError
from headrace.importers.onnx.reader import import_model

X = np.random.default_rng(5).standard_normal((40, 6)).astype(np.float32)
BIG = np.random.default_rng(6).standard_normal((40, 40)).astype(np.float32) / 8


def parsed(text: str) -> onnx.ModelProto:
    model = onnx.parser.parse_model('<ir_version: 9, opset_import: ["" : 21]>\n' + text)
    onnx.checker.check_model(model, full_check=True)
    return model


def operations(model: onnx.ModelProto, name: str) -> int:
    return sum(op.name == name for op in import_model(model).ir.walk())


def copies_in_loops(model: onnx.ModelProto) -> list[str]:
    """Copies that each trip makes, of all loops."""
    loops = api.compile_to_text(import_model(model), "stream").split("stream.cmd.loop")[1:]
    bodies = [loop.partition("} while")[2].partition("\n    }\n")[0] for loop in loops]
    assert all("stream.cmd.dispatch" in body for body in bodies)
    lines = [line for body in bodies for line in body.splitlines()]
    return [line for line in lines if "stream.cmd.copy" in line]


BRANCH = """
agraph (float[n, n] x, bool c) => (float[n, n] y) {
  y = If (c) <
    then_branch = g () => (float[n, n] t) { a = MatMul (x, x)  t = Add (a, x) },
    else_branch = h () => (float[n, n] u) {
      axes = Constant <value = int64[1] {0}> ()
      s = ReduceSum (x, axes)
      u = Mul (x, s) }
  >
}
"""


@pytest.mark.parametrize("condition", [False, True])
def test_a_branch_that_data_takes(condition: bool, tmp_path: Path) -> None:
    model = parsed(BRANCH)
    assert operations(model, "tensor.if") == 1
    check_on_cpu(model, {"x": BIG, "c": np.array(condition)}, tmp_path, tolerance=1e-4)


EACH_ITS_SIZE = """
agraph (float[n, m] x, bool c) => (float[n] y) {
  axis = Constant <value = int64[1] {1}> ()
  four = Constant <value = int64[1] {4}> ()
  nine = Constant <value = int64[1] {9}> ()
  last = Constant <value = int64[1] {100}> ()
  y = If (c) <
    then_branch = g () => (float[n] t) {
      a = Slice (x, four, last, axis)  b = Squeeze (a, axis)  t = Exp (b) },
    else_branch = h () => (float[n] u) {
      d = Slice (x, nine, last, axis)  e = Squeeze (d, axis)  f = Cos (e)  g1 = Sin (f)
      h1 = Cos (g1)  i1 = Sin (h1)  j1 = Cos (i1)  k1 = Sin (j1)  l1 = Cos (k1)  u = Neg (l1) }
  >
}
"""


def test_bounds_that_a_branch_implies_hold_in_that_branch(tmp_path: Path) -> None:
    """A squeeze wants size 1: the branches want 5 and 10 columns; silero_vad is of this kind."""
    model = onnx.parser.parse_model(
        '<ir_version: 9, opset_import: ["" : 21]>\n' + EACH_ITS_SIZE
    )
    assert import_model(model).dimension_ranges["m"] == (5, 10)
    x = np.arange(20, dtype=np.float32).reshape(2, 10)
    path = tmp_path / "branches.hrx"
    headrace.compile(headrace.from_onnx(model), path)
    with headrace.load(path) as module:
        (y,) = module(x=x[:, :5].copy(), c=np.array(True))
        np.testing.assert_allclose(y, np.exp(x[:, 4]), rtol=1e-5)
        (z,) = module(x=x, c=np.array(False))
        assert np.isfinite(z).all()
        # Sizes of one branch and the condition of the other: no answer is the answer.
        assert np.isnan(module(x=x, c=np.array(True))[0]).all()


LEAST_FOR_ONE = """
agraph (float[n, m] x, bool c) => (float[n] y) {
  axis = Constant <value = int64[1] {1}> ()
  w = Constant <value = float[1, 1, 9] {1, 1, 1, 1, 1, 1, 1, 1, 1}> ()
  y = If (c) <
    then_branch = g () => (float[n] t) {
      a = Unsqueeze (x, axis)  b = Conv <strides = [2]> (a, w)  d = Tanh (b)
      both = Constant <value = int64[2] {1, 2}> ()
      t = ReduceMean <keepdims = 0> (d, both) },
    else_branch = h () => (float[n] u) { u = ReduceSum <keepdims = 0> (x, axis) }
  >
}
"""


def test_a_branch_whose_sizes_are_impossible_does_not_keep_the_other_from_running(
    tmp_path: Path,
) -> None:
    """The convolution wants 9 columns, the sum takes any number."""
    model = onnx.parser.parse_model(
        '<ir_version: 9, opset_import: ["" : 21]>\n' + LEAST_FOR_ONE
    )
    path = tmp_path / "branches.hrx"
    headrace.compile(headrace.from_onnx(model), path)
    x = np.ones((2, 12), np.float32)
    with headrace.load(path) as module:
        (few,) = module(x=x[:, :3].copy(), c=np.array(False))
        np.testing.assert_allclose(few, [3, 3])
        assert np.isnan(module(x=x[:, :3].copy(), c=np.array(True))[0]).all()
        (many,) = module(x=x, c=np.array(True))
        np.testing.assert_allclose(many, np.tanh([9.0, 9.0]), rtol=1e-6)


def test_branches_of_different_rank_are_refused() -> None:
    text = """
agraph (float[4] x, bool c) => (float[] y) {
  y = If (c) <
    then_branch = g () => (float[4] t) { t = Neg (x) },
    else_branch = h () => (float[1, 4] u) { s = Constant <value = int64[1] {0}> () u = Unsqueeze (x, s) }
  >
}
"""
    model = onnx.parser.parse_model('<ir_version: 9, opset_import: ["" : 21]>\n' + text)
    with pytest.raises(
        HeadraceError, match="branches that return f32 of rank 1 and f32 of rank 2"
    ):
        import_model(model)


COUNTED = """
agraph (float[n, m] x, int64 trips) => (float[n, m] y) {
  y = Loop (trips, , x) <
    body = g (int64 i, bool go, float[n, m] a) => (bool on, float[n, m] b) {
      on = Identity (go)
      f = Cast <to = 1> (i)
      s = Sin (a)
      b = Add (s, f)
    }
  >
}
"""


@pytest.mark.parametrize("trips", [0, 1, 11])
def test_a_loop_whose_trips_are_an_input(trips: int, tmp_path: Path) -> None:
    model = parsed(COUNTED)
    assert operations(model, "tensor.while") == 1
    check_on_cpu(model, {"x": X, "trips": np.array(trips)}, tmp_path, tolerance=1e-5)


def test_a_loop_that_data_ends(tmp_path: Path) -> None:
    model = parsed("""
agraph (float[n] x) => (float[n] y, int64 count) {
  yes = Constant <value = bool {1}> ()
  zero = Constant <value = int64 {0}> ()
  one = Constant <value = int64 {1}> ()
  limit = Constant <value = float {100.0}> ()
  y, count = Loop (, yes, x, zero) <
    body = g (int64 i, bool go, float[n] a, int64 k) => (bool on, float[n] b, int64 j) {
      b = Add (a, x)
      total = ReduceSum <keepdims = 0> (b)
      on = Less (total, limit)
      j = Add (k, one)
    }
  >
}
""")
    assert operations(model, "tensor.while") == 1
    for scale in (0.3, 3.0, 300.0):
        x = np.full(5, scale, np.float32)
        check_on_cpu(model, {"x": x}, tmp_path, tolerance=1e-5)


STACKED = """
agraph (float[n, m] x) => (float[n, m] y, float[k, m] rows) {
  trips = Constant <value = int64 {TRIPS}> ()
  y, rows = Loop (trips, , x) <
    body = g (int64 i, bool go, float[n, m] a) => (bool on, float[n, m] b, float[m] row) {
      on = Identity (go)
      b = Cos (a)
      axes = Constant <value = int64[1] {0}> ()
      row = ReduceMax <keepdims = 0> (b, axes)
    }
  >
}
"""


@pytest.mark.parametrize(("trips", "loops"), [(3, 0), (50, 1)])
def test_rows_that_a_loop_stacks(trips: int, loops: int, tmp_path: Path) -> None:
    model = parsed(STACKED.replace("TRIPS", str(trips)))
    assert operations(model, "tensor.while") == loops
    check_on_cpu(model, {"x": X}, tmp_path, tolerance=1e-5)


def test_a_loop_that_grows_its_value_is_written_out(tmp_path: Path) -> None:
    model = parsed("""
agraph (float[2] x) => (float[k] y) {
  trips = Constant <value = int64 {12}> ()
  y = Loop (trips, , x) <
    body = g (int64 i, bool go, float[p] a) => (bool on, float[q] b) {
      on = Identity (go)
      b = Concat <axis = 0> (a, x)
    }
  >
}
""")
    assert operations(model, "tensor.while") == 0
    check_on_cpu(model, {"x": X[0, :2].copy()}, tmp_path)


def test_a_loop_that_never_runs_stacks_nothing(tmp_path: Path) -> None:
    """onnxruntime says [0, 0] here: it does not know the size of a row that was never made."""
    wanted = [X, np.zeros((0, 6), np.float32)]
    check_on_cpu(parsed(STACKED.replace("TRIPS", "0")), {"x": X}, tmp_path, wanted=wanted)


def test_loops_within_loops_and_branches(tmp_path: Path) -> None:
    model = parsed("""
agraph (float[n, n] x, int64 outer, int64 inner) => (float[n, n] y) {
  two = Constant <value = int64 {2}> ()
  one = Constant <value = int64 {1}> ()
  half = Constant <value = float {0.5}> ()
  y = Loop (outer, , x) <
    body = g (int64 i, bool go, float[n, n] a) => (bool on, float[n, n] b) {
      on = Identity (go)
      r = Mod (i, two)
      odd = Equal (r, one)
      b = If (odd) <
        then_branch = t () => (float[n, n] p) {
          p = Loop (inner, , a) <
            body = h (int64 j, bool so, float[n, n] c) => (bool of, float[n, n] d) {
              of = Identity (so)
              m = MatMul (c, x)
              d = Mul (m, half)
            }
          >
        },
        else_branch = e () => (float[n, n] q) { q0 = MatMul (x, a) q = Tanh (q0) }
      >
    }
  >
}
""")
    assert operations(model, "tensor.while") == 2
    for outer, inner in ((4, 3), (3, 0), (0, 2)):
        given = {"x": BIG, "outer": np.array(outer), "inner": np.array(inner)}
        check_on_cpu(model, given, tmp_path, tolerance=1e-3)


SCAN = """
agraph (float[m] start, float[steps, m] x) => (float[m] last, float[steps, m] rows) {
  last, rows = Scan <num_scan_inputs = 1, body = g (float[m] s, float[m] e) => (float[m] t, float[m] r) {
      t0 = Add (s, e)
      t = Tanh (t0)
      r = Neg (t)
    }, DIRECTIONS> (start, x)
}
"""


@pytest.mark.parametrize(
    "directions",
    [
        "scan_input_directions = [0]",
        "scan_input_directions = [1]",
        "scan_output_directions = [1]",
        "scan_input_directions = [1], scan_output_directions = [1]",
    ],
)
def test_a_scan_over_a_symbolic_dimension(directions: str, tmp_path: Path) -> None:
    model = parsed(SCAN.replace("DIRECTIONS", directions))
    assert operations(model, "tensor.while") == 1
    check_on_cpu(model, {"start": X[0].copy(), "x": X}, tmp_path, tolerance=1e-5)
    few = parsed(SCAN.replace("DIRECTIONS", directions).replace("steps", "5"))
    assert operations(few, "tensor.while") == 0
    check_on_cpu(few, {"start": X[0].copy(), "x": X[:5].copy()}, tmp_path, tolerance=1e-5)


def test_a_scan_along_other_axes(tmp_path: Path) -> None:
    model = parsed("""
agraph (float[n, steps] x) => (float[n, steps] rows) {
  rows = Scan <num_scan_inputs = 1, scan_input_axes = [1], scan_output_axes = [-1],
    body = g (float[n] e) => (float[n] r) { r = Exp (e) }> (x)
}
""")
    check_on_cpu(model, {"x": X}, tmp_path, tolerance=1e-5)


@pytest.mark.parametrize("kind", ["RNN", "GRU", "LSTM"])
def test_recurrence_over_a_symbolic_sequence_is_a_loop(kind: str, tmp_path: Path) -> None:
    gates = {"RNN": 1, "GRU": 3, "LSTM": 4}[kind]
    random = np.random.default_rng(1)
    w, r = (random.standard_normal((2, gates * 4, n)).astype(np.float32) for n in (6, 4))
    node = onnx.helper.make_node(
        kind, ["x", "w", "r"], ["y", "h"], hidden_size=4, direction="bidirectional"
    )
    info = onnx.helper.make_tensor_value_info
    graph = onnx.helper.make_graph(
        [node],
        "g",
        [info("x", 1, ["steps", "batch", 6])],
        [info("y", 1, None), info("h", 1, None)],
        [onnx.numpy_helper.from_array(w, "w"), onnx.numpy_helper.from_array(r, "r")],
    )
    model = onnx.helper.make_model(
        graph, opset_imports=[onnx.helper.make_opsetid("", 21)], ir_version=9
    )
    assert operations(model, "tensor.while") == 2
    # A product is no place for its operand. Of n rows kept, n trips would copy n * n.
    assert len(copies_in_loops(model)) == (2 if kind == "RNN" else 0)
    assert not any("steps*" in copy or "*steps" in copy for copy in copies_in_loops(model))
    for steps in (1, 9, 30):
        x = random.standard_normal((steps, 3, 6)).astype(np.float32)
        check_on_cpu(model, {"x": x}, tmp_path, tolerance=1e-4)


def test_a_branch_may_use_a_weight_whose_name_is_a_number(tmp_path: Path) -> None:
    """openwakeword's silero_vad numbers its weights."""
    model = parsed("""
agraph (float[40, 40] x, bool c) => (float[40, 40] y) {
  y = If (c) <
    then_branch = g () => (float[40, 40] t) { p = Mul (x, x)  m = MatMul (p, x)  t = Tanh (m) },
    else_branch = h () => (float[40, 40] u) { q = Exp (x)  r = Sin (q)  u = Cos (r) }>
}
""")
    model.graph.initializer.append(onnx.numpy_helper.from_array(BIG, "7"))
    model.graph.node[0].attribute[0].g.node[0].input[1] = "7"
    check_on_cpu(model, {"x": BIG, "c": np.array(True)}, tmp_path)


FIBONACCI = """
agraph (float[6] x) => (float[6] last, float[k, 6] rows) {
  trips = Constant <value = int64 {TRIPS}> ()
  yes = Constant <value = bool {1}> ()
  zero = Sub (x, x)
  same = Exp (x)
  p, last, q, rows = Loop (trips, yes, zero, x, same) <
    body = step (int64 i, bool before, float[6] a, float[6] b, float[6] k)
      => (bool go, float[6] next_a, float[6] next_b, float[6] next_k, float[6] row) {
        go = Identity (before)  next_a = Identity (b)  next_k = Identity (k)
        sum = Add (a, b)  half = Constant <value = float {0.5}> ()
        next_b = Mul (sum, half)  row = Add (next_b, k) }
  >
}
"""


@pytest.mark.parametrize("trips", [2, 31])
def test_carried_values_that_take_each_other_s_place(trips: int, tmp_path: Path) -> None:
    model = parsed(FIBONACCI.replace("TRIPS", str(trips)))
    check_on_cpu(model, {"x": X[0]}, tmp_path, tolerance=1e-5)
