"""Every sample kernel, lowered to lanes in numpy, against the kernel's meaning."""

import numpy as np
import pytest
from loop_kernels import LOOPS
from numpy_machine import run
from sample_kernels import SAMPLES, Sample, assert_close

from headrace.base.errors import HeadraceDefect, HeadraceError
from headrace.kernel.lanes.lower import lane_count
from headrace.kernel.text import parse_kernel


@pytest.mark.parametrize("sample", [*SAMPLES, *LOOPS], ids=lambda s: s.name)
def test_lanes_compute_what_the_kernel_means(sample: Sample) -> None:
    buffers = sample.buffers()
    expected = sample.expected(buffers)
    run(sample.kernel, buffers, sample.dims)
    assert_close(sample, buffers, expected)


def test_lanes_cover_halos() -> None:
    kernel = next(s for s in SAMPLES if s.name == "max_pool").kernel
    assert lane_count(kernel).evaluate({"n": 2}) == 216
    plain = next(s for s in SAMPLES if s.name == "softmax").kernel
    assert str(lane_count(plain)) == "batch"


def test_unknown_names_and_operations_are_reported() -> None:
    text = "kernel(%d0 = 3) {\n  ro x : f32[3]\n  wo y : f32[3]\n  map() {\n"
    bad_operation = text + "    %v0 = load x[%d0]\n    %v1 = popcnt(%v0) : f32\n"
    with pytest.raises(HeadraceError, match="HR2401"):
        run(parse_kernel(bad_operation + "    store %v1 to y[%d0]\n  }\n}"), _pair(), {})
    bad_name = text + "    %v0 = load x[batch]\n    store %v0 to y[%d0]\n  }\n}"
    with pytest.raises(HeadraceDefect, match="HR9401"):
        run(parse_kernel(bad_name), _pair(), {})


def _pair() -> list[np.ndarray]:
    return [np.zeros(3, np.float32), np.zeros(3, np.float32)]
