"""Keys that a mask of places hides: left out where no row sees them, and nothing else changes."""

from __future__ import annotations

import re
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sample_kernels import Sample, assert_close
from test_triton_attention import MASKED
from test_triton_naive import needs_interpreter, needs_triton

from headrace.base.symbols import ONE
from headrace.kernel.description import Kernel
from headrace.targets.triton import attention, key_runs
from headrace.targets.triton.compile import compile_source
from headrace.targets.triton.naive import TritonSource
from headrace.targets.triton.tuned import PLAIN

sys.path.insert(0, str(Path(__file__).parents[2] / "kernel"))
from test_kernel_visible_keys import CAUSAL, LOWEST, MASKS, with_mask

pytestmark = [needs_interpreter, pytest.mark.filterwarnings("ignore")]

_WIDE = CAUSAL.replace("bf16", "f32")
_SIZES = {"tokens": 45, "past": 25}


def _sample(text: str, dims: dict[str, int], tolerance: float = 2e-6) -> Sample:
    text = text.replace("%d0 = 4", "%d0 = 2")  # two heads of four: the interpreter is slow
    ranges = {"ends": (0.0, 60.0), "firsts": (0.0, 60.0)}
    return Sample("keys", text, dims, ranges, tolerance)


def _source(name: str, kernel: Kernel) -> TritonSource:
    source = attention.generate(name, kernel)
    assert source is not None
    return source


def _small(monkeypatch: pytest.MonkeyPatch, rows: int = 16, keys: int = 16) -> None:
    """Small tiles: few keys are many of them."""
    tiles = attention.AttentionTiles(rows, keys, 4, 2)
    monkeypatch.setattr(attention, "choose_tiles", lambda *_: tiles)


def _run(sample: Sample, buffers: list[Any]) -> Any:
    from interpret import run

    run(sample.kernel, buffers, sample.dims, _source)
    return buffers[-1].astype(np.float32).reshape(sample.dims["tokens"], 4, 20)


