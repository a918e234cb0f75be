"""What a `.hrx` file says: plain frozen data, independent of compiler and run time.

One file holds a program per device class (layouts differ between classes), the
executables with their variants, and one pool of weights. Sizes are `Expr`s over the
module's named dimensions; the plan evaluates them.
"""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass
from functools import cached_property
from typing import Literal, TypeAlias, Union

from headrace.base.dtypes import DType
from headrace.base.exponent_codes import ExponentCodes
from headrace.base.symbols import ONE, ZERO, Expr

FORMAT_VERSION = 5

Lifetime = Literal["external", "constant", "variable", "transient", "staging"]


@dataclass(frozen=True)
class DimensionRange:
    """A named dimension and the sizes it may take; `maximum` None means no bound."""

    name: str
    minimum: int = 1
    maximum: int | None = None


@dataclass(frozen=True)
class TensorSignature:
    """One input or output of an entry function, row-major in memory.

    Attributes:
        name: the user's.
        resource: index into the function's resources. An output with the resource of an
            input takes its place: the buffer holds the one before a step, the other after.
    """

    name: str
    dtype: DType
    shape: tuple[Expr, ...]
    resource: int


@dataclass(frozen=True)
class Resource:
    """Memory with a lifetime.

    Attributes:
        name: for reports; the value's name in the user's model where it has one.
        lifetime: `external` inputs and outputs, `constant` weights, `variable` state
            kept between steps, `transient` the slab, `staging` host copies.
        size_bytes: of the whole allocation, halo included.
        weight: index into `Module.weights` for a constant, else None.
    """

    name: str
    lifetime: Lifetime
    size_bytes: Expr
    weight: int | None = None


@dataclass(frozen=True)
class Binding:
    """A range of a resource as one operand of a dispatch."""

    resource: int
    offset_bytes: Expr
    size_bytes: Expr
    access: Literal["ro", "wo", "rw"]


@dataclass(frozen=True)
class Dispatch:
    """Runs an entry point of an executable.

    Attributes:
        executable: index into `Program.executables`.
        entry_point: ordinal.
        bindings: in the order of the interface.
        constants: 32-bit push constants, in the order of the interface.
        location: the user's nodes it computes.
        operations: scalar multiply-adds and others, for the cost model.
    """

    executable: int
    entry_point: int
    bindings: tuple[Binding, ...]
    constants: tuple[Expr, ...]
    location: str = ""
    operations: Expr = ZERO


@dataclass(frozen=True)
class Copy:
    """Copies `size_bytes` between resources."""

    source: int
    source_offset_bytes: Expr
    target: int
    target_offset_bytes: Expr
    size_bytes: Expr


@dataclass(frozen=True)
class Fill:
    """Fills a range with a repeated little-endian pattern of 1, 2, 4 or 8 bytes."""

    target: int
    offset_bytes: Expr
    size_bytes: Expr
    pattern: int
    pattern_bytes: int


@dataclass(frozen=True)
class If:
    """Runs one of two blocks by a boolean scalar read back from a resource."""

    condition: int
    then: Block
    otherwise: Block


@dataclass(frozen=True)
class Loop:
    """Runs `body` while the boolean scalar in `condition` (set by `before` and body) holds.

    `trip_count` is the count where it is known beforehand.
    """

    before: Block
    condition: int
    body: Block
    trip_count: Expr | None = None


@dataclass(frozen=True)
class Call:
    """Runs another entry function on the same resources, position for position."""

    function: int
    resources: tuple[int, ...]


Command: TypeAlias = Union[Dispatch, Copy, Fill, If, Loop, Call]


@dataclass(frozen=True)
class Block:
    """Commands in order; each sees the effects of those before it."""

    commands: tuple[Command, ...]


@dataclass(frozen=True)
class Continuation:
    """How a function goes on after a synchronisation point.

    Attributes:
        function: index of the function that follows. Its inputs are, by name, inputs and
            outputs of those before it.
        sizes: (dimension, output) of each named dimension that an output of this function,
            an i64 scalar, decides.
        results: of the function that the user calls: names of the outputs of all functions
            that the user sees, in order.
    """

    function: int
    sizes: tuple[tuple[str, str], ...]
    results: tuple[str, ...]


@dataclass(frozen=True)
class EntryFunction:
    """Something the user calls: `main`, `prefill`, `decode`; or what such a one goes on with.

    Attributes:
        following: how it goes on where sizes must be read back first.
    """

    name: str
    inputs: tuple[TensorSignature, ...]
    outputs: tuple[TensorSignature, ...]
    resources: tuple[Resource, ...]
    body: Block
    following: Continuation | None = None

    @property
    def aliases(self) -> tuple[tuple[int, int], ...]:
        """(output, input) of every output that takes an input's place."""
        places = {signature.resource: n for n, signature in enumerate(self.inputs)}
        return tuple(
            (n, places[o.resource]) for n, o in enumerate(self.outputs) if o.resource in places
        )


