"""Attention in one launch: what is one, its values in the interpreter, its cubin."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest
from sample_kernels import Sample, assert_close
from test_triton_naive import needs_interpreter, needs_triton

from headrace.kernel.description import Kernel
from headrace.kernel.softmax_rows import as_softmax_rows
from headrace.targets.triton import attention
from headrace.targets.triton.target import make
from headrace.targets.triton.variants import variants

sys.path.insert(0, str(Path(__file__).parents[2] / "kernel"))
from test_kernel_split import ATTENTION
from test_kernel_visible_keys import CAUSAL

MASKED = (
    CAUSAL.replace("bf16", "f32")
    .replace("ro k", "ro allowed : i1[tokens, tokens]\n  ro k", 1)
    .replace("%v13 = compare LE(%v11, %v12) : i1", "%v13 = load allowed[%d1, %d2]")
    .replace(
        "%v27 = convert(%v26) : f32",
        "%v36 = compare NE(%v26, %v26) : i1\n    %v37 = constant 0.0 : f32\n"
        "    %v27 = select(%v36, %v37, %v26) : f32",
    )
)
ADDED = "%v36 = convert(%v9) : f32\n    %v37 = load bias[%d2]\n    %v10 = add(%v36, %v37) : f32"
HALF = CAUSAL.replace("bf16", "f16")


def _sample(text: str, tokens: int, tolerance: float) -> Sample:
    return Sample(f"rows {tokens}", text, {"tokens": tokens}, tolerance=tolerance)


@pytest.mark.parametrize("tokens", [1, 19, 70])
@pytest.mark.parametrize(
    "text, tolerance",
    [(CAUSAL, 1e-2), (HALF, 2e-3), (MASKED, 2e-6)],
    ids=["bf16 causal", "f16 causal", "f32 masked"],
)
@needs_interpreter
@pytest.mark.filterwarnings("ignore")
def test_values_in_the_interpreter(text: str, tolerance: float, tokens: int) -> None:
    from interpret import run

    sample = _sample(text, tokens, tolerance)
    found = variants("k", sample.kernel)
    taken = next(v for v in found if all(c.holds(sample.dims) for c in v.conditions))
    assert [s.family for s in taken.sources] == ["attention"]
    buffers = sample.buffers()
    if text is MASKED:
        allowed = buffers[1].reshape(tokens, tokens)
        allowed[tokens // 2] = False  # no key at all: 0, not NaN
        allowed[-1, : tokens // 2] = False  # the first tiles hold none
    expected = sample.expected(buffers)
    run(sample.kernel, buffers, sample.dims, lambda *_: taken.sources[0])
    assert_close(sample, buffers, expected)


@needs_interpreter
@pytest.mark.filterwarnings("ignore")
def test_rows_that_see_no_key_are_no_numbers() -> None:
    from interpret import run

    text = MASKED.replace("set kept5[%d2] = %v27", "set kept5[%d2] = %v26")
    sample = _sample(text, 19, 2e-6)
    source = attention.generate("k", sample.kernel)
    assert source is not None
    buffers = sample.buffers()
    buffers[1].reshape(19, 19)[3] = False
    run(sample.kernel, buffers, sample.dims, lambda *_: source)
    y = buffers[-1].reshape(19, 4, 20)
    assert np.isnan(y[3]).all() and np.isfinite(np.delete(y, 3, 0)).all()


@needs_interpreter
@pytest.mark.filterwarnings("ignore")
def test_a_score_that_is_no_number_stays_one() -> None:
    from interpret import run

    sample = _sample(CAUSAL, 70, 1e-2)
    source = attention.generate("k", sample.kernel)
    assert source is not None
    buffers = sample.buffers()
    buffers[0].reshape(70, 4, 24)[40] = ml_dtypes.bfloat16("nan")
    run(sample.kernel, buffers, sample.dims, lambda *_: source)
    y = buffers[-1].astype(np.float32).reshape(70, 4, 20)
    assert np.isnan(y[40]).all() and np.isfinite(np.delete(y, 40, 0)).all()


@pytest.mark.parametrize(
    ("dtype", "rows", "keys", "launches"),
    [
        ("f32", 1, 60, 1),
        ("f32", 1, 900, 4),
        ("f32", 70, 60, 1),
        ("f32", 70, 900, 4),
        ("f16", 1, 60, 1),
        ("f16", 1, 900, 4),
        ("f16", 70, 900, 1),
    ],
)
def test_when_attention_runs_in_pieces(dtype: str, rows: int, keys: int, launches: int) -> None:
    text = ATTENTION
    if dtype == "f16":
        for name, result in (("q", "%v0"), ("k", "%v1")):
            text = text.replace(f"ro {name} : f32", f"ro {name} : f16")
            load = f"    {result} = load {name}["
            line = next(x for x in text.splitlines() if x.startswith(load))
            wide = f"    {result}0 = convert({result}) : f32"
            text = text.replace(line, f"{line}\n{wide}")
        text = text.replace("multiply(%v0, %v1)", "multiply(%v00, %v10)", 1)
    kernel = Sample("attention", text).kernel
    dims = {"heads": 2, "rows": rows, "keys": keys}
    taken = next(v for v in variants("k", kernel) if all(c.holds(dims) for c in v.conditions))
    assert len(taken.sources) == launches
    assert (taken.sources[0].family == "attention") == (launches == 1)
    fixed = kernel_with(text, dims)
    (last,) = [v for v in variants("k", fixed) if all(c.holds({}) for c in v.conditions)][:1]
    assert len(last.sources) == launches


def kernel_with(text: str, dims: dict[str, int]) -> Kernel:
    """The kernel with its dimensions known."""
    text = text.replace(" dims(heads, rows, keys)", "")
    for name, size in dims.items():
        text = re.sub(rf"\b{name}\b", str(size), text)
    return Sample("fixed", text).kernel


@pytest.mark.parametrize(
    "before, after",
    [
        ("%v24 = exponential(%v23) : f32", "%v24 = tanh(%v23) : f32"),
        ("from -inf with maximum", "from 0.0 with maximum"),
        ("%v22 = read fold3[]", "%v22 = read fold4[]"),
        ("load k[%d2, %d0 floordiv 2, %r0]", "load k[%d1, %d0 floordiv 2, %r0]"),
        ("%v27 = convert(%v26) : bf16", "%v27 = convert(%v24) : bf16"),
    ],
)
def test_what_is_no_softmax_between_products_is_left_alone(before: str, after: str) -> None:
    assert before in CAUSAL
    found = as_softmax_rows(_sample(CAUSAL.replace(before, after), 5, 0).kernel)
    if "convert(%v24)" in after:
        assert found is not None and not found.divided
    else:
        assert found is None


@needs_triton
def test_compiles_to_tensor_cores() -> None:
    code = make("cuda:sm_90").translate("main", _sample(CAUSAL, 5, 0).kernel)
    assert [x.family for x in code.specialisations[-1].launches] == ["attention"]
    assert "mma" in code.listing


@pytest.mark.parametrize(
    ("before", "after", "taken"),
    [
        ("", "", "fma"),
        # An addend that is loaded may be f32's lowest: times 1.44 it would be -inf.
        ("%v10 = convert(%v9) : f32", ADDED, "exp2"),
        (
            "%v10 = convert(%v9) : f32",
            "%v36 = floor(%v9) : bf16\n%v10 = convert(%v36) : f32",
            "round",
        ),
    ],
)
@needs_interpreter
@pytest.mark.filterwarnings("ignore")
def test_scores_in_the_units_of_exp2(before: str, after: str, taken: str) -> None:
    from interpret import run

    text = CAUSAL.replace(before, after)
    text = text.replace("  wo y", "  ro bias : f32[tokens]\n  wo y") if after == ADDED else text
    sample = Sample("units", text, {"tokens": 70}, {"bias": (-3e38, -2.9e38)}, tolerance=2e-2)
    source = attention.generate("k", sample.kernel)
    assert source is not None
    assert ("tl.fma" in source.text) == (taken == "fma")
    assert ("* 1.44" in source.text) == (taken != "fma")
    assert (
        ".to(tl.bfloat16).to(tl.uint16, bitcast=True).to(tl.uint32)\n" in scores_of(source.text)
    ) == (taken == "round")
    buffers = sample.buffers()
    expected = sample.expected(buffers)
    run(sample.kernel, buffers, sample.dims, lambda *_: source)
    assert_close(sample, buffers, expected)


def scores_of(text: str) -> str:
    return text.partition("for start in")[2].partition("tl.reduce(")[0]
