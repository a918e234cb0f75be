"""Products whose rows are known only at run time: one function for one, few and many."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest
from loop_kernels import LOOPS
from sample_kernels import Sample, assert_close
from test_triton_naive import needs_interpreter, needs_triton

from headrace.base.bundle import split_code
from headrace.targets.triton.target import make
from headrace.targets.triton.variants import variants

sys.path.insert(0, str(Path(__file__).parents[2] / "kernel"))
from test_kernel_split import ATTENTION

# No softmax: rows have to be kept.
ROWS = ATTENTION.replace("subtract(%v0, %v1)", "subtract(%v1, %v0)")

TEXT = """
kernel(%d0 = tokens, %d1 = 70) dims(tokens) {
  ro x : f32[tokens, 40]
  ro constant w : f32[40, 70] layout [1, 40] offset 0 size 2800
  wo y : f32[tokens, 70]
  local a : f32
  reduce(%r0 = 40) {
    %v0 = load x[%d0, %r0]
    %v1 = load w[%r0, %d1]
    %v2 = multiply(%v0, %v1) : f32
    fold %v2 from 0.0 with add into a
  }
  map() {
    %v3 = read a[]
    store %v3 to y[%d0, %d1]
  }
}
"""


@pytest.mark.parametrize("tokens, family", [(1, "reduce"), (5, "contract"), (70, "contract")])
@needs_interpreter
@pytest.mark.filterwarnings("ignore")
def test_the_first_that_holds_is_right(tokens: int, family: str) -> None:
    from interpret import run

    sample = Sample("variants", TEXT, {"tokens": tokens})
    found = variants("k", sample.kernel)
    taken = next(v for v in found if all(c.holds(sample.dims) for c in v.conditions))
    assert taken.sources[0].family == family
    buffers = sample.buffers()
    expected = sample.expected(buffers)
    run(sample.kernel, buffers, sample.dims, lambda *_: taken.sources[0])
    assert_close(sample, buffers, expected)
    assert np.isfinite(buffers[-1]).all()


@pytest.mark.parametrize("rows", [1, 19])
@needs_interpreter
@pytest.mark.filterwarnings("ignore")
def test_attention_hands_rows_on_in_scratch(rows: int) -> None:
    from interpret import run

    sample = Sample("attention", ROWS, {"heads": 2, "rows": rows, "keys": 23})
    found = variants("k", sample.kernel)
    taken = next(v for v in found if all(c.holds(sample.dims) for c in v.conditions))
    assert len(taken.sources) == 4
    buffers = sample.buffers()
    expected = sample.expected(buffers)
    scratch = np.full(taken.sources[0].scratch_bytes.evaluate(sample.dims), 255, np.uint8)
    for source in taken.sources:
        run(sample.kernel, buffers, sample.dims, lambda *_, s=source: s, scratch)
    assert_close(sample, buffers, expected)


@needs_triton
def test_attention_compiles() -> None:
    code = make("cuda:sm_90").translate("main", Sample("attention", ROWS).kernel)
    assert [len(s.launches) for s in code.specialisations] == [4, 4, 4, 4]
    for specialisation in code.specialisations:
        assert len({x.scratch_bytes for x in specialisation.launches}) == 1


@needs_triton
def test_four_functions_in_one_code() -> None:
    code = make("cuda:sm_90").translate("main", Sample("variants", TEXT).kernel)
    assert len(split_code(code.data)) == 4
    launches = [s.launches[0] for s in code.specialisations]
    assert [x.symbol for x in launches] == ["main_one", "main_few", "main_some", "main"]
    assert code.specialisations[-1].conditions == ()
    # One row of tiles along the axis of the cut reads its own run of the weight.
    assert all(x.slice is not None and x.slice.binding == 1 for x in launches)


@pytest.mark.parametrize("sample", LOOPS, ids=lambda s: s.name)
def test_a_kernel_with_loops_is_no_kernel_of_rows(sample):
    # Whoever knows no loops would go round once.
    (only,) = variants("k", sample.kernel)
    assert [s.family for s in only.sources] == ["loop"]
