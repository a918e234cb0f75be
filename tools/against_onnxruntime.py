"""Whole ONNX models beside onnxruntime, and each of their nodes by itself.

    python tools/against_onnxruntime.py [--dim batch=2] [--high 5000] MODEL.onnx ...

Dimensions stay open when compiling; `--dim` gives their sizes in the call, 1 where it does not.
A quantised model turns a rounding into a whole step somewhere, and the steps after it multiply
that; so each node is also given onnxruntime's own values, all in one compile. What then still
differs is ours.
"""

from __future__ import annotations

import argparse
import tempfile
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
from onnx import helper, numpy_helper

import headrace

BUDGETS = ("max", "min")
CONTROL = ("If", "Loop", "Scan")
Arrays = dict[str, Any]


def session(model: str | bytes, plain: bool) -> onnxruntime.InferenceSession:
    """One thread: several quantise parts of a batch by themselves. `plain` fuses nothing."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads, options.log_severity_level = 1, 4
    if plain:
        options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    return onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])


def draw(peer: onnxruntime.InferenceSession, dims: dict[str, int], high: int) -> Arrays:
    """Normal floats, integers below `high`, ones for masks."""
    draws, found = np.random.default_rng(0), Arrays()
    for given in peer.get_inputs():
        shape = [d if isinstance(d, int) else dims.get(d, 1) for d in given.shape]
        name = given.type.removeprefix("tensor(").removesuffix(")")
        kind = {"float": "float32", "double": "float64"}.get(name, name)
        if kind.startswith("float"):
            array = draws.standard_normal(shape)
        else:
            array = np.ones(shape) if "mask" in given.name else draws.integers(0, high, shape)
        found[given.name] = np.asarray(array).astype(kind)
    return found


def error(found: Any, wanted: Any) -> float:
    """The largest difference, as a part of the largest value; of integers, in steps."""
    found, wanted = np.asarray(found), np.asarray(wanted)
    if found.shape != wanted.shape or found.dtype != wanted.dtype:
        return float("inf")
    if not wanted.size or np.array_equal(found, wanted, equal_nan=wanted.dtype.kind == "f"):
        return 0.0
    worst = np.abs(found.astype(float) - wanted.astype(float)).max()
    return float(worst / np.abs(wanted).max() if wanted.dtype.kind == "f" else worst)


def whole(path: Path, inputs: Arrays, folder: str) -> str:
    wanted = session(str(path), plain=False).run(None, inputs)
    made, parts = headrace.compile(path, Path(folder) / "whole.hrx"), list[str]()
    for budget in BUDGETS:
        with headrace.load(made, weight_budget=budget) as module:
            found = tuple(module(**inputs))
        worst = max(error(a, b) for a, b in zip(found, wanted, strict=True))
        parts.append(f"{worst:.1e} at {budget}")
    return ", ".join(parts)


def every_value(model: onnx.ModelProto, inputs: Arrays) -> Arrays:
    """What onnxruntime computes for each name of the graph."""
    shown = onnx.ModelProto()
    shown.CopyFrom(model)
    known = {o.name for o in model.graph.output}
    names = [o for n in model.graph.node for o in n.output if o and o not in known]
    shown.graph.output.extend(helper.make_empty_tensor_value_info(o) for o in names)
    peer = session(shown.SerializeToString(), plain=True)
    made = peer.run(None, inputs)
    return {**inputs, **{o.name: a for o, a in zip(peer.get_outputs(), made, strict=True)}}


def apart(model: onnx.ModelProto, values: Arrays) -> tuple[onnx.ModelProto, Arrays]:
    """The nodes without what joins them, and arrays for their inputs; sizes are constants."""
    constants = {i.name for i in model.graph.initializer}
    constants |= {o for n in model.graph.node if n.op_type == "Constant" for o in n.output}
    graph, inputs = onnx.GraphProto(name="apart", initializer=model.graph.initializer), Arrays()
    for node in model.graph.node:
        if node.op_type in CONTROL:
            continue
        copy = graph.node.add()
        copy.CopyFrom(node)
        for n, name in enumerate(node.input):
            if not name or name in constants:
                continue
            array = np.asarray(values[name])
            copy.input[n] = f"given {name}"
            if array.dtype == np.int64 and array.ndim < 2 and array.size <= 16:
                if copy.input[n] not in {i.name for i in graph.initializer}:
                    graph.initializer.append(numpy_helper.from_array(array, copy.input[n]))
            else:
                inputs[copy.input[n]] = array

    def told(name: str, array: Any) -> onnx.ValueInfoProto:
        kind = helper.np_dtype_to_tensor_dtype(np.asarray(array).dtype)
        return helper.make_tensor_value_info(name, kind, np.shape(array))

    graph.input.extend(told(name, array) for name, array in inputs.items())
    results = [o for n in graph.node if n.op_type != "Constant" for o in n.output if o]
    graph.output.extend(told(name, values[name]) for name in results)
    made = onnx.ModelProto()
    made.CopyFrom(model)
    made.graph.CopyFrom(graph)
    return made, inputs


def by_node(path: Path, inputs: Arrays, folder: str) -> str:
    model = onnx.load(path)
    values = every_value(model, inputs)
    single, given = apart(model, values)
    kinds = {o: n.op_type for n in model.graph.node for o in n.output}
    made = headrace.compile(
        headrace.from_onnx(single, folder=path.parent), Path(folder) / "n.hrx"
    )
    with headrace.load(made) as module:
        found = module(**{i.name: given[i.name] for i in module.inputs})
        errors = {
            o.name: error(a, values[o.name]) for o, a in zip(module.outputs, found, strict=True)
        }
    differ = Counter(kinds[name] for name, size in errors.items() if size > 1e-5)
    return f"{len(errors)} values by themselves, differing: {dict(differ) or 'none'}"


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("models", nargs="+", type=Path)
    parser.add_argument("--dim", action="append", default=[], metavar="NAME=SIZE")
    parser.add_argument("--high", type=int, default=100, help="integer inputs stay below it")
    asked = parser.parse_args()
    dims = {n: int(size) for n, _, size in (d.partition("=") for d in asked.dim)}
    for path in asked.models:
        inputs = draw(session(str(path), plain=False), dims, asked.high)
        with tempfile.TemporaryDirectory(prefix="headrace-") as folder:
            print(f"{path.name}: {whole(path, inputs, folder)}", flush=True)
            print(f"    {by_node(path, inputs, folder)}", flush=True)


if __name__ == "__main__":
    main()
