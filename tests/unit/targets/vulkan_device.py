"""Runs the code of one kernel on a Vulkan device: through the driver, as a whole module."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

import headrace
from headrace.artifact import schema as s
from headrace.artifact.writer import ModuleParts, write_artifact
from headrace.base.dtypes import BY_NAME
from headrace.base.symbols import ZERO, as_expr
from headrace.kernel.description import Kernel
from headrace.kernel.target import Code


def run_code(
    kernel: Kernel, code: Code, buffers: list[Any], dims: dict[str, int], folder: Path
) -> list[Any]:
    """The operands' buffers after the kernel; what it does not write is as it was."""
    byte = BY_NAME["ui8"]
    count = len(buffers)
    sizes = [as_expr(b.nbytes) for b in buffers]
    resources = [s.Resource(f"in{i}", "external", sizes[i]) for i in range(count)]
    resources += [s.Resource(f"out{i}", "external", sizes[i]) for i in range(count)]
    commands: list[s.Command] = [
        s.Copy(i, ZERO, count + i, ZERO, sizes[i]) for i in range(count)
    ]
    accesses = tuple(o.access for o in kernel.operands)
    bindings = tuple(
        s.Binding(count + i, ZERO, sizes[i], access) for i, access in enumerate(accesses)
    )
    constants = tuple(as_expr(dims[d]) for d in kernel.dims)
    commands.append(s.Dispatch(0, 0, bindings, constants))
    signatures = [
        s.TensorSignature(r.name, byte, (r.size_bytes,), i) for i, r in enumerate(resources)
    ]
    function = s.EntryFunction(
        "main",
        tuple(signatures[:count]),
        tuple(signatures[count:]),
        tuple(resources),
        s.Block(tuple(commands)),
    )
    cases = tuple(
        s.Specialisation(
            tuple(s.Condition(c.expr, c.minimum, c.maximum) for c in case.conditions),
            tuple(
                s.Launch(
                    x.symbol,
                    tuple(as_expr(w.evaluate(dims)) for w in x.workgroups),  # type: ignore
                    as_expr(x.scratch_bytes.evaluate(dims)),
                    family=x.family,
                )
                for x in case.launches
            ),
        )
        for case in code.specialisations
    )
    variant = s.Variant("vulkan:1.3", "spirv", 0, (), (cases,))
    point = s.EntryPoint("k", 0, accesses, len(kernel.dims))
    program = s.Program(
        "vulkan", (function,), (s.Executable("k", (point,), (variant,), digest="k"),)
    )
    provenance = s.Provenance("test", "kernel", "", ("vulkan:1.3",), ())
    path = folder / "kernel.hrx"
    parts = ModuleParts("kernel", (), (program,), provenance, (code.data,))
    write_artifact(path, parts, [], lambda _: None)
    with headrace.load(path, "vulkan") as module:
        found = module(*[np.ascontiguousarray(b).view(np.uint8).reshape(-1) for b in buffers])
    return [
        np.array(f).view(b.dtype).reshape(b.shape) for f, b in zip(found, buffers, strict=True)
    ]
