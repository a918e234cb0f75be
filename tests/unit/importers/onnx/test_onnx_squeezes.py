"""What PyTorch exports of `x.squeeze(axis)`: an If about a size, of branches of two ranks."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx_graphs import check_on_cpu

import headrace
from headrace.base.errors import HeadraceError
from headrace.importers.onnx.reader import import_model

TEXT = """
<ir_version: 9, opset_import: ["" : 17]>
agraph (float[batch, 3, length] x, bool[1] given) => (float[1, batch, 3] y) {
  pooled = MaxPool <kernel_shape = [4], strides = [4]> (x)
  shape = Shape (pooled)
  axis = Constant <value = int64 {2}> ()
  size = Gather (shape, axis)
  one = Constant <value = int64 {1}> ()
  single = Equal (size, one)
  squeezed = If (CONDITION) <
    then_branch = g () => (float[batch, 3] t) {
      last = Constant <value = int64[1] {-1}> ()
      t = Squeeze (pooled, last) },
    else_branch = h () => (float[batch, 3, n] u) { u = Identity (pooled) }
  >
  first = Constant <value = int64[1] {0}> ()
  y = Unsqueeze (squeezed, first)
}
"""


def model(condition: str) -> onnx.ModelProto:
    return onnx.parser.parse_model(TEXT.replace("CONDITION", condition))


def draw(length: int) -> dict[str, np.ndarray]:
    x = np.random.default_rng(length).standard_normal((2, 3, length)).astype(np.float32)
    return {"x": x, "given": np.array([True])}


@pytest.mark.parametrize("length", [4, 6, 7])
def test_the_axis_holds_one_element(length: int, tmp_path: Path) -> None:
    check_on_cpu(model("single"), draw(length), tmp_path)


def test_a_call_with_more_is_refused(tmp_path: Path) -> None:
    path = headrace.compile(headrace.from_onnx(model("single")), tmp_path / "a.hrx")
    with headrace.load(path) as module, pytest.raises(HeadraceError, match="4 to 7"):
        module(**draw(9))


def test_a_size_that_is_told_decides(tmp_path: Path) -> None:
    read = headrace.from_onnx(model("single"), dims={"length": 9})
    path = headrace.compile(read, tmp_path / "a.hrx")
    with headrace.load(path) as module:
        assert module(**draw(9))["y"].shape == (1, 2, 3, 2)


def test_what_data_says_is_no_size() -> None:
    with pytest.raises(HeadraceError, match="Squeeze"):
        import_model(model("given"))
