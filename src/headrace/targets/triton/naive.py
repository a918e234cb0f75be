"""Any legal kernel as a Triton kernel: one lane per outer point, loops for other axes.

The function's parameters, in order: a pointer per operand, the scratch pointer where the
kernel keeps array locals, the first workgroup's number (x, y, z) and the kernel's
dimensions, all 32 bits. A cubin takes two trailing null pointers after them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from headrace.base.dtypes import BY_NAME
from headrace.base.symbols import ONE, Expr, ceildiv
from headrace.kernel.description import Kernel
from headrace.kernel.lanes.lower import lane_count, lower
from headrace.kernel.lanes.machine import Value
from headrace.kernel.lanes.scalar import element_dtype
from headrace.kernel.lanes.scratch import Scratch, size_bytes
from headrace.kernel.target import SliceRule, TensorMap
from headrace.targets.triton.source import (
    FIRST_WORKGROUP,
    IMPORTS,
    LANES,
    TRITON_NAMES,
    SourceWriter,
    Text,
    packed_operands,
)


@dataclass(frozen=True)
class TritonSource:
    """A Triton function as text.

    Attributes:
        name: the function's, and the symbol's.
        text: a Python module's source with one `@triton.jit` function.
        signature: Triton's type of every parameter, in order.
        workgroups: programs along x, y and z.
        scratch_bytes: of the whole launch.
        family: which generator made it.
        warps: of a program, of 32 lanes each.
        stages: how many rounds of a loop load ahead.
        slice: how a launch may be cut.
        tensor_maps: the last parameters (`descriptors.py`).
        cluster: how many programs, neighbours along z, run at once and wait for each other.
    """

    name: str
    text: str
    signature: tuple[tuple[str, str], ...]
    workgroups: tuple[Expr, Expr, Expr]
    scratch_bytes: Expr
    family: str = "naive"
    warps: int = LANES // 32
    stages: int = 1
    slice: SliceRule | None = None
    tensor_maps: tuple[TensorMap, ...] = ()
    cluster: int = 1


class _Writer(SourceWriter):
    """A writer whose array locals all stand in scratch: registers cannot be indexed."""

    def __init__(self, kernel: Kernel) -> None:
        self.arrays = [local for local in kernel.locals if local.shape]
        buffers = [element_dtype(o.dtype) for o in kernel.operands]
        if self.arrays:
            buffers.append(BY_NAME["ui32"])
        super().__init__(buffers, kernel.dims)
        self.codes = packed_operands(kernel)
        again = any(o.access == "rw" for o in kernel.operands) or any(
            p.serial for p in kernel.phases
        )
        self.orders_memory = bool(self.arrays) or again
        self._scratch = Scratch(self, len(kernel.operands), kernel, self.arrays)

    def repeat(
        self, most: Value, binding: int, offset: Value, trip: Callable[[], None]
    ) -> None:
        kind = TRITON_NAMES[self.index_type]
        trips, limit, place = (
            self._define(f"tl.full((), {n}, {kind})", block=False).name
            for n in (0, _scalar(most), _scalar(offset))
        )
        goes_on = f"tl.load(p{binding} + {place}) != 0"
        more = self._define(goes_on, block=False).name
        self._line(f"while {more} & ({trips} < {limit}):")
        self._depth += 1
        trip()
        self._line(f"{trips} += 1")
        self._line(f"{more} = {goes_on}")
        self._depth -= 1

    def load_array(self, name: str, offset: Value) -> Value:
        return self._scratch.load(name, offset)

    def store_array(self, name: str, offset: Value, value: Value) -> None:
        self._scratch.store(name, offset, value)


def _scalar(value: Value) -> str:
    text: Text = value.handle
    return text.name if text.number is None else str(text.number)


def generate(name: str, kernel: Kernel) -> TritonSource:
    """The kernel's Triton source; `name` must be an identifier.

    Raises:
        HeadraceError HR2401: an operation that lanes lack.
    """
    writer = _Writer(kernel)
    lower(kernel, writer)
    signature = [(f"p{i}", writer.pointer(i)) for i in range(len(writer.buffers))]
    signature += [(word, "i32") for word in FIRST_WORKGROUP]
    signature += [(f"dim{i}", "i32") for i in range(len(kernel.dims))]
    parameters = ", ".join(parameter for parameter, _ in signature)
    operands = [f"p{i}: {o.access} {o.name!a}" for i, o in enumerate(kernel.operands)]
    comments = operands + [f"dim{i}: {dim!a}" for i, dim in enumerate(kernel.dims)]
    # Names are the user's: quoted, they cannot leave their comment.
    text = (
        f"{IMPORTS}@triton.jit\ndef {name}({parameters}):\n"
        + "".join(f"    # {comment}\n" for comment in comments)
        + writer.whole_body()
    )
    return TritonSource(
        name=name,
        text=text,
        signature=tuple(signature),
        workgroups=(ceildiv(lane_count(kernel), LANES), ONE, ONE),
        scratch_bytes=size_bytes(kernel, writer.arrays),
        family="loop" if kernel.loops else "naive",
    )
