"""Seed 1's network: nine dispatches with the listing's workloads at level 0, three at 2."""

from __future__ import annotations

import numpy as np
import pytest
from xdsl.dialects.builtin import ModuleOp
from xdsl.dialects.func import FuncOp, ReturnOp

from headrace.base.dtypes import F32
from headrace.flow.executables import dispatches
from headrace.flow.interp import evaluate_function
from headrace.ir.model import Model
from headrace.ir.passes import make_pass
from headrace.ir.types import tensor_type
from headrace.tensor.build import TensorBuilder
from headrace.tensor.dialect import ParameterOp

ONE = ("1", "1", "1")
WORKLOADS = [("784", "1", "1"), *[("128", "1", "1")] * 2, *[("10", "1", "1")] * 2]
WORKLOADS += [ONE, ("10", "1", "1"), ONE, ("10", "1", "1")]


def network(copied: bool) -> Model:
    """The listing, operation by operation; its copy is what level 2 elides before."""
    function = FuncOp(
        "main",
        ([tensor_type(F32, (1, 28, 28, 1))], [tensor_type(F32, (1, 10))]),
        visibility="public",
    )
    build = TensorBuilder(function.body.block)
    half = np.float32(0.5)
    halves = build.splat(half, F32, (1, 128))
    x = function.body.block.args[0]
    x = build.reshape(build.unary("copy", x) if copied else x, (1, 784))
    dot = build.dot_general(x, build.splat(half, F32, (784, 128)), contract=([1], [0]))
    bias = build.broadcast_in_dim(build.constant(np.full(128, half)), [1], (1, 128))
    hidden = build.binary("maximum", halves, build.binary("add", dot, bias))
    dot = build.dot_general(hidden, build.splat(half, F32, (128, 10)), contract=([1], [0]))
    bias = build.broadcast_in_dim(build.constant(np.full(10, half)), [1], (1, 10))
    score = build.binary("add", dot, bias)
    (top,) = build.reduce(score, build.scalar(-np.inf), [1], "maximum")
    shifted = build.binary("subtract", score, build.broadcast_in_dim(top, [0], (1, 10)))
    power = build.unary("exponential", shifted)
    (total,) = build.reduce(power, build.scalar(0.5), [1], "add")
    result = build.binary("divide", power, build.broadcast_in_dim(total, [0], (1, 10)))
    function.body.block.add_op(ReturnOp(result))
    return Model(ModuleOp([function]), {}, "seed 1")


@pytest.mark.parametrize(("level", "count"), [(0, 9), (2, 3)])
def test_dispatches(level, count):
    model = network(copied=level == 0)
    for name in (f"flow-form-dispatches{{level={level}}}", "flow-outline-dispatches"):
        make_pass(name).run(model)
    found = dispatches(model.ir)
    assert len(found) == count
    if level == 0:
        assert [d.workload.data for d in found] == WORKLOADS
        names = [str(d.entry_point.root_reference.data) for d in found]
        assert names == [f"main_ex_dispatch_{n}" for n in range(9)]
    bound = [d for d in found for v in d.arguments if isinstance(v.owner, ParameterOp)]
    assert len(bound) == 2  # the two weights of the products, and no bias
    make_pass("flow-convert-to-kernels").run(model)
    image = np.zeros((1, 28, 28, 1), np.float32)
    # All ten scores are equal; the sum of powers starts at 0.5 as the listing writes it.
    (answer,) = evaluate_function(model, [image])
    np.testing.assert_allclose(answer, np.full((1, 10), 1 / 10.5), rtol=1e-6)
