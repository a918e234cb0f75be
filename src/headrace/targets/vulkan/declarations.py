"""What a shader declares beside its code: types, and the buffers it is bound to."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from headrace.base.dtypes import DType
from headrace.kernel.lanes.machine import BITS, Machine, MachineType, raw_type
from headrace.targets.vulkan.assembler import Id, Module


@dataclass(frozen=True)
class Buffer:
    """A storage buffer binding.

    Attributes:
        dtype: its element type in memory.
        writable: whether it is written.
        coherent: whether lanes read what others wrote.
        as_half: whether elements are halves to the shader, not bit patterns.
        in_fours: whether an element is four of them side by side, for `copy_four` and
            `load_four`.
    """

    dtype: DType
    writable: bool
    coherent: bool = False
    as_half: bool = False
    in_fours: bool = False


class Declarations(Machine):
    """The declarations of a module that is being built.

    Attributes:
        module: whose they are.
    """

    def __init__(self) -> None:
        self.module = Module()
        self._interface: list[Id] = []

    def type_id(self, type: MachineType) -> Id:
        if type == "bool":
            return self.module.unique("OpTypeBool")
        if type in ("f32", "f64"):
            return self.module.floating(BITS[type])
        return self.module.integer(BITS[type], signed=type[0] == "i")

    def half_id(self) -> Id:
        """The type of a half, in memory too."""
        self.module.capability("Float16")
        self.module.capability("StorageBuffer16BitAccess")
        return self.module.floating(16)

    def _storage_type(self, dtype: DType) -> Id:
        """The type of an element in memory: narrow ones are unsigned bit patterns."""
        width = dtype.size_bytes * 8
        if width == 8:
            self.module.capability("StorageBuffer8BitAccess")
        elif width == 16:
            self.module.capability("StorageBuffer16BitAccess")
        else:
            return self.type_id(raw_type(dtype))
        return self.module.unique("OpTypeInt", width, 0)

    def global_variable(self, storage: str, type: Id) -> Id:
        """A variable of the module."""
        variable = self.module.id()
        pointer = self.module.pointer(storage, type)
        self.module.emit("globals", "OpVariable", pointer, variable, storage)
        self._interface.append(variable)
        return variable

    def _block_of(self, members: Sequence[Id]) -> Id:
        """A new struct type with the `Block` decoration."""
        block = self.module.id()
        self.module.emit("globals", "OpTypeStruct", block, *members)
        self.module.decorate(block, "Block")
        return block

    def _offset(self, block: Id, member: int, offset: int) -> None:
        self.module.emit("decorations", "OpMemberDecorate", block, member, "Offset", offset)

    def _binding(self, number: int, buffer: Buffer) -> tuple[Id, Id]:
        """The variable of a storage buffer, and the type of its elements."""
        element = self.half_id() if buffer.as_half else self._storage_type(buffer.dtype)
        stride = buffer.dtype.size_bytes
        if buffer.in_fours:
            element, stride = self.module.unique("OpTypeVector", element, 4), 4 * stride
        array = self.module.id()
        self.module.emit("globals", "OpTypeRuntimeArray", array, element)
        self.module.decorate(array, "ArrayStride", stride)
        block = self._block_of([array])
        self._offset(block, 0, 0)
        variable = self.global_variable("StorageBuffer", block)
        self.module.decorate(variable, "DescriptorSet", 0)
        self.module.decorate(variable, "Binding", number)
        if not buffer.writable:
            self.module.decorate(variable, "NonWritable")
        if buffer.coherent:
            self.module.decorate(variable, "Coherent")
        self.module.emit("names", "OpName", variable, f"b{number}")
        return variable, element
