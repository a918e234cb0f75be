"""The protocol every target keeps; passes and the pipeline know nothing else of one.

A target turns a `Kernel` into code for one device class. `api` looks targets up in
`targets/table.py` and hands the objects down. Everything here is plain data, so that
translation can run in worker processes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

from headrace.base.errors import error
from headrace.base.symbols import ONE, ZERO, Expr
from headrace.kernel.description import Kernel, Scalar


@dataclass(frozen=True)
class LayoutWish:
    """How a target would like one operand to stand in memory.

    Attributes:
        order: logical dimensions, outermost first; for NHWC of NCHW `(0, 2, 3, 1)`.
        halo_low, halo_high: per logical dimension; empty for none. Wishes for the same
            tensor are merged by the maximum.
        halo_value: what the halo must hold.
        panel: `(dimension, tile)` for a weight packed in panels (`panel_layout`); only
            for constants. `order` then lists the other dimensions.
        strict: the fast family is lost without it; else it is a preference.
        transform: `Layout.transform` of a weight; only together with `panel`.
        packs: the target reads this weight packed too (`Layout.codes`).
    """

    order: tuple[int, ...]
    halo_low: tuple[int, ...] = ()
    halo_high: tuple[int, ...] = ()
    halo_value: Scalar | None = None
    panel: tuple[int, int] | None = None
    strict: bool = False
    transform: str = ""
    packs: bool = False


@dataclass(frozen=True)
class Condition:
    """Holds where `minimum <= expr <= maximum`; an open end is None."""

    expr: Expr
    minimum: int | None = None
    maximum: int | None = None

    def holds(self, dims: Mapping[str, int]) -> bool:
        value = self.expr.evaluate(dims)
        if self.minimum is not None and value < self.minimum:
            return False
        return self.maximum is None or value <= self.maximum


@dataclass(frozen=True)
class SliceRule:
    """How one launch may be cut so that it needs only part of one weight at a time.

    Workgroup `i` along `axis` reads bytes `[i * step_bytes, (i + 1) * step_bytes)` of
    operand `binding`'s buffer (the last workgroup up to its end) and writes results no
    other workgroup along `axis` writes.
    """

    binding: int
    axis: int
    step_bytes: Expr


@dataclass(frozen=True)
class TensorMap:
    """A matrix of 16-bit elements whose tiles a GPU's copy engine brings (`CUtensorMap`): a
    parameter of a launch, behind all others.

    Attributes:
        binding: the operand that holds it.
        offset_bytes: of its first element.
        rows, columns: sizes; columns lie side by side.
        stride_bytes: from row to row.
        box: rows and columns that come at once.
        swizzle: the driver's number for their order in shared memory.
    """

    binding: int
    offset_bytes: int
    rows: Expr
    columns: Expr
    stride_bytes: int
    box: tuple[int, int]
    swizzle: int


@dataclass(frozen=True)
class Launch:
    """One launch of a compiled function.

    Attributes:
        symbol: the function in the executable's code.
        workgroups: x, y, z counts; x is fastest. A CPU workgroup is a *tile*.
        scratch_bytes: bytes each worker (CPU) needs while it runs, or the launch
            (GPU) as a whole.
        slice: how it may be cut, None where it may not.
        family: `map`, `reduce`, `contract`, `window`, `row`, ...; `naive` where the
            naive emitter made it. For reports and the cost model.
        shared_bytes: dynamic shared memory of each workgroup (GPU).
        overlaps: the function itself waits for the launches before it, so it may begin while
            they end (GPU).
        cluster: how many workgroups, neighbours along z, run at once and wait for each other
            (GPU).
        tensor_maps: the last parameters (GPU).
    """

    symbol: str
    workgroups: tuple[Expr, Expr, Expr] = (ONE, ONE, ONE)
    scratch_bytes: Expr = ZERO
    slice: SliceRule | None = None
    family: str = "naive"
    shared_bytes: int = 0
    overlaps: bool = False
    cluster: int = 1
    tensor_maps: tuple[TensorMap, ...] = ()


@dataclass(frozen=True)
class Specialisation:
    """Launches to run, in order, where all conditions on dimensions hold."""

    conditions: tuple[Condition, ...]
    launches: tuple[Launch, ...]


@dataclass(frozen=True)
class Code:
    """What a target makes of one kernel.

    Attributes:
        format: `elf-object`, `cubin`, `hsaco`, `spirv`.
        data: the code, self-contained; holds every launch's symbol.
        specialisations: tried in order; the last has no conditions.
        features: device features it needs, sorted (`avx2`, `fma`); empty for none.
        listing: readable form for `inspect --disassemble` and dumps; may be empty.
        others: further variants, tried in order where a device lacks features of this one;
            they have no others themselves.
    """

    format: str
    data: bytes
    specialisations: tuple[Specialisation, ...]
    features: tuple[str, ...] = ()
    listing: str = ""
    others: tuple[Code, ...] = ()


@dataclass(frozen=True)
class LoopPoints:
    """How much work a kernel with a loop may be, in points of its phases.

    Attributes:
        trip: of one trip; with more, dispatches are faster.
        dispatch: of all trips of one dispatch.
    """

    trip: int
    dispatch: int


NUMERICS = ("fast", "exact")
"""How sums may be formed: `fast` in any fixed way, `exact` in the order written."""


PRECISIONS = ("ieee", "tf32")
"""How f32 factors are multiplied where products are summed (`Kernel.precision`)."""


def without_exact_numerics(name: str, numerics: str) -> None:
    """For targets that know `fast` only.

    Raises:
        HeadraceError HR0113: `exact` is asked for.
    """
    if numerics != "fast":
        raise error(
            "HR0113",
            f"target '{name}' has no '{numerics}' numerics",
            helps="compile for cpu, or without --numerics",
        )


class Target(Protocol):
    """One target with its options, e.g. `cpu:x86-64-v3`. Picklable."""

    @property
    def name(self) -> str:
        """As the user spells it: `cpu:native`, `cuda:sm_90`, `vulkan:1.3`."""
        ...

    @property
    def device_class(self) -> str:
        """Targets of one class share layouts and a program: `cpu`, `cuda`, `vulkan`."""
        ...

    @property
    def packs_weights(self) -> bool:
        """Whether some of its kernels read weights packed."""
        ...

    @property
    def factor_bits(self) -> frozenset[int]:
        """Widths of integers whose products, summed in i32, are faster than those of wider
        types: 16 than f32's, 8 than 16's."""
        ...

    @property
    def fuses_narrow_rows(self) -> bool:
        """Whether attention in 16-bit floats should come as one kernel."""
        ...

    @property
    def joins_siblings(self) -> bool:
        """Whether a launch more costs more than it computes: elementwise neighbours that read
        one activation are one."""
        ...

    @property
    def precisions(self) -> frozenset[str]:
        """Of `PRECISIONS` those that its products of f32 have."""
        ...

    @property
    def emplaces_parts(self) -> bool:
        """Whether a part of a concatenation is better written in strides where it belongs
        than copied there."""
        ...

    @property
    def serial_kernels(self) -> int:
        """Up to so many kernels one process translates sooner than workers would start."""
        ...

    @property
    def loop_points(self) -> LoopPoints | None:
        """Which loops are better one kernel than dispatches; None where kernels with loops
        are not taken."""
        ...

    def with_numerics(self, numerics: str) -> Target:
        """The same target that forms sums so (`NUMERICS`).

        Raises:
            HeadraceError HR0113: it cannot.
        """
        ...

    def layout_wishes(self, kernel: Kernel) -> Mapping[int, LayoutWish]:
        """Wishes per operand index, given a kernel with row-major operands."""
        ...

    def translate(self, name: str, kernel: Kernel) -> Code:
        """Compiles one kernel; `name` is the entry point's and prefixes its symbols.

        Deterministic: the same kernel, name and target give the same bytes.

        Raises:
            HeadraceError HR2xxx: the target cannot express it (a dtype, a limit).
        """
        ...