@dataclass(frozen=True)
class SliceRule:
    """See `kernel/target.py`: how a launch may be cut along one weight."""

    binding: int
    axis: int
    step_bytes: Expr


@dataclass(frozen=True)
class Condition:
    """Holds where `minimum <= expr <= maximum`; an open end is None."""

    expr: Expr
    minimum: int | None = None
    maximum: int | None = None


@dataclass(frozen=True)
class TensorMap:
    """See `kernel/target.py`."""

    binding: int
    offset_bytes: int
    rows: Expr
    columns: Expr
    stride_bytes: int
    box: tuple[int, int]
    swizzle: int


@dataclass(frozen=True)
class Launch:
    """See `kernel/target.py`."""

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
class EntryPoint:
    """One kernel of an executable: its interface."""

    name: str
    ordinal: int
    bindings: tuple[Literal["ro", "wo", "rw", "xw"], ...]
    push_constants: int


@dataclass(frozen=True)
class Variant:
    """An executable compiled for one target.

    Attributes:
        target: `cpu:x86-64-v3`, `cuda:sm_90`, ...
        format: `elf-object`, `cubin`, `hsaco`, `spirv`.
        code: index into the file's code blobs.
        features: device features it needs, sorted.
        entry_points: specialisations per entry point, by ordinal.
    """

    target: str
    format: str
    code: int
    features: tuple[str, ...]
    entry_points: tuple[tuple[Specialisation, ...], ...]


@dataclass(frozen=True)
class Executable:
    """Kernels that stand together, with a variant for each target of the class.

    `digest` is the content hash of kernel and target options: the key of the profile.
    """

    name: str
    entry_points: tuple[EntryPoint, ...]
    variants: tuple[Variant, ...]
    digest: str = ""


@dataclass(frozen=True)
class Program:
    """Everything for one device class."""

    device_class: str
    functions: tuple[EntryFunction, ...]
    executables: tuple[Executable, ...]


@dataclass(frozen=True)
class Weight:
    """One tensor in the pool, in the layout its kernel wants.

    Attributes:
        name: the parameter's name in the user's model.
        offset_bytes: from the start of the pool, aligned 64.
        size_bytes: stored bytes.
        digest: sha256 of the stored bytes.
        dtype, shape: logical, before layout.
        step_bytes: where it may be cut: multiples of this; 0 where it may not.
        row_bytes: size of a row of a table that kernels only gather rows from: it is
            never fetched whole, the rows used are read where they stand; 0 for others.
        codes: how its elements are packed (`base/exponent_codes.py`), None for as they are.
            It stays, streams and is read packed; `size_bytes` counts packed bytes.
    """

    name: str
    offset_bytes: int
    size_bytes: int
    digest: str
    dtype: DType
    shape: tuple[int, ...]
    step_bytes: int = 0
    row_bytes: int = 0
    codes: ExponentCodes | None = None


@dataclass(frozen=True)
class Segment:
    """A run of the pool, aligned 4 KiB, that stays or streams as one.

    Borders lie between weights, or at a multiple of a weight's `step_bytes` rounded so
    that both sides keep 4 KiB alignment.
    """

    offset_bytes: int
    size_bytes: int
    digest: str


@dataclass(frozen=True)
class Provenance:
    """Where the module came from."""

    producer: str
    source: str
    source_digest: str
    targets: tuple[str, ...]
    options: tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class Module:
    """A whole `.hrx` but for the bytes of code and weights."""

    name: str
    dimensions: tuple[DimensionRange, ...]
    programs: tuple[Program, ...]
    weights: tuple[Weight, ...]
    segments: tuple[Segment, ...]
    provenance: Provenance
    format_version: int = FORMAT_VERSION

    @cached_property
    def segment_starts(self) -> list[int]:
        """Offset of each segment in the pool."""
        return [s.offset_bytes for s in self.segments]

    @cached_property
    def gathered_segments(self) -> list[bool]:
        """Whether a segment holds nothing but tables that are only gathered from."""
        starts = self.segment_starts
        gathered = [False] * len(starts)
        other = [False] * len(starts)
        for weight in self.weights:
            if not weight.size_bytes:
                continue
            first = bisect_right(starts, weight.offset_bytes) - 1
            last = bisect_right(starts, weight.offset_bytes + weight.size_bytes - 1) - 1
            marks = gathered if weight.row_bytes else other
            for segment in range(first, last + 1):
                marks[segment] = True
        return [a and not b for a, b in zip(gathered, other, strict=True)]
