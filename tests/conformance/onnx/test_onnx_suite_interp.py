"""ONNX's own tests through the importer and the meaning of the tensor stage."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from typing import Any

import pytest
import test_onnx_backend
from onnx_suite import KINDS, Outcome, load_cases, run_case, sampled, summary

from headrace.ir.model import Model
from headrace.tensor.interp import run

KNOWN_WRONG = {
    # One rounding in bf16 or f16: softmax computes in f32, the suite in the narrow type.
    *(
        f"test_attention_{name}{end}"
        for name in (
            "3d_causal_bf16",
            "4d_attn_mask_causal_bf16",
            "4d_causal_bf16",
            "4d_causal_fp16",
            "4d_causal_padded_kv_bf16",
            "4d_padded_kv_bf16",
        )
        for end in ("", "_expanded")
    ),
    # Draws of chance: the definition names no generator, so ours draws other numbers.
    "test_bernoulli",
    "test_bernoulli_double",
    "test_bernoulli_double_expanded",
    "test_bernoulli_expanded",
    "test_bernoulli_seed",
    "test_bernoulli_seed_expanded",
    "test_training_dropout",
    "test_training_dropout_default",
    "test_training_dropout_default_mask",
    "test_training_dropout_mask",
    # f8E8M0 rounds up in ONNX, to nearest in ml_dtypes.
    "test_cast_e8m0_FLOAT_to_FLOAT8E8M0",
    "test_cast_e8m0_FLOAT16_to_FLOAT8E8M0",
    # Random numbers of another generator, and roundings: each with its reason there.
    *test_onnx_backend.KNOWN_WRONG,
}


def _evaluate(model: Model, inputs: Mapping[str, Any]) -> Mapping[str, Any]:
    return run(model, dict(inputs))


def _outcomes(cases: list[Any]) -> list[Outcome]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return [run_case(case, _evaluate) for case in cases]


def _failures(outcomes: list[Outcome]) -> str:
    bad = [o for o in outcomes if o.kind in ("wrong", "crash") and o.name not in KNOWN_WRONG]
    return "\n".join(f"{o.name}: {o.kind}: {o.detail[:300]}" for o in bad)


def test_sampled_node_tests_pass_or_are_refused_clearly(
    capsys: pytest.CaptureFixture[str],
) -> None:
    outcomes = _outcomes(sampled(load_cases("node"), 150))
    with capsys.disabled():
        print(f"\nONNX node tests, sampled, interpreter: {summary(outcomes)}")
    assert _failures(outcomes) == ""
    assert sum(o.kind == "pass" for o in outcomes) >= 115, summary(outcomes)


def test_sampled_pytorch_tests_pass() -> None:
    cases = [*load_cases("pytorch-converted"), *load_cases("pytorch-operator")]
    outcomes = _outcomes(sampled(cases, 30))
    assert [o for o in outcomes if o.kind != "pass"] == []


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_whole_suite(kind: str, capsys: pytest.CaptureFixture[str]) -> None:
    outcomes = _outcomes(list(load_cases(kind)))
    with capsys.disabled():
        print(f"\nONNX {kind} tests, interpreter: {summary(outcomes)}")
    assert _failures(outcomes) == ""
