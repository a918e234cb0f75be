"""Row 6 of the CUDA issue: products of bf16 with bias and relu beside cuBLAS's plain product.

4096 x 4096 x 4096, and shapes drawn when it runs: rows from 64 to 8192, columns and depth from
256 to 8192 in steps of 8, each evenly on a logarithmic scale. Kernels are as the target
translates them, with the table that it is shipped with (and what `headrace tune` kept). Both
sides run in CUDA graphs of some launches, in turn; times are medians of a launch.
"""

from __future__ import annotations

import importlib
import math
import os
import random
import statistics
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import cache
from typing import Any

from headrace.base.bundle import split_code
from headrace.kernel.target import Code, Launch
from headrace.kernel.text import parse_kernel
from headrace.runtime.drivers.cuda_calls import CudaCalls
from headrace.runtime.drivers.cuda_commands import Parameters
from headrace.runtime.drivers.cuda_cubin import required_threads
from headrace.runtime.drivers.cuda_tensor_map import matrix
from headrace.targets.table import target

Shape = tuple[int, int, int]
"""Rows, columns, depth."""

SQUARE: Shape = (4096, 4096, 4096)
_DRAWN = 20
_ROUNDS = 15
_GRAPH_SECONDS = 4e-3
_PLAIN_SHARED_BYTES = 48 << 10

_TEXT = """
kernel(%d0 = {rows}, %d1 = {columns}) {{
  ro x : bf16[{rows}, {depth}]
  ro constant w : bf16[{depth}, {columns}] layout [1, {depth}] offset 0 size {weights}
  ro constant b : bf16[{columns}]
  wo y : bf16[{rows}, {columns}]
  local a : f32
  reduce(%r0 = {depth}) {{
    %v0 = load x[%d0, %r0]
    %v1 = convert(%v0) : f32
    %v2 = load w[%r0, %d1]
    %v3 = convert(%v2) : f32
    %v4 = multiply(%v1, %v3) : f32
    fold %v4 from 0.0 with add into a
  }}
  map() {{
    %v5 = read a[]
    %v6 = load b[%d1]
    %v7 = convert(%v6) : f32
    %v8 = add(%v5, %v7) : f32
    %v9 = constant 0.0 : f32
    %v10 = maximum(%v8, %v9) : f32
    %v11 = convert(%v10) : bf16
    store %v11 to y[%d0, %d1]
  }}
}}
"""


def drawn_shapes(seed: int, count: int = _DRAWN) -> list[Shape]:
    """Shapes of products, drawn."""
    draw = random.Random(seed)

    def size(least: int, step: int) -> int:
        value = math.exp(draw.uniform(math.log(least), math.log(8192)))
        return round(value / step) * step

    return [(size(64, 1), size(256, 8), size(256, 8)) for _ in range(count)]


def translated(shape: Shape) -> Code:
    """The code of one product."""
    rows, columns, depth = shape
    text = _TEXT.format(rows=rows, columns=columns, depth=depth, weights=columns * depth)
    return target("cuda:sm_90").translate("product", parse_kernel(text))


class _Launches:
    """A product's launches on torch's tensors, as the driver puts them on a stream: each may
    begin while the one before it ends."""

    def __init__(self, code: Code, tensors: Sequence[Any], scratch: Any) -> None:
        self._calls = calls = _driver()
        cubins = split_code(code.data)
        threads = {k: v for cubin in cubins for k, v in required_threads(cubin).items()}
        modules = [calls.load(cubin) for cubin in cubins]
        # A capture gives back what nobody holds.
        self._kept = [*tensors, scratch]
        self._all: list[tuple[Any, Launch, tuple[int, int, int], int, Parameters]] = []
        for launch in code.specialisations[-1].launches:
            function = next(filter(None, (calls.function(m, launch.symbol) for m in modules)))
            if launch.shared_bytes > _PLAIN_SHARED_BYTES:
                calls.allow_shared(function, launch.shared_bytes)
            kept = launch.scratch_bytes.evaluate({})
            if kept > scratch.nbytes:
                raise RuntimeError(f"{kept} bytes of scratch")
            pointers = [t.data_ptr() for t in (*tensors, *([scratch] if kept else []))]
            maps: Any = launch.tensor_maps
            matrices = [matrix(m, pointers[m.binding], {}) for m in maps]
            parameters = Parameters(pointers, (0, 0, 0), matrices)
            x, y, z = (w.evaluate({}) for w in launch.workgroups)
            self._all.append((function, launch, (x, y, z), threads[launch.symbol], parameters))

    def __call__(self) -> None:
        torch: Any = importlib.import_module("torch")
        stream = torch.cuda.current_stream().cuda_stream
        for function, launch, grid, threads, parameters in self._all:
            self._calls.launch(
                function,
                grid,
                threads,
                launch.shared_bytes,
                stream,
                parameters.address,
                launch.overlaps,
                launch.cluster,
            )


