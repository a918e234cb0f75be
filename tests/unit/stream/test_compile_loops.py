"""Small loops as kernels: answers stay the same, also of no trip and of many."""

from __future__ import annotations

import numpy as np
import pytest
from tests.filecheck.test_filecheck import FOLDER

from headrace.ir.model import Model
from headrace.ir.passes import make_pass
from headrace.ir.text import parse_module
from headrace.kernel.target import LoopPoints
from headrace.kernel.verify import verify_kernel
from headrace.pipeline import context, run_pass
from headrace.stream.interp import kernels_of, run
from headrace.stream.passes import compile_loops
from headrace.stream.verify import verify

TEXT = (FOLDER / "stream" / "compile_loops.mlir").read_text()


def _model(text: str = TEXT) -> Model:
    return Model(parse_module(text, "test.mlir", context()), {}, "test")


@pytest.mark.parametrize("most", [1 << 22, 60])
@pytest.mark.parametrize("name", ["swap", "shapes", "nested", "unknown", "branch"])
def test_answers_stay_the_same(name: str, most: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where a dispatch ends long before the loop does."""
    monkeypatch.setattr(compile_loops, "_ANY_POINTS", LoopPoints(1 << 16, most))
    x, y = np.random.default_rng(0).integers(-9, 9, (2, 10)).astype(np.float32)
    before, after = _model(), _model()
    run_pass(make_pass("stream-compile-loops"), after)
    verify(after.ir)
    for kernel in kernels_of(after.ir).values():
        verify_kernel(kernel)
    for n in (0, 1, 2, 7):
        given = {"x": x, "y": y, "n": np.array(n, np.int32)}
        found = [run(model, given, name)["out"] for model in (before, after)]
        np.testing.assert_array_equal(*found)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("wo z : f32[10]", "wo z : f32[10] layout [1] offset 1 size 12 halo [1] [1] value 0.0"),
        ("ro x : f32[10]", "ro constant x : f32[10] layout [99999] offset 0 size 999999"),
    ],
)
def test_what_no_kernel_does_stays_a_loop(old: str, new: str) -> None:
    model = _model(TEXT.replace(old, new))
    run_pass(make_pass("stream-compile-loops"), model)
    assert not [k for k in kernels_of(model.ir).values() if k.loops]
