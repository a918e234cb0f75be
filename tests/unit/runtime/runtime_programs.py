"""Small programs by hand: state, several functions, branches, loops, tables, features."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
from runtime_models import compiled

from headrace.artifact import schema as s
from headrace.artifact.writer import ModuleParts, WeightSpec, write_artifact
from headrace.base.dtypes import F32, I64
from headrace.base.parameters import array_source
from headrace.base.symbols import ONE, ZERO, Expr, as_expr, ceildiv

TILE = 64


def elementwise_ir(symbol: str, body: str, operands: int) -> str:
    """`%value` of `%a0`, `%a1` ... (f32 operands) goes to the last operand; constant n."""
    loads = "\n".join(
        f"  %p{i}.at = getelementptr i64, ptr %args, i64 {i}\n  %p{i} = load ptr, ptr %p{i}.at"
        for i in range(operands)
    )
    values = "\n".join(
        f"  %e{i} = getelementptr float, ptr %p{i}, i64 %i\n  %a{i} = load float, ptr %e{i}"
        for i in range(operands)
    )
    n_at = 8 * operands + 24
    first_at = 8 * operands + 12
    return f"""
define void @{symbol}(ptr %args, i64 %begin, i64 %end, ptr %scratch) {{
entry:
{loads}
  %n.at = getelementptr i8, ptr %args, i64 {n_at}
  %n32 = load i32, ptr %n.at
  %n = zext i32 %n32 to i64
  %first.at = getelementptr i8, ptr %args, i64 {first_at}
  %first32 = load i32, ptr %first.at
  %first = zext i32 %first32 to i64
  %low.tile = add i64 %begin, %first
  %high.tile = add i64 %end, %first
  %low = mul i64 %low.tile, {TILE}
  %high.full = mul i64 %high.tile, {TILE}
  %high = call i64 @llvm.umin.i64(i64 %high.full, i64 %n)
  br label %loop
loop:
  %i = phi i64 [ %low, %entry ], [ %next, %one ]
  %more = icmp ult i64 %i, %high
  br i1 %more, label %one, label %out
one:
{values}
  {body}
  store float %value, ptr %e{operands - 1}
  %next = add i64 %i, 1
  br label %loop
out:
  ret void
}}
declare i64 @llvm.umin.i64(i64, i64)
"""


def single_ir(symbol: str, operands: int, body: str) -> str:
    """A kernel of one tile with pointers `%p0` ... and free body."""
    loads = "\n".join(
        f"  %p{i}.at = getelementptr i64, ptr %args, i64 {i}\n  %p{i} = load ptr, ptr %p{i}.at"
        for i in range(operands)
    )
    return f"""
