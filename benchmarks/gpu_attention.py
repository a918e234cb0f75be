"""Attention alone: what it takes as the target schedules it, and by other tiles, beside torch.

    python benchmarks/gpu_attention.py [--tiles] [--before FILE.py]

Decoders' causal attention (bf16, f16), one row over a past, and BERT-base's with a mask that is
read. Times are medians of a launch in CUDA graphs of some, in turn; `--tiles` tries schedules;
`--before` takes `generate` of another version of `targets/triton/attention.py` too.
"""

from __future__ import annotations

import argparse
import importlib
import importlib.util
import os
import statistics
import sys
from collections.abc import Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

from headrace.kernel.description import Kernel
from headrace.kernel.text import parse_kernel
from headrace.runtime.drivers.cuda_calls import CudaCalls
from headrace.runtime.drivers.cuda_commands import Parameters
from headrace.runtime.drivers.cuda_tensor_map import matrix
from headrace.targets.triton import attention
from headrace.targets.triton.attention import AttentionTiles as Tiles
from headrace.targets.triton.compile import Binary, compile_source
from headrace.targets.triton.naive import TritonSource
from headrace.targets.triton.tuned import PLAIN
from headrace.targets.triton.variants import variants

_ROUNDS = 9
_PLAIN_SHARED_BYTES = 48 << 10
_HOW = replace(PLAIN, descriptors=True)

_TRIED = (
    (64, 64, 3), (64, 64, 2), (128, 64, 3), (128, 64, 2), (128, 128, 2), (64, 128, 2), (128, 32, 3),
    (64, 32, 4),
)  # fmt: skip
"""Rows, keys and stages."""

_TEXT = """
kernel(%d0 = {batch}, %d1 = {heads}, %d2 = {rows}) {dims} {{
  ro q : {kind}[{batch}, {rows}, {heads}, {width}]
  ro k : {kind}[{batch}, {keys}, {heads}, {width}]
  ro v : {kind}[{batch}, {keys}, {heads}, {width}]
  ro mask : {kind}[{batch}, {keys}]
  wo y : {kind}[{batch}, {rows}, {heads}, {width}]
  local fold0 : f32[{keys}]
  local kept1 : {kind}[{keys}]
  local kept2 : f32[{keys}]
  local fold3 : f32
  local fold4 : f32
  local kept5 : {kind}[{keys}]
  local fold6 : f32[{width}]
  reduce(%d3 = {keys}, %r0 = {width}) {{
    %v0 = load q[%d0, %d2, %d1, %r0]
    %v1 = load k[%d0, %d3, %d1, %r0]
    %v2 = convert(%v0) : f32
    %v3 = convert(%v1) : f32
    %v4 = multiply(%v2, %v3) : f32
    fold %v4 from 0.0 with add into fold0
  }}
  map(%d3 = {keys}) {{
    %v5 = read fold0[%d3]
    %v6 = convert(%v5) : {kind}
    set kept1[%d3] = %v6
  }}
  map(%d3 = {keys}) {{
    %v7 = read kept1[%d3]
    %v8 = constant {scale} : {kind}
    %v9 = multiply(%v7, %v8) : {kind}
{mask}
    set kept2[%d3] = %v15
  }}
  reduce(%r0 = {keys}) {{
    %v16 = read kept2[%r0]
    fold %v16 from -inf with maximum into fold3
  }}
  reduce(%r0 = {keys}) {{
    %v17 = read kept2[%r0]
    %v18 = read fold3[]
    %v19 = subtract(%v17, %v18) : f32
    %v20 = exponential(%v19) : f32
    fold %v20 from 0.0 with add into fold4
  }}
  map(%d3 = {keys}) {{
    %v21 = read kept2[%d3]
    %v22 = read fold3[]
    %v23 = subtract(%v21, %v22) : f32
    %v24 = exponential(%v23) : f32
    %v25 = read fold4[]
    %v26 = divide(%v24, %v25) : f32
    %v27 = convert(%v26) : {kind}
    set kept5[%d3] = %v27
  }}
  reduce(%d3 = {width}, %r0 = {keys}) {{
    %v28 = read kept5[%r0]
    %v29 = load v[%d0, %r0, %d1, %d3]
    %v30 = convert(%v28) : f32
    %v31 = convert(%v29) : f32
    %v32 = multiply(%v30, %v31) : f32
    fold %v32 from 0.0 with add into fold6
  }}
  map(%d3 = {width}) {{
    %v33 = read fold6[%d3]
    %v34 = convert(%v33) : {kind}
    store %v34 to y[%d0, %d2, %d1, %d3]
  }}
}}
"""
_CAUSAL = """    %v10 = convert(%v9) : f32
    %v11 = index [%d3] : i64
    %v12 = index [{place}] : i64
    %v13 = compare LE(%v11, %v12) : i1
    %v14 = constant -inf : f32
    %v15 = select(%v13, %v10, %v14) : f32"""
_READ = """    %v10 = load mask[%d0, %d3]
    %v11 = add(%v9, %v10) : {kind}
    %v15 = convert(%v11) : f32"""


