"""Any legal kernel as SPIR-V: one lane per outer point, loops for the other axes.

Array locals that are small and of known size live in the lane; all others in a scratch
buffer, the binding behind the operands', element by element for all lanes so that
neighbouring lanes touch neighbouring words.
"""

from __future__ import annotations

from headrace.base.dtypes import BY_NAME
from headrace.base.errors import error
from headrace.base.symbols import ONE, ZERO, Expr, as_expr, ceildiv, minimum, product
from headrace.kernel.description import Kernel, Local
from headrace.kernel.lanes.indices import Indices
from headrace.kernel.lanes.lower import lane_count, lower
from headrace.kernel.lanes.machine import BITS, MachineType, Value, compute_type
from headrace.kernel.lanes.scalar import element_dtype
from headrace.kernel.target import Code, Launch, Specialisation
from headrace.targets.vulkan.builder import (
    FIRST_WORKGROUP_WORDS,
    LANES,
    Buffer,
    ShaderBuilder,
)
from headrace.targets.vulkan.disassembler import disassemble

# Every device allows 65,535 workgroups in a dimension; beyond this many y counts on.
_WORKGROUPS_X = 32768
_PUSH_CONSTANT_BYTES = 128
_PRIVATE_ARRAY_BYTES = 4096
_MAX_ELEMENTS = 2**31 - 1


def _parts(local: Local) -> int:
    return 2 if local.dtype.kind == "complex" else 1


def _type(local: Local) -> MachineType:
    return compute_type(element_dtype(local.dtype))


def _words(local: Local) -> Expr:
    """Scratch words that one lane needs for an array local."""
    return product(local.shape) * _parts(local) * (2 if BITS[_type(local)] == 64 else 1)


def _split_arrays(kernel: Kernel) -> tuple[list[Local], list[Local]]:
    """Array locals kept in the lane, and those in scratch."""
    private: list[Local] = []
    scratch: list[Local] = []
    left = _PRIVATE_ARRAY_BYTES
    for local in kernel.locals:
        if not local.shape:
            continue
        words = _words(local)
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
        self._scratch_binding = len(buffers)
        if scratch:
            buffers.append(Buffer(BY_NAME["ui32"], writable=True))
        super().__init__(name, buffers, kernel.dims)
        self._scratch = {local.name: local for local in scratch}
        self._bases: dict[str, Value] = {}
        self._lanes: Value | None = None
        self._sizes = Indices(self, kernel.dims)

    def size(self, expr: Expr) -> Value:
        """The value of a size expression over the kernel's dimensions."""
        return self._sizes.value(expr)

    def place_scratch(self, kernel: Kernel) -> Expr:
        """Lays the scratch out; returns its size in words a lane."""
        total = ZERO
        if self._scratch:
            self._lanes = self.size(lane_count(kernel))
        for local in self._scratch.values():
            self._bases[local.name] = self.size(total)
            total = total + _words(local)
        return total

    def _place(self, name: str, offset: Value, word: int) -> Value:
        wide = BITS[_type(self._scratch[name])] == 64
        number = offset * 2 + word if wide else offset
        assert self._lanes is not None
        return (self._bases[name] + number) * self._lanes + self.lane()

    def load_array(self, name: str, offset: Value) -> Value:
        if name not in self._scratch:
            return super().load_array(name, offset)
        kind = _type(self._scratch[name])
        zero = self.constant("u32", 0)
        low = self.load(self._scratch_binding, self._place(name, offset, 0), None, zero)
        if kind == "bool":
            return low.ne(0)
        if BITS[kind] == 32:
            return low.bitcast(kind)
        high = self.load(self._scratch_binding, self._place(name, offset, 1), None, zero)
        return ((high.to("u64") << 32) | low.to("u64")).bitcast(kind)

    def store_array(self, name: str, offset: Value, value: Value) -> None:
        if name not in self._scratch:
            super().store_array(name, offset, value)
            return
        binding = self._scratch_binding
        if value.type == "bool":
            value = value.select(self.constant("u32", 1), 0)
        if BITS[value.type] == 32:
            self.store(binding, self._place(name, offset, 0), value.bitcast("u32"))
            return
        bits = value.bits
        self.store(binding, self._place(name, offset, 0), bits.to("u32"))
        self.store(binding, self._place(name, offset, 1), (bits >> 32).to("u32"))


def _check(name: str, kernel: Kernel) -> None:
    size = 4 * (FIRST_WORKGROUP_WORDS + len(kernel.dims))
    if size > _PUSH_CONSTANT_BYTES:
        raise error(
            "HR2411",
            f"a kernel needs {size} bytes of push constants, Vulkan has {_PUSH_CONSTANT_BYTES}",
            at=name,
            notes=f"it uses {len(kernel.dims)} named dimensions",
            helps="fix some of the dimensions when compiling",
        )
    for operand in kernel.operands:
        elements = operand.layout.size
        if elements.is_constant and elements.value > _MAX_ELEMENTS:
            raise error(
                "HR2412",
                f"operand '{operand.name}' has {elements.value} elements, "
                f"Vulkan's offsets reach {_MAX_ELEMENTS}",
                at=name,
            )


def _workgroups(kernel: Kernel) -> tuple[Expr, Expr, Expr]:
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
    _check(name, kernel)
    private, scratch = _split_arrays(kernel)
    shader = _Shader(name, kernel, scratch)
    for local in private:
        elements = product(local.shape) * _parts(local)
        shader.private_array(local.name, _type(local), elements.value)
    x, y, _ = workgroups = _workgroups(kernel)
    group = shader.workgroup()
    linear = group[0] if y == ONE else group[1] * shader.size(x) + group[0]
    shader.start(linear)
    scratch_words = shader.place_scratch(kernel)
    lower(kernel, shader)
    data = shader.finish()
    launch = Launch(
        symbol=name,
        workgroups=workgroups,
        scratch_bytes=scratch_words * lane_count(kernel) * as_expr(4),
        family="naive",
    )
    features = tuple(sorted(shader.module.capabilities - {"Shader"}))
    return Code(
        format="spirv",
        data=data,
        specialisations=(Specialisation((), (launch,)),),
        features=features,
        listing=disassemble(data),
    )
