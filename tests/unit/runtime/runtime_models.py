"""Whole modules by hand for the run time's tests: an MLP with kernels in LLVM IR."""

from __future__ import annotations

import itertools
from functools import cache
from pathlib import Path
from typing import Any

import llvmlite.binding as llvm
import numpy as np

from headrace.artifact import schema as s
from headrace.artifact.writer import ModuleParts, WeightSpec, write_artifact
from headrace.base.dtypes import F32
from headrace.base.parameters import array_source
from headrace.base.symbols import ONE, ZERO, Expr, as_expr, dim

ROWS = 16
"""Output columns per tile: rows of the weight, which stands as [columns, k]."""


def matmul_ir(symbol: str, k: int, n: int, relu: bool) -> str:
    """y[m, n] = act(x[m, k] . w[n, k] + b[n]); bindings x, w, b, y; constant m."""
    assert k % 8 == 0 and n % ROWS == 0
    act = (
        "%positive = fcmp ogt float %biased, 0.0\n"
        "  %value = select i1 %positive, float %biased, float 0.0"
        if relu
        else "%value = fadd float %biased, 0.0"
    )
    return f"""
define void @{symbol}(ptr %args, i64 %begin, i64 %end, ptr %scratch) {{
entry:
  %x = load ptr, ptr %args
  %w.at = getelementptr i64, ptr %args, i64 1
  %w = load ptr, ptr %w.at
  %b.at = getelementptr i64, ptr %args, i64 2
  %b = load ptr, ptr %b.at
  %y.at = getelementptr i64, ptr %args, i64 3
  %y = load ptr, ptr %y.at
  %first.at = getelementptr i8, ptr %args, i64 44
  %first32 = load i32, ptr %first.at
  %first = zext i32 %first32 to i64
  %m.at = getelementptr i8, ptr %args, i64 56
  %m32 = load i32, ptr %m.at
  %m = zext i32 %m32 to i64
  %low.tile = add i64 %begin, %first
  %high.tile = add i64 %end, %first
  %low = mul i64 %low.tile, {ROWS}
  %high = mul i64 %high.tile, {ROWS}
  br label %columns
columns:
  %j = phi i64 [ %low, %entry ], [ %j.next, %columns.done ]
  %j.more = icmp ult i64 %j, %high
  br i1 %j.more, label %rows, label %out
rows:
  %i = phi i64 [ 0, %columns ], [ %i.next, %store ]
  %i.more = icmp ult i64 %i, %m
  br i1 %i.more, label %dot, label %columns.done
dot:
  %x.row = mul i64 %i, {k}
  %w.row = mul i64 %j, {k}
  br label %dot.loop
dot.loop:
  %kk = phi i64 [ 0, %dot ], [ %kk.next, %dot.loop ]
  %acc = phi <8 x float> [ zeroinitializer, %dot ], [ %acc.next, %dot.loop ]
  %x.index = add i64 %x.row, %kk
  %w.index = add i64 %w.row, %kk
  %x.ptr = getelementptr float, ptr %x, i64 %x.index
  %w.ptr = getelementptr float, ptr %w, i64 %w.index
  %xv = load <8 x float>, ptr %x.ptr, align 4
  %wv = load <8 x float>, ptr %w.ptr, align 4
  %product = fmul <8 x float> %xv, %wv
  %acc.next = fadd <8 x float> %acc, %product
  %kk.next = add i64 %kk, 8
  %kk.more = icmp ult i64 %kk.next, {k}
  br i1 %kk.more, label %dot.loop, label %store
store:
  %sum = call float @llvm.vector.reduce.fadd.v8f32(float 0.0, <8 x float> %acc.next)
  %b.ptr = getelementptr float, ptr %b, i64 %j
  %bias = load float, ptr %b.ptr
  %biased = fadd float %sum, %bias
  {act}
  %y.row = mul i64 %i, {n}
  %y.index = add i64 %y.row, %j
  %y.ptr = getelementptr float, ptr %y, i64 %y.index
  store float %value, ptr %y.ptr
  %i.next = add i64 %i, 1
  br label %rows
columns.done:
  %j.next = add i64 %j, 1
  br label %columns
out:
  ret void
}}
declare float @llvm.vector.reduce.fadd.v8f32(float, <8 x float>)
"""


