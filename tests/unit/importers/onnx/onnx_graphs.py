"""Small ONNX models, and the comparison with onnxruntime."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
from onnx import helper, numpy_helper

import headrace
from headrace.importers.onnx.reader import import_model
from headrace.ir.model import Model
from headrace.ir.types import shape_of
from headrace.tensor.interp import find_function, run


def model_of(
    nodes: Sequence[onnx.NodeProto],
    inputs: Mapping[str, Any],
    outputs: Sequence[str],
    *,
    weights: Mapping[str, Any] | None = None,
    opset: int = 21,
    shapes: Mapping[str, Sequence[int | str | None]] | None = None,
    opsets: Mapping[str, int] | None = None,
) -> onnx.ModelProto:
    """A model of nodes.

    Args:
        inputs: name -> an example array (element type and rank).
        weights: name -> array.
        shapes: shapes of inputs other than those of their examples.
        opsets: domain -> version, of domains other than ONNX's own; 1 by default.
    """
    versions = {"": opset, **{n.domain: 1 for n in nodes if n.domain}, **(opsets or {})}
    infos = []
    for name, array in inputs.items():
        kind = helper.np_dtype_to_tensor_dtype(array.dtype)
        shape = list((shapes or {}).get(name, array.shape))
        infos.append(helper.make_tensor_value_info(name, kind, shape))
    graph = helper.make_graph(
        list(nodes),
        "test",
        infos,
        [onnx.ValueInfoProto(name=o) for o in outputs],
        [numpy_helper.from_array(np.asarray(a), n) for n, a in (weights or {}).items()],
    )
    imports = [helper.make_opsetid(d, v) for d, v in versions.items()]
    return helper.make_model(graph, opset_imports=imports, ir_version=10)


def symbolic_shapes(inputs: Mapping[str, Any]) -> dict[str, list[str | int]]:
    """A name of its own for every size of every input but 1, which may stretch."""
    return {
        n: [f"{n}{axis}" if size != 1 else 1 for axis, size in enumerate(a.shape)]
        for n, a in inputs.items()
    }


def result_shapes(model: Model) -> list[str]:
    """The shapes of the results as text: `batch x 128`."""
    block = find_function(model).body.blocks[0]
    last = block.last_op
    assert last is not None
    return [" x ".join(str(s) for s in shape_of(v)) for v in last.operands]


def on_cpu(model: Model, inputs: Mapping[str, Any], folder: Path) -> dict[str, Any]:
    """Compiles for the CPU and runs: the outputs by name."""
    path = folder / "model.hrx"
    headrace.compile(model, path, jobs=1)
    with headrace.load(path, threads=1) as module:
        results = module(**inputs)
        return {o.name: np.array(results[n]) for n, o in enumerate(module.outputs)}


def check_on_cpu(
    proto: onnx.ModelProto,
    inputs: Mapping[str, Any],
    folder: Path,
    *,
    tolerance: float = 1e-5,
    wanted: Sequence[Any] | None = None,
) -> None:
    """Interpreter and compiled model against onnxruntime, or against `wanted`."""
    model = import_model(proto)
    expected = peer(proto, inputs) if wanted is None else wanted
    _compare(proto, run(model, dict(inputs)), expected, tolerance)
    _compare(proto, on_cpu(model, inputs, folder), expected, tolerance)


def check(
    proto: onnx.ModelProto,
    inputs: Mapping[str, Any],
    *,
    tolerance: float = 1e-5,
    dimensions: Mapping[str, Any] | None = None,
) -> Model:
    """Imports, runs by the interpreter, and compares with onnxruntime."""
    model = import_model(proto, dimensions=dimensions)
    _compare(proto, run(model, dict(inputs)), peer(proto, inputs), tolerance)
    return model


def peer(proto: onnx.ModelProto, inputs: Mapping[str, Any]) -> Sequence[Any]:
    """What onnxruntime computes: the outputs in the graph's order."""
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(proto.SerializeToString(), options)
    return session.run(None, dict(inputs))


def _compare(
    proto: onnx.ModelProto, got: Mapping[str, Any], wanted: Sequence[Any], tolerance: float
) -> None:
    for output, want in zip(proto.graph.output, wanted, strict=True):
        result, expected = got[output.name], np.asarray(want)
        assert result.shape == expected.shape
        assert result.dtype == expected.dtype
        np.testing.assert_allclose(
            result.astype(np.float64),
            expected.astype(np.float64),
            rtol=tolerance,
            atol=tolerance,
        )