@dataclass(frozen=True)
class Problem:
    """Attention of [batch, rows, heads, width]; `rows` and `keys` as the kernel names them."""

    name: str
    kind: str
    batch: int
    heads: int
    width: int
    rows: str
    keys: str
    sizes: tuple[tuple[str, int], ...] = ()
    causal: bool = True
    tried: bool = True

    @property
    def dims(self) -> dict[str, int]:
        return dict(self.sizes)

    def size(self, text: str) -> int:
        """A number of rows or keys."""
        return sum(self.dims.get(part, 0) or int(part) for part in text.split(" + "))

    @property
    def kernel(self) -> Kernel:
        past = self.keys.partition(" + ")[2]
        place = f"%d2 + {past}" if past else "%d2"
        mask = _CAUSAL.format(place=place) if self.causal else _READ.format(kind=self.kind)
        text = _TEXT.format(
            kind=self.kind, batch=self.batch, heads=self.heads, width=self.width,
            rows=self.rows, keys=self.keys, scale=self.width**-0.5, mask=mask,
            dims=f"dims({', '.join(self.dims)})" if self.sizes else "",
        )  # fmt: skip
        return parse_kernel(text)


PROBLEMS = (
    Problem("decoder", "bf16", 1, 32, 128, "tokens", "tokens", (("tokens", 2048),)),
    Problem("decoder", "bf16", 1, 32, 128, "tokens", "tokens", (("tokens", 1001),)),
    Problem("decoder", "bf16", 1, 32, 128, "tokens", "tokens", (("tokens", 128),)),
    Problem("past", "bf16", 1, 32, 128, "n", "n + p", (("n", 300), ("p", 1000)), tried=False),
    Problem("one row", "f16", 1, 12, 64, "n", "n + p", (("n", 1), ("p", 500)), tried=False),
    Problem("GPT-2", "f16", 1, 12, 64, "512", "512"),
    Problem("BERT", "f16", 32, 12, 64, "128", "128", causal=False),
    Problem("BERT", "f16", 1, 12, 64, "384", "384", causal=False),
)