@pytest.mark.parametrize("hidden", ["-inf", LOWEST])
@pytest.mark.parametrize("mask", MASKS)
@pytest.mark.parametrize("kind", ["f32", "bf16"])
def test_values_are_the_kernels(
    kind: str, mask: str, hidden: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    _small(monkeypatch)
    text = with_mask(CAUSAL.replace("bf16", kind), mask, hidden)
    sample = _sample(text, _SIZES, 2e-6 if kind == "f32" else 1e-2)
    buffers = sample.buffers()
    expected = sample.expected(buffers)
    _run(sample, buffers)
    assert_close(sample, buffers, expected)


@pytest.mark.parametrize("hidden", ["-inf", LOWEST])
@pytest.mark.parametrize(
    ("mask", "tiles"),
    [("window", (32, 16)), ("late", (16, 64)), *((m, (16, 16)) for m in MASKS)],
)
def test_bits_are_those_of_all_keys(
    mask: str, hidden: str, tiles: tuple[int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where the order is the same: a row that sees nothing meets a window's keys in another."""
    _small(monkeypatch, *tiles)
    sample = _sample(with_mask(_WIDE, mask, hidden), _SIZES)
    buffers = sample.buffers()
    some = _run(sample, [b.copy() for b in buffers])
    monkeypatch.setattr(key_runs, "visible_keys", lambda _: None)
    every = _run(sample, [b.copy() for b in buffers])
    if hidden == LOWEST and MASKS[mask].hides_before:
        np.testing.assert_allclose(some, every, rtol=1e-6)
    else:
        np.testing.assert_array_equal(some, every)


@pytest.mark.parametrize("mask", ["causal", "window", "distance", "late"])
def test_values_of_known_sizes(mask: str, monkeypatch: pytest.MonkeyPatch) -> None:
    _small(monkeypatch)
    text = _sample(with_mask(CAUSAL, mask, "-inf"), {}).text
    text = re.sub(r"\btokens\b", "45", text.replace(" dims(tokens)", ""))
    sample = _sample(text, {}, 1e-2)
    buffers = sample.buffers()
    expected = sample.expected(buffers)
    from interpret import run

    run(sample.kernel, buffers, {}, _source)
    assert_close(sample, buffers, expected)


@pytest.mark.parametrize("value", [0.0, 1e30, -np.inf, np.nan])
@pytest.mark.parametrize("hidden", ["-inf", LOWEST])
def test_odd_scores_are_those_of_all_keys(
    value: float, hidden: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of a query that is no number, or that makes scores no less than those of hidden keys."""
    _small(monkeypatch)
    sample = _sample(with_mask(_WIDE, "causal", hidden), _SIZES)
    buffers = sample.buffers()
    buffers[0].reshape(45, 4, 24)[20:23] = value
    some = _run(sample, [b.copy() for b in buffers])
    monkeypatch.setattr(key_runs, "visible_keys", lambda _: None)
    np.testing.assert_array_equal(some, _run(sample, [b.copy() for b in buffers]))


@pytest.mark.parametrize(
    ("mask", "key", "untouched"),
    [
        ("causal", 40, slice(0, 32)),
        ("past", 60, slice(0, 16)),
        ("window", 40, slice(0, 32)),
        ("window", 3, slice(32, 45)),
    ],
)
def test_what_no_row_sees_is_not_read(
    mask: str, key: int, untouched: slice, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A value that is no number shows who reads it: 0 times it is none either."""
    _small(monkeypatch)
    sample = _sample(with_mask(CAUSAL, mask, "-inf"), _SIZES, 1e-2)
    buffers = sample.buffers()
    expected = sample.expected(buffers)[-1].astype(np.float32).reshape(45, 4, 20)
    buffers[2].reshape(-1, 2, 20)[key] = np.nan
    y = _run(sample, buffers)
    np.testing.assert_allclose(y[untouched], expected[untouched], rtol=1e-2, atol=1e-2)
    assert np.isnan(y).any()


def test_a_hidden_key_counts_where_its_score_is_no_less(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    _small(monkeypatch)
    sample = _sample(with_mask(_WIDE, "causal", "-1.0"), _SIZES)
    buffers = sample.buffers()
    buffers[0][:] = 0
    expected = sample.expected(buffers)
    _run(sample, buffers)
    assert_close(sample, buffers, expected)


def test_a_mask_that_is_read_hides_nothing_by_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    _small(monkeypatch)
    sample = replace(_sample(MASKED, {"tokens": 45}), name="masked")
    buffers = sample.buffers()
    expected = sample.expected(buffers)
    _run(sample, buffers)
    assert_close(sample, buffers, expected)


def test_tiles_that_all_rows_see_have_no_mask() -> None:
    source = _source("k", _sample(CAUSAL, _SIZES).kernel)
    runs = source.text.split("for start in")[1:]
    assert ["tl.minimum(" in run for run in runs] == [False, True]


@pytest.mark.parametrize(("text", "first"), [(CAUSAL, 32), (MASKED, 0)])
def test_rows_that_meet_most_keys_come_first(
    text: str, first: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    from interpret import run

    _small(monkeypatch)
    sample = _sample(text, {"tokens": 45})
    buffers = sample.buffers()
    buffers[-1][:] = -9
    source = replace(_source("k", sample.kernel), workgroups=(ONE, ONE, ONE))
    run(sample.kernel, buffers, sample.dims, lambda *_: source)
    written = (buffers[-1].reshape(45, -1).astype(np.float32) != -9).any(1)
    assert list(np.flatnonzero(written)) == list(range(first, min(first + 16, 45)))


_FULL = CAUSAL.replace("24", "32").replace("20", "16")
_HOW = replace(PLAIN, descriptors=True)
_DESCRIBED = attention.AttentionTiles(16, 16, 4, 2, described=True, together=True)


def _described(name: str, kernel: Kernel) -> TritonSource:
    source = attention.generate(name, kernel, how=_HOW, tiles=_DESCRIBED)
    assert source is not None and len(source.tensor_maps) == 2
    return source


@pytest.mark.parametrize("batches", [False, True], ids=["heads", "batches"])
@pytest.mark.parametrize("mask", ["causal", "past", "window"])
def test_values_of_keys_that_come_by_descriptors(mask: str, batches: bool) -> None:
    """Batches one behind the other: a tile at the end of one would go on in the next."""
    from interpret import run

    text = with_mask(_FULL, mask, "-inf")
    if batches:
        for name, heads in (("q", 4), ("k", 2), ("v", 2), ("y", 4)):
            text = re.sub(
                rf"{name} : bf16\[([^,]*), {heads}, (\d+)\]",
                rf"{name} : bf16[{heads}, \1, \2]",
                text,
            )
        text = text.replace("[%d1, %d0, ", "[%d0, %d1, ")
        text = text.replace("[%d2, %d0 floordiv 2,", "[%d0 floordiv 2, %d2,")
        text = text.replace("[%r0, %d0 floordiv 2,", "[%d0 floordiv 2, %r0,")
    sample = _sample(text, _SIZES, 1e-2)
    buffers = sample.buffers()
    expected = sample.expected(buffers)
    run(sample.kernel, buffers, sample.dims, _described)
    assert_close(sample, buffers, expected)
    loads = [
        line for line in _described("k", sample.kernel).text.splitlines() if ".load([" in line
    ]
    # Where they stand head by head, only whole tiles come by descriptors.
    edges = 3 if mask == "window" else 2
    assert len(loads) == (2 if batches else 2 * edges)


@pytest.mark.parametrize(
    ("rows", "width", "maps"), [(2048, 128, 2), (256, 128, 0), (2048, 64, 0)]
)
def test_many_rows_of_wide_heads_have_descriptors(rows: int, width: int, maps: int) -> None:
    """There they are faster, heads side by side (docs/measured/h200.md)."""
    text = re.sub(r"\b(24|20)\b", str(width), CAUSAL)
    kernel = _sample(text, _SIZES).kernel
    source = attention.generate("k", kernel, unknown_rows=rows, how=_HOW)
    assert source is not None and len(source.tensor_maps) == maps


def test_older_architectures_have_no_descriptors() -> None:
    source = attention.generate("k", _sample(_FULL, _SIZES).kernel, tiles=_DESCRIBED)
    assert source is not None and not source.tensor_maps


@needs_triton
def test_descriptors_are_those_that_the_compiler_wants() -> None:
    """`compile_source` holds boxes and orders against what it was told."""
    wide = _sample(CAUSAL.replace("24", "128").replace("20", "64"), _SIZES).kernel
    tiles = replace(_DESCRIBED, rows=64, keys=64)
    source = attention.generate("k", wide, how=_HOW, tiles=tiles)
    assert source is not None and [m.box for m in source.tensor_maps] == [(64, 64), (64, 64)]
    assert "tensor" in compile_source(source, "cuda", 90, 32).assembly
