"""A kernel: what one dispatch computes, unscheduled.

A kernel is a list of *phases* over one *outer* parallel domain. For every point of
the outer domain the phases run in order; a phase may add inner parallel axes and
reduction axes. *Loops* let runs of phases go round (`loops.py`). What a phase computes is a straight line of scalar operations in SSA
form; what it keeps is a *local* (one scalar per outer point, or an array over inner
axes) or an element of an operand. No tiles, threads, vectors or memory spaces appear
here: they are each target's own schedule.

    softmax over rows of x[b, k]: outer (b)
      reduce over k:  m  = max  x[b, k]
      reduce over k:  s  = add  exp(x[b, k] - m)
      map    over k:  y[b, k] = exp(x[b, k] - m) / s

    convolution + bias + relu: outer (n, oc, oh, ow)
      reduce over (ic, kh, kw):  a = add  x[n, ic, oh*2 + kh - 3, ow*2 + kw - 3] * w[...]
      map:                       y[n, oc, oh, ow] = maximum(a + bias[oc], 0)

Indices are `Expr`s whose names are axes (`%d0` outer or inner parallel, `%r0`
reduction), integer scalars computed in the body (`%v3`, for gathers), and the
module's named dimensions (push constants). They are *logical*: the operand's `Layout`
turns them into an element offset. `text.py` prints and parses all of it, `interp.py`
gives the meaning in numpy, `verify.py` checks it, `classify.py` names the family.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Literal, TypeAlias, Union

from headrace.base.dtypes import DType
from headrace.base.exponent_codes import ExponentCodes
from headrace.base.symbols import ONE, ZERO, Expr, as_expr, product
from headrace.kernel.loops import Loop

Access = Literal["ro", "wo", "rw"]
Precision = Literal["ieee", "tf32"]
Scalar: TypeAlias = Union[int, float, bool, complex]


@dataclass(frozen=True)
class DimensionLayout:
    """How one logical dimension becomes an offset.

    Element `i` stands at `(i // tile) * stride + (i % tile) * tile_stride`; without a
    tile (`tile == 1`) at `i * stride`. Strides count elements.
    """

    stride: Expr
    tile: int = 1
    tile_stride: Expr = ZERO


@dataclass(frozen=True)
class Layout:
    """Where an operand's elements stand in its buffer.

    Attributes:
        dimensions: one per logical dimension.
        offset: element offset of logical index 0 in every dimension (behind the halo).
        size: elements of the whole allocation, halo and padding included.
        halo_low, halo_high: per dimension, readable elements before and behind.
        halo_value: what the halo holds; its producer writes it. None: no halo.
        transform: what a weight was put through before it was laid out (`winograd`), empty
            for nothing. `dimensions` and `size` are then those of the transformed tensor,
            and only a family that knows the transform can read it.
        codes: how a weight is packed (`base/exponent_codes.py`), None where its elements
            stand as they are. Offsets and `size` count elements unpacked; blocks are whole
            runs of them. Only targets that wish for it (`LayoutWish.packs`) read it.
    """

    dimensions: tuple[DimensionLayout, ...]
    offset: Expr
    size: Expr
    halo_low: tuple[int, ...]
    halo_high: tuple[int, ...]
    halo_value: Scalar | None = None
    transform: str = ""
    codes: ExponentCodes | None = None

    def size_bytes(self, dtype: DType) -> Expr:
        """Bytes of the whole buffer, packed where it is."""
        if self.codes is None:
            return self.size * dtype.size_bytes
        return as_expr(self.codes.packed_bytes(self.size.value, dtype.size_bytes))

    @property
    def has_halo(self) -> bool:
        return any(self.halo_low) or any(self.halo_high)

    def element_offset(self, index: tuple[Expr, ...]) -> Expr:
        """The element offset of a logical index; of a transformed one where there is one."""
        total = self.offset
        for i, dimension in zip(index, self.dimensions, strict=True):
            if dimension.tile == 1:
                total = total + i * dimension.stride
            else:
                total = total + (i // dimension.tile) * dimension.stride
                total = total + (i % dimension.tile) * dimension.tile_stride
        return total


def ordered_layout(
    shape: tuple[Expr, ...],
    order: tuple[int, ...] | None = None,
    halo_low: tuple[int, ...] | None = None,
    halo_high: tuple[int, ...] | None = None,
    halo_value: Scalar | None = None,
) -> Layout:
    """A dense layout with dimensions in `order`, outermost first, and a halo.

    `order=None` is row-major. NHWC of a logical NCHW tensor is `(0, 2, 3, 1)`.
    """
    rank = len(shape)
    order = order or tuple(range(rank))
    low = halo_low or (0,) * rank
    high = halo_high or (0,) * rank
    strides: list[Expr] = [ONE] * rank
    stride, offset = ONE, ZERO
    for d in reversed(order):
        strides[d] = stride
        offset = offset + stride * low[d]
        stride = stride * (shape[d] + low[d] + high[d])
    if not (any(low) or any(high)):
        halo_value = None
    return Layout(
        tuple(DimensionLayout(s) for s in strides), offset, stride, low, high, halo_value
    )


def panel_layout(
    shape: tuple[Expr, ...], order: tuple[int, ...], dimension: int, tile: int
) -> Layout:
    """Panels of `tile` along `dimension`: `[shape[dimension]/tile][rest in order][tile]`.

    The packed weight of a product: for w[K, N] with `dimension=1`, `tile=16` the buffer
    is [N/16][K][16], the last panel padded to 16. `order` lists the other dimensions,
    outermost first. A panel is contiguous: a slice of the weight is a run of panels.
    """
    strides: list[Expr] = [ONE] * len(shape)
    stride = as_expr(tile)
    for d in reversed(order):
        strides[d] = stride
        stride = stride * shape[d]
    panels = (shape[dimension] + tile - 1) // tile
    dimensions = tuple(
        DimensionLayout(stride, tile, ONE) if d == dimension else DimensionLayout(strides[d])
        for d in range(len(shape))
    )
    none = (0,) * len(shape)
    return Layout(dimensions, ZERO, stride * panels, none, none)


def transformed_shape(shape: tuple[Expr, ...], transform: str) -> tuple[Expr, ...]:
    """The shape of a weight after a `Layout.transform`.

    `winograd`: w[O, I, 3, 3] becomes G w G' of each 3 x 3 kernel, [O, I, 4, 4]
    (`tensor/meaning/packing.py`).

    Raises:
        KeyError: there is no such transform.
    """
    size = {"": None, "winograd": 4}[transform]
    return shape if size is None else (*shape[:-2], as_expr(size), as_expr(size))


@dataclass(frozen=True)
class Operand:
    """A buffer the kernel reads or writes.

    Attributes:
        name: for messages and text; unique in the kernel.
        dtype, shape: logical type; shape entries are `Expr`s of named dimensions.
        access: `ro` read, `wo` written whole (a later phase may read what an earlier one
            wrote), `rw` read and written (in place).
        layout: where elements stand.
        constant: it is a weight: the same bytes at every call.
    """

    name: str
    dtype: DType
    shape: tuple[Expr, ...]
    access: Access
    layout: Layout
    constant: bool = False


@dataclass(frozen=True)
class Local:
    """A value kept between phases, per point of the outer domain.

    `shape` is empty for a scalar (a register); else it is an array over inner axes.
    """

    name: str
    dtype: DType
    shape: tuple[Expr, ...] = ()


@dataclass(frozen=True)
class Axis:
    """One axis of a domain: `%dN` parallel or `%rN` reduction, from 0 to `size` - 1."""

    name: str
    size: Expr


@dataclass(frozen=True)
class Load:
    """Reads `operand[index]`.

    For each dimension in `bounded` the index may fall outside the logical shape; there
    the value is `otherwise` and nothing is read.
    """

    result: str
    operand: int
    index: tuple[Expr, ...]
    bounded: tuple[int, ...] = ()
    otherwise: Scalar | None = None


@dataclass(frozen=True)
class LoadLocal:
    """Reads a local that an earlier phase has set."""

    result: str
    local: str
    index: tuple[Expr, ...] = ()


@dataclass(frozen=True)
class Constant:
    """A scalar constant of `dtype`."""

    result: str
    dtype: DType
    value: Scalar


@dataclass(frozen=True)
class IndexValue:
    """An index expression as an integer scalar of `dtype`."""

    result: str
    dtype: DType
    value: Expr


@dataclass(frozen=True)
class Compute:
    """An elementwise operation on scalars, under its tensor-stage name.

    `operation` is one of `tensor/dialect.py`'s elementwise operations (`add`,
    `maximum`, `exponential`, `erf`, `select`, `convert`, `compare`, ...); meaning and
    corner cases (NaN, signs, rounding) are StableHLO's. `attribute` is compare's
    direction (`EQ NE LT LE GT GE`). `dtype` is the result's.
    """

    result: str
    operation: str
    operands: tuple[str, ...]
    dtype: DType
    attribute: str = ""


ScalarOperation: TypeAlias = Union[Load, LoadLocal, Constant, IndexValue, Compute]


NAMED_COMBINERS = ("add", "multiply", "maximum", "minimum", "and", "or", "xor")
"""Operations of two values that commute and associate: a `Combiner.kind`."""


@dataclass(frozen=True)
class Combiner:
    """How two partial results of a reduction become one.

    A reduction may carry several values at once (arg-max: value and index). `body`
    maps `left` and `right` (one name a value) to `results`.
    """

    left: tuple[str, ...]
    right: tuple[str, ...]
    body: tuple[Compute | Constant, ...]
    results: tuple[str, ...]

    @property
    def kind(self) -> str | None:
        """`add`, `multiply`, `maximum`, `minimum`, `and`, `or`, `xor` where it is just that."""
        if len(self.left) != 1 or len(self.body) != 1:
            return None
        only = self.body[0]
        if not isinstance(only, Compute) or self.results != (only.result,):
            return None
        takes_both = set(only.operands) == {self.left[0], self.right[0]}
        return only.operation if takes_both and only.operation in NAMED_COMBINERS else None


@dataclass(frozen=True)
class Reduction:
    """Folds body values over the phase's reduction axes into locals.

    Attributes:
        values: names in the body, one per carried value.
        initial: the scalar each starts from, exactly (0.5 stays 0.5): folded in once.
        combiner: how two become one; the order of folding is the target's.
        results: locals that receive the outcome (indexed by the phase's inner
            parallel axes, in order, where it has any).
    """

    values: tuple[str, ...]
    initial: tuple[Scalar, ...]
    combiner: Combiner
    results: tuple[str, ...]


@dataclass(frozen=True)
class Store:
    """Writes a body value to `operand[index]`, or to a local (`operand` is its name).

    For each dimension in `bounded` the index may fall outside the logical shape; there
    nothing is written.
    """

    value: str
    operand: int | str
    index: tuple[Expr, ...] = ()
    bounded: tuple[int, ...] = ()


@dataclass(frozen=True)
class Phase:
    """One compound operation: a map (`stores`) or a reduction (`reduction`).

    Attributes:
        parallel: inner parallel axes, beyond the kernel's outer ones.
        reduction_axes: axes folded by `reduction`; empty for a map.
        body: scalar operations in SSA order.
        reduction: set where there are reduction axes.
        stores: what a map writes; empty for a reduction.
        serial: a map whose points run one after the other, the last axis fastest: it may
            write an element again and read what it wrote (scatter).
    """

    parallel: tuple[Axis, ...]
    reduction_axes: tuple[Axis, ...]
    body: tuple[ScalarOperation, ...]
    reduction: Reduction | None = None
    stores: tuple[Store, ...] = ()
    serial: bool = False


@dataclass(frozen=True)
class Kernel:
    """What one dispatch computes. Hashable: equal kernels are shared.

    Attributes:
        outer: the parallel domain shared by all phases; may be empty (one point).
        operands: bindings, in order.
        locals: values kept between phases.
        phases: in the order they run for each outer point.
        dims: named dimensions it needs as push constants, in order.
        precision: of f32 factors where a phase sums products (`classify.contraction`):
            of `tf32` ten bits of the mantissa count, as in `kernel/shortened.py`; a target
            may keep more of them.
        loops: runs of phases that go round, an outer one before those within; only where
            there is no outer domain.
    """

    outer: tuple[Axis, ...]
    operands: tuple[Operand, ...]
    locals: tuple[Local, ...]
    phases: tuple[Phase, ...]
    dims: tuple[str, ...] = ()
    precision: Precision = "ieee"
    loops: tuple[Loop, ...] = ()

    @cached_property
    def outer_size(self) -> Expr:
        """Points of the outer domain."""
        return product(a.size for a in self.outer)

    @property
    def outputs(self) -> tuple[int, ...]:
        """Operands that are written."""
        return tuple(i for i, o in enumerate(self.operands) if o.access != "ro")
