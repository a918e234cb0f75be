"""Small loops: as one dispatch that goes round by itself, and as a loop of dispatches.

    python benchmarks/loops.py --device cpu
    python benchmarks/loops.py --device vulkan --trip 1024 --dispatch 8192

Each program is compiled twice: as the device's target compiles loops (or as `--trip` and
`--dispatch` say, see `kernel.target.LoopPoints`), and with every loop left to commands. Both
files are loaded, checked against numpy, and called in turn; a row has the smallest time of a
call either way and what of it a trip takes. Programs are StableHLO text, an LSTM is ONNX.
"""

from __future__ import annotations

import argparse
import os
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest.mock import PropertyMock, patch

import numpy as np

import headrace
from headrace.kernel.target import LoopPoints
from headrace.targets.table import target

_COUNTED = """
module {{
  func.func public @main({arguments}) -> ({results}) {{
    %zero = stablehlo.constant dense<0> : tensor<i32>
    %one = stablehlo.constant dense<1> : tensor<i32>
    %limit = stablehlo.constant dense<{trips}> : tensor<i32>
{before}
    %r:{count} = stablehlo.while(%i = %zero, {starts}) : tensor<i32>, {types}
    cond {{
      %c = stablehlo.compare LT, %i, %limit, SIGNED : (tensor<i32>, tensor<i32>) -> tensor<i1>
      stablehlo.return %c : tensor<i1>
    }} do {{
      %next = stablehlo.add %i, %one : tensor<i32>
{body}
      stablehlo.return %next, {following} : tensor<i32>, {types}
    }}
    return {returned} : {results}
  }}
}}
"""

_NEWTON = """
module {
  func.func public @main(%a: tensor<f32>) -> (tensor<f32>) {
    %half = stablehlo.constant dense<5.0e-01> : tensor<f32>
    %small = stablehlo.constant dense<1.0e-05> : tensor<f32>
    %close = stablehlo.multiply %a, %small : tensor<f32>
    %r = stablehlo.while(%x = %a) : tensor<f32>
    cond {
      %s = stablehlo.multiply %x, %x : tensor<f32>
      %d = stablehlo.subtract %s, %a : tensor<f32>
      %e = stablehlo.abs %d : tensor<f32>
      %c = stablehlo.compare GT, %e, %close, FLOAT : (tensor<f32>, tensor<f32>) -> tensor<i1>
      stablehlo.return %c : tensor<i1>
    } do {
      %q = stablehlo.divide %a, %x : tensor<f32>
      %s = stablehlo.add %x, %q : tensor<f32>
      %n = stablehlo.multiply %s, %half : tensor<f32>
      stablehlo.return %n : tensor<f32>
    }
    return %r : tensor<f32>
  }
}
"""


@dataclass(frozen=True)
class Case:
    """A program with a loop.

    Attributes:
        suffix: of its file.
        inputs, expected: of a call, and what it gives.
    """

    name: str
    trips: int
    suffix: str
    content: bytes
    inputs: tuple[Any, ...]
    expected: tuple[Any, ...]


def _scaled(size: int, trips: int) -> Case:
    """x * 0.999 + 1, again and again."""
    kind = f"tensor<{size}xf32>"
    text = _COUNTED.format(
        arguments=f"%x: {kind}", results=kind, trips=trips, count=2, starts="%v = %x",
        types=kind, following="%w", returned="%r#1",
        before=f"    %f = stablehlo.constant dense<9.99e-01> : {kind}\n"
        f"    %t = stablehlo.constant dense<1.0> : {kind}",
        body=f"      %p = stablehlo.multiply %v, %f : {kind}\n"
        f"      %w = stablehlo.add %p, %t : {kind}",
    )  # fmt: skip
    x = np.linspace(0, 1, size, dtype=np.float32)
    y = x
    for _ in range(trips):
        y = y * np.float32(0.999) + np.float32(1)
    return Case(f"x 0.999 + 1, {size} wide", trips, ".mlir", text.encode(), (x,), (y,))


def _recurrence(size: int, trips: int) -> Case:
    """h = tanh(h u + x[i]), each h kept."""
    row, matrix = f"tensor<1x{size}xf32>", f"tensor<{size}x{size}xf32>"
    rows = f"tensor<{trips}x{size}xf32>"
    text = _COUNTED.format(
        arguments=f"%x: {rows}, %u: {matrix}", results=rows, trips=trips, count=3,
        starts="%h = %begin, %kept = %none", types=f"{row}, {rows}",
        following="%t, %all", returned="%r#2",
        before=f"    %begin = stablehlo.constant dense<0.0> : {row}\n"
        f"    %none = stablehlo.constant dense<0.0> : {rows}",
        body=f"      %p = stablehlo.dot_general %h, %u, contracting_dims = [1] x [0] : "
        f"({row}, {matrix}) -> {row}\n"
        f"      %a = stablehlo.dynamic_slice %x, %i, %zero, sizes = [1, {size}] : "
        f"({rows}, tensor<i32>, tensor<i32>) -> {row}\n"
        f"      %s = stablehlo.add %p, %a : {row}\n"
        f"      %t = stablehlo.tanh %s : {row}\n"
        f"      %all = stablehlo.dynamic_update_slice %kept, %t, %i, %zero : "
        f"({rows}, {row}, tensor<i32>, tensor<i32>) -> {rows}",
    )  # fmt: skip
    random = np.random.default_rng(0)
    x = random.standard_normal((trips, size)).astype(np.float32)
    u = (random.standard_normal((size, size)) / np.sqrt(size)).astype(np.float32)
    kept = np.zeros_like(x)
    h = np.zeros((1, size), np.float32)
    for n in range(trips):
        h = np.tanh(h @ u + x[n : n + 1])
        kept[n] = h[0]
    name = f"recurrence of {size}"
    return Case(name, trips, ".mlir", text.encode(), (x, u), (kept,))


