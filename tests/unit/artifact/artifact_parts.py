"""A small module with two weights, for the tests of the file."""

from __future__ import annotations

import numpy as np

from headrace.artifact import schema as s
from headrace.artifact.writer import ModuleParts, WeightSpec
from headrace.base.dtypes import F32
from headrace.base.parameters import array_source
from headrace.base.symbols import ONE, ZERO, as_expr


def spec(name: str, array: np.ndarray, step_bytes: int = 0, row_bytes: int = 0) -> WeightSpec:
    return WeightSpec(
        name, array_source(array), array.nbytes, step_bytes, F32, array.shape, row_bytes
    )


def evaluate(source):
    return source.array


def module_parts(sizes: list[int], code: tuple[bytes, ...] = (b"\x7fELF code",)) -> ModuleParts:
    """One dispatch that reads all weights, of `sizes` bytes."""
    resources = [
        s.Resource("x", "external", as_expr("4*batch")),
        s.Resource("y", "external", as_expr("4*batch")),
        *(s.Resource(f"w{i}", "constant", as_expr(n), i) for i, n in enumerate(sizes)),
    ]
    bindings = [s.Binding(0, ZERO, as_expr("4*batch"), "ro")]
    bindings += [s.Binding(2 + i, ZERO, as_expr(n), "ro") for i, n in enumerate(sizes)]
    bindings.append(s.Binding(1, ZERO, as_expr("4*batch"), "wo"))
    dispatch = s.Dispatch(0, 0, tuple(bindings), (as_expr("batch"),), "node")
    function = s.EntryFunction(
        "main",
        (s.TensorSignature("x", F32, (as_expr("batch"),), 0),),
        (s.TensorSignature("y", F32, (as_expr("batch"),), 1),),
        tuple(resources),
        s.Block((dispatch,)),
    )
    entry = s.EntryPoint("k", 0, ("ro",) * (len(bindings) - 1) + ("wo",), 1)
    launch = s.Launch("k", (as_expr("batch"), ONE, ONE))
    cases = (
        s.Specialisation((s.Condition(as_expr("batch"), 1, 4),), (launch,)),
        s.Specialisation((), (launch,)),
    )
    variant = s.Variant("cpu:generic", "elf-object", 0, (), (cases,))
    program = s.Program("cpu", (function,), (s.Executable("e", (entry,), (variant,), "d"),))
    return ModuleParts(
        "net",
        (s.DimensionRange("batch", 1, 64),),
        (program,),
        s.Provenance("headrace", "net.onnx", "00", ("cpu:generic",), (("O", "2"),)),
        code,
    )
