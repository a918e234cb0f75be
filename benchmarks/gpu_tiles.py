"""Which tiles are fastest for the products and convolutions of a model, on this GPU.

    python benchmarks/gpu_tiles.py MODEL.onnx [...] [--top 3]

Every kernel of the model is compiled with every tile that may suit it, in all cores, and
timed 20 times in a graph on random operands. Prints for each the rule's tile and the best.
Kernels that are no products have one line each, so that the column adds up to the model.
"""

from __future__ import annotations

import argparse
import base64
import itertools
import os
import pickle
import zlib
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from headrace.base.errors import HeadraceError
from headrace.base.symbols import Expr
from headrace.kernel.description import Kernel
from headrace.kernel.products import Product, as_product, flat_size
from headrace.runtime.drivers.cuda_calls import CudaCalls
from headrace.runtime.drivers.cuda_commands import Parameters
from headrace.runtime.drivers.cuda_tensor_map import matrix
from headrace.targets.triton import contract
from headrace.targets.triton.compile import Binary, compile_source
from headrace.targets.triton.naive import TritonSource
from headrace.targets.triton.schedule import Tiles, choose_tiles, power_of_two
from headrace.targets.triton.variants import variants

_REPEATS, _ROUNDS = 20, 4
_MOST_SHARED = 220 << 10


@dataclass(frozen=True)
class Problem:
    """A kernel of a model and how many dispatches it has."""

    name: str
    kernel: Kernel
    count: int


@dataclass(frozen=True)
class Timed:
    """One way to run a kernel."""

    problem: int
    tiles: Tiles | None
    sources: tuple[TritonSource, ...]


def problems(path: Path, precision: str = "ieee") -> list[Problem]:
    """The kernels of a model for sm_90, in order; `.tasks` files hold them pickled."""
    if path.suffix == ".tasks":
        return pickle.loads(path.read_bytes())
    from headrace.given import given
    from headrace.pipeline import Options, compile_to
    from headrace.stream.commands import DispatchOp
    from headrace.targets.table import target
    from headrace.translation import tasks_of

    targets = (target("cuda:sm_90"),)
    made = compile_to(
        given(path).load({}), "hal", Options(targets=targets, precision=precision)
    )
    found: list[Problem] = []
    for model in made.classes.values():
        counts: dict[str, int] = {}
        for op in model.ir.walk():
            if isinstance(op, DispatchOp):
                name = op.entry_point.root_reference.data
                counts[name] = counts.get(name, 0) + 1
        found += [
            Problem(task.executable, task.kernel, counts.get(task.executable, 1))
            for task in tasks_of(model.ir, targets)
        ]
    return found


def _size(size: Expr) -> int:
    return size.evaluate({})


