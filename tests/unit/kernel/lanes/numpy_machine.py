"""Lanes in numpy: the same lowering that GPU targets use, with values to look at."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from headrace.kernel.description import Kernel
from headrace.kernel.lanes.lower import lane_count, lower
from headrace.kernel.lanes.machine import Machine, MachineType, Value, raw_type
from headrace.kernel.lanes.scalar import element_dtype

DTYPES: dict[MachineType, Any] = {
    "bool": np.bool_, "i32": np.int32, "u32": np.uint32, "i64": np.int64, "u64": np.uint64,
    "f32": np.float32, "f64": np.float64,
}  # fmt: skip


def _divide(x: Any, y: Any) -> Any:
    if x.dtype.kind == "f":
        return x / y
    quotient = np.floor_divide(x, y)
    rest = x - quotient * y
    return quotient + ((rest != 0) & ((x < 0) != (y < 0))).astype(x.dtype)


def _remainder(x: Any, y: Any) -> Any:
    return x - _divide(x, y) * y


_BINARY: dict[str, Callable[[Any, Any], Any]] = {
    "add": np.add, "sub": np.subtract, "mul": np.multiply, "div": _divide, "rem": _remainder,
    "and": np.bitwise_and, "or": np.bitwise_or, "xor": np.bitwise_xor, "eq": np.equal,
    "ne": np.not_equal, "lt": np.less, "le": np.less_equal, "gt": np.greater,
    "ge": np.greater_equal, "shl": np.left_shift, "shr": np.right_shift,
}  # fmt: skip


class NumpyMachine(Machine):
    """All lanes at once as arrays; loads and stores check masks and bounds."""

    index_type: MachineType = "i64"

    def __init__(self, lanes: int) -> None:
        self.lanes = lanes
        self.masks: list[Any] = []
        self.kernel: Kernel | None = None
        self.buffers: list[Any] = []
        self.dims: Mapping[str, int] = {}
        self.arrays: dict[str, Any] = {}

    def value(self, array: Any) -> Value:
        array = np.asarray(array)
        kind = next(k for k, d in DTYPES.items() if np.dtype(d) == array.dtype)
        return Value(self, kind, array)

    def constant(self, type: MachineType, value: bool | int | float) -> Value:
        with np.errstate(all="ignore"):
            if type == "u32" or type == "u64":
                value = int(value) & ((1 << (32 if type == "u32" else 64)) - 1)
            return Value(self, type, np.full(self.lanes, value, DTYPES[type]))

    def apply(self, operation: str, type: MachineType, *operands: Value) -> Value:
        with np.errstate(all="ignore"):
            return Value(self, type, self._apply(operation, DTYPES[type], operands))

    def _apply(self, operation: str, dtype: Any, operands: tuple[Value, ...]) -> Any:
        x = operands[0].handle
        kinds = {o.type for o in operands[1 if operation == "select" else 0 :]}
        assert len(kinds) == 1, f"{operation} on {sorted(kinds)}"
        if operation == "select":
            return np.where(x, operands[1].handle, operands[2].handle)
        if operation in _BINARY:
            return np.asarray(_BINARY[operation](x, operands[1].handle))
        if operation == "neg":
            return np.negative(x)
        if operation == "not":
            return np.invert(x)
        if operation == "convert":
            return x.astype(dtype)
        if operation == "bitcast":
            assert np.dtype(dtype).itemsize == x.dtype.itemsize
            return x.view(dtype)
        return {"floor": np.floor, "sqrt": np.sqrt}[operation](x)

    def lane(self) -> Value:
        return Value(self, "i64", np.arange(self.lanes))

    def dimension(self, name: str) -> Value:
        return self.constant("i64", self.dims[name])

    def variable(self, type: MachineType) -> Any:
        return [Value(self, type, np.zeros(self.lanes, DTYPES[type]))]

    def read(self, variable: Any) -> Value:
        return variable[0]

    def write(self, variable: Any, value: Value) -> None:
        assert variable[0].type == value.type
        variable[0] = value

    def loop(self, count: Value, body: Callable[[Value], None]) -> None:
        counts = np.unique(count.handle)
        assert len(counts) == 1, "a loop's trip count must not depend on the lane"
        for i in range(int(counts[0])):
            body(self.constant(self.index_type, i))

    def repeat(
        self, most: Value, binding: int, offset: Value, trip: Callable[[], None]
    ) -> None:
        zero = self.constant("u32", 0)
        left = int(np.unique(most.handle)[0])
        while left and self.load(binding, offset, None, zero).handle.any():
            trip()
            left -= 1

    def guarded(self, mask: Value, body: Callable[[], None]) -> None:
        self.masks.append(mask.handle)
        body()
        self.masks.pop()

    def _active(self, mask: Value | None = None) -> Any:
        active = np.ones(self.lanes, bool)
        for m in [*self.masks, *([mask.handle] if mask is not None else [])]:
            active = active & m
        return active

    def _dtype(self, binding: int) -> Any:
        assert self.kernel is not None
        return element_dtype(self.kernel.operands[binding].dtype)

    def load(self, binding: int, offset: Value, mask: Value | None, otherwise: Value) -> Value:
        active, dtype = self._active(mask), self._dtype(binding)
        result = np.array(otherwise.handle)
        bits = self.buffers[binding].view(f"u{dtype.size_bytes}")
        places = offset.handle[active]
        assert ((places >= 0) & (places < len(bits))).all(), "a load outside its buffer"
        kind = raw_type(dtype)
        picked = bits[places]
        result[active] = picked.astype("u4") if dtype.bits < 32 else picked.view(DTYPES[kind])
        return Value(self, kind, result)

    def store(self, binding: int, offset: Value, value: Value) -> None:
        active, dtype = self._active(), self._dtype(binding)
        assert value.type == raw_type(dtype)
        bits = self.buffers[binding].view(f"u{dtype.size_bytes}")
        places = offset.handle[active]
        assert ((places >= 0) & (places < len(bits))).all(), "a store outside its buffer"
        stored = value.handle[active]
        bits[places] = stored.view(f"u{stored.dtype.itemsize}").astype(bits.dtype)

    def load_array(self, name: str, offset: Value) -> Value:
        array = self.arrays[name]
        places = np.where(self._active(), offset.handle, 0)
        found = array[places, np.arange(self.lanes)] if len(array) else np.zeros(self.lanes)
        return self.value(found)

    def store_array(self, name: str, offset: Value, value: Value) -> None:
        active = self._active()
        assert self.kernel is not None
        if name not in self.arrays:
            local = next(v for v in self.kernel.locals if v.name == name)
            count = 2 if local.dtype.kind == "complex" else 1
            for size in local.shape:
                count *= size.evaluate(dict(self.dims))
            self.arrays[name] = np.zeros((count, self.lanes), value.handle.dtype)
        places = offset.handle[active]
        self.arrays[name][places, np.arange(self.lanes)[active]] = value.handle[active]

    def phase_end(self) -> None:
        pass


def run(kernel: Kernel, buffers: list[Any], dims: Mapping[str, int]) -> None:
    """Runs a kernel's lanes over flat buffers, in place."""
    machine = NumpyMachine(lane_count(kernel).evaluate(dict(dims)))
    machine.kernel, machine.buffers, machine.dims = kernel, buffers, dims
    lower(kernel, machine)