@cache
def _driver() -> CudaCalls:
    return CudaCalls()


def _graph(run: Callable[[], object], count: int) -> Any:
    torch: Any = importlib.import_module("torch")
    run()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for _ in range(count):
            run()
    return graph


def _medians(graphs: Sequence[Any], count: int) -> list[float]:
    """Seconds of a launch in each graph, replayed in turn."""
    torch: Any = importlib.import_module("torch")
    times: list[list[float]] = [[] for _ in graphs]
    for _ in range(_ROUNDS):
        for graph, found in zip(graphs, times, strict=True):
            begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            begin.record()
            graph.replay()
            end.record()
            end.synchronize()
            found.append(begin.elapsed_time(end) / 1e3 / count)
    return [statistics.median(found) for found in times]


def _measure(shape: Shape, code: Code) -> float:
    """Prints a row; ours as a share of cuBLAS's rate."""
    torch: Any = importlib.import_module("torch")
    rows, columns, depth = shape

    def normal(*sizes: int) -> Any:
        return torch.randn(*sizes, device="cuda", dtype=torch.bfloat16)

    x, w, bias = normal(rows, depth), normal(columns, depth), normal(columns)
    plain, y, z = w.t().contiguous(), *(torch.empty_like(normal(rows, columns)) for _ in "yz")
    ours = _Launches(code, (x, w, bias, y), torch.empty(1 << 26, device="cuda"))
    operations = 2 * rows * columns * depth
    count = max(4, min(100, int(_GRAPH_SECONDS / (operations / 6e14 + 5e-6))))
    graphs = [
        _graph(ours, count),
        _graph(lambda: torch.mm(x, plain, out=z), count),
        _graph(lambda: torch.relu(torch.nn.functional.linear(x, w, bias)), count),
    ]
    wanted = torch.relu(x.float() @ w.float().t() + bias.float())
    error = float((y.float() - wanted).norm() / wanted.norm())
    mine, cublas, eager = _medians(graphs, count)
    print(
        f"| {rows} x {columns} x {depth} | {operations / mine / 1e12:.0f} | "
        f"{operations / cublas / 1e12:.0f} | {operations / eager / 1e12:.0f} | "
        f"{cublas / mine:.3f} | {error:.1e} |",
        flush=True,
    )
    return cublas / mine


def products(seed: int) -> dict[str, Any]:
    """The table of row 6; cuBLAS's time over ours."""
    shapes = [SQUARE, *drawn_shapes(seed)]
    with ProcessPoolExecutor(os.cpu_count()) as pool:
        codes = list(pool.map(translated, shapes))
    torch: Any = importlib.import_module("torch")
    torch.manual_seed(seed)
    print(f"\nseed {seed}, Triton {importlib.import_module('triton').__version__}; TFLOP/s")
    print(
        "| rows x columns x depth | ours | cuBLAS | torch relu(linear) | ours / cuBLAS | error |"
    )
    print("|---|---|---|---|---|---|")
    ratios = [_measure(shape, code) for shape, code in zip(shapes, codes, strict=True)]
    mean = math.exp(statistics.fmean(map(math.log, ratios[1:])))
    print(f"| {_DRAWN} drawn, geometric mean | | | | {mean:.3f} | |")
    return {"seed": seed, "square": ratios[0], "drawn": mean}
