"""Windows of convolutions and poolings: strides, dilations, padding by number or by rule."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from headrace.base.symbols import Expr, as_expr, ceildiv
from headrace.importers.onnx.context import NodeContext


@dataclass(frozen=True)
class Windows:
    """One entry a spatial dimension everywhere.

    Attributes:
        sizes, strides, dilations: of the window.
        low, high: padding before and behind.
        overhang: what `ceil_mode` adds behind `high`, so that a last, partial window fits.
    """

    sizes: tuple[int, ...]
    strides: tuple[int, ...]
    dilations: tuple[int, ...]
    low: tuple[Expr, ...]
    high: tuple[Expr, ...]
    overhang: tuple[Expr, ...]

    @property
    def high_with_overhang(self) -> tuple[Expr, ...]:
        return tuple(h + o for h, o in zip(self.high, self.overhang, strict=True))

    @property
    def has_padding(self) -> bool:
        zero = as_expr(0)
        return any(p != zero for p in (*self.low, *self.high, *self.overhang))


def spatial(c: NodeContext, name: str, count: int, default: int = 1) -> tuple[int, ...]:
    """A list attribute with one entry a spatial dimension."""
    found = c.ints(name, [default] * count) or [default] * count
    if len(found) != count:
        raise c.malformed(f"'{name}' must have {count} entries, has {len(found)}")
    return tuple(found)


def read_windows(
    c: NodeContext, extents: Sequence[Expr], sizes: Sequence[int], ceil_mode: bool = False
) -> Windows:
    """The windows that a node's attributes describe over spatial sizes `extents`."""
    count = len(extents)
    strides = spatial(c, "strides", count)
    dilations = spatial(c, "dilations", count)
    reach = [(k - 1) * d + 1 for k, d in zip(sizes, dilations, strict=True)]
    if any(s < 1 for s in (*strides, *dilations, *sizes)):
        raise c.malformed("strides, dilations and kernel sizes must be positive")
    low, high = padding(c, extents, reach, strides)
    overhang = [as_expr(0)] * count
    if ceil_mode:
        overhang = [
            _overhang(c, e + lo + hi, r, s, e + lo)
            for e, lo, hi, r, s in zip(extents, low, high, reach, strides, strict=True)
        ]
    return Windows(tuple(sizes), strides, dilations, tuple(low), tuple(high), tuple(overhang))


def padding(
    c: NodeContext, extents: Sequence[Expr], reach: Sequence[int], strides: Sequence[int]
) -> tuple[list[Expr], list[Expr]]:
    """Padding before and behind by `pads` or `auto_pad`."""
    count = len(extents)
    rule = c.string("auto_pad", "NOTSET")
    if rule in ("SAME_UPPER", "SAME_LOWER"):
        return _same_padding(c, extents, reach, strides, upper=rule == "SAME_UPPER")
    if rule == "VALID":
        return [as_expr(0)] * count, [as_expr(0)] * count
    if rule not in ("NOTSET", ""):
        raise c.malformed(f"auto_pad '{rule}' is unknown")
    pads = c.ints("pads", [0] * 2 * count) or [0] * 2 * count
    if len(pads) != 2 * count:
        raise c.malformed(f"'pads' must have {2 * count} entries, has {len(pads)}")
    return [as_expr(p) for p in pads[:count]], [as_expr(p) for p in pads[count:]]


def _same_padding(
    c: NodeContext,
    extents: Sequence[Expr],
    reach: Sequence[int],
    strides: Sequence[int],
    upper: bool,
) -> tuple[list[Expr], list[Expr]]:
    """So much that ceil(size / stride) windows fit, the odd one behind (or before)."""
    low: list[Expr] = []
    high: list[Expr] = []
    for extent, r, stride in zip(extents, reach, strides, strict=True):
        windows = ceildiv(extent, stride)
        total = c.dims.maximum((windows - 1) * stride + r - extent, 0)
        smaller = total // 2
        low.append(smaller if upper else total - smaller)
        high.append(total - smaller if upper else smaller)
    return low, high


def _overhang(c: NodeContext, padded: Expr, reach: int, stride: int, real: Expr) -> Expr:
    """What `ceil_mode` adds: windows that start inside the input or its low padding."""
    windows = ceildiv(padded - reach, stride) + 1
    # The last window must not start in the padding behind.
    windows = c.dims.minimum(windows, ceildiv(real, stride))
    needed = (windows - 1) * stride + reach
    return c.dims.maximum(needed - padded, 0)
