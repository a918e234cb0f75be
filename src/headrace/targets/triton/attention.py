"""Attention as one launch: a tile of rows meets the keys tile by tile, nothing is kept.

The greatest score so far and the sum of exponentials stand in registers; when the greatest
grows, what was summed before is scaled down (`kernel/softmax_rows.py`). Rows whose scores are
all -inf are no numbers in the end, as in the kernel's meaning. f16 and bf16 factors go to the
tensor cores as they are; fp32 factors are multiplied as `Kernel.precision` says.

Keys that no row of the tile sees are left out, and those that all see have no mask
(`key_runs.py`). Behind a product of 16-bit floats values keep the bits of f32, as behind those
of `contract.py`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from headrace.base.dtypes import F32
from headrace.base.symbols import ONE, ceildiv
from headrace.kernel.description import (
    Axis,
    Compute,
    Kernel,
    LoadLocal,
)
from headrace.kernel.lanes import scalar as scalars
from headrace.kernel.lanes.machine import Value
from headrace.kernel.lanes.scalar import Scalar
from headrace.kernel.products import NARROW_FLOATS, flat_size
from headrace.kernel.softmax_rows import (
    GREATEST,
    KEY,
    MIX,
    SCORE,
    TOTAL,
    WIDTH,
    SoftmaxRows,
    Tree,
    as_softmax_rows,
    linearise,
    read_by,
    read_locals,
)
from headrace.targets.triton.attention_factors import START, AttentionTiles, FactorLowering
from headrace.targets.triton.key_runs import KeyRuns, Run
from headrace.targets.triton.naive import TritonSource
from headrace.targets.triton.schedule import power_of_two
from headrace.targets.triton.scores import LOG2_E, factor_of, is_smooth, times
from headrace.targets.triton.source import (
    TENSOR_CORE_NAMES,
    Text,
)
from headrace.targets.triton.tiles import TileWriter, index_type
from headrace.targets.triton.tuned import PLAIN, How

_WIDEST = 256
"""Elements of a query or a value that registers hold for a tile of rows."""

_WIDE = 128
"""Of such a width three stages fit, and registers are what is short."""

_FEW_ROWS = 256
"""Up to here 128 keys at a time are faster than 64 with descriptors: 4.4 us for 5.1 (128 rows)."""


def choose_tiles(found: SoftmaxRows, unknown_rows: int, narrow: bool) -> AttentionTiles:
    """From sizes alone: the same at every budget; measured in docs/measured/h200.md."""
    count = flat_size(found.rows)
    rows = count.value if count.is_constant else unknown_rows
    if not narrow:
        return AttentionTiles(power_of_two(rows, 16, 32), 32, 4, 2)
    if rows <= 16 and found.keys == count:
        # Few keys too: what further stages hold keeps the next launch out, 5 us a layer.
        return AttentionTiles(16, 16, 4, 1, apart=False)
    widest = max(found.width.value, found.depth.size.value)
    if widest > _WIDE:
        return AttentionTiles(power_of_two(rows, 16, 64), 64, 4, 2)
    if rows < 64:
        return AttentionTiles(power_of_two(rows, 16, 64), 64, 4, 3)
    if widest < _WIDE or rows <= _FEW_ROWS:
        return AttentionTiles(64, 128, 4, 2)
    # Heads side by side share what the L2 holds of keys and values: 82 us, one head after
    # another 95, copied by threads 111 (32 heads of 128, 2,048 rows).
    return AttentionTiles(64, 64, 4, 3, described=True, together=True)


def is_narrow(kernel: Kernel, found: SoftmaxRows) -> bool:
    """Whether scores are products of 16-bit floats."""
    dtypes = [kernel.operands[x.operand].dtype.name for x in (found.query, found.key)]
    return dtypes[0] == dtypes[1] and dtypes[0] in NARROW_FLOATS


def generate(
    name: str,
    kernel: Kernel,
    unknown_rows: int = 64,
    found: SoftmaxRows | None = None,
    how: How = PLAIN,
    tiles: AttentionTiles | None = None,
) -> TritonSource | None:
    """The kernel's Triton source; None where it is no attention that registers hold.

    Args:
        unknown_rows: what a number of rows known only at run time is taken for.
        found: what `as_softmax_rows` says, where that is known.
        how: what decides schedules beside the kernel.
        tiles: instead of those that the sizes give.

    Raises:
        HeadraceError HR2401: an operation that lanes lack.
    """
    found = found or as_softmax_rows(kernel)
    if found is None or not all(
        size.is_constant and size.value <= _WIDEST for size in (found.width, found.depth.size)
    ):
        return None
    narrow = is_narrow(kernel, found)
    tiles = tiles or choose_tiles(found, unknown_rows, narrow)
    if not how.descriptors:
        tiles = replace(tiles, described=False)
    axes = (Axis(KEY, found.keys), Axis(WIDTH, found.width))
    writer = TileWriter(kernel, index_type(kernel, [(a,) for a in axes]))
    lowering = _AttentionLowering(kernel, writer, found, tiles, name, narrow)
    lowering.emit()
    return writer.source(
        name,
        kernel,
        workgroups=(
            ceildiv(flat_size(found.rows), tiles.rows) * flat_size(found.batch), ONE, ONE,
        ),
        family="attention",
        warps=tiles.warps,
        stages=tiles.stages,
        tensor_maps=lowering.tensor_maps,
    )  # fmt: skip


class _AttentionLowering(FactorLowering):
    def __init__(
        self,
        kernel: Kernel,
        writer: TileWriter,
        found: SoftmaxRows,
        tiles: AttentionTiles,
        name: str,
        narrow: bool,
    ) -> None:
        super().__init__(kernel, writer, found, tiles)
        self.name = name
        self.narrow = narrow
        # 16-bit floats: scores are in units of `exp2` where that is no work more.
        self.smooth = narrow and is_smooth(found.scores)
        reads_greatest = any(GREATEST in read_by(tree) for _, tree in found.stores)
        scaled = times(found.scores, LOG2_E) if self.smooth and not reads_greatest else None
        self.unit = 1.0 if scaled is None else LOG2_E
        self.held: dict[str, Value] = {}
        self.beside: set[str] = set()
        self.locals = {local.name: local for local in read_locals()}

    def emit(self) -> None:
        """The whole body."""
        writer, found, tiles, narrow = self.writer, self.found, self.tiles, self.narrow
        count = self.indices.value(ceildiv(flat_size(found.rows), tiles.rows))
        along = writer.program(0)
        tile, batch = along % count, along / count
        if tiles.together:
            heads = self.indices.value(flat_size(found.batch))
            tile, batch = along / heads, along % heads
        self._bind(found.batch, batch)
        runs = KeyRuns(self, self.name, found, tiles.keys, tiles.apart, self.unit)
        if runs.last_rows_meet_most:
            # The longest first: while the last ones run, little else does.
            tile = count - 1 - tile
        row_edge = self._side(found.rows, tile, tiles.rows, 1)
        depth, width = (
            power_of_two(s.value, 16, _WIDEST) for s in (found.depth.size, found.width)
        )
        depth_axis = found.depth
        query = self.factor(
            found.query, (tiles.rows, depth), row_edge, self.line(depth_axis, depth, 2), narrow
        )
        if tiles.described:
            self.describe("keys", found.key, depth, found.depth)
            self.describe("values", found.value, width, Axis(WIDTH, found.width))
        writer.line(f'greatest = tl.full(({tiles.rows}, 1), float("-inf"), tl.float32)')
        writer.line(f"total = tl.full(({tiles.rows}, 1), 0.0, tl.float32)")
        writer.line(f"mix = tl.full(({tiles.rows}, {width}), 0.0, tl.float32)")
        self.shape((tiles.rows, 1), row_edge, None)
        for run in runs:
            counter = "tile" if run.start else "start"
            writer.line(f"for {counter} in range({run.begin}, {run.end}, {tiles.keys}):")
            writer.indent(1)
            if run.start:
                writer.line(f"start = {run.start}")
            self._keys(query, depth, width, row_edge, run)
            writer.indent(-1)
        self._results(width, row_edge)

    def _keys(self, query: str, depth: int, width: int, row_edge: str | None, run: Run) -> None:
        """A tile of keys, from `start` on."""
        writer, found, tiles, narrow = self.writer, self.found, self.tiles, self.narrow
        keys = Axis(KEY, found.keys)
        inside = self.line(found.depth, depth, 1)
        key_edge = self.line(keys, tiles.keys, 2, "start", run.has_edge)
        start = writer.named(f"tl.full((), start, {writer.word})", 0)
        self.indices.names[START] = start
        key = self.factor(
            found.key,
            (depth, tiles.keys),
            inside,
            key_edge,
            narrow,
            (found.depth.name, KEY),
            run,
        )
        wide = f', input_precision="{self.kernel.precision}"'
        precision = "" if narrow else wide
        score = writer.define(f"tl.dot({query}, {key}{precision})", block=3)
        weights = self._weights(Value(writer, "f32", score), row_edge, key_edge, run)
        value_dtype = self.kernel.operands[found.value.operand].dtype.name
        mixes_narrow = value_dtype in NARROW_FLOATS and found.rounded == value_dtype
        if found.rounded:
            core = TENSOR_CORE_NAMES[found.rounded]
            back = "" if mixes_narrow else ".to(tl.float32)"
            weights = writer.define(f"{weights}.to({core}){back}", block=3).name
        key_edge = self.line(keys, tiles.keys, 1, "start", run.has_edge)
        inside = self.line(Axis(WIDTH, found.width), width, 2)
        value = self.factor(
            found.value, (tiles.keys, width), key_edge, inside, mixes_narrow, (KEY, WIDTH), run
        )
        precision = "" if mixes_narrow else wide
        writer.line(f"mix = tl.dot({weights}, {value}, mix * fade{precision})")
        writer.line("greatest = top")

    def _load_local(self, operation: LoadLocal) -> Scalar:
        return Scalar(F32, (self.held[operation.local],))

    def _tree(self, tree: Tree) -> Value:
        body, name = linearise(tree)
        return self._body(body)[name].value

    def _weights(
        self, score: Value, row_edge: str | None, key_edge: str | None, run: Run
    ) -> str:
        """Exponentials of a tile of scores; `top`, `fade` and `total` as they are with it."""
        writer = self.writer
        self.shape((self.tiles.rows, self.tiles.keys), row_edge, key_edge)
        self.held = {SCORE: score}
        # Of a multiple of the product the greatest is the multiple of the greatest product.
        factor = None if self.unit == 1.0 else factor_of(run.scores)
        if factor is not None:
            scores = writer.whole(score)
        else:
            scaled = run.scores if self.unit == 1.0 else times(run.scores, self.unit)
            assert scaled is not None
            scores = writer.whole(self._tree(scaled))
        inside = self._inside_bounds(run) or key_edge
        if inside is not None:
            low = writer.define(f'tl.where({inside}, {scores}, float("-inf"))', block=3)
            scores = low.name
        greater = "tl.maximum(l, r, propagate_nan=tl.PropagateNan.ALL)"
        function = self._function("greater", greater)
        writer.line(f"top = tl.reduce({scores}, 1, {function})[:, None]")
        by = 1.0 if factor is None else factor * self.unit
        if factor is not None:
            writer.line(f"top = top * {by!r}")
        writer.line("top = tl.maximum(greatest, top, propagate_nan=tl.PropagateNan.ALL)")
        # Where all scores are -inf so far, nothing was summed: any number scales nothing.
        writer.line('base = tl.where(top == float("-inf"), 0.0, top)')
        writer.line("less = tl.where(greatest == base, 0.0, greatest - base)")
        fade = self._exponential(Value(writer, "f32", Text("less", 1)))
        writer.line(f"fade = {fade.handle.name}")
        if factor is not None:
            # Once rounded, where the greatest is rounded already: all weights of the row are
            # off by the same factor, near 1, and so is their sum.
            less = writer.define(f"tl.fma({scores}, {by!r}, -base)", block=3)
        else:
            less = writer.define(f"{scores} - base", block=3)
        weights = writer.whole(self._exponential(Value(writer, "f32", less)))
        # Triton's own `tl.sum` is no function of its interpreter.
        total = f"tl.reduce({weights}, 1, {self._function('sum', 'l + r')})[:, None]"
        writer.line(f"total = total * fade + {total}")
        return weights

    def _inside_bounds(self, run: Run) -> str | None:
        """Which keys of the tile that starts at `start` each row sees; in 32 bits."""
        most, conditions = self.tiles.keys, list[str]()
        line = f"tl.arange(0, {most})[None, :]"
        start = self.indices.names[START].handle.name
        for bound, relation in zip(run.bounds, (">=", "<"), strict=True):
            if bound:
                near = f"tl.maximum(tl.minimum({bound} - {start}, {most}), 0).to(tl.int32)"
                conditions.append(f"({line} {relation} {near})")
        return " & ".join(conditions) or None

    def _function(self, kind: str, result: str) -> str:
        """A function of `l` and `r` beside the kernel."""
        name = f"{self.name}_{kind}"
        if name not in self.beside:
            self.beside.add(name)
            self.writer.function(name, ("l", "r"), lambda: self.writer.line(f"return {result}"))
        return name

    def _exponential(self, value: Value) -> Value:
        """Of 16-bit floats the device's own, right to 2 units of f32: the products round its
        results to 16 bits anyway. 2048 causal rows of bf16 take 234 us with it, 446 without.
        `exp2` of Triton gives 0 below 2^-126, where `exp` takes three instructions more."""
        if self.narrow:
            handle = value.handle
            times = "" if self.unit != 1.0 else f" * {LOG2_E!r}"
            made = self.writer.define(f"tl.exp2({handle.name}{times})", block=handle.block)
            return Value(self.writer, "f32", made)
        return scalars.compute("exponential", (Scalar(F32, (value,)),), F32).value

    def _compute(
        self, operation: Compute, values: Mapping[str, Scalar], keep_wide: bool
    ) -> Scalar:
        """See `is_smooth`."""
        if self.smooth and operation.dtype.name in NARROW_FLOATS:
            operand = self._value(values, operation.operands[0])
            if operation.operation != "convert":
                keep_wide = True
            elif operand.dtype.name in ("f32", *NARROW_FLOATS):
                return Scalar(operation.dtype, operand.parts)
        return super()._compute(operation, values, keep_wide)

    def _results(self, width: int, row_edge: str | None) -> None:
        writer, found = self.writer, self.found
        inside = self.line(Axis(WIDTH, found.width), width, 2)
        self.shape((self.tiles.rows, width), row_edge, inside)
        hidden = 'greatest == float("-inf")'
        writer.line(f'total = tl.where({hidden}, float("nan"), total)')
        if found.divided and self.smooth:
            # 64 exact divisions a thread take as long as three tiles of keys.
            writer.line("mix = mix * tl.div_rn(1.0, total)")
        elif found.divided:
            writer.line("mix = tl.div_rn(mix, tl.broadcast_to(total, mix.shape))")
        else:
            writer.line(f'mix = tl.where({hidden}, float("nan"), mix)')
        if found.no_nan:
            writer.line("mix = tl.where(total != total, 0.0, mix)")
        self.held = {
            name: Value(writer, "f32", Text(name, 3 if name == MIX else 1))
            for name in (GREATEST, TOTAL, MIX)
        }
        if any(o.access == "rw" for o in self.kernel.operands):
            # Queries that other threads of the program read stand where results go.
            writer.line("tl.debug_barrier()")
        for store, tree in found.stores:
            body, name = linearise(tree)
            values = self._body(body)
            self._write(int(store.operand), store.index, values[name])
