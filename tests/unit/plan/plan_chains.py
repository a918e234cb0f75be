"""Random programs for the plan's tests: chains of launches over weights of all sizes."""

from __future__ import annotations

import hashlib
import random
from dataclasses import dataclass

from headrace.artifact import schema as s
from headrace.artifact.pool import PoolLayout, storage_order
from headrace.base.dtypes import F32
from headrace.base.symbols import ONE, Expr, as_expr

PROVENANCE = s.Provenance("test", "test.mlir", "", ("cpu:generic",), ())


@dataclass
class Layer:
    """One dispatch: weights it reads and the values between."""

    weights: tuple[int, ...]
    sliced: int | None = None
    operations: int = 1_000_000
    reads: tuple[int, ...] = ()
    writes: int = 0
    scratch_bytes: int = 0


@dataclass
class Sized:
    size_bytes: int
    step_bytes: int = 0
    row_bytes: int = 0
    uses: int = 1


def lay_out(sizes: list[Sized]) -> tuple[tuple[s.Weight, ...], tuple[s.Segment, ...]]:
    """Weights and segments as the writer would place them."""
    layout = PoolLayout(sum(w.size_bytes for w in sizes))
    weights: dict[int, s.Weight] = {}
    for group in storage_order(sizes):
        for index in group:
            w = sizes[index]
            offset = layout.place(w.size_bytes, w.step_bytes, w.row_bytes)
            digest = hashlib.sha256(str(index).encode()).hexdigest()
            shape = (w.size_bytes // 4,)
            weights[index] = s.Weight(
                f"w{index}", offset, w.size_bytes, digest, F32, shape, w.step_bytes, w.row_bytes
            )
        layout.close()
    segments = tuple(s.Segment(x.offset_bytes, x.size_bytes, "") for x in layout.spans)
    return tuple(weights[i] for i in range(len(sizes))), segments


def build(
    layers: list[Layer],
    sizes: list[Sized],
    values: list[Expr | int],
    dimensions: tuple[s.DimensionRange, ...] = (),
) -> s.Module:
    """A module whose only function runs `layers`; value 0 is the input, the last the output."""
    weights, segments = lay_out(sizes)
    count = len(values)
    resources = [
        s.Resource(f"v{i}", "external" if i in (0, count - 1) else "transient", as_expr(size))
        for i, size in enumerate(values)
    ]
    resources += [
        s.Resource(w.name, "constant", as_expr(w.size_bytes), i) for i, w in enumerate(weights)
    ]
    executables: list[s.Executable] = []
    commands: list[s.Command] = []
    for number, layer in enumerate(layers):
        bindings = [
            s.Binding(v, as_expr(0), resources[v].size_bytes, "ro") for v in layer.reads
        ]
        bindings += [
            s.Binding(count + w, as_expr(0), as_expr(sizes[w].size_bytes), "ro")
            for w in layer.weights
        ]
        bindings.append(
            s.Binding(layer.writes, as_expr(0), resources[layer.writes].size_bytes, "wo")
        )
        groups, rule = ONE, None
        if layer.sliced is not None:
            weight = sizes[layer.weights[layer.sliced]]
            step = weight.step_bytes
            groups = as_expr(-(-weight.size_bytes // step))
            rule = s.SliceRule(len(layer.reads) + layer.sliced, 0, as_expr(step))
        launch = s.Launch(f"k{number}", (groups, ONE, ONE), as_expr(layer.scratch_bytes), rule)
        entry = s.EntryPoint(f"k{number}", 0, (*tuple("ro" for _ in bindings[:-1]), "wo"), 0)
        variant = s.Variant(
            "cpu:generic", "elf-object", 0, (), ((s.Specialisation((), (launch,)),),)
        )
        executables.append(s.Executable(f"e{number}", (entry,), (variant,), f"d{number}"))
        commands.append(
            s.Dispatch(
                number, 0, tuple(bindings), (), f"node{number}", as_expr(layer.operations)
            )
        )
    function = s.EntryFunction(
        "main",
        (s.TensorSignature("x", F32, (as_expr(values[0]),), 0),),
        (s.TensorSignature("y", F32, (as_expr(values[-1]),), count - 1),),
        tuple(resources),
        s.Block(tuple(commands)),
    )
    program = s.Program("cpu", (function,), tuple(executables))
    return s.Module("test", dimensions, (program,), weights, segments, PROVENANCE)


def chain(
    count: int,
    weight_bytes: int = 1 << 20,
    step_bytes: int = 0,
    operations: int = 1_000_000,
    value_bytes: int = 1 << 16,
    bias_bytes: int = 0,
) -> s.Module:
    """Equal layers in a row."""
    sizes: list[Sized] = []
    layers: list[Layer] = []
    for i in range(count):
        weights = [len(sizes)]
        sizes.append(Sized(weight_bytes, step_bytes))
        if bias_bytes:
            weights.append(len(sizes))
            sizes.append(Sized(bias_bytes))
        layers.append(Layer(tuple(weights), 0 if step_bytes else None, operations, (i,), i + 1))
    return build(layers, sizes, [value_bytes] * (count + 1))


def random_module(seed: int, layers_count: int = 40) -> s.Module:
    """Layers of all kinds: residuals, biases, cut weights, shared weights, tables."""
    rng = random.Random(seed)
    sizes: list[Sized] = []
    layers: list[Layer] = []
    values: list[Expr | int] = [rng.randrange(1, 1 << 20)]
    for number in range(layers_count):
        weights: list[int] = []
        sliced = None
        kind = rng.random()
        if kind < 0.5:
            step = rng.choice([64, 576, 4096, 9408, 32768, 73728])
            groups = rng.randrange(1, max(2, rng.choice([1 << 18, 4 << 20]) // step))
            weights.append(len(sizes))
            sizes.append(Sized(step * groups - rng.randrange(0, step) // 4 * 4 or 4, step))
            sliced = 0
        elif kind < 0.7:
            weights.append(len(sizes))
            sizes.append(Sized(rng.randrange(1, 1 << 20) * 4))
        elif kind < 0.75:
            row = rng.choice([64, 1024, 4096 + 64])
            weights.append(len(sizes))
            sizes.append(Sized(row * rng.randrange(1, 4000), 0, row))
        if rng.random() < 0.5:
            weights.append(len(sizes))
            sizes.append(Sized(rng.randrange(1, 2048) * 4))
        if sizes and rng.random() < 0.1:
            shared = rng.randrange(len(sizes))
            if shared not in weights and not sizes[shared].row_bytes:
                weights.append(shared)
        reads = {number}
        if number > 2 and rng.random() < 0.3:
            reads.add(rng.randrange(max(0, number - 6), number))
        values.append(rng.randrange(1, 1 << 20))
        layers.append(
            Layer(
                tuple(weights),
                sliced,
                int(10 ** rng.uniform(4, 8)),
                tuple(sorted(reads)),
                number + 1,
                rng.choice([0, 0, 100, 60_000]),
            )
        )
    return build(layers, sizes, values)
