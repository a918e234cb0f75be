"""One device class's program: its executables, with what each target made of them."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import cast

from xdsl.dialects.func import FuncOp

from headrace.artifact import schema
from headrace.assemble.function import Function
from headrace.assemble.pools import Blobs, Weights
from headrace.base.errors import error
from headrace.hal import dialect as hal
from headrace.hal.interp import kernels_of
from headrace.ir.model import Model
from headrace.kernel import target as kernel_target
from headrace.kernel.description import Kernel
from headrace.kernel.target import Code, Target
from headrace.kernel.text import print_kernel
from headrace.tensor.sizes import Next, read_next

Compiled = tuple[str, Target, Code]
"""(name of the `hal.executable`, target, what it made of the next of its kernels)."""


@dataclass(frozen=True)
class Entry:
    """Where an entry point of the IR went: its executable in the program, and its kernel."""

    executable: int
    kernel: Kernel | None


class Program:
    """One device class's program while it is built."""

    def __init__(
        self,
        device_class: str,
        model: Model,
        codes: Sequence[Compiled],
        weights: Weights,
        blobs: Blobs,
    ) -> None:
        self.device_class = device_class
        self.model = model
        self.weights = weights
        self.blobs = blobs
        self.codes: dict[tuple[str, str], list[Code]] = {}
        for executable, target, code in codes:
            self.codes.setdefault((executable, target.name), []).append(code)
        self.executables: list[schema.Executable] = []
        self.entries: dict[tuple[str, str], Entry] = {}
        self.functions: list[schema.EntryFunction] = []
        self.function_numbers: dict[str, int] = {}

    def build(self) -> schema.Program:
        kernels = kernels_of(self.model.ir)
        for op in self.model.ir.ops:
            if isinstance(op, hal.ExecutableOp):
                self._executable(op, kernels)
        for op in self.model.ir.ops:
            if isinstance(op, FuncOp):
                self.function(op.sym_name.data)
        for op in self.model.ir.ops:
            following = read_next(op) if isinstance(op, FuncOp) else None
            if following is not None:
                self._connect(cast(FuncOp, op).sym_name.data, following)
        return schema.Program(self.device_class, tuple(self.functions), tuple(self.executables))

    def _connect(self, name: str, following: Next) -> None:
        number = self.function_numbers[name]
        goes_on = schema.Continuation(
            self.function_numbers[following.function], following.sizes, following.results
        )
        self.functions[number] = replace(self.functions[number], following=goes_on)

    def function(self, name: str) -> int:
        """The number of a program function; built (callees first) when first asked for."""
        if name not in self.function_numbers:
            op = next(
                o
                for o in self.model.ir.ops
                if isinstance(o, FuncOp) and o.sym_name.data == name
            )
            built = Function(self, op).build()
            self.function_numbers[name] = len(self.functions)
            self.functions.append(built)
        return self.function_numbers[name]

    def _executable(
        self, op: hal.ExecutableOp, kernels: Mapping[tuple[str, str], Kernel]
    ) -> None:
        """An executable for each entry point: each kernel is a blob of code of its own."""
        variants = [v for v in op.body.ops if isinstance(v, hal.ExecutableVariantOp)]
        points = [p for p in variants[0].body.ops if isinstance(p, hal.ExecutableEntryPointOp)]
        name = op.sym_name.data
        interfaces = {i.sym_name.data: i for i in op.body.ops if isinstance(i, hal.InterfaceOp)}
        for number, point in enumerate(points):
            entry = point.sym_name.data
            kernel = kernels.get((name, entry))
            interface = interfaces[point.interface.root_reference.data]
            targets = [v.target.data for v in variants]
            self.entries[name, entry] = Entry(len(self.executables), kernel)
            self.executables.append(
                schema.Executable(
                    name if len(points) == 1 else f"{name}::{entry}",
                    (_entry_point(entry, interface, kernel),),
                    tuple(v for t in targets for v in self._variants(name, t, number)),
                    _digest(kernel, targets),
                )
            )

    def _variants(
        self, executable: str, target: str, number: int
    ) -> tuple[schema.Variant, ...]:
        """What a target made of a kernel: one variant, or several by a device's features."""
        codes = self.codes.get((executable, target), [])
        if number >= len(codes):
            raise error("HR9701", f"no code for kernel {number} of @{executable} on {target}")
        return tuple(
            schema.Variant(
                target,
                code.format,
                self.blobs.index(code.data),
                tuple(code.features),
                (tuple(_specialisation(s) for s in code.specialisations),),
            )
            for code in (codes[number], *codes[number].others)
        )


def _entry_point(
    name: str, interface: hal.InterfaceOp, kernel: Kernel | None
) -> schema.EntryPoint:
    accesses: list[str] = []
    for number, binding in enumerate(interface.bindings):
        access = binding.sym_name.data.partition("_")[2]
        if not access:  # never dispatched: what the kernel does
            access = kernel.operands[number].access if kernel is not None else "rw"
        accesses.append(access)
    return schema.EntryPoint(
        name,
        0,
        tuple(accesses),  # pyright: ignore[reportArgumentType]
        interface.push_constants.value.data,
    )


def _digest(kernel: Kernel | None, targets: Sequence[str]) -> str:
    text = print_kernel(kernel) if kernel is not None else ""
    return hashlib.sha256("\n".join((*targets, text)).encode()).hexdigest()


def _specialisation(given: kernel_target.Specialisation) -> schema.Specialisation:
    return schema.Specialisation(
        tuple(schema.Condition(c.expr, c.minimum, c.maximum) for c in given.conditions),
        tuple(
            schema.Launch(
                launch.symbol,
                launch.workgroups,
                launch.scratch_bytes,
                None
                if launch.slice is None
                else schema.SliceRule(
                    launch.slice.binding, launch.slice.axis, launch.slice.step_bytes
                ),
                launch.family,
                launch.shared_bytes,
                launch.overlaps,
                launch.cluster,
                tuple(_tensor_map(m) for m in launch.tensor_maps),
            )
            for launch in given.launches
        ),
    )


def _tensor_map(given: kernel_target.TensorMap) -> schema.TensorMap:
    return schema.TensorMap(
        given.binding,
        given.offset_bytes,
        given.rows,
        given.columns,
        given.stride_bytes,
        given.box,
        given.swizzle,
    )
