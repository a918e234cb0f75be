"""Every sample kernel, on both CPUs, in the fast family and in the naive one."""

from __future__ import annotations

import pytest
from harness import GENERIC, NATIVE, Linked, copied
from sample_kernels import SAMPLES, Sample, assert_close

from headrace.targets.cpu import naive
from headrace.targets.cpu import target as cpu


@pytest.mark.parametrize("machine", ["v3", "generic"])
@pytest.mark.parametrize("sample", SAMPLES, ids=lambda s: s.name)
def test_samples_match_the_interpreter(sample: Sample, machine: str) -> None:
    linked = Linked(sample.kernel, NATIVE if machine == "v3" else GENERIC)
    inputs = sample.buffers()
    buffers = copied(inputs)
    linked(buffers, sample.dims, parts=3)
    assert_close(sample, buffers, sample.expected(inputs))


@pytest.mark.parametrize("sample", SAMPLES, ids=lambda s: s.name)
def test_samples_in_the_naive_family(sample: Sample, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cpu, "FAMILIES", (naive,))
    linked = Linked(sample.kernel)
    assert linked.family(sample.dims) == "naive"
    inputs = sample.buffers()
    buffers = copied(inputs)
    linked(buffers, sample.dims)
    assert_close(sample, buffers, sample.expected(inputs))
