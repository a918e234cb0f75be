"""Large weights stay in the model's file: where they stand, and what is left for the parser."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from onnx_graphs import model_of

from headrace.base.errors import HeadraceError
from headrace.base.parameters import ArraySource, FileSource
from headrace.importers.onnx.file_layout import LEAST_BYTES, light_model
from headrace.importers.onnx.reader import load
from headrace.tensor.interp import evaluate_source

_LARGE = np.arange(LEAST_BYTES, dtype=np.float32).reshape(4, -1)
_SMALL = np.arange(10_000, dtype=np.float32)


def _model(*tensors: TensorProto) -> onnx.ModelProto:
    """A model that returns its weights as they are."""
    nodes = [helper.make_node("Identity", [t.name], [f"{t.name}_out"]) for t in tensors]
    proto = model_of(nodes, {"x": _SMALL}, [f"{t.name}_out" for t in tensors])
    proto.graph.initializer.extend(tensors)
    return proto


def _saved(folder: Path, proto: onnx.ModelProto) -> Path:
    path = folder / "model.onnx"
    path.write_bytes(proto.SerializeToString())
    return path


def _tensor(name: str, array: Any) -> TensorProto:
    return numpy_helper.from_array(array, name)


def test_places_are_those_of_the_bytes_and_the_rest_is_parsed_alike() -> None:
    proto = _model(_tensor("small", _SMALL), _tensor("large", _LARGE), _tensor("last", _SMALL))
    data = proto.SerializeToString()
    light = light_model(memoryview(data))
    ((number, (offset, size)),) = light.places.items()
    assert (number, data[offset : offset + size]) == (1, _LARGE.tobytes())
    parsed = onnx.ModelProto.FromString(bytes(light.data))
    assert len(light.data) < len(data) - _LARGE.nbytes + 8
    parsed.graph.initializer[1].raw_data = _LARGE.tobytes()
    assert parsed == proto


def test_sources_are_places_for_large_weights_and_arrays_for_small_ones(tmp_path: Path) -> None:
    bits = np.arange(2 * LEAST_BYTES).astype(np.int8) & 7
    proto = _model(
        _tensor("small", _SMALL),
        _tensor("large", _LARGE),
        _tensor("narrow", bits.astype(ml_dtypes.int4)),
        _tensor("flags", np.tile([True, False], LEAST_BYTES)),
    )
    sources = load(_saved(tmp_path, proto)).parameters
    kinds = {name: type(source) for name, source in sources.items()}
    assert kinds == {
        "small": ArraySource,
        "large": FileSource,
        "narrow": ArraySource,
        "flags": FileSource,
    }
    np.testing.assert_array_equal(evaluate_source(sources["large"]), _LARGE)
    np.testing.assert_array_equal(evaluate_source(sources["narrow"]).astype(np.int8), bits)
    assert evaluate_source(sources["flags"])[:4].tolist() == [True, False, True, False]


def test_a_weight_that_does_not_fit_its_shape_is_refused(tmp_path: Path) -> None:
    tensor = _tensor("large", _LARGE)
    tensor.dims[0] = 5
    with pytest.raises(HeadraceError, match=r"HR1111.*has \d+ bytes of data") as caught:
        load(_saved(tmp_path, _model(tensor)))
    assert "weight 'large'" in str(caught.value)


@pytest.mark.parametrize("cut", [1, 100, LEAST_BYTES, 4 * LEAST_BYTES])
def test_a_cut_file_is_left_to_the_parser(tmp_path: Path, cut: int) -> None:
    data = _model(_tensor("large", _LARGE)).SerializeToString()
    assert not light_model(memoryview(data)[:-cut]).places
    path = tmp_path / "cut.onnx"
    path.write_bytes(data[:-cut])
    with pytest.raises(HeadraceError, match="HR1102"):
        load(path)


def test_two_graphs_are_merged_by_the_parser() -> None:
    data = _model(_tensor("large", _LARGE)).SerializeToString()
    light = light_model(memoryview(data + data))
    assert not light.places
    assert bytes(light.data) == data + data


def test_a_linked_file_is_read_where_it_stands(tmp_path: Path) -> None:
    (tmp_path / "away").mkdir()
    (tmp_path / "here").mkdir()
    path = _saved(tmp_path / "away", _model(_tensor("large", _LARGE)))
    link = tmp_path / "here" / "link.onnx"
    link.symlink_to(path)
    source = load(link).parameters["large"]
    np.testing.assert_array_equal(evaluate_source(source), _LARGE)
