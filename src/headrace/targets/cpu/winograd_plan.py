"""Which convolutions go by Winograd's F(2x2, 3x3), and how they are cut.

See `winograd.py` for the family. A workgroup is a block of tiles by some panels of output
channels. Its transformed patches stay in the second-level cache while the weights of its
panels pass over them: of 512 channels those of 6 tiles, one tile of registers. (Taking
channels in parts, so that more tiles fit, was measured and is 3 to 10 % slower: the
partial sums cost more than reading the weights from the third level again.)
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from headrace.base.dtypes import F32
from headrace.base.errors import error
from headrace.base.symbols import as_expr, dim
from headrace.kernel.description import Axis, Compute, Kernel, Load
from headrace.kernel.target import LayoutWish
from headrace.targets.cpu import contract_wishes
from headrace.targets.cpu.choices import winograd_key, with_winograd_choice
from headrace.targets.cpu.machine import Machine
from headrace.targets.cpu.nest import Nest, lower

TRANSFORM = "winograd"

TILE_COLUMNS = 16
"""Output channels of a panel of weights."""

_LEAST_CHANNELS = 32
_LEAST_PIXELS = 196
_LEAST_PIXELS_SMALL = 64
_SMALL_WEIGHTS = 256 * 256
"""Few pixels read weights that grew 16/9 for too little work; small weights wait in a cache.
128 channels on 10 x 10 pixels: 228 GFLOP/s of direct work against 114."""

_COLUMNS = 64
"""Output channels of a workgroup, about: the patches are transformed again for the next."""

_BLOCK_BYTES = 224 << 10
"""Of transformed patches and sums of a panel, about."""

_MOST_TILES = 32

PITCH_BYTES = 192
"""Between the 16 matrices, so that they do not fall on the same lines of the cache."""


@dataclass(frozen=True)
class WinogradPlan:
    """A convolution and how it is cut.

    Attributes:
        image, weight: the two loads of the sum.
        nest: the maps after it.
        batch: the axis of images, None where there is one.
        column, y, x: the axes of output channels and pixels.
        low: rows and columns of padding before the image.
        channels: of the image.
        block: tiles of a workgroup.
        panels: panels of weights of a workgroup.
    """

    image: Load
    weight: Load
    nest: Nest
    batch: Axis | None
    column: Axis
    y: Axis
    x: Axis
    low: tuple[int, int]
    channels: int
    block: int
    panels: int

    @property
    def tiles_x(self) -> int:
        return -(-self.x.size.value // 2)

    @property
    def tiles(self) -> int:
        return -(-self.y.size.value // 2) * self.tiles_x

    @property
    def matrix_bytes(self) -> int:
        """Of one of the 16 matrices of a block."""
        return self.block * self.channels * 4 + PITCH_BYTES

    @property
    def scratch_bytes(self) -> int:
        return 16 * (self.matrix_bytes + self.block * TILE_COLUMNS * 4)


def layout_wishes(kernel: Kernel, machine: Machine) -> Mapping[int, LayoutWish] | None:
    """The wishes of a direct convolution, but for transformed weights, where it pays."""
    plan = None if machine.ordered_sums else _plan(kernel)
    if plan is None or not _pays(plan):
        return None
    wishes = contract_wishes.layout_wishes(kernel, machine)
    if wishes is None:
        return None
    wish = LayoutWish((2, 3, 1), panel=(0, TILE_COLUMNS), strict=True, transform=TRANSFORM)
    return {**wishes, plan.weight.operand: wish}


def _pays(plan: WinogradPlan) -> bool:
    outputs = plan.column.size.value
    pixels = plan.y.size.value * plan.x.size.value
    small = outputs * plan.channels <= _SMALL_WEIGHTS
    least = _LEAST_PIXELS_SMALL if small else _LEAST_PIXELS
    return min(outputs, plan.channels) >= _LEAST_CHANNELS and pixels >= least


def match(kernel: Kernel, machine: Machine) -> WinogradPlan | None:
    """Convolutions whose weights were transformed.

    Raises:
        HeadraceDefect HR9434: transformed weights in a kernel that this cannot do.
    """
    transformed = [n for n, o in enumerate(kernel.operands) if o.layout.transform]
    if not transformed:
        return None
    plan = _plan(kernel)
    if plan is None or transformed != [plan.weight.operand]:
        names = ", ".join(kernel.operands[n].name for n in transformed)
        raise error("HR9434", f"transformed weights {names} in no convolution of 3 x 3")
    key = winograd_key(plan) or ""
    return with_winograd_choice(plan, machine.table.get(key), key)


def _plan(kernel: Kernel) -> WinogradPlan | None:
    if not kernel.phases or (
        kernel.dims and any(not a.size.is_constant for a in kernel.outer[1:])
    ):
        return None
    first, *rest = kernel.phases
    reduction = first.reduction
    if reduction is None or reduction.combiner.kind != "add" or first.parallel:
        return None
    if any(p.parallel or p.reduction_axes or p.serial for p in rest):
        return None
    loads = [i for i in first.body if isinstance(i, Load)]
    if len(loads) != 2 or len(first.body) != 3:
        return None
    last = first.body[-1]
    if not isinstance(last, Compute):
        return None
    if last.operation != "multiply" or set(last.operands) != {i.result for i in loads}:
        return None
    if reduction.initial != (0.0,) or any(
        kernel.operands[i.operand].dtype != F32 or len(i.index) != 4 for i in loads
    ):
        return None
    for image, weight in (loads, loads[::-1]):
        plan = _of_loads(kernel, image, weight)
        if plan is not None:
            return plan
    return None


def _of_loads(kernel: Kernel, image: Load, weight: Load) -> WinogradPlan | None:
    sizes = {a.name: a for a in (*kernel.outer, *kernel.phases[0].reduction_axes)}
    found = [next((a for a in sizes.values() if i == dim(a.name)), None) for i in weight.index]
    if weight.bounded or not kernel.operands[weight.operand].constant or None in found:
        return None
    column, channel, ky, kx = (a for a in found if a is not None)
    if column not in kernel.outer or {channel, ky, kx} != set(kernel.phases[0].reduction_axes):
        return None
    if ky.size != as_expr(3) or kx.size != as_expr(3):
        return None
    if not (image.index[1] - dim(channel.name)).is_constant:
        return None
    if (image.bounded and image.otherwise != 0) or set(image.bounded) - {2, 3}:
        return None
    axes: list[Axis] = []
    low: list[int] = []
    for index, kernel_axis in ((image.index[2], ky), (image.index[3], kx)):
        slid = index - dim(kernel_axis.name)
        names = slid.names
        axis = sizes.get(next(iter(names), "")) if len(names) == 1 else None
        if axis is None or axis not in kernel.outer:
            return None
        offset = slid - dim(axis.name)
        if not offset.is_constant or not 0 <= -offset.value <= 2:
            return None
        if not axis.size.is_constant or axis.size.value < 2:
            return None
        axes.append(axis)
        low.append(-offset.value)
    others = [a for a in kernel.outer if a not in (column, *axes)]
    batch = others[0] if others else None
    if len(others) > 1 or len({column.name, *(a.name for a in axes)}) != 3:
        return None
    if image.index[0] != (as_expr(0) if batch is None else dim(batch.name)):
        return None
    static = (column.size, channel.size, *kernel.operands[image.operand].shape[2:])
    if any(not s.is_constant for s in static):
        return None
    if column.size.value % TILE_COLUMNS or channel.size.value % 8:
        return None
    epilogue = lower(replace(kernel, phases=kernel.phases[1:]), merge=False)
    y, x = axes
    plan = WinogradPlan(
        image=image,
        weight=weight,
        nest=epilogue,
        batch=batch,
        column=column,
        y=y,
        x=x,
        low=(low[0], low[1]),
        channels=channel.size.value,
        block=0,
        panels=0,
    )
    panels = column.size.value // TILE_COLUMNS
    groups = max(1, round(column.size.value / _COLUMNS))
    return replace(plan, block=_block(plan), panels=-(-panels // groups))


def _block(plan: WinogradPlan) -> int:
    """Tiles of a workgroup: their matrices fit L2, and there are enough workgroups."""
    fits = max(6, _BLOCK_BYTES // (16 * (plan.channels + TILE_COLUMNS) * 4))
    most = max(6, min(fits, _MOST_TILES, -(-plan.tiles // 4)))
    pieces = -(-plan.tiles // most)
    exact = [n for n in range(pieces, pieces * 3 // 2) if plan.tiles % n == 0]
    return -(-plan.tiles // (exact[0] if exact else pieces))
