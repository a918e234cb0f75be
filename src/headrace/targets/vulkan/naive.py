"""Any legal kernel as SPIR-V: one lane per outer point, loops for the other axes.

Array locals that are small and of known size live in the lane; all others in a scratch
buffer, the binding behind the operands', element by element for all lanes so that
neighbouring lanes touch neighbouring words.
"""

from __future__ import annotations

from collections.abc import Callable

from headrace.base.dtypes import BY_NAME
from headrace.base.symbols import ONE, Expr, ceildiv, minimum, product
from headrace.kernel.description import Kernel, Local
from headrace.kernel.lanes.indices import Indices
from headrace.kernel.lanes.lower import lane_count, lower
from headrace.kernel.lanes.machine import Value
from headrace.kernel.lanes.scalar import element_dtype
from headrace.kernel.lanes.scratch import Scratch, part_type, parts, size_bytes
from headrace.kernel.lanes.scratch import words as scratch_words
from headrace.kernel.target import Code, Launch, Specialisation
from headrace.targets.vulkan.builder import (
    LANES,
    Buffer,
    ShaderBuilder,
)
from headrace.targets.vulkan.disassembler import disassemble
from headrace.targets.vulkan.limits import check_limits

# Every device allows 65,535 workgroups in a dimension; beyond this many y counts on.
_WORKGROUPS_X = 32768
_PRIVATE_ARRAY_BYTES = 4096


def _split_arrays(kernel: Kernel) -> tuple[list[Local], list[Local]]:
    """Array locals kept in the lane, and those in scratch."""
    private: list[Local] = []
    scratch: list[Local] = []
    left = _PRIVATE_ARRAY_BYTES
    for local in kernel.locals:
        if not local.shape:
            continue
        words = scratch_words(local)
        if words.is_constant and words.value * 4 <= left:
            left -= words.value * 4
            private.append(local)
        else:
            scratch.append(local)
    return private, scratch


class _Shader(ShaderBuilder):
    """A shader whose large array locals live in the scratch binding."""

    def __init__(self, name: str, kernel: Kernel, scratch: list[Local]) -> None:
        buffers = [Buffer(element_dtype(o.dtype), o.access != "ro") for o in kernel.operands]
        if scratch:
            buffers.append(Buffer(BY_NAME["ui32"], writable=True))
        super().__init__(name, buffers, kernel.dims)
        x, y, _ = workgroups(kernel)
        group = self.workgroup()
        if y == ONE:
            self.start(group[0])
        else:
            self.start(group[1] * Indices(self, kernel.dims).value(x) + group[0])
        self._scratch = Scratch(self, len(kernel.operands), kernel, scratch)

    def repeat(
        self, most: Value, binding: int, offset: Value, trip: Callable[[], None]
    ) -> None:
        def goes_on() -> Value:
            return self.load(binding, offset, None, self.constant("u32", 0)).ne(0)

        self.loop(most, lambda _: trip(), goes_on)

    def load_array(self, name: str, offset: Value) -> Value:
        if name in self._scratch:
            return self._scratch.load(name, offset)
        return super().load_array(name, offset)

    def store_array(self, name: str, offset: Value, value: Value) -> None:
        if name in self._scratch:
            self._scratch.store(name, offset, value)
        else:
            super().store_array(name, offset, value)


def workgroups(kernel: Kernel) -> tuple[Expr, Expr, Expr]:
    """x, y, z counts of a launch."""
    groups = ceildiv(lane_count(kernel), LANES)
    if groups.is_constant and groups.value <= _WORKGROUPS_X:
        return groups, ONE, ONE
    return minimum(groups, _WORKGROUPS_X), ceildiv(groups, _WORKGROUPS_X), ONE


def translate(name: str, kernel: Kernel) -> Code:
    """The kernel as a SPIR-V 1.5 module with one entry point `name`.

    Raises:
        HeadraceError HR2401: an operation that lanes lack.
        HeadraceError HR2411, HR2412: beyond what Vulkan's push constants or offsets hold.
    """
    check_limits(name, kernel)
    private, scratch = _split_arrays(kernel)
    shader = _Shader(name, kernel, scratch)
    for local in private:
        elements = product(local.shape) * parts(local)
        shader.private_array(local.name, part_type(local), elements.value)
    lower(kernel, shader)
    data = shader.finish()
    launch = Launch(
        symbol=name,
        workgroups=workgroups(kernel),
        scratch_bytes=size_bytes(kernel, scratch),
        family="loop" if kernel.loops else "naive",
    )
    return Code(
        format="spirv",
        data=data,
        specialisations=(Specialisation((), (launch,)),),
        features=shader.features,
        listing=disassemble(data),
    )
