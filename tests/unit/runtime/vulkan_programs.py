"""A program by hand for Vulkan: a loop whose count is data, state, a fill and a copy."""

from __future__ import annotations

from pathlib import Path

from headrace.artifact import schema as s
from headrace.artifact.writer import ModuleParts, write_artifact
from headrace.base.dtypes import BY_NAME, F32
from headrace.base.symbols import ZERO, as_expr
from headrace.kernel.text import parse_kernel
from headrace.targets.vulkan.target import make

_KERNELS = {
    "less": (
        "kernel() {\n  ro i : i32[]\n  ro n : i32[]\n  wo c : i1[]\n  map() {\n"
        "    %v0 = load i[]\n    %v1 = load n[]\n    %v2 = compare LT(%v0, %v1) : i1\n"
        "    store %v2 to c[]\n  }\n}"
    ),
    "next": (
        "kernel() {\n  rw i : i32[]\n  map() {\n    %v0 = load i[]\n"
        "    %v1 = constant 1 : i32\n    %v2 = add(%v0, %v1) : i32\n    store %v2 to i[]\n  }\n}"
    ),
    "double": (
        "kernel(%d0 = 5) {\n  rw y : f32[5]\n  map() {\n    %v0 = load y[%d0]\n"
        "    %v1 = add(%v0, %v0) : f32\n    store %v1 to y[%d0]\n  }\n}"
    ),
    "count": (
        "kernel() {\n  rw calls : i32[]\n  wo told : i32[]\n  map() {\n    %v0 = load calls[]\n"
        "    %v1 = constant 1 : i32\n    %v2 = add(%v0, %v1) : i32\n    store %v2 to calls[]\n"
        "    store %v2 to told[]\n  }\n}"
    ),
}


def doubling_loop(path: Path) -> Path:
    """(n, x[5]) -> (x doubled n times, n, how often it was called, 6 bytes of 0xABCD)."""
    resources = (
        s.Resource("n", "external", as_expr(4)),
        s.Resource("x", "external", as_expr(20)),
        s.Resource("y", "external", as_expr(20)),
        s.Resource("i", "external", as_expr(4)),
        s.Resource("told", "external", as_expr(4)),
        s.Resource("pattern", "external", as_expr(6)),
        s.Resource("c", "transient", as_expr(1)),
        s.Resource("calls", "variable", as_expr(4)),
    )
    executables: list[s.Executable] = []
    code: list[bytes] = []
    for name, text in _KERNELS.items():
        kernel = parse_kernel(text)
        made = make("vulkan").translate(name, kernel)
        (launch,) = made.specialisations[0].launches
        cases = (s.Specialisation((), (s.Launch(launch.symbol, launch.workgroups),)),)
        variant = s.Variant("vulkan:1.3", "spirv", len(code), made.features, (cases,))
        point = s.EntryPoint(name, 0, tuple(o.access for o in kernel.operands), 0)
        executables.append(s.Executable(name, (point,), (variant,), digest=name))
        code.append(made.data)

    def run(name: str, *places: int) -> s.Dispatch:
        number = list(_KERNELS).index(name)
        accesses = executables[number].entry_points[0].bindings
        bindings = tuple(
            s.Binding(place, ZERO, resources[place].size_bytes, access)
            for place, access in zip(places, accesses, strict=True)
        )
        return s.Dispatch(number, 0, bindings, ())

    condition = run("less", 3, 0, 6)
    body = s.Block(
        (
            s.Copy(1, ZERO, 2, ZERO, as_expr(20)),
            s.Fill(3, ZERO, as_expr(4), 0, 4),
            s.Fill(5, ZERO, as_expr(6), 0xABCD, 2),
            run("count", 7, 4),
            s.Loop(s.Block((condition,)), 6, s.Block((run("double", 2), run("next", 3), condition))),
        )
    )  # fmt: skip
    integer, byte = BY_NAME["i32"], BY_NAME["ui8"]
    five, six = (as_expr(5),), (as_expr(6),)
    function = s.EntryFunction(
        "main",
        (s.TensorSignature("n", integer, (), 0), s.TensorSignature("x", F32, five, 1)),
        (
            s.TensorSignature("y", F32, five, 2),
            s.TensorSignature("i", integer, (), 3),
            s.TensorSignature("told", integer, (), 4),
            s.TensorSignature("pattern", byte, six, 5),
        ),
        resources,
        body,
    )
    program = s.Program("vulkan", (function,), tuple(executables))
    provenance = s.Provenance("test", "loop", "", ("vulkan:1.3",), ())
    write_artifact(
        path, ModuleParts("loop", (), (program,), provenance, tuple(code)), [], lambda _: None
    )
    return path
