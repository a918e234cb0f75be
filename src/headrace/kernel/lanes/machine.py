"""What a naive emitter must provide, and values with operators that speak to it.

A machine computes in seven types (`bool i32 u32 i64 u64 f32 f64`), one value a lane.
Control flow is structured: loops whose trip count is the same for all lanes, and guarded
parts that run only for the lanes where a mask holds.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias, Union

from headrace.base.dtypes import DType
from headrace.kernel.lanes.unknown import unknown_operation

MachineType = Literal["bool", "i32", "u32", "i64", "u64", "f32", "f64"]
Number: TypeAlias = Union["Value", int, float]

UNSIGNED_OF: dict[MachineType, MachineType] = {
    "f32": "u32", "i32": "u32", "u32": "u32", "f64": "u64", "i64": "u64", "u64": "u64",
}  # fmt: skip
SIGNED_OF: dict[MachineType, MachineType] = {
    "f32": "i32", "i32": "i32", "u32": "i32", "f64": "i64", "i64": "i64", "u64": "i64",
}  # fmt: skip
BITS: dict[MachineType, int] = {
    "bool": 1, "i32": 32, "u32": 32, "i64": 64, "u64": 64, "f32": 32, "f64": 64,
}  # fmt: skip


def compute_type(dtype: DType) -> MachineType:
    """The type in which values of a (real) element type are computed."""
    if dtype.kind == "bool":
        return "bool"
    wide = dtype.bits > 32
    if dtype.kind == "float":
        return "f64" if wide else "f32"
    if dtype.kind == "signed":
        return "i64" if wide else "i32"
    return "u64" if wide else "u32"


def raw_type(dtype: DType) -> MachineType:
    """The type a load gives: the compute type, or for narrow elements their bits."""
    return compute_type(dtype) if dtype.bits >= 32 else "u32"


@dataclass(frozen=True, eq=False)
class Value:
    """One value of a machine. Operators emit primitives; `&`, `|`, `~` are bitwise.

    Attributes:
        handle: whatever the machine calls it.
    """

    machine: Machine
    type: MachineType
    handle: Any

    def _other(self, other: Number) -> Value:
        return other if isinstance(other, Value) else self.machine.constant(self.type, other)

    def _binary(self, operation: str, other: Number) -> Value:
        return self.machine.apply(operation, self.type, self, self._other(other))

    def _compare(self, operation: str, other: Number) -> Value:
        return self.machine.apply(operation, "bool", self, self._other(other))

    def __add__(self, other: Number) -> Value:
        return self._binary("add", other)

    def __sub__(self, other: Number) -> Value:
        return self._binary("sub", other)

    def __rsub__(self, other: int | float) -> Value:
        return self._other(other) - self

    def __mul__(self, other: Number) -> Value:
        return self._binary("mul", other)

    def __truediv__(self, other: Number) -> Value:
        """Float division, or integer division towards zero (divisor not 0)."""
        return self._binary("div", other)

    def __mod__(self, other: Number) -> Value:
        """Integer remainder with the sign of the dividend (divisor not 0)."""
        return self._binary("rem", other)

    def __neg__(self) -> Value:
        return self.machine.apply("neg", self.type, self)

    def __and__(self, other: Number) -> Value:
        return self._binary("and", other)

    def __or__(self, other: Number) -> Value:
        return self._binary("or", other)

    def __xor__(self, other: Number) -> Value:
        return self._binary("xor", other)

    def __invert__(self) -> Value:
        return self.machine.apply("not", self.type, self)

    def __lshift__(self, other: Number) -> Value:
        return self._binary("shl", other)

    def __rshift__(self, other: Number) -> Value:
        """Arithmetic for signed types, logical for unsigned ones."""
        return self._binary("shr", other)

    def eq(self, other: Number) -> Value:
        return self._compare("eq", other)

    def ne(self, other: Number) -> Value:
        """Not equal; true where either is NaN."""
        return self._compare("ne", other)

    def lt(self, other: Number) -> Value:
        return self._compare("lt", other)

    def le(self, other: Number) -> Value:
        return self._compare("le", other)

    def gt(self, other: Number) -> Value:
        return self._compare("gt", other)

    def ge(self, other: Number) -> Value:
        return self._compare("ge", other)

    def select(self, yes: Value, no: Number) -> Value:
        """`yes` where this boolean holds, else `no`."""
        return self.machine.apply("select", yes.type, self, yes, yes._other(no))

    def floor(self) -> Value:
        return self.machine.apply("floor", self.type, self)

    def sqrt(self) -> Value:
        return self.machine.apply("sqrt", self.type, self)

    def to(self, type: MachineType) -> Value:
        """Converted; a float out of an integer's range gives anything."""
        if type == self.type:
            return self
        if type == "bool":
            return self.ne(0)
        return self.machine.apply("convert", type, self)

    def bitcast(self, type: MachineType) -> Value:
        return self if type == self.type else self.machine.apply("bitcast", type, self)

    @property
    def bits(self) -> Value:
        """Its bit pattern, unsigned."""
        return self.bitcast(UNSIGNED_OF[self.type])

    @property
    def is_float(self) -> bool:
        return self.type in ("f32", "f64")