def schedules(problem: Problem) -> list[Tiles]:
    """What may suit a problem of many rows."""
    made: list[Tiles] = []
    for rows, keys, stages in _TRIED:
        shared = stages * keys * problem.width * 4 + rows * problem.width * 2
        if shared > 220 << 10 or keys > problem.size(problem.keys):
            continue
        tiles = Tiles(rows, keys, rows // 16, stages)
        made += [tiles, replace(tiles, described=True)]
        if problem.causal:
            made.append(replace(tiles, described=True, together=True))
    return made


@dataclass(frozen=True)
class Way:
    """A source and its name; `registers` at most, 0 for as many as there are."""

    name: str
    source: TritonSource
    registers: int = 0


@cache
def _module(path: str) -> Any:
    spec = importlib.util.spec_from_file_location("attention_before", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def ways(problem: Problem, tiles: bool, before: str) -> list[Way]:
    kernel, dims = problem.kernel, problem.dims
    usual = next(
        v for v in variants("k", kernel, _HOW) if all(c.holds(dims) for c in v.conditions)
    )
    found = [Way("rule", usual.sources[0])]
    if before:
        module = _module(before)
        rows = 16 if problem.size(problem.rows) <= 16 else 4096
        found.append(Way("before", module.generate("k", kernel, rows)))
    if tiles and problem.tried:
        for t in schedules(problem):
            source = attention.generate("k", kernel, 4096, None, _HOW, t)
            assert source is not None
            name = f"{t.rows},{t.keys},{t.warps},{t.stages}"
            name += " maps" * t.described + " together" * t.together
            found.append(Way(name, source))
            if t.described and t.rows == 128 and t.keys < 128 and t.together == problem.causal:
                found.append(Way(f"{name} 128 registers", source, 128))
    return found


def compiled(way: Way) -> Binary | str:
    triton: Any = importlib.import_module("triton")
    plain = triton.compile

    def limited(*arguments: Any, options: Mapping[str, Any], **others: Any) -> Any:
        return plain(*arguments, options={**options, "maxnreg": way.registers}, **others)

    triton.compile = limited if way.registers else plain
    try:
        return compile_source(way.source, "cuda", 90, 32)
    except Exception as wrong:
        return str(wrong)[:100]
    finally:
        triton.compile = plain


@cache
def _driver() -> CudaCalls:
    return CudaCalls()


class _Launch:
    """A way on torch's tensors."""

    def __init__(self, way: Way, binary: Binary, tensors: Sequence[Any], dims: dict[str, int]):
        calls, self._binary, self._way = _driver(), binary, way
        self._kept = tensors
        self._module = calls.load(binary.data)
        self._function = calls.function(self._module, binary.symbol)
        if binary.shared_bytes > _PLAIN_SHARED_BYTES:
            calls.allow_shared(self._function, binary.shared_bytes)
        pointers = [t.data_ptr() for t in tensors]
        maps: Any = way.source.tensor_maps
        matrices = [matrix(m, pointers[m.binding], dims) for m in maps]
        names = [n for n, _ in way.source.signature if n.startswith("dim")]
        words = (0, 0, 0, *list(dims.values())[: len(names)])
        self._parameters = Parameters(pointers, words, matrices)
        x, y, z = (w.evaluate(dims) for w in way.source.workgroups)
        self._grid = (x, y, z)

    def __call__(self) -> None:
        torch: Any = importlib.import_module("torch")
        _driver().launch(
            self._function,
            self._grid,
            self._way.source.warps * 32,
            self._binary.shared_bytes,
            torch.cuda.current_stream().cuda_stream,
            self._parameters.address,
            self._binary.overlaps,
        )


def _graph(run: Any, count: int) -> Any:
    torch: Any = importlib.import_module("torch")
    run()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for _ in range(count):
            run()
    return graph


def _median_us(graph: Any, count: int) -> float:
    torch: Any = importlib.import_module("torch")
    times: list[float] = []
    for _ in range(_ROUNDS):
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        graph.replay()
        end.record()
        end.synchronize()
        times.append(begin.elapsed_time(end) * 1e3 / count)
    return statistics.median(times[1:])


def measure(problem: Problem, found: Sequence[Way], binaries: Sequence[Binary | str]) -> None:
    """Prints the times of a problem."""
    torch: Any = importlib.import_module("torch")
    dtype = {"bf16": torch.bfloat16, "f16": torch.float16}[problem.kind]
    rows, keys = problem.size(problem.rows), problem.size(problem.keys)

    def normal(count: int) -> Any:
        shape = (problem.batch, count, problem.heads, problem.width)
        return torch.randn(*shape, device="cuda", dtype=dtype)

    q, k, v, y = normal(rows), normal(keys), normal(keys), normal(rows)
    padding = torch.zeros(problem.batch, keys, device="cuda", dtype=dtype)
    if not problem.causal:
        padding[:, keys - keys // 5 :] = torch.finfo(dtype).min
    seen = padding[:, None, None, :].expand(-1, -1, rows, -1)
    if problem.causal:
        ones = torch.ones(rows, keys, device="cuda", dtype=torch.bool)
        seen = torch.zeros(rows, keys, device="cuda", dtype=dtype)
        seen.masked_fill_(~ones.tril(keys - rows), -torch.inf)
    heads = [t.transpose(1, 2) for t in (q, k, v)]
    wide = [t.float() for t in heads]
    scores = wide[0] @ wide[1].transpose(2, 3) * problem.width**-0.5 + seen.float()
    wanted = (scores.softmax(-1) @ wide[2]).transpose(1, 2)
    del scores
    attend = torch.nn.functional.scaled_dot_product_attention
    square = problem.causal and rows == keys

    def peer() -> Any:
        if square:
            return attend(*heads, is_causal=True)
        return attend(*heads, attn_mask=seen if rows > 1 or not problem.causal else None)

    work = problem.batch * problem.heads * rows * keys * problem.width * 4
    count = max(8, min(60, int(2e-3 / (work / 3e14 + 3e-6))))
    lines: list[tuple[float, str]] = []
    base = _median_us(_graph(peer, count), count)
    for way, binary in zip(found, binaries, strict=True):
        if isinstance(binary, str):
            lines.append((1e9, f"{way.name}: {binary}"))
            continue
        try:
            y.zero_()
            run = _Launch(way, binary, (q, k, v, padding, y), problem.dims)
            graph = _graph(run, count)
            time = _median_us(graph, count)
            error = float((y.float() - wanted).abs().max() / wanted.abs().max())
            lines.append((time, f"{way.name} {time:.1f} ({error:.0e})"))
            del graph
        except Exception as wrong:
            lines.append((1e9, f"{way.name}: {wrong}"[:120]))
    first = [text for _, text in lines if text.startswith(("rule", "before"))]
    others = [t for _, t in sorted(lines) if not t.startswith(("rule", "before"))]
    sizes = f"{problem.batch} x {problem.heads} x {rows} x {keys} x {problem.width}"
    print(f"| {problem.name} {problem.kind} {sizes} | torch {base:.1f} | {', '.join(first)} |")
    for text in others:
        print(f"    {text}")
    print(end="", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--tiles", action="store_true", help="try other schedules")
    parser.add_argument("--before", default="", help="another version's attention.py")
    options = parser.parse_args()
    tables = [ways(problem, options.tiles, options.before) for problem in PROBLEMS]
    flat = [way for table in tables for way in table]
    once = {(way.source, way.registers): way for way in flat}
    with ProcessPoolExecutor(os.cpu_count()) as pool:
        made = dict(zip(once, pool.map(compiled, once.values()), strict=True))
    binaries = [made[way.source, way.registers] for way in flat]
    torch: Any = importlib.import_module("torch")
    torch.manual_seed(0)
    for problem, table in zip(PROBLEMS, tables, strict=True):
        own, binaries = binaries[: len(table)], binaries[len(table) :]
        measure(problem, table, own)


if __name__ == "__main__":
    main()
