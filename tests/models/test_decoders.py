"""Prefill and decode in one file: weights once, caches in place, the same tokens as onnxruntime."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from tests.models.decoders import Decoder

import headrace
from headrace.artifact import schema
from headrace.artifact.reader import open_artifact

SIZES = Decoder(128, 4, 3, 512, 64, 48)

Prefill = Callable[[Any], Sequence[Any]]
Decode = Callable[[Any, Any, Sequence[Any]], Sequence[Any]]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Both graphs, and the file made of them."""
    folder = tmp_path_factory.mktemp("decoder")
    onnx.save(SIZES.prefill(), folder / "prefill.onnx")
    onnx.save(SIZES.decode(), folder / "decode.onnx")
    models = {name: folder / f"{name}.onnx" for name in ("prefill", "decode")}
    headrace.compile(models, folder / "both.hrx", aliases={"past_*": "present_*"})
    return folder


def greedy(prefill: Prefill, decode: Decode) -> tuple[list[int], Sequence[Any]]:
    """The tokens said until the caches are full, and the caches then."""
    tokens = np.arange(SIZES.prompt)[None] * 7 % SIZES.vocabulary
    logits, *caches = prefill(tokens)
    said: list[int] = []
    for place in range(SIZES.prompt, SIZES.positions):
        said.append(int(np.argmax(logits)))
        logits, *caches = decode(np.array([[said[-1]]]), np.array([place]), caches)
    return said, caches


@pytest.fixture(scope="module")
def wanted(folder: Path) -> tuple[list[int], Sequence[Any]]:
    import onnxruntime

    first, then = (
        onnxruntime.InferenceSession(folder / f"{n}.onnx") for n in ("prefill", "decode")
    )
    names = [i.name for i in then.get_inputs()]
    return greedy(
        lambda tokens: first.run(None, {"tokens": tokens}),
        lambda token, place, caches: then.run(
            None, dict(zip(names, (token, place, *caches), strict=True))
        ),
    )


@pytest.mark.parametrize("budget", ["max", "50%", "min"])
@pytest.mark.parametrize("donate", [True, False])
def test_it_says_the_same(
    folder: Path, wanted: tuple[list[int], Sequence[Any]], budget: str, donate: bool
) -> None:
    with headrace.load(folder / "both.hrx", weight_budget=budget) as module:
        prefill, decode = module.entry("prefill"), module.entry("decode")
        said, caches = greedy(
            prefill, lambda token, place, c: decode(token, place, *c, donate=donate)
        )
    assert said == wanted[0]
    assert len(set(said)) > 2
    for found, right in zip(caches, wanted[1], strict=True):
        np.testing.assert_allclose(found, right, rtol=1e-4, atol=1e-5)


def test_caches_are_the_same_arrays_from_step_to_step(folder: Path) -> None:
    def place_of(array: Any) -> int:
        return array.__array_interface__["data"][0]

    with headrace.load(folder / "both.hrx") as module:
        decode = module.entry("decode")
        _, *caches = module.entry("prefill")(np.zeros((1, SIZES.prompt), np.int64))
        places = [place_of(c) for c in caches]
        for n in range(3):
            position = np.array([SIZES.prompt + n])
            _, *caches = decode(np.zeros((1, 1), np.int64), position, *caches, donate=True)
        assert [place_of(c) for c in caches] == places


def test_weights_are_stored_once_and_no_cache_is_copied(folder: Path) -> None:
    module = open_artifact(folder / "both.hrx").module
    prefill, decode = module.programs[0].functions
    shared = {r.weight for r in prefill.resources} & {r.weight for r in decode.resources}
    large = [n for n, w in enumerate(module.weights) if w.size_bytes >= 1 << 16]
    # Only prefill has positions that are known, and a mask that is a constant.
    assert [module.weights[n].name for n in large if n not in shared] == []
    assert len(decode.aliases) == 2 * SIZES.layers
    cache = np.prod(SIZES.cache_shape) * 4
    assert not any(isinstance(c, schema.Copy) for c in decode.body.commands)
    transients = [r.size_bytes.value for r in decode.resources if r.lifetime == "transient"]
    assert max(transients) < cache


def test_what_is_stored_in_two_layouts_is_told(folder: Path) -> None:
    """The table of tokens is gathered from by rows, and a factor of the logits."""
    from headrace import api

    described = api.inspect(folder / "both.hrx")
    (again,) = described.data["stored_again"]
    assert len(again["bytes"]) == 2
    assert "is stored in 2 layouts" in described.text
