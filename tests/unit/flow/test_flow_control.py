"""Branches and loops mean the same at every stage, and compiled for the CPU."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from xdsl.dialects.builtin import ModuleOp
from xdsl.dialects.func import FuncOp, ReturnOp
from xdsl.ir import Block, Region, SSAValue

from headrace import api
from headrace.base.dtypes import F32, I1, I32
from headrace.base.errors import HeadraceError
from headrace.flow import interp as flow_interp
from headrace.hal import interp as hal_interp
from headrace.importers.hlo.convert import name_attributes
from headrace.ir.model import Model
from headrace.ir.text import parse_module, print_module
from headrace.ir.types import exprs_attr, tensor_type
from headrace.pipeline import Options, compile_to, context
from headrace.stream import interp as stream_interp
from headrace.targets.table import target
from headrace.tensor import interp as tensor_interp
from headrace.tensor.build import TensorBuilder
from headrace.tensor.control import make_if, make_while, region_of, trip_count
from headrace.tensor.verify import verify

N = 4
SQUARE = tensor_type(F32, (N, N))

Build = Callable[[TensorBuilder, Sequence[SSAValue]], Sequence[SSAValue]]


def function(kinds: Sequence[Any], build: Build) -> Model:
    block = Block(arg_types=kinds)
    results = list(build(TensorBuilder(block), block.args))
    block.add_op(ReturnOp(*results))
    made = FuncOp(
        "main",
        (list(kinds), [r.type for r in results]),
        Region(block),
        arg_attrs=name_attributes([f"arg{n}" for n in range(len(kinds))]),
        res_attrs=name_attributes([f"result{n}" for n in range(len(results))]),
    )
    return Model(ModuleOp([made]), {}, "control")


def product(build: TensorBuilder, x: SSAValue, y: SSAValue) -> SSAValue:
    return build.dot_general(x, y, contract=([1], [0]))


def counted(
    limit: Callable[[TensorBuilder, Sequence[SSAValue]], SSAValue], branch: bool
) -> Model:
    """x is multiplied by y in every trip, halved in odd ones; the count and x come back."""

    def build(at: TensorBuilder, given: Sequence[SSAValue]) -> Sequence[SSAValue]:
        x, y, _ = given
        most = limit(at, given)

        def condition(block: Block) -> Sequence[SSAValue]:
            inner = TensorBuilder(block)
            return [inner.compare("LT", block.args[0], most)]

        def body(block: Block) -> Sequence[SSAValue]:
            inner = TensorBuilder(block)
            count, a = block.args
            following = inner.binary("add", count, inner.scalar(1, I32))
            b = product(inner, a, y)
            if branch:
                two = inner.scalar(2, I32)
                odd = inner.binary("remainder", count, two)
                taken = inner.compare("EQ", odd, inner.scalar(1, I32))

                def half(then: Block) -> Sequence[SSAValue]:
                    deep = TensorBuilder(then)
                    return [product(deep, deep.binary("multiply", b, b), x)]

                made = make_if(taken, region_of([], half), region_of([], lambda _: [b]))
                b = inner.insert(made).results[0]
            return [following, b]

        kinds = [tensor_type(I32, ()), SQUARE]
        start = at.scalar(0, I32)
        made = make_while([start, x], region_of(kinds, condition), region_of(kinds, body))
        trips = trip_count(made)
        assert trips in (None, 5)
        return list(at.insert(made).results)

    return function([SQUARE, SQUARE, tensor_type(I32, ())], build)


def limit_of_input(_: TensorBuilder, given: Sequence[SSAValue]) -> SSAValue:
    return given[2]


def limit_of_five(at: TensorBuilder, _: Sequence[SSAValue]) -> SSAValue:
    return at.scalar(5, I32)


def expected(x: Any, y: Any, trips: int, branch: bool) -> Any:
    a = x
    for n in range(trips):
        b = a @ y
        a = (b * b) @ x if branch and n % 2 == 1 else b
    return a


def arrays() -> tuple[Any, Any]:
    random = np.random.default_rng(3)
    return tuple((0.5 * random.standard_normal((N, N))).astype(np.float32) for _ in range(2))


@pytest.mark.parametrize("phase", ["input", "tensor", "flow", "stream", "hal"])
@pytest.mark.parametrize("level", [0, 2])
@pytest.mark.parametrize("branch", [False, True])
def test_a_loop_means_the_same_at_every_stage(phase: str, level: int, branch: bool) -> None:
    machine = {
        "input": tensor_interp,
        "tensor": tensor_interp,
        "flow": flow_interp,
        "stream": stream_interp,
        "hal": hal_interp,
    }[phase]
    x, y = arrays()
    for trips in (0, 1, 5):
        model = counted(limit_of_input, branch)
        verify(model)
        made = compile_to(model, phase, Options((target("cpu"),), level))
        (module,) = made.modules().values()
        given = {"arg0": x, "arg1": y, "arg2": np.array(trips, np.int32)}
        found = machine.run(module, given)
        assert found["result0"] == trips
        np.testing.assert_allclose(
            found["result1"], expected(x, y, trips, branch), rtol=1e-4, atol=1e-6
        )
        text = print_module(module.ir)
        assert print_module(parse_module(text, "again.mlir", context())) == text


@pytest.mark.parametrize("level", [0, 2])
@pytest.mark.parametrize("branch", [False, True])
def test_the_cpu_runs_branches_and_loops(tmp_path: Path, level: int, branch: bool) -> None:
    x, y = arrays()
    path = tmp_path / "loop.hrx"
    api.compile(counted(limit_of_input, branch), path, level=level)
    with api.load(path) as module:
        for trips in (5, 0, 3):
            count, found = module(x, y, np.array(trips, np.int32))
            assert count == trips
            np.testing.assert_allclose(
                found, expected(x, y, trips, branch), rtol=1e-4, atol=1e-6
            )


@pytest.mark.parametrize(("level", "trips"), [(0, 5), (2, 1)])
def test_a_loop_that_counts_weighs_by_its_trips(tmp_path: Path, level: int, trips: int) -> None:
    """One of so little work is a single dispatch, which weighs five times and copies too."""
    path = tmp_path / "loop.hrx"
    model = counted(limit_of_five, False)
    (loop,) = [op for op in model.ir.walk() if op.name == "tensor.while"]
    loop.properties["trip_count"] = exprs_attr([5])
    api.compile(model, path, level=level)
    with api.load(path) as module:
        (program,) = module.artifact.module.programs
        (only,) = [c for c in program.functions[0].body.commands if hasattr(c, "trip_count")]
        assert only.trip_count.value == trips
        work = [c.operations.value for c in only.body.commands if hasattr(c, "operations")]
        copied = N * N if level else 0
        assert sum(work) * trips == 5 * (1 + N**3 + N * N + 1 + copied)


def test_what_breaks_the_rules_is_refused() -> None:
    def build(at: TensorBuilder, given: Sequence[SSAValue]) -> Sequence[SSAValue]:
        flag, x = given
        made = make_if(flag, region_of([], lambda _: [x]), region_of([], lambda _: [x]))
        at.insert(made)
        made.operands[0] = x
        return [x]

    with pytest.raises(HeadraceError, match="the condition is an i1 scalar"):
        verify(function([tensor_type(I1, ()), SQUARE], build))
    with pytest.raises(ValueError, match="the branches return"):
        function(
            [tensor_type(I1, ()), SQUARE],
            lambda at, given: [
                at.insert(
                    make_if(
                        given[0],
                        region_of([], lambda _: [given[1]]),
                        region_of([], lambda _: []),
                    )
                ).results[0]
            ],
        )


def test_a_loop_without_end_can_be_interrupted(tmp_path: Path) -> None:
    """Its kernel runs only so many trips at a time."""

    def build(at: TensorBuilder, given: Sequence[SSAValue]) -> Sequence[SSAValue]:
        def condition(block: Block) -> Sequence[SSAValue]:
            inner = TensorBuilder(block)
            return [inner.compare("GE", block.args[0], inner.scalar(0, I32))]

        def body(block: Block) -> Sequence[SSAValue]:
            inner = TensorBuilder(block)
            return [inner.binary("and", block.args[0], inner.scalar(1, I32))]

        kinds = [tensor_type(I32, ())]
        made = make_while(given, region_of(kinds, condition), region_of(kinds, body))
        return list(at.insert(made).results)

    path = tmp_path / "endless.hrx"
    api.compile(function([tensor_type(I32, ())], build), path)
    with api.load(path) as module:
        (program,) = module.artifact.module.programs
        assert any("loop" in executable.name for executable in program.executables)
        (ended,) = module(np.array(-1, np.int32))
        assert ended == -1
        timer = threading.Timer(0.2, lambda: os.kill(os.getpid(), signal.SIGINT))
        with pytest.raises(KeyboardInterrupt):
            timer.start()
            module(np.array(3, np.int32))
        timer.join()