def _newton() -> Case:
    a, x, trips = np.float32(123456), np.float32(123456), 0
    while abs(x * x - a) > a * np.float32(1e-5):
        x, trips = np.float32(0.5) * (x + a / x), trips + 1
    return Case("Newton, until it is close", trips, ".mlir", _NEWTON.encode(), (a,), (x,))


def _lstm(hidden: int, trips: int) -> Case:
    from onnx import TensorProto, helper

    random = np.random.default_rng(0)

    def weight(*shape: int) -> Any:
        return (random.standard_normal(shape) * 0.1).astype(np.float32)

    w, r = weight(1, 4 * hidden, hidden), weight(1, 4 * hidden, hidden)
    graph = helper.make_graph(
        [helper.make_node("LSTM", ["x", "w", "r"], ["y"], hidden_size=hidden)],
        "lstm",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [trips, 1, hidden])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [trips, 1, 1, hidden])],
        [
            helper.make_tensor(n, TensorProto.FLOAT, v.shape, v.tobytes(), raw=True)
            for n, v in (("w", w), ("r", r))
        ],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])
    x = random.standard_normal((trips, 1, hidden)).astype(np.float32)
    h = c = np.zeros((1, hidden), np.float32)
    rows: list[Any] = []
    for n in range(trips):
        i, o, f, g = np.split(x[n] @ w[0].T + h @ r[0].T, 4, axis=1)
        c = c / (1 + np.exp(-f)) + np.tanh(g) / (1 + np.exp(-i))
        h = np.tanh(c) / (1 + np.exp(-o))
        rows.append(h)
    expected = np.stack(rows).reshape(trips, 1, 1, hidden)
    content = model.SerializeToString()
    return Case(f"LSTM of {hidden} (ONNX)", trips, ".onnx", content, (x,), (expected,))


CASES: tuple[Callable[[], Case], ...] = (
    lambda: _scaled(1, 1000),
    _newton,
    *(lambda n=n: _scaled(n, 1000) for n in (16, 256, 1024)),
    *(lambda n=n: _recurrence(n, 1000) for n in (4, 16, 64, 128, 240)),
    lambda: _lstm(64, 128),
)


def _modules(case: Case, device: str, points: LoopPoints | None, folder: Path) -> list[Any]:
    """The program both ways, loaded."""
    source = folder / f"model{case.suffix}"
    source.write_bytes(case.content)
    kind = type(target(device))
    own = target(device).loop_points if points is None else points
    found: list[Any] = []
    for number, chosen in enumerate((None, own)):
        made = folder / f"{number}.hrx"
        with patch.object(kind, "loop_points", PropertyMock(return_value=chosen)):
            headrace.compile(source, made, targets=[device])
        module = headrace.load(made, device=device)
        for answer, expected in zip(module(*case.inputs), case.expected, strict=True):
            np.testing.assert_allclose(np.asarray(answer), expected, rtol=1e-3, atol=1e-4)
        found.append(module)
    return found


def _smallest(modules: Sequence[Any], inputs: Sequence[Any], seconds: float) -> list[float]:
    times = [float("inf")] * len(modules)
    end = time.perf_counter() + seconds
    while time.perf_counter() < end:
        for number, module in enumerate(modules):
            for _ in range(3):
                begin = time.perf_counter()
                module(*inputs)
                times[number] = min(times[number], time.perf_counter() - begin)
    return times


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--trip", type=int, default=0, help="points of a trip; 0: the target's")
    parser.add_argument("--dispatch", type=int, default=1 << 20, help="points of a dispatch")
    parser.add_argument("--seconds", type=float, default=1.0, help="for each program")
    parser.add_argument("--cases", type=int, nargs="+", default=range(len(CASES)))
    given = parser.parse_args()
    points = LoopPoints(given.trip, given.dispatch) if given.trip else None
    os.environ["HEADRACE_MODEL_CACHE"] = "0"
    print("| program | trips | dispatches | one dispatch | a trip |")
    print("|---|---|---|---|---|", flush=True)
    for number in given.cases:
        case = CASES[number]()
        with tempfile.TemporaryDirectory() as folder:
            modules = _modules(case, given.device, points, Path(folder))
            before, after = _smallest(modules, case.inputs, given.seconds)
        trip = f"{1e6 * before / case.trips:.2f} -> {1e6 * after / case.trips:.2f} us"
        row = (case.name, case.trips, f"{1e6 * before:.0f} us", f"{1e6 * after:.0f} us", trip)
        print("| " + " | ".join(map(str, row)) + " |", flush=True)


if __name__ == "__main__":
    main()