define void @{symbol}(ptr %args, i64 %begin, i64 %end, ptr %scratch) {{
entry:
{loads}
{body}
}}
"""


@dataclass
class ProgramBuilder:
    """Collects executables, weights and functions of one program for the CPU."""

    dimensions: tuple[s.DimensionRange, ...] = ()
    executables: list[s.Executable] = field(default_factory=list)
    code: list[bytes] = field(default_factory=list)
    specs: list[WeightSpec] = field(default_factory=list)
    functions: list[s.EntryFunction] = field(default_factory=list)

    def kernel(
        self,
        symbol: str,
        text: str,
        access: str,
        workgroups: Expr = ONE,
        constants: int = 0,
        features: tuple[str, ...] = (),
        scratch_bytes: int = 0,
    ) -> int:
        """An executable with one variant."""
        launch = s.Launch(symbol, (workgroups, ONE, ONE), as_expr(scratch_bytes))
        entry = s.EntryPoint(symbol, 0, tuple(access.split()), constants)
        case = s.Specialisation((), (launch,))
        variant = s.Variant("cpu:native", "elf-object", len(self.code), features, ((case,),))
        self.code.append(compiled(text))
        self.executables.append(
            s.Executable(symbol, (entry,), (variant,), digest=f"digest-{symbol}")
        )
        return len(self.executables) - 1

    def weight(self, name: str, array: np.ndarray, row_bytes: int = 0) -> int:
        """A weight to store."""
        self.specs.append(
            WeightSpec(
                name,
                array_source(array),
                array.nbytes,
                0,
                F32 if array.dtype == np.float32 else I64,
                array.shape,
                row_bytes,
            )
        )
        return len(self.specs) - 1

    def dispatch(
        self,
        executable: int,
        resources: list[s.Resource],
        places: list[int],
        constants: tuple[Expr, ...] = (),
    ) -> s.Dispatch:
        """A dispatch over whole resources."""
        access = self.executables[executable].entry_points[0].bindings
        bindings = tuple(
            s.Binding(r, ZERO, resources[r].size_bytes, a)
            for r, a in zip(places, access, strict=True)
        )
        return s.Dispatch(executable, 0, bindings, constants)

    def write(self, path: Path, device_class: str = "cpu") -> Path:
        """The `.hrx` of what was collected."""
        program = s.Program(device_class, tuple(self.functions), tuple(self.executables))
        parts = ModuleParts(
            "program",
            self.dimensions,
            (program,),
            s.Provenance("test", "program", "", ("cpu:native",), ()),
            tuple(self.code),
        )
        write_artifact(path, parts, self.specs, lambda source: source.array)
        return path


def external(name: str, shape: tuple[Expr, ...], dtype, resource: int) -> s.TensorSignature:
    """A signature."""
    return s.TensorSignature(name, dtype, shape, resource)


def accumulator(path: Path, n: int = 200) -> Path:
    """`add(x) -> y`: state += x, y = state; `read() -> y`: y = state."""
    b = ProgramBuilder()
    tiles, count, size = ceildiv(n, TILE), as_expr(n), as_expr(4 * n)
    add = b.kernel(
        "add",
        elementwise_ir("add", "%value = fadd float %a0, %a1", 2),
        "ro rw",
        tiles,
        1,
    )
    resources = [
        s.Resource("x", "external", size),
        s.Resource("state", "variable", size),
        s.Resource("y", "external", size),
    ]
    x = external("x", (count,), F32, 0)
    y = external("y", (count,), F32, 2)
    copy = s.Copy(1, ZERO, 2, ZERO, size)
    commands = (b.dispatch(add, resources, [0, 1], (count,)), copy)
    b.functions.append(s.EntryFunction("add", (x,), (y,), tuple(resources), s.Block(commands)))
    only = (resources[1], resources[2])
    b.functions.append(
        s.EntryFunction(
            "read",
            (),
            (replace(y, resource=1),),
            only,
            s.Block((s.Copy(0, ZERO, 1, ZERO, size),)),
        )
    )
    return b.write(path)


def doubling_loop(path: Path, n: int = 100, weights: int = 1) -> Path:
    """`main(x, times) -> y`: y = x times 2**weights, `times` times over, plus 1000 where
    times is odd."""
    b = ProgramBuilder()
    tiles, count, size = ceildiv(n, TILE), as_expr(n), as_expr(4 * n)
    weight = b.weight("thousand", np.full(n, 1000, np.float32))
    twos = []
    for number in range(weights):
        values = np.full(n, 2, np.float32)
        values[0] = 2 + number  # equal weights would be stored once
        twos.append(b.weight(f"two{number}", values))
    scale = b.kernel(
        "scale", elementwise_ir("scale", "%value = fmul float %a0, %a1", 2), "ro rw", tiles, 1
    )
    add = b.kernel(
        "plus", elementwise_ir("plus", "%value = fadd float %a0, %a1", 2), "ro rw", tiles, 1
    )
    init = b.kernel(
        "init",
        single_ir(
            "init",
            4,
            """
  %t = load i64, ptr %p0
  store i64 %t, ptr %p1
  %some = icmp ne i64 %t, 0
  %some8 = zext i1 %some to i8
  store i8 %some8, ptr %p2
  %low = and i64 %t, 1
  %odd = trunc i64 %low to i8
  store i8 %odd, ptr %p3
  ret void""",
        ),
        "ro wo wo wo",
    )
    step = b.kernel(
        "count",
        single_ir(
            "count",
            2,
            """
  %t = load i64, ptr %p0
  %less = sub i64 %t, 1
  store i64 %less, ptr %p0
  %some = icmp ne i64 %less, 0
  %some8 = zext i1 %some to i8
  store i8 %some8, ptr %p1
  ret void""",
        ),
        "rw wo",
    )
    resources = [
        s.Resource("x", "external", size),
        s.Resource("times", "external", as_expr(8)),
        s.Resource("y", "external", size),
        s.Resource("left", "transient", as_expr(8)),
        s.Resource("more", "transient", ONE),
        s.Resource("odd", "transient", ONE),
        s.Resource("thousand", "constant", size, weight),
        *(s.Resource(f"two{i}", "constant", size, two) for i, two in enumerate(twos)),
    ]
    d = b.dispatch
    commands = (
        s.Copy(0, ZERO, 2, ZERO, size),
        d(init, resources, [1, 3, 4, 5]),
        s.Loop(
            s.Block(()),
            4,
            s.Block(
                (
                    *(d(scale, resources, [7 + i, 2], (count,)) for i in range(weights)),
                    d(step, resources, [3, 4]),
                )
            ),
        ),
        s.If(5, s.Block((d(add, resources, [6, 2], (count,)),)), s.Block(())),
    )
    b.functions.append(
        s.EntryFunction(
            "main",
            (external("x", (count,), F32, 0), external("times", (), I64, 1)),
            (external("y", (count,), F32, 2),),
            tuple(resources),
            s.Block(commands),
        )
    )
    return b.write(path)


def table_lookup(path: Path, rows: int, width: int = 64) -> Path:
    """`main(index[4]) -> y[4, width]`: rows of a table that is only gathered from."""
    b = ProgramBuilder()
    table = np.arange(rows * width, dtype=np.float32).reshape(rows, width)
    weight = b.weight("table", table, row_bytes=4 * width)
    gather = b.kernel(
        "gather",
        single_ir(
            "gather",
            3,
            f"""
  br label %loop
loop:
  %i = phi i64 [ 0, %entry ], [ %next, %copy ]
  %more = icmp ult i64 %i, 4
  br i1 %more, label %copy, label %out
copy:
  %index.at = getelementptr i64, ptr %p1, i64 %i
  %index = load i64, ptr %index.at
  %from = mul i64 %index, {4 * width}
  %to = mul i64 %i, {4 * width}
  %source = getelementptr i8, ptr %p0, i64 %from
  %target = getelementptr i8, ptr %p2, i64 %to
  call void @llvm.memcpy.p0.p0.i64(ptr %target, ptr %source, i64 {4 * width}, i1 false)
  %next = add i64 %i, 1
  br label %loop
out:
  ret void
""",
        )
        + "declare void @llvm.memcpy.p0.p0.i64(ptr, ptr, i64, i1)\n",
        "ro ro wo",
    )
    out = as_expr(16 * width)
    resources = [
        s.Resource("index", "external", as_expr(32)),
        s.Resource("y", "external", out),
        s.Resource("table", "constant", as_expr(table.nbytes), weight),
    ]
    b.functions.append(
        s.EntryFunction(
            "main",
            (external("index", (as_expr(4),), I64, 0),),
            (external("y", (as_expr(4), as_expr(width)), F32, 1),),
            tuple(resources),
            s.Block((b.dispatch(gather, resources, [2, 0, 1]),)),
        )
    )
    return b.write(path)