@cache
def compiled(text: str) -> bytes:
    """The ELF object of LLVM IR text."""
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    module = llvm.parse_assembly(text)
    module.verify()
    machine = llvm.Target.from_default_triple().create_target_machine(
        cpu=llvm.get_host_cpu_name(),
        features=llvm.get_host_cpu_features().flatten(),
        opt=2,
        reloc="pic",
    )
    return machine.emit_object(module)


def executable(
    name: str, text: str, launch: s.Launch, access: str, constants: int, code: int
) -> s.Executable:
    """An executable with one entry point and one variant."""
    entry = s.EntryPoint(name, 0, tuple(access.split()), constants)  # type: ignore[arg-type]
    variant = s.Variant(
        "cpu:native", "elf-object", code, (), ((s.Specialisation((), (launch,)),),)
    )
    return s.Executable(name, (entry,), (variant,), digest=f"digest-{name}")


class Mlp:
    """An MLP `relu(x.w0+b0) ... .wn + bn` with a symbolic batch, and its numpy meaning."""

    def __init__(self, widths: tuple[int, ...], seed: int = 0, maximum: int | None = None):
        random = np.random.default_rng(seed)
        self.widths = widths
        self.maximum = maximum
        self.weights = [
            (
                (random.standard_normal((n, k)) / np.sqrt(k)).astype(np.float32),
                random.standard_normal(n).astype(np.float32),
            )
            for k, n in itertools.pairwise(widths)
        ]

    def __call__(self, x: Any) -> Any:
        for index, (w, b) in enumerate(self.weights):
            x = x @ w.T + b
            if index < len(self.weights) - 1:
                x = np.maximum(x, 0)
        return x

    def write(self, path: Path, name: str = "mlp") -> Path:
        """Writes it as a `.hrx` and returns the path."""
        batch = dim("batch")
        resources: list[s.Resource] = []
        commands: list[s.Command] = []
        specs: list[WeightSpec] = []
        executables: list[s.Executable] = []
        code: list[bytes] = []
        value_of: list[int] = []
        last = len(self.widths) - 1
        for index, width in enumerate(self.widths):
            lifetime = "external" if index in (0, last) else "transient"
            value_of.append(len(resources))
            resources.append(s.Resource(f"v{index}", lifetime, batch * width * 4))
        known: dict[tuple[int, int, bool], int] = {}
        for index, (w, b) in enumerate(self.weights):
            n, k = w.shape
            step = ROWS * k * 4
            relu = index < len(self.weights) - 1
            places: list[int] = []
            for kind, array, cut in (("w", w, step), ("b", b, 0)):
                places.append(len(resources))
                size = as_expr(array.nbytes)
                resources.append(s.Resource(f"{kind}{index}", "constant", size, len(specs)))
                specs.append(
                    WeightSpec(
                        f"{kind}{index}",
                        array_source(array),
                        array.nbytes,
                        cut,
                        F32,
                        array.shape,
                    )
                )
            key = (k, n, relu)
            if key not in known:
                known[key] = len(executables)
                symbol = f"matmul_{k}_{n}_{int(relu)}"
                text = matmul_ir(symbol, k, n, relu)
                launch = s.Launch(
                    symbol,
                    (as_expr(n // ROWS), ONE, ONE),
                    slice=s.SliceRule(1, 0, as_expr(step)),
                )
                executables.append(
                    executable(symbol, text, launch, "ro ro ro wo", 1, len(code))
                )
                code.append(compiled(text))
            bindings = tuple(
                s.Binding(r, ZERO, resources[r].size_bytes, access)
                for r, access in (
                    (value_of[index], "ro"),
                    (places[0], "ro"),
                    (places[1], "ro"),
                    (value_of[index + 1], "wo"),
                )
            )
            commands.append(
                s.Dispatch(
                    known[key], 0, bindings, (batch,), f"layer{index}", batch * (2 * k * n)
                )
            )
        shape: tuple[Expr, ...] = (batch, as_expr(self.widths[0]))
        function = s.EntryFunction(
            "main",
            (s.TensorSignature("x", F32, shape, value_of[0]),),
            (s.TensorSignature("y", F32, (batch, as_expr(self.widths[-1])), value_of[-1]),),
            tuple(resources),
            s.Block(tuple(commands)),
        )
        program = s.Program("cpu", (function,), tuple(executables))
        parts = ModuleParts(
            name,
            (s.DimensionRange("batch", 1, self.maximum),),
            (program,),
            s.Provenance("test", name, "", ("cpu:native",), ()),
            tuple(code),
        )
        write_artifact(path, parts, specs, lambda source: source.array)  # type: ignore[union-attr]
        return path
