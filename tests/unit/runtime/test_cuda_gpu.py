"""The CUDA driver on a GPU; skipped where there is none (no GPU is in CI)."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import numpy as np
import pytest
from tests.models import builders

import headrace
from headrace.base.errors import HeadraceError
from headrace.runtime.drivers.cuda_calls import CudaCalls


def _missing() -> str:
    """Why nothing of this can run here; empty where it can."""
    if importlib.util.find_spec("triton") is None:
        return "triton is not installed (the extra headrace[cuda])"
    try:
        calls = CudaCalls()
    except HeadraceError as problem:
        return problem.diagnostics[0].fact
    major, minor = calls.capability
    calls.close()
    return "" if (major, minor) >= (9, 0) else f"the GPU is sm_{major}{minor}"


_REASON = _missing()
pytestmark = pytest.mark.skipif(bool(_REASON), reason=_REASON or "none")


@pytest.fixture(scope="module")
def compiled(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    import onnx

    folder = tmp_path_factory.mktemp("gpu")
    onnx.save(builders.mlp_chain(8, 1024), folder / "chain.onnx")
    path = headrace.compile(folder / "chain.onnx", folder / "chain.hrx", targets=["cuda:sm_90"])
    return folder / "chain.onnx", path


def test_the_same_bits_at_every_budget_and_close_to_onnxruntime(compiled) -> None:
    import onnxruntime

    source, path = compiled
    peer = onnxruntime.InferenceSession(source, providers=["CPUExecutionProvider"])
    random = np.random.default_rng(0)
    inputs = [random.standard_normal((1, 1024)).astype(np.float32) for _ in range(4)]
    wanted = [peer.run(None, {"x": x})[0] for x in inputs]
    found: dict[str, list[bytes]] = {}
    with headrace.load(path, "cuda", weight_budget="max") as module:
        for budget in ("max", "50%", "min"):
            module.weight_budget = budget
            results = [np.array(module(x)[0]) for x in inputs]
            for y, w in zip(results, wanted, strict=True):
                assert np.abs(y - w).max() <= 1e-5 * np.abs(w).max()
            found[budget] = [y.tobytes() for y in results]
            assert module.report().interpreted == 0
    assert found["max"] == found["50%"] == found["min"]


def test_free_memory_is_the_same_before_and_after(compiled) -> None:
    _, path = compiled
    calls = CudaCalls()
    free: list[int] = []
    for _ in range(4):
        with headrace.load(path, "cuda", weight_budget="min") as module:
            module(np.ones((1, 1024), np.float32))
        calls.enter()
        free.append(calls.memory()[0])
    calls.close()
    assert free[1] == free[-1]


def test_packed_weights_give_the_same_bits_at_every_budget(compiled, tmp_path) -> None:
    source, plain = compiled
    packed = headrace.compile(source, tmp_path / "p.hrx", targets=["cuda:sm_90"], pack="all")
    x = np.random.default_rng(0).standard_normal((1, 1024)).astype(np.float32)
    with headrace.load(plain, "cuda", weight_budget="max") as module:
        plain_result, stored = np.array(module(x)[0]), module.stored_bytes
    with headrace.load(packed, "cuda", weight_budget="max") as module:
        assert module.stored_bytes < 0.9 * stored
        wanted = np.array(module(x)[0])
        # A row is summed in an order of its own, what escapes the codes last.
        largest = np.abs(plain_result).max()
        assert np.abs(wanted - plain_result).max() <= 1e-5 * largest
        for budget in ("50%", "min"):
            module.weight_budget = budget
            assert np.array(module(x)[0]).tobytes() == wanted.tobytes()


def test_a_trace_shows_what_hides_behind_what(compiled) -> None:
    _, path = compiled
    x = np.ones((1, 1024), np.float32)
    with headrace.load(path, "cuda", weight_budget="min") as module:
        module(x)
        with module.trace() as trace:
            for _ in range(3):
                module(x)
        plan = module.plan()
    last = [e for e in trace.events if e["args"]["step"] == 2]
    copies = [e for e in last if e["cat"] == "copy"]
    assert sorted(e["args"]["copy"] for e in copies) == list(range(len(plan.fetches)))
    assert all(e["dur"] > 0 for e in copies)


def test_a_memory_limit_holds_by_the_account_of_the_machine(compiled) -> None:
    account = pytest.importorskip("pynvml")
    account.nvmlInit()
    gpu = account.nvmlDeviceGetHandleByIndex(0)
    _, path = compiled
    free = account.nvmlDeviceGetMemoryInfo(gpu).free
    with headrace.load(path, "cuda", memory_limit="1GB") as module:
        module(np.ones((1, 1024), np.float32))
        report = module.report()
        taken = free - account.nvmlDeviceGetMemoryInfo(gpu).free
    assert report.context_bytes > 0
    told = report.measured_peak_bytes + report.staging_bytes
    told += report.context_bytes + report.code_bytes
    # The driver hands memory out in granules of 2 MiB.
    assert abs(taken - told) <= 16 << 20
    assert taken <= 10**9
