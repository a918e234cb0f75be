"""State updated in place: outputs that take the place of inputs, donated or not."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import headrace
from headrace import api
from headrace.artifact import schema
from headrace.artifact.reader import open_artifact
from headrace.base.errors import HeadraceError
from headrace.given import given

CACHE, ROW = (4, 64, 8), (4, 1, 8)

UPDATE = """
func.func public @main(%cache: tensor<4x64x8xf32> {tf.aliasing_output = 1 : i32},
    %row: tensor<4x1x8xf32>, %at: tensor<i32>) -> (tensor<4x8xf32>, tensor<4x64x8xf32>) {
  %zero = stablehlo.constant dense<0> : tensor<i32>
  %none = stablehlo.constant dense<0.0> : tensor<f32>
  %next = stablehlo.dynamic_update_slice %cache, %row, %zero, %at, %zero
    : (tensor<4x64x8xf32>, tensor<4x1x8xf32>, tensor<i32>, tensor<i32>, tensor<i32>)
    -> tensor<4x64x8xf32>
  %sum = stablehlo.reduce(%next init: %none) applies stablehlo.add across dimensions = [1]
    : (tensor<4x64x8xf32>, tensor<f32>) -> tensor<4x8xf32>
  return %sum, %next : tensor<4x8xf32>, tensor<4x64x8xf32>
}
"""

CHAIN = """
func.func public @main(%a: tensor<4x64x8xf32> {jax.buffer_donor = true},
    %row: tensor<4x1x8xf32>, %at: tensor<i32>) -> tensor<4x64x8xf32> {
  %zero = stablehlo.constant dense<0> : tensor<i32>
  %one = stablehlo.constant dense<1> : tensor<i32>
  %b = stablehlo.dynamic_update_slice %a, %row, %zero, %at, %zero
    : (tensor<4x64x8xf32>, tensor<4x1x8xf32>, tensor<i32>, tensor<i32>, tensor<i32>)
    -> tensor<4x64x8xf32>
  %behind = stablehlo.add %at, %one : tensor<i32>
  %twice = stablehlo.add %row, %row : tensor<4x1x8xf32>
  %c = stablehlo.dynamic_update_slice %b, %twice, %zero, %behind, %zero
    : (tensor<4x64x8xf32>, tensor<4x1x8xf32>, tensor<i32>, tensor<i32>, tensor<i32>)
    -> tensor<4x64x8xf32>
  return %c : tensor<4x64x8xf32>
}
"""


def compiled(folder: Path, text: str, level: int = 2) -> Path:
    (folder / "m.mlir").write_text(text)
    return headrace.compile(folder / "m.mlir", folder / "m.hrx", level=level)


def drawn(shape: tuple[int, ...], seed: int = 1) -> Any:
    """An array aligned as kernels want it."""
    from headrace.runtime.arrays import aligned_array

    made = aligned_array(shape, np.dtype(np.float32))
    made[...] = np.random.default_rng(seed).standard_normal(shape, np.float32)
    return made


def commands(path: Path) -> tuple[schema.Command, ...]:
    return open_artifact(path).module.programs[0].functions[0].body.commands


def updated(cache: Any, row: Any, at: int) -> Any:
    at = min(max(at, 0), cache.shape[1] - 1)
    made = cache.copy()
    made[:, at : at + 1] = row
    return made


@pytest.mark.parametrize("level", [0, 2])
@pytest.mark.parametrize("at", [0, 17, 63, 99, -5])
def test_a_slice_is_updated_with_and_without_donation(
    tmp_path: Path, level: int, at: int
) -> None:
    row = drawn(ROW, 2)
    with headrace.load(compiled(tmp_path, UPDATE, level)) as module:
        cache = drawn(CACHE)
        before, wanted = cache.copy(), updated(cache, row, at)
        total, after = module(cache, row, np.int32(at))
        np.testing.assert_array_equal(cache, before)
        np.testing.assert_array_equal(after, wanted)
        np.testing.assert_allclose(total, wanted.sum(1), rtol=1e-4, atol=1e-4)
        total, after = module(cache, row, np.int32(at), donate=True)
        assert after is cache
        np.testing.assert_array_equal(cache, wanted)
        np.testing.assert_allclose(total, wanted.sum(1), rtol=1e-4, atol=1e-4)


def test_only_the_row_is_written(tmp_path: Path) -> None:
    path = compiled(tmp_path, UPDATE)
    found = commands(path)
    assert all(isinstance(c, schema.Dispatch) for c in found)
    launches = [
        launch
        for executable in open_artifact(path).module.programs[0].executables
        for point in executable.variants[0].entry_points
        for specialisation in point
        for launch in specialisation.launches
    ]
    assert len(launches) == 2
    text = api.compile_to_text(tmp_path / "m.mlir", "stream")
    (kernel,) = [k for k in text.split("kernel.execute") if "rw out0" in k]
    assert kernel.count("map(") == 1
    assert "load out0" not in kernel
    assert "map(%d1 = 1, %d2 = 8)" in kernel


def test_a_chain_of_updates_is_one_buffer(tmp_path: Path) -> None:
    path = compiled(tmp_path, CHAIN)
    function = open_artifact(path).module.programs[0].functions[0]
    assert function.aliases == ((0, 0),)
    assert all(isinstance(c, schema.Dispatch) for c in function.body.commands)
    assert [r.lifetime for r in function.resources] == ["external"] * 3
    row = drawn(ROW, 2)
    with headrace.load(path) as module:
        cache = drawn(CACHE)
        wanted = updated(updated(cache, row, 5), row + row, 6)
        (after,) = module(cache, row, np.int32(5), donate=["arg0"])
        assert after is cache
        np.testing.assert_array_equal(after, wanted)


EXCHANGE = """
func.func public @main(%a: tensor<4096xf32> {tf.aliasing_output = 1 : i32},
    %b: tensor<4096xf32> {tf.aliasing_output = 0 : i32},
    %c: tensor<64x64xf32> {tf.aliasing_output = 2 : i32},
    %d: tensor<64x64xf32> {tf.aliasing_output = 3 : i32})
    -> (tensor<4096xf32>, tensor<4096xf32>, tensor<64x64xf32>, tensor<64x64xf32>) {
  %e = stablehlo.dot_general %c, %c, contracting_dims = [1] x [0]
    : (tensor<64x64xf32>, tensor<64x64xf32>) -> tensor<64x64xf32>
  %f = stablehlo.add %d, %e : tensor<64x64xf32>
  return %a, %b, %e, %f
    : tensor<4096xf32>, tensor<4096xf32>, tensor<64x64xf32>, tensor<64x64xf32>
}
"""


@pytest.mark.parametrize("level", [0, 2])
def test_what_cannot_be_written_in_place_is_copied(tmp_path: Path, level: int) -> None:
    """Two inputs change places, and a product overwrites its own factors."""
    with headrace.load(compiled(tmp_path, EXCHANGE, level)) as module:
        a, b = drawn((4096,), 1), drawn((4096,), 2)
        c, d = drawn((64, 64), 3), drawn((64, 64), 4)
        given = [x.copy() for x in (a, b, c, d)]
        for donate in (False, True):
            product = given[2] @ given[2]
            after = module(a, b, c, d, donate=donate)
            np.testing.assert_array_equal(after[0], given[0])
            np.testing.assert_array_equal(after[1], given[1])
            np.testing.assert_allclose(after[2], product, rtol=1e-4, atol=1e-3)
            np.testing.assert_allclose(after[3], given[3] + product, rtol=1e-4, atol=1e-3)
            for array, was in zip((a, b, c, d), given, strict=True):
                assert donate or np.array_equal(array, was)
        assert after[0] is b
        assert after[2] is c


def test_arrays_that_cannot_be_updated_are_copied(tmp_path: Path) -> None:
    row = drawn(ROW, 2)
    with headrace.load(compiled(tmp_path, UPDATE)) as module:
        wide = drawn((4, 64, 16))
        read_only = drawn(CACHE)
        read_only.flags.writeable = False
        unaligned = np.empty(int(np.prod(CACHE)) + 1, np.float32)[1:].reshape(CACHE)
        unaligned[...] = drawn(CACHE)
        for cache in (wide[:, :, 8:], read_only, unaligned):
            before = cache.copy()
            _, after = module(cache, row, np.int32(3), donate=True)
            np.testing.assert_array_equal(after, updated(before, row, 3))
            np.testing.assert_array_equal(cache, before)
        # The row lies inside the cache: it must not change under the step.
        cache = drawn(CACHE)
        before = cache.copy()
        inside = cache.reshape(-1)[: 4 * 8].reshape(ROW)
        _, after = module(cache, inside, np.int32(0), donate=True)
        np.testing.assert_array_equal(
            after, updated(before, before.reshape(-1)[:32].reshape(ROW), 0)
        )
        np.testing.assert_array_equal(cache, before)


def test_outputs_given_by_the_caller(tmp_path: Path) -> None:
    row = drawn(ROW, 2)
    with headrace.load(compiled(tmp_path, UPDATE)) as module:
        cache, total = drawn(CACHE), np.empty((4, 8), np.float32)
        wanted = updated(cache, row, 9)
        other = np.empty(CACHE, np.float32)
        assert module(cache, row, np.int32(9), out=[total, other])[1] is other
        np.testing.assert_array_equal(other, wanted)
        np.testing.assert_array_equal(cache, drawn(CACHE))
        assert module(cache, row, np.int32(9), out=[total, cache])[1] is cache
        np.testing.assert_array_equal(cache, wanted)
        with pytest.raises(HeadraceError, match=r"HR4009.*'arg1'"):
            module(cache, row, np.int32(9), donate=["arg1"])


def scattering(path: Path, wrong: bool = False) -> Path:
    """after_0 = ScatterElements(before_0, ...), after_1 = before_1 + 1."""
    width = 5 if wrong else 4
    nodes = [
        helper.make_node("Add", ["before_1", "one"], ["after_1"]),
        helper.make_node("Identity", ["before_0"], ["after_0"]),
    ]
    values = {"before_0": (width,), "before_1": (3,)}
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info(n, TensorProto.FLOAT, s) for n, s in values.items()],
        [
            helper.make_tensor_value_info("after_0", TensorProto.FLOAT, (width,)),
            helper.make_tensor_value_info("after_1", TensorProto.FLOAT, (3,)),
        ],
        [numpy_helper.from_array(np.float32(1), "one")],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)
    onnx.save(model, path)
    return path


def test_aliases_of_an_onnx_model(tmp_path: Path) -> None:
    model = scattering(tmp_path / "m.onnx")
    path = headrace.compile(model, tmp_path / "m.hrx", aliases={"before_*": "after_*"})
    assert open_artifact(path).module.programs[0].functions[0].aliases == ((0, 0), (1, 1))
    with headrace.load(path) as module:
        first, second = drawn((4,)), drawn((3,))
        was = second.copy()
        after = module(first, second, donate=True)
        assert (after[0] is first, after[1] is second) == (True, True)
        np.testing.assert_array_equal(second, was + 1)


def test_aliases_that_cannot_be(tmp_path: Path) -> None:
    model = scattering(tmp_path / "m.onnx")
    for aliases, fact in (
        ({"before": "after_0"}, "HR0207.*no function has an input 'before'"),
        ({"before_0": "after_1"}, "HR0207.*cannot take the place"),
        ({"before_*": "after_0"}, "HR0208.*is no alias"),
    ):
        with pytest.raises(HeadraceError, match=fact):
            given(model, aliases).load({})
    two = given(model, {"before_0": "after_0", "before_*": "after_*"})
    two.load({})  # said twice, and the same
    wrong = UPDATE.replace("aliasing_output = 1", "aliasing_output = 0")
    with pytest.raises(HeadraceError, match=r"HR1102.*argument 0 cannot be result 0"):
        compiled(tmp_path, wrong)
