"""A compute shader as a lane machine: structured SPIR-V from primitives.

One entry point, workgroups of 64 lanes (or as many as asked for) in one dimension. Storage buffers are set 0,
binding i, one runtime array each. Push constants: three words of the first workgroup's
number (x, y, z), then the named dimensions, 32 bits each. All arithmetic on floats is
`NoContraction`, but where `fused` asks for it: bits never depend on what a driver chooses.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from headrace.base.dtypes import DType
from headrace.kernel.lanes.machine import BITS, MachineType, Value, raw_type
from headrace.targets.vulkan.assembler import Id, Operand, instruction
from headrace.targets.vulkan.declarations import Buffer, Declarations
from headrace.targets.vulkan.opcodes import ARITHMETIC, CONTRACTIBLE, LOGICAL, float_words

LANES = 64
_WORKGROUP_SCOPE, _SUBGROUP_SCOPE = 2, 3
_BARRIER_SEMANTICS = 0x8 | 0x40 | 0x100
"""Acquire and release, of storage buffers and of what the workgroup shares."""
_AVAILABLE_AND_VISIBLE = 0x2000 | 0x4000

FIRST_WORKGROUP_WORDS = 3


@dataclass(frozen=True)
class PrivateArray:
    """An array local kept in the lane."""

    variable: Id
    type: MachineType


class ShaderBuilder(Declarations):
    """Builds one compute shader; `finish` gives the module's bytes.

    Attributes:
        lanes: of a workgroup.
        native_halves: halves are widened by the device's own instruction.
        branchless_loads: masked loads read element 0 where the mask fails, without a branch.
    """

    index_type: MachineType = "i32"

    def __init__(
        self,
        name: str,
        buffers: Sequence[Buffer],
        dims: Sequence[str],
        lanes: int = LANES,
    ) -> None:
        self.lanes = lanes
        self.branchless_loads = False
        self.native_halves = False
        super().__init__()
        self.module.capability("Shader")
        self._name = name
        self._main = self.module.id()
        self.module.emit("modes", "OpExecutionMode", self._main, "LocalSize", lanes, 1, 1)
        self.module.emit("names", "OpName", self._main, name)
        self._locals: list[int] = []
        self._code: list[int] = []
        self._entry = self._block = self.module.id()
        self.buffers = list(buffers)
        self._bindings = [self._binding(i, b) for i, b in enumerate(buffers)]
        self.arrays: dict[str, PrivateArray] = {}
        self._dims = self._push_constants(dims)

    # -- declarations ------------------------------------------------------------------

    def _push_constants(self, dims: Sequence[str]) -> dict[str, Value]:
        """Declares and loads them all in the first block, where they dominate every use."""
        unsigned = self.type_id("u32")
        count = FIRST_WORKGROUP_WORDS + len(dims)
        block = self._block_of([unsigned] * count)
        for member in range(count):
            self._offset(block, member, 4 * member)
        variable = self.global_variable("PushConstant", block)
        pointer = self.module.pointer("PushConstant", unsigned)
        self._first: list[Value] = []
        found: dict[str, Value] = {}
        for member in range(count):
            number = self.module.unsigned_constant(member)
            place = self.operation("OpAccessChain", pointer, variable, number)
            word = Value(self, "u32", self.operation("OpLoad", unsigned, place))
            value = word.bitcast(self.index_type)
            if member < FIRST_WORKGROUP_WORDS:
                self._first.append(value)
            else:
                found[dims[member - FIRST_WORKGROUP_WORDS]] = value
        return found

    def _builtin(self, name: str) -> list[Value]:
        vector = self.module.unique("OpTypeVector", self.type_id("u32"), 3)
        variable = self.global_variable("Input", vector)
        self.module.decorate(variable, "BuiltIn", name)
        loaded = self.operation("OpLoad", vector, variable)
        parts = [
            self.operation("OpCompositeExtract", self.type_id("u32"), loaded, i)
            for i in range(3)
        ]
        return [Value(self, "u32", part).bitcast(self.index_type) for part in parts]

    def subgroup(self) -> tuple[Value, Value]:
        """This lane's number in its subgroup, and how many lanes that has."""
        self.module.capability("GroupNonUniform")
        unsigned = self.type_id("u32")
        found: list[Value] = []
        for name in ("SubgroupLocalInvocationId", "SubgroupSize"):
            variable = self.global_variable("Input", unsigned)
            self.module.decorate(variable, "BuiltIn", name)
            value = Value(self, "u32", self.operation("OpLoad", unsigned, variable))
            found.append(value.bitcast(self.index_type))
        return found[0], found[1]

    def workgroup(self) -> list[Value]:
        """This workgroup's number in the whole launch: x, y, z."""
        here = self._builtin("WorkgroupId")
        return [h + f for h, f in zip(here, self._first, strict=True)]

    def local_index(self) -> Value:
        """This lane's number in its workgroup."""
        return self._builtin("LocalInvocationId")[0]

    @property
    def first_workgroup(self) -> Sequence[Value]:
        """The number of the launch's first workgroup: x, y, z; above 0 where it is cut."""
        return self._first

    @property
    def features(self) -> tuple[str, ...]:
        """What the module needs of a device, sorted."""
        return tuple(sorted(self.module.capabilities - {"Shader"}))

    def start(self, linear_workgroup: Value) -> None:
        """Fixes this lane's number."""
        local = self.local_index()
        self._lane = linear_workgroup * self.lanes + local

    def private_array(self, name: str, type: MachineType, elements: int) -> None:
        """Declares an array local in the lane's own memory."""
        length = self.module.unsigned_constant(max(elements, 1))
        array = self.module.unique("OpTypeArray", self.type_id(type), length)
        variable = self.local_variable(array)
        self.arrays[name] = PrivateArray(variable, type)

    def local_variable(self, type: Id) -> Id:
        """A variable of each lane."""
        variable = self.module.id()
        pointer = self.module.pointer("Function", type)
        self._locals += instruction("OpVariable", pointer, variable, "Function")
        return variable

    # -- code --------------------------------------------------------------------------------

    def operation(self, name: str, type: Id, *operands: Operand) -> Id:
        """Emits an instruction with a result."""
        result = self.module.id()
        self.instruct(name, type, result, *operands)
        if name in CONTRACTIBLE:
            self.module.decorate(result, "NoContraction")
        return result

    def instruct(self, name: str, *operands: Operand) -> None:
        self._code += instruction(name, *operands)

    def _label(self, label: Id) -> None:
        self.instruct("OpLabel", label)
        self._block = label

    def constant(self, type: MachineType, value: bool | int | float) -> Value:
        if type == "bool":
            name = "OpConstantTrue" if value else "OpConstantFalse"
            return Value(self, type, self.module.unique(name, type=self.type_id(type)))
        if type in ("f32", "f64"):
            words = float_words(type, float(value))
        else:
            data = (int(value) & ((1 << BITS[type]) - 1)).to_bytes(BITS[type] // 8, "little")
            words = struct.unpack(f"<{len(data) // 4}I", data)
        made = self.module.unique("OpConstant", *words, type=self.type_id(type))
        return Value(self, type, made)

    def apply(self, operation: str, type: MachineType, *operands: Value) -> Value:
        handles = [o.handle for o in operands]
        source = operands[-1].type
        result = self.type_id(type)
        if operation == "select":
            return Value(self, type, self.operation("OpSelect", result, *handles))
        if operation in ("floor", "sqrt"):
            library, number = self.module.extended(operation.capitalize())
            made = self.operation("OpExtInst", result, library, number, *handles)
            return Value(self, type, made)
        if operation == "bitcast":
            return Value(self, type, self.operation("OpBitcast", result, *handles))
        if operation == "convert":
            return self._convert(operands[0], type)
        if source == "bool":
            name = LOGICAL[operation]
        else:
            column = {"i": 0, "u": 1, "f": 2}[source[0]]
            name = ARITHMETIC[operation][column]
        return Value(self, type, self.operation(name, result, *handles))

    def _convert(self, value: Value, type: MachineType) -> Value:
        source, target = value.type, self.type_id(type)
        if value.is_float:
            name = {"f": "OpFConvert", "i": "OpConvertFToS", "u": "OpConvertFToU"}[type[0]]
        elif type in ("f32", "f64"):
            name = "OpConvertSToF" if source[0] == "i" else "OpConvertUToF"
        elif BITS[source] == BITS[type]:
            name = "OpBitcast"
        elif source[0] == "i" and BITS[type] > BITS[source]:
            return self._widened(value, type)
        elif source[0] == "i":
            name = "OpSConvert"
        else:
            # OpUConvert gives unsigned types only.
            wide: MachineType = "u64" if BITS[type] == 64 else "u32"
            made = self.operation("OpUConvert", self.type_id(wide), value.handle)
            return Value(self, wide, made).bitcast(type)
        return Value(self, type, self.operation(name, target, value.handle))

    def _widened(self, value: Value, type: MachineType) -> Value:
        """A signed value in 64 bits, without `OpSConvert`.

        Mesa 22.3 compares its result with a constant wrongly: -1 is not less than 3.
        """
        low = self.operation("OpUConvert", self.type_id("u64"), value.bitcast("u32").handle)
        sign = self.constant("u64", 1 << 31)
        return ((Value(self, "u64", low) ^ sign) - sign).bitcast(type)

    def lane(self) -> Value:
        return self._lane

    def dimension(self, name: str) -> Value:
        return self._dims[name]

    def variable(self, type: MachineType) -> tuple[Id, MachineType]:
        return self.local_variable(self.type_id(type)), type

    def read(self, variable: Any) -> Value:
        where, type = variable
        return Value(self, type, self.operation("OpLoad", self.type_id(type), where))

    def write(self, variable: Any, value: Value) -> None:
        self.instruct("OpStore", variable[0], value.handle)

    def loop(
        self,
        count: Value,
        body: Callable[[Value], None],
        goes_on: Callable[[], Value] | None = None,
    ) -> None:
        before = self._block
        header, check, inside, again, after = (self.module.id() for _ in range(5))
        counter, following = self.module.id(), self.module.id()
        kind = self.type_id(self.index_type)
        zero = self.constant(self.index_type, 0)
        one = self.constant(self.index_type, 1)
        self.instruct("OpBranch", header)
        self._label(header)
        self.instruct("OpPhi", kind, counter, zero.handle, before, following, again)
        self.instruct("OpLoopMerge", after, again, "None")
        self.instruct("OpBranch", check)
        self._label(check)
        value = Value(self, self.index_type, counter)
        more = value.lt(count)
        more = more if goes_on is None else more & goes_on()
        self.instruct("OpBranchConditional", more.handle, inside, after)
        self._label(inside)
        body(value)
        self.instruct("OpBranch", again)
        self._label(again)
        self.instruct("OpIAdd", kind, following, counter, one.handle)
        self.instruct("OpBranch", header)
        self._label(after)

    def guarded(self, mask: Value, body: Callable[[], None]) -> None:
        inside, after = self.module.id(), self.module.id()
        self.instruct("OpSelectionMerge", after, "None")
        self.instruct("OpBranchConditional", mask.handle, inside, after)
        self._label(inside)
        body()
        self.instruct("OpBranch", after)
        self._label(after)

    # -- memory --------------------------------------------------------------------------------

    def _element(self, binding: int, offset: Value) -> tuple[Id, Id]:
        variable, element = self._bindings[binding]
        pointer = self.module.pointer("StorageBuffer", element)
        zero = self.module.unsigned_constant(0)
        return self.operation("OpAccessChain", pointer, variable, zero, offset.handle), element

    def element_pointer(self, binding: int, offset: Value) -> Id:
        """A pointer to an element of a storage buffer."""
        return self._element(binding, offset)[0]

    def copy_four(self, source: int, target: int, offset: Value) -> None:
        """Copies an element between two bindings in fours."""
        place, element = self._element(source, offset)
        loaded = self.operation("OpLoad", element, place)
        self.instruct("OpStore", self._element(target, offset)[0], loaded)

    def _part_of_four(self, binding: int, offset: Value) -> Value:
        variable, _ = self._bindings[binding]
        kind = raw_type(self.buffers[binding].dtype)
        pointer = self.module.pointer("StorageBuffer", self.type_id(kind))
        zero = self.module.unsigned_constant(0)
        four, part = (offset >> 2).handle, (offset & 3).handle
        place = self.operation("OpAccessChain", pointer, variable, zero, four, part)
        return Value(self, kind, self.operation("OpLoad", self.type_id(kind), place))

    def load_four(self, binding: int, offset: Value, mask: Value | None) -> list[Value]:
        """Neighbours from a multiple of four on, of a binding in fours; zeros outside."""
        at = offset if mask is None else mask.select(offset, 0)
        place, element = self._element(binding, at >> 2)
        four = self.operation("OpLoad", element, place)
        kind = raw_type(self.buffers[binding].dtype)
        type_ = self.type_id(kind)
        found = [
            Value(self, kind, self.operation("OpCompositeExtract", type_, four, part))
            for part in range(4)
        ]
        return found if mask is None else [mask.select(value, 0) for value in found]

    def _load(self, binding: int, offset: Value) -> Value:
        dtype = self.buffers[binding].dtype
        if self.buffers[binding].in_fours:
            return self._part_of_four(binding, offset)
        place, element = self._element(binding, offset)
        loaded = self.operation("OpLoad", element, place)
        kind = raw_type(dtype)
        if dtype.size_bytes < 4:
            loaded = self.operation("OpUConvert", self.type_id(kind), loaded)
        return Value(self, kind, loaded)

    def load(self, binding: int, offset: Value, mask: Value | None, otherwise: Value) -> Value:
        if mask is None:
            return self._load(binding, offset)
        if self.branchless_loads:
            return mask.select(self._load(binding, mask.select(offset, 0)), otherwise)
        before = self._block
        found: list[Value] = []
        inside = before

        def body() -> None:
            nonlocal inside
            found.append(self._load(binding, offset))
            inside = self._block

        self.guarded(mask, body)
        value = found[0]
        merged = self.operation(
            "OpPhi", self.type_id(value.type), value.handle, inside, otherwise.handle, before
        )
        return Value(self, value.type, merged)

    def store(self, binding: int, offset: Value, value: Value) -> None:
        place, element = self._element(binding, offset)
        handle = value.handle
        if self.buffers[binding].dtype.size_bytes < 4:
            handle = self.operation("OpUConvert", element, handle)
        self.instruct("OpStore", place, handle)

    def _array_place(self, array: PrivateArray, offset: Value) -> Id:
        pointer = self.module.pointer("Function", self.type_id(array.type))
        return self.operation("OpAccessChain", pointer, array.variable, offset.handle)

    def load_array(self, name: str, offset: Value) -> Value:
        array = self.arrays[name]
        place = self._array_place(array, offset)
        made = self.operation("OpLoad", self.type_id(array.type), place)
        return Value(self, array.type, made)

    def store_array(self, name: str, offset: Value, value: Value) -> None:
        self.instruct("OpStore", self._array_place(self.arrays[name], offset), value.handle)

    def phase_end(self) -> None:
        """A lane sees its own writes in order: nothing is needed."""

    # -- workgroups ----------------------------------------------------------------------------

    def barrier(self) -> None:
        """All lanes of the workgroup are here, and see what the others wrote."""
        scope = self.module.unsigned_constant(_WORKGROUP_SCOPE)
        flags = _BARRIER_SEMANTICS
        if self.module.memory_model == "Vulkan":
            flags |= _AVAILABLE_AND_VISIBLE
        semantics = self.module.unsigned_constant(flags)
        self.instruct("OpControlBarrier", scope, scope, semantics)

    def subgroup_barrier(self) -> None:
        """All lanes of the subgroup are here, and see what the others wrote."""
        scope = self.module.unsigned_constant(_SUBGROUP_SCOPE)
        semantics = self.module.unsigned_constant(_BARRIER_SEMANTICS)
        self.instruct("OpControlBarrier", scope, scope, semantics)

    def native_decode(self, dtype: DType, bits: Value) -> Value | None:
        if dtype.name != "f16" or not self.native_halves:
            return None
        single = self.type_id("f32")
        pair = self.module.unique("OpTypeVector", single, 2)
        library, number = self.module.extended("UnpackHalf2x16")
        both = self.operation("OpExtInst", pair, library, number, bits.handle)
        return Value(self, "f32", self.operation("OpCompositeExtract", single, both, 0))

    def shuffled(self, value: Value, distance: int) -> Value:
        """The value of the lane whose number in the subgroup differs by this bit."""
        if value.type == "bool":
            one = self.constant("u32", 1)
            return self.shuffled(value.select(one, 0), distance).ne(0)
        self.module.capability("GroupNonUniform")
        self.module.capability("GroupNonUniformShuffle")
        scope = self.module.unsigned_constant(_SUBGROUP_SCOPE)
        bit = self.module.unsigned_constant(distance)
        made = self.operation(
            "OpGroupNonUniformShuffleXor", self.type_id(value.type), scope, value.handle, bit
        )
        return Value(self, value.type, made)

    def fused(self, one: Value, other: Value, addend: Value) -> Value:
        """`one * other + addend`, rounded once where the device can."""
        library, number = self.module.extended("Fma")
        handles = (one.handle, other.handle, addend.handle)
        made = self.operation("OpExtInst", self.type_id(one.type), library, number, *handles)
        return Value(self, one.type, made)

    def finish(self) -> bytes:
        module = self.module
        module.emit(
            "memory_model", "OpMemoryModel", module.addressing_model, module.memory_model
        )
        void = module.unique("OpTypeVoid")
        signature = module.unique("OpTypeFunction", void)
        module.emit("functions", "OpFunction", void, self._main, "None", signature)
        module.emit("functions", "OpLabel", self._entry)
        module.sections["functions"] += self._locals + self._code
        module.emit("functions", "OpReturn")
        module.emit("functions", "OpFunctionEnd")
        module.emit(
            "entry_points",
            "OpEntryPoint",
            "GLCompute",
            self._main,
            self._name,
            *self._interface,
        )
        return module.to_bytes()
