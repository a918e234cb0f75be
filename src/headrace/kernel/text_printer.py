"""Prints a kernel; the form is described in `text.py`."""

from __future__ import annotations

import json
import math
import re
import struct
from collections.abc import Callable, Iterable, Sequence

from headrace.base.dtypes import DType
from headrace.kernel.description import (
    Axis,
    Combiner,
    Compute,
    Constant,
    IndexValue,
    Kernel,
    Load,
    LoadLocal,
    Operand,
    Phase,
    Reduction,
    Scalar,
    ScalarOperation,
    ordered_layout,
)
from headrace.kernel.loops import Loop, walk

_WORD = re.compile(r"[A-Za-z_]\w*")
_NAN_BITS = 0x7FF8000000000000


def print_scalar(value: Scalar) -> str:
    """A scalar as text that `read` gives back bit for bit and of the same Python type."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, complex):
        return f"complex({print_scalar(value.real)}, {print_scalar(value.imag)})"
    if isinstance(value, float) and math.isnan(value):
        bits = struct.unpack("<Q", struct.pack("<d", value))[0]
        return "nan" if bits == _NAN_BITS else f"0x{bits:016X}"
    return repr(value)


def _name(name: str) -> str:
    return name if _WORD.fullmatch(name) else json.dumps(name)


def _list(values: Iterable[object]) -> str:
    return "[" + ", ".join(str(v) for v in values) + "]"


def _axes(axes: Sequence[Axis]) -> str:
    return "(" + ", ".join(f"{a.name} = {a.size}" for a in axes) + ")"


def _layout_text(operand: Operand) -> str:
    layout = operand.layout
    if layout == ordered_layout(operand.shape):
        return ""
    dimensions = [
        str(d.stride) if d.tile == 1 else f"{d.stride} tile {d.tile} by {d.tile_stride}"
        for d in layout.dimensions
    ]
    text = f" layout {_list(dimensions)} offset {layout.offset} size {layout.size}"
    if layout.has_halo:
        text += f" halo {_list(layout.halo_low)} {_list(layout.halo_high)}"
    if layout.halo_value is not None:
        text += f" value {print_scalar(layout.halo_value)}"
    if layout.transform:
        text += f" transform {layout.transform}"
    if layout.codes is not None:
        codes = layout.codes
        text += f" codes {codes.block} {codes.base} {codes.escapes}"
    return text


def _operand_text(operand: Operand) -> str:
    constant = " constant" if operand.constant else ""
    return (
        f"{operand.access}{constant} {_name(operand.name)} : "
        f"{operand.dtype}{_list(operand.shape)}{_layout_text(operand)}"
    )


def _operation_text(operation: ScalarOperation, operands: Sequence[Operand]) -> str:
    match operation:
        case Load(result, operand, index, bounded, otherwise):
            text = f"{result} = load {_name(operands[operand].name)}{_list(index)}"
            if bounded:
                text += f" bounded {_list(bounded)}"
            if otherwise is not None:
                text += f" otherwise {print_scalar(otherwise)}"
            return text
        case LoadLocal(result, local, index):
            return f"{result} = read {_name(local)}{_list(index)}"
        case Constant(result, dtype, value):
            return f"{result} = constant {print_scalar(value)} : {dtype}"
        case IndexValue(result, dtype, value):
            return f"{result} = index [{value}] : {dtype}"
        case Compute(result, name, arguments, dtype, attribute):
            direction = f" {attribute}" if attribute else ""
            return f"{result} = {name}{direction}({', '.join(arguments)}) : {dtype}"


def simple_combiner(operation: str, dtype: DType) -> Combiner:
    """The combiner that is one binary operation, under its canonical names."""
    body = Compute("%c0", operation, ("%a0", "%b0"), dtype)
    return Combiner(("%a0",), ("%b0",), (body,), ("%c0",))


def _reduction_lines(reduction: Reduction, dtypes: Sequence[DType]) -> list[str]:
    values = ", ".join(reduction.values)
    initial = ", ".join(print_scalar(i) for i in reduction.initial)
    results = ", ".join(_name(r) for r in reduction.results)
    start = f"fold {values} from {initial} with "
    combiner, kind = reduction.combiner, reduction.combiner.kind
    if kind and len(dtypes) == 1 and combiner == simple_combiner(kind, dtypes[0]):
        return [f"{start}{kind} into {results}"]
    return [
        f"{start}({', '.join(combiner.left)}) ({', '.join(combiner.right)}) {{",
        *(f"  {_operation_text(o, ())}" for o in combiner.body),
        f"}} giving {', '.join(combiner.results)} into {results}",
    ]


def _phase_lines(phase: Phase, kernel: Kernel) -> list[str]:
    axes = _axes((*phase.parallel, *phase.reduction_axes))
    word = "reduce" if phase.reduction is not None else "serial" if phase.serial else "map"
    lines = [f"{word}{axes} {{"]
    lines += [f"  {_operation_text(o, kernel.operands)}" for o in phase.body]
    if phase.reduction is not None:
        dtypes = {local.name: local.dtype for local in kernel.locals}
        known = [dtypes[r] for r in phase.reduction.results if r in dtypes]
        lines += [f"  {line}" for line in _reduction_lines(phase.reduction, known)]
    for store in phase.stores:
        if isinstance(store.operand, str):
            lines.append(f"  set {_name(store.operand)}{_list(store.index)} = {store.value}")
        else:
            name = _name(kernel.operands[store.operand].name)
            bounded = f" bounded {_list(store.bounded)}" if store.bounded else ""
            lines.append(f"  store {store.value} to {name}{_list(store.index)}{bounded}")
    lines.append("}")
    return lines


def print_kernel(kernel: Kernel) -> str:
    """The text of a kernel, lines joined by newlines, without one at the end.

    Kept with the kernel: passes compare kernels by their texts again and again.
    """
    known = kernel.__dict__.get("_text")
    if known is None:
        known = kernel.__dict__["_text"] = _kernel_text(kernel)
    return known


def _kernel_text(kernel: Kernel) -> str:
    dims = f" dims({', '.join(kernel.dims)})" if kernel.dims else ""
    precision = "" if kernel.precision == "ieee" else f" precision({kernel.precision})"
    lines = [f"kernel{_axes(kernel.outer)}{dims}{precision} {{"]
    lines += [f"  {_operand_text(o)}" for o in kernel.operands]
    for local in kernel.locals:
        shape = _list(local.shape) if local.shape else ""
        lines.append(f"  local {_name(local.name)} : {local.dtype}{shape}")
    indent = "  "

    def phase(number: int) -> None:
        lines.extend(indent + line for line in _phase_lines(kernel.phases[number], kernel))

    def loop(loop: Loop, trip: Callable[[], None]) -> None:
        nonlocal indent
        most = "" if loop.most is None else f" at_most {loop.most}"
        name = _name(kernel.operands[loop.condition].name)
        lines.append(f"{indent}while {name}{most} likely {loop.likely} {{")
        indent += "  "
        trip()
        indent = indent[:-2]
        lines.append(f"{indent}}}")

    walk(kernel, phase, loop)
    lines.append("}")
    return "\n".join(lines)
