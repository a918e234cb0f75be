"""Memory that a workgroup shares: arrays of one type, and a pool of floats in fours."""

from __future__ import annotations

from collections.abc import Sequence

from headrace.kernel.lanes.machine import MachineType, Value
from headrace.targets.vulkan.builder import ShaderBuilder

_FOUR = 4


class SharedArray:
    """Elements of one type, shared by the lanes of a workgroup; booleans as words.

    Attributes:
        access: what a load or store says beside the place: the Vulkan memory model wants to
            hear that other lanes look on.
    """

    def __init__(self, shader: ShaderBuilder, kind: MachineType, elements: int) -> None:
        self._shader = shader
        self._kind: MachineType = kind
        vulkan = shader.module.memory_model == "Vulkan"
        self.access = ("NonPrivatePointer",) if vulkan else ()
        self._stored: MachineType = "u32" if kind == "bool" else kind
        module = shader.module
        length = module.unsigned_constant(max(1, elements))
        self._type = shader.type_id(self._stored)
        array = module.unique("OpTypeArray", self._type, length)
        self._variable = shader.global_variable("Workgroup", array)

    def pointer(self, at: Value) -> Value:
        """A pointer to the element at a place."""
        shader = self._shader
        pointer = shader.module.pointer("Workgroup", self._type)
        place = shader.operation("OpAccessChain", pointer, self._variable, at.handle)
        return Value(shader, self._stored, place)

    def load(self, at: Value) -> Value:
        """The element at a place."""
        place = self.pointer(at).handle
        made = self._shader.operation("OpLoad", self._type, place, *self.access)
        return Value(self._shader, self._stored, made).to(self._kind)

    def store(self, at: Value, value: Value) -> None:
        """Writes one element."""
        one = self._shader.constant(self._stored, 1)
        stored = value.select(one, 0) if self._kind == "bool" else value
        place = self.pointer(at).handle
        self._shader.instruct("OpStore", place, stored.handle, *self.access)


class Pool:
    """Floats shared by the lanes of a workgroup; runs of four move as one."""

    def __init__(self, shader: ShaderBuilder, elements: int) -> None:
        self._shader = shader
        module = shader.module
        self._float = shader.type_id("f32")
        self._vector = module.unique("OpTypeVector", self._float, _FOUR)
        length = module.unsigned_constant(-(-elements // _FOUR))
        array = module.unique("OpTypeArray", self._vector, length)
        self._variable = shader.global_variable("Workgroup", array)

    def _element(self, at: Value) -> Value:
        """A pointer to one float."""
        shader = self._shader
        pointer = shader.module.pointer("Workgroup", self._float)
        place = shader.operation(
            "OpAccessChain", pointer, self._variable, (at >> 2).handle, (at & 3).handle
        )
        return Value(shader, "f32", place)

    def load(self, at: Value) -> Value:
        """The float at a place."""
        made = self._shader.operation("OpLoad", self._float, self._element(at).handle)
        return Value(self._shader, "f32", made)

    def store(self, at: Value, value: Value) -> None:
        """Writes one float."""
        self._shader.instruct("OpStore", self._element(at).handle, value.handle)

    def _four(self, at: Value) -> Value:
        """A pointer to four floats; `at` is a multiple of four."""
        shader = self._shader
        pointer = shader.module.pointer("Workgroup", self._vector)
        place = shader.operation("OpAccessChain", pointer, self._variable, (at >> 2).handle)
        return Value(shader, "f32", place)

    def load_run(self, at: Value, count: int) -> list[Value]:
        """Neighbours from a multiple of their count on."""
        if count % _FOUR:
            return [self.load(at + i) for i in range(count)]
        shader = self._shader
        found: list[Value] = []
        for first in range(0, count, _FOUR):
            four = shader.operation("OpLoad", self._vector, self._four(at + first).handle)
            found += [
                Value(
                    shader, "f32", shader.operation("OpCompositeExtract", self._float, four, i)
                )
                for i in range(_FOUR)
            ]
        return found

    def store_run(self, at: Value, values: Sequence[Value]) -> None:
        """Writes neighbours from a multiple of their count on."""
        if len(values) % _FOUR:
            for i, value in enumerate(values):
                self.store(at + i, value)
            return
        shader = self._shader
        for first in range(0, len(values), _FOUR):
            parts = [v.handle for v in values[first : first + _FOUR]]
            four = shader.operation("OpCompositeConstruct", self._vector, *parts)
            shader.instruct("OpStore", self._four(at + first).handle, four)
