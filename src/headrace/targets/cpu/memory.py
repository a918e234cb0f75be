"""Emission, part two: loads and stores of scalars, vectors and lanes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from headrace.base.dtypes import DType
from headrace.base.symbols import ZERO
from headrace.targets.cpu.entry import evaluate
from headrace.targets.cpu.ir_text import Value, constant, vector_type, width_of
from headrace.targets.cpu.nest import Access, Read, Write, stride
from headrace.targets.cpu.offsets import Context, OffsetEmitter, Typed
from headrace.targets.cpu.storage import (
    compute_type,
    decode,
    encode,
    memory_type,
    scalar_constant,
)


class MemoryEmitter(OffsetEmitter):
    """Reads and writes of operands and locals."""

    # -- memory ------------------------------------------------------------------

    def _where(self, access: Access, dtype: DType) -> tuple[Value, str, int]:
        """Base address, element type in memory and its bytes."""
        if isinstance(access.place, int):
            base = self._entry.bindings[access.place]
            return base, memory_type(dtype, self._machine), dtype.size_bytes
        return (
            self._arrays[access.place],
            self._array_type(dtype),
            self._array_bits(dtype) // 8,
        )

    def _from_memory(self, access: Access, dtype: DType, raw: Value) -> Value:
        if isinstance(access.place, int):
            return decode(self._f, dtype, raw, self._machine)
        if dtype.kind == "bool":
            return self._f.compare("ne", raw, 0)
        return self._f.cast("trunc", raw, compute_type(dtype)) if dtype.is_integer else raw

    def _to_memory(self, access: Access, dtype: DType, value: Value) -> Value:
        if isinstance(access.place, int):
            return encode(self._f, dtype, value, self._machine)
        return value if dtype.is_float else self._f.cast("zext", value, self._array_type(dtype))

    def _read(self, context: Context, env: Mapping[str, Typed], read: Read) -> Typed:
        access = read.access
        if read.result in self._given:
            return self._given[read.result]
        if access.place in self._nest.scalars:
            return self._registers[str(access.place)]
        f = self._f
        condition: Value | None = None
        mask: Value | None = None
        for index, size in access.guards:
            at = self._index(context, env, index)
            inside = f.compare("ult", at, self._entry.size(size))
            if width_of(inside.type) == 1:
                condition = inside if condition is None else f.binary("and", condition, inside)
            else:
                mask = inside if mask is None else f.binary("and", mask, inside)

        def loaded() -> list[Value]:
            raw = self._load(context, env, access, read.dtype, mask)
            value = self._from_memory(access, read.dtype, raw)
            if mask is not None:
                other = self._otherwise(read, context.width)
                value = f.select(mask, f.splat(value, context.width), other)
            return [value]

        if condition is None:
            return Typed(loaded()[0], read.dtype)
        probe = context.width if mask is not None or self._is_wide(context, env, access) else 1
        (value,) = f.branch(condition, loaded, lambda: [self._otherwise(read, probe)])
        return Typed(value, read.dtype)

    def _otherwise(self, read: Read, width: int) -> Value:
        return scalar_constant(read.dtype, read.otherwise or 0, width)

    def _lane_local(self, context: Context, access: Access) -> bool:
        """A local array beside an outer vector: each element holds all lanes."""
        return (
            isinstance(access.place, str)
            and self._schedule.lanes > 1
            and access.place in self._nest.arrays
        )

    def _is_wide(self, context: Context, env: Mapping[str, Typed], access: Access) -> bool:
        if self._lane_local(context, access):
            return context.width > 1
        return self._varying(access.offset, context, env)

    def _contiguous(
        self, context: Context, env: Mapping[str, Typed], access: Access
    ) -> int | None:
        """The constant stride along the vector axis, if that is all that differs."""
        if context.axis is None:
            return None
        through = [n for n in access.offset.names if n in env]
        if any(width_of(env[n].value.type) > 1 for n in through):
            return None
        return stride(access, context.axis)

    def _scalar_offset(
        self, context: Context, env: Mapping[str, Typed], access: Access
    ) -> tuple[Value, int]:
        """The first lane's offset as (value, constant)."""
        f = self._f
        value, rest = context.base[access.offset]
        constant_part = rest.constant_term
        rest = rest - constant_part
        if rest != ZERO:
            names = self._all_names(replace(context, axis=None), env, rest)
            value = f.add(value, evaluate(f, rest, names, self._ranges))
        return value, constant_part

    def _address(self, base: Value, at: tuple[Value, int], size_bytes: int) -> Value:
        moved = self._f.element(base, at[0], size_bytes)
        return self._f.offset(moved, at[1] * size_bytes)

    def _load(
        self,
        context: Context,
        env: Mapping[str, Typed],
        access: Access,
        dtype: DType,
        mask: Value | None,
    ) -> Value:
        f, width = self._f, context.width
        base, element, size_bytes = self._where(access, dtype)
        wide = vector_type(element, width)
        if self._lane_local(context, access):
            value, extra = self._scalar_offset(context, env, access)
            at = (f.mul(value, width), extra * width)
            return f.load(wide, self._address(base, at, size_bytes), size_bytes)
        if not self._varying(access.offset, context, env) and mask is None:
            at = self._scalar_offset(context, env, access)
            return f.load(element, self._address(base, at, size_bytes), size_bytes)
        step = self._contiguous(context, env, access)
        if step == 1:
            address = self._address(base, self._scalar_offset(context, env, access), size_bytes)
            if mask is None:
                return f.load(wide, address, size_bytes)
            return self._masked(wide, address, size_bytes, mask)
        if step is not None and mask is None:
            address = self._address(base, self._scalar_offset(context, env, access), size_bytes)
            return self._strided(wide, address, step * size_bytes, size_bytes)
        offsets = f.splat(self._index(context, env, access.offset), width)
        if mask is not None:
            offsets = f.select(mask, offsets, f.value(0, offsets.type))
        return self._gather(wide, base, offsets, size_bytes, mask)

    def _masked(self, type_: str, address: Value, align: int, mask: Value) -> Value:
        """Loads the lanes of the mask only; the others are zero."""
        f = self._f
        pointer = Value("ptr", f"align {align} {address.text}")
        from_name = type_.strip("<>").replace(" x ", "")
        width = width_of(type_)
        element = from_name[len(str(width)) :]
        short = {"float": "f32", "double": "f64", "half": "f16"}.get(element, element)
        name = f"llvm.masked.load.v{width}{short}.p0"
        f.module.declare(name, type_, ["ptr", mask.type, type_])
        zero = "zeroinitializer"
        return f.emit(type_, f"call {type_} @{name}({pointer}, {mask}, {type_} {zero})")

    def _strided(self, type_: str, address: Value, step_bytes: int, align: int) -> Value:
        f = self._f
        result = Value(type_, "poison")
        element = type_.strip("<>").split(" x ")[1]
        for lane in range(width_of(type_)):
            one = f.load(element, f.offset(address, lane * step_bytes), align)
            result = f.insert(result, one, lane)
        return result

    def _gather(
        self, type_: str, base: Value, offsets: Value, size_bytes: int, mask: Value | None
    ) -> Value:
        """One load per lane; lanes outside the mask are not read."""
        f = self._f
        result = Value(type_, "poison")
        element = type_.strip("<>").split(" x ")[1]
        for lane in range(width_of(type_)):

            def one(lane: int = lane) -> list[Value]:
                address = f.element(base, f.extract(offsets, lane), size_bytes)
                return [f.load(element, address, size_bytes)]

            if mask is None:
                loaded = one()
            else:
                zero = constant(element, 0)
                loaded = f.branch(f.extract(mask, lane), one, lambda z=zero: [z])
            result = f.insert(result, loaded[0], lane)
        return result

    def _write(
        self, context: Context, env: Mapping[str, Typed], write: Write, typed: Typed
    ) -> None:
        f, width, access = self._f, context.width, write.access
        if access.place in self._nest.scalars:
            self._registers[str(access.place)] = Typed(typed.value, write.dtype)
            return
        if access.guards:
            # Only in kernels with a serial phase, which have no vectors.
            inside = [
                f.compare("ult", self._index(context, env, i), self._entry.size(size))
                for i, size in access.guards
            ]
            condition = inside[0]
            for other in inside[1:]:
                condition = f.binary("and", condition, other)
            plain = replace(write, access=replace(access, guards=()))

            def stored() -> list[Value]:
                self._write(context, env, plain, typed)
                return []

            f.branch(condition, stored, list)
            return
        base, _, size_bytes = self._where(access, write.dtype)
        value = self._to_memory(access, write.dtype, typed.value)
        if self._lane_local(context, access):
            offset, extra = self._scalar_offset(context, env, access)
            at = (f.mul(offset, width), extra * width)
            f.store(f.splat(value, width), self._address(base, at, size_bytes), size_bytes)
            return
        if not self._varying(access.offset, context, env):
            address = self._address(base, self._scalar_offset(context, env, access), size_bytes)
            f.store(f.extract(value, width_of(value.type) - 1), address, size_bytes)
            return
        value = f.splat(value, width)
        step = self._contiguous(context, env, access)
        if step is not None:
            address = self._address(base, self._scalar_offset(context, env, access), size_bytes)
            if step == 1:
                f.store(value, address, size_bytes)
                return
            for lane in range(width):
                place = f.offset(address, lane * step * size_bytes)
                f.store(f.extract(value, lane), place, size_bytes)
            return
        offsets = f.splat(self._index(context, env, access.offset), width)
        for lane in range(width):
            place = f.element(base, f.extract(offsets, lane), size_bytes)
            f.store(f.extract(value, lane), place, size_bytes)
