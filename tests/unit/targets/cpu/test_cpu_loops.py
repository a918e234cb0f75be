"""Kernels whose phases go round, on both CPUs."""

from __future__ import annotations

import pytest
from harness import GENERIC, NATIVE, Linked, copied
from loop_kernels import LOOPS
from sample_kernels import Sample, assert_close

from headrace.kernel.verify import problems_of


@pytest.mark.parametrize("machine", ["v3", "generic"])
@pytest.mark.parametrize("sample", LOOPS, ids=lambda s: s.name)
def test_loops_match_the_interpreter(sample: Sample, machine: str) -> None:
    assert problems_of(sample.kernel) == []
    linked = Linked(sample.kernel, NATIVE if machine == "v3" else GENERIC)
    assert linked.family(sample.dims) == "loop"
    inputs = sample.buffers()
    buffers = copied(inputs)
    linked(buffers, sample.dims)
    assert_close(sample, buffers, sample.expected(inputs))
