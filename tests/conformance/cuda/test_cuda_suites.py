"""600 of ONNX's node tests on a GPU; skipped where there is none (no GPU is in CI).

The list is committed: the first 600, by the hash of the name, that onnxruntime 1.32 passes.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest
import scoreboard

HERE = Path(__file__).parent
NAMES = (HERE / "onnx_node.txt").read_text().split()
LEAST = 0.85


def test_the_list_names_tests_of_the_suite() -> None:
    assert len(NAMES) == 600
    assert set(NAMES) <= set(scoreboard.operators())


@pytest.mark.slow
@pytest.mark.skipif(not os.path.exists("/dev/nvidia0"), reason="no NVIDIA GPU here")
def test_600_onnx_tests(capsys) -> None:
    results = scoreboard.run_tests(NAMES, jobs=min(16, os.cpu_count() or 1), device="CUDA")
    with capsys.disabled():
        print(f"\nonnx.backend.test on cuda: {scoreboard.summary(results)}")
    assert not scoreboard.wrongly_interpreted(results)
    assert sum(r.compiled for r in results) >= LEAST * len(results)