def candidates(found: Product, most: int) -> list[Tiles]:
    """Tiles that may suit a product."""
    rows, columns = _size(flat_size(found.rows)), _size(flat_size(found.columns))
    batch, depth = _size(flat_size(found.batch)), _size(flat_size(found.depth))
    made: list[tuple[float, Tiles]] = []
    width = 2 if found.narrow else 4
    for high, wide in itertools.product((16, 32, 64, 128, 256), (16, 32, 64, 128, 256)):
        if high > power_of_two(rows, 16, 256) or wide > power_of_two(columns, 16, 256):
            continue
        if high * wide > 128 * 256 or high < min(64, rows):
            continue
        programs = -(-rows // high) * -(-columns // wide) * batch
        if high * wide > 16 * 16 and programs < 24:
            continue
        if high * wide < 64 * 64 and programs > 132 * 12:
            continue
        for deep, stages in ((64, 3), (64, 4), (64, 5), (128, 3), (32, 5)):
            if deep > power_of_two(depth, 16, 128) or (not found.narrow and deep > 64):
                continue
            if stages > 3 and -(-depth // deep) < stages:
                continue
            if deep == 32 and depth % 64 == 0 and found.narrow:
                continue
            if stages == (5 if high * wide >= 128 * 128 else 4):
                continue
            if stages * (high + wide) * deep * width > _MOST_SHARED:
                continue
            for warps in (4, 8):
                if (warps == 8) != (high * wide >= 128 * 128) and high * wide != 128 * 128:
                    continue
                # Full waves first, and squares: they read least.
                waves = programs / 132
                cost = abs(np.log2(waves / 2)) + abs(np.log2(high / wide)) / 2
                made.append((cost, Tiles(high, wide, deep, warps, stages)))
    made.sort(key=lambda pair: pair[0])
    return [tiles for _, tiles in made[:most]]


def _ways(table: Sequence[Problem], most: int) -> Iterator[Timed]:
    for number, problem in enumerate(table):
        usual = variants("k", problem.kernel)[-1].sources
        found = as_product(problem.kernel)
        if len(usual) != 1 or usual[0].family != "contract" or found is None:
            yield Timed(number, None, usual)
            continue
        tiles = choose_tiles(found, precision=problem.kernel.precision)
        yield Timed(number, tiles, usual)
        for other in candidates(found, most):
            if other == tiles:
                continue
            source = contract.generate("k", problem.kernel, tiles=other)
            if source is not None:
                yield Timed(number, other, (source,))


def _binaries(sources: Sequence[TritonSource]) -> list[Binary] | str:
    try:
        return [compile_source(source, "cuda", 90, 32) for source in sources]
    except Exception as wrong:
        return str(wrong)[:100]


class _Bench:
    def __init__(self) -> None:
        self.calls = CudaCalls()
        self.calls.enter()
        self.stream = self.calls.stream()
        self.events = [self.calls.event(True) for _ in range(2)]

    def operands(self, kernel: Kernel) -> list[int]:
        """Random halves and floats; integers are 0."""
        found: list[int] = []
        random = np.random.default_rng(0)
        for operand in kernel.operands:
            count = max(1, operand.layout.size.evaluate({}))
            place = self.calls.allocate(count * operand.dtype.size_bytes + 256, "an operand")
            dtype = operand.dtype.numpy_dtype
            if operand.dtype.kind == "float":
                values = random.standard_normal(min(count, 1 << 20), np.float32) * 0.1
                array = np.resize(values.astype(dtype), count)
            else:
                array = np.zeros(count, dtype)
            self.calls.copy(place, array.ctypes.data, array.nbytes, self.stream)
            self.calls.finish(self.stream)
            found.append(place)
        return found

    def nanoseconds(
        self, sources: Sequence[TritonSource], binaries: Sequence[Binary], places: list[int]
    ) -> int:
        calls, stream = self.calls, self.stream
        scratch = max(s.scratch_bytes.evaluate({}) for s in sources)
        room = calls.allocate(scratch, "scratch") if scratch else 0
        launches: list[tuple[Any, ...]] = []
        modules: list[Any] = []
        for source, binary in zip(sources, binaries, strict=True):
            module = calls.load(binary.data)
            modules.append(module)
            function = calls.function(module, binary.symbol)
            if binary.shared_bytes > 48 << 10:
                calls.allow_shared(function, binary.shared_bytes)
            pointers = [*places, *([room] if "scratch" in dict(source.signature) else [])]
            maps: Any = source.tensor_maps
            matrices = [matrix(m, places[m.binding], {}) for m in maps]
            words = Parameters(pointers, (0, 0, 0), matrices)
            grid = tuple(w.evaluate({}) for w in source.workgroups)
            threads, shared = source.warps * 32, binary.shared_bytes
            launches.append((function, grid, threads, shared, words, source.cluster))
        calls.begin_capture(stream)
        for _ in range(_REPEATS):
            for function, grid, threads, shared, words, cluster in launches:
                at = words.address
                calls.launch(function, grid, threads, shared, stream, at, cluster=cluster)
        graph = calls.end_capture(stream)
        times: list[int] = []
        for _ in range(_ROUNDS):
            calls.record(self.events[0], stream)
            calls.launch_graph(graph, stream)
            calls.record(self.events[1], stream)
            calls.finish(stream)
            times.append(calls.elapsed_ns(*self.events))
        calls.destroy_graph(graph)
        for module in modules:
            calls.unload(module)
        if room:
            calls.free(room)
        return min(times[1:]) // _REPEATS


def _shape(kernel: Kernel) -> str:
    found = as_product(kernel)
    if found is None:
        return " ".join(str(o.layout.size) for o in kernel.operands)
    sizes = [_size(flat_size(a)) for a in (found.rows, found.columns, found.depth)]
    window = "x".join(str(a.size) for a in found.depth)
    return f"{sizes[0]} x {sizes[1]} x {window}"


def _text(tiles: Tiles | None) -> str:
    if tiles is None:
        return ""
    return f"{tiles.rows},{tiles.columns},{tiles.depth},{tiles.warps},{tiles.stages}"


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("models", nargs="+", type=Path)
    parser.add_argument("--top", type=int, default=3, help="tiles a line")
    parser.add_argument("--most", type=int, default=24, help="tiles tried for a kernel")
    parser.add_argument("--precision", default="ieee", choices=("ieee", "tf32"))
    parser.add_argument("--raw", action="store_true", help="every time too, in 10 ns")
    options = parser.parse_args()
    tables = [problems(path, options.precision) for path in options.models]
    ways = [list(_ways(table, options.most)) for table in tables]
    bench = None
    with ProcessPoolExecutor(os.cpu_count()) as pool:
        made = [
            list(pool.map(_binaries, [w.sources for w in row], chunksize=2)) for row in ways
        ]
    bench = _Bench()
    for path, table, row, binaries in zip(options.models, tables, ways, made, strict=True):
        print(f"\n{path.name}: {len(row)} ways")
        print("| kernel | count | rule us | best us | tiles |")
        before = after = 0
        everything: list[int] = []
        for number, problem in enumerate(table):
            places = bench.operands(problem.kernel)
            times: list[tuple[int, str]] = []
            rule = 0
            for way, code in zip(row, binaries, strict=True):
                if way.problem != number:
                    continue
                everything.append(0)
                if isinstance(code, str):
                    print(f"{_text(way.tiles)}: {code}")
                    continue
                try:
                    ns = bench.nanoseconds(way.sources, code, places)
                except HeadraceError as wrong:
                    print(f"{_text(way.tiles)}: {wrong}"[:100])
                    continue
                rule = rule or ns
                everything[-1] = min(ns // 10, 65535)
                times.append((ns, _text(way.tiles)))
            if not times:
                continue
            usual = times[0][1]
            times.sort()
            before += rule * problem.count
            after += times[0][0] * problem.count
            best = "; ".join(f"{text} {ns / 1e3:.1f}" for ns, text in times[: options.top])
            name = f"{problem.name.removeprefix('main_ex_dispatch_')}: {_shape(problem.kernel)}"
            if options.top:
                print(f"| {name} | {problem.count} | {rule / 1e3:.1f} ({usual}) | {best} |")
            for place in places:
                bench.calls.free(place)
        if options.raw:
            raw = zlib.compress(np.array(everything, np.uint16).tobytes(), 9)
            print(base64.b64encode(raw).decode())
        print(f"in all {before / 1e3:.0f} us, with the best {after / 1e3:.0f}", flush=True)


if __name__ == "__main__":
    main()