class Machine(ABC):
    """What lowering speaks to.

    Attributes:
        index_type: the signed type in which indices and offsets are computed.
    """

    index_type: MachineType = "i32"

    @abstractmethod
    def constant(self, type: MachineType, value: bool | int | float) -> Value: ...

    @abstractmethod
    def apply(self, operation: str, type: MachineType, *operands: Value) -> Value:
        """A primitive: `add sub mul div rem neg and or xor not shl shr eq ne lt le gt ge
        select floor sqrt convert bitcast`; `type` is the result's."""

    def sum(self, terms: Sequence[Value]) -> Value:
        """The sum of one or more indices, in whatever order is cheapest."""
        total = terms[0]
        for term in terms[1:]:
            total = total + term
        return total

    @abstractmethod
    def lane(self) -> Value:
        """This lane's number in the whole launch, of the index type."""

    @abstractmethod
    def dimension(self, name: str) -> Value:
        """A named dimension, of the index type."""

    @abstractmethod
    def variable(self, type: MachineType) -> Any:
        """A new mutable cell of each lane."""

    @abstractmethod
    def read(self, variable: Any) -> Value: ...

    @abstractmethod
    def write(self, variable: Any, value: Value) -> None: ...

    @abstractmethod
    def loop(self, count: Value, body: Callable[[Value], None]) -> None:
        """Runs `body(0)`, `body(1)`, ... `count` times; the count is equal for all lanes."""

    def repeat(
        self, most: Value, binding: int, offset: Value, trip: Callable[[], None]
    ) -> None:
        """Runs `trip` while the boolean at an offset, read before each, holds; at most so
        often. Only where a single lane runs."""
        raise unknown_operation("while", "any")

    @abstractmethod
    def guarded(self, mask: Value, body: Callable[[], None]) -> None:
        """Runs `body` for lanes where `mask` holds; what it sets is used only inside it."""

    @abstractmethod
    def load(self, binding: int, offset: Value, mask: Value | None, otherwise: Value) -> Value:
        """The element (of `raw_type`) at an offset; `otherwise` where the mask fails."""

    @abstractmethod
    def store(self, binding: int, offset: Value, value: Value) -> None:
        """Writes a value of the binding's `raw_type`; narrow ones keep their low bits."""

    @abstractmethod
    def load_array(self, name: str, offset: Value) -> Value:
        """An element of an array local; `offset` is row-major in its shape."""

    @abstractmethod
    def store_array(self, name: str, offset: Value, value: Value) -> None: ...

    @abstractmethod
    def phase_end(self) -> None:
        """Between phases: memory written before is read after, by the same lane."""

    def native_decode(self, dtype: DType, bits: Value) -> Value | None:
        """A narrow float's `f32` from its bits, where the machine has that itself."""
        return None

    def native_encode(self, dtype: DType, value: Value) -> Value | None:
        """The bits of a float rounded to nearest even, where the machine has that itself."""
        return None

    def native_extreme(self, operation: str, left: Value, right: Value) -> Value | None:
        """`maximum` or `minimum` of floats, where the machine's propagates NaN and orders
        zeros by their sign."""
        return None

    def native_function(self, operation: str, value: Value) -> Value | None:
        """An elementary function of an `f32` whose result is rounded to 16 bits, where the
        machine has one that is right to a few units of f32."""
        return None
