"""`headrace compare` finds a kernel that was made wrong on purpose, and blames no other."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from headrace import api, cli
from headrace.base.dtypes import BF16, F32, I32
from headrace.base.errors import HeadraceError
from headrace.differences import TOLERANCES, difference
from headrace.hal.interp import kernels_of
from headrace.importers.table import load
from headrace.ir.locations import places
from headrace.kernel.description import Constant, Kernel
from headrace.kernel.target import Code
from headrace.kernel.text import print_kernel
from headrace.pipeline import Options, compile_to
from headrace.stream.commands import DispatchOp
from headrace.targets.cpu.target import CpuTarget, make


def model(path: Path) -> Path:
    """Ten parts that do not fuse with each other, most with a scalar of their own."""
    random = np.random.default_rng(3)
    weights: dict[str, Any] = {}

    def weight(name: str, *shape: int) -> str:
        weights[name] = random.standard_normal(shape).astype(np.float32) / 4
        return name

    def scalar(name: str, value: float) -> str:
        weights[name] = np.array(value, np.float32)
        return name

    def node(kind: str, inputs: list[str], output: str, name: str, **more: Any) -> Any:
        return helper.make_node(kind, inputs, [output], name=name, **more)

    nodes = [
        node("Conv", ["x", weight("cw", 8, 3, 3, 3)], "a0", "conv", pads=[1, 1, 1, 1]),
        node("Add", ["a0", scalar("c0", 0.3)], "a", "conv_add"),
        node("MaxPool", ["a"], "b0", "pool", kernel_shape=[2, 2], strides=[2, 2]),
        node("Mul", ["b0", scalar("c1", 1.25)], "b", "pool_mul"),
        node("Conv", ["b", weight("dw", 8, 1, 3, 3)], "c0_", "depthwise", group=8),
        node("Mul", ["c0_", scalar("c2", 0.75)], "c", "depthwise_mul"),
        node("AveragePool", ["c"], "d", "average", kernel_shape=[2, 2], strides=[2, 2]),
        node("Flatten", ["d"], "e", "flat"),
        node("MatMul", ["e", weight("w1", 72, 48)], "f0", "dense"),
        node("Add", ["f0", scalar("c3", 0.5)], "f", "dense_add"),
        node("Softmax", ["f"], "g", "softmax", axis=-1),
        node("MatMul", ["g", weight("w2", 48, 40)], "h0", "middle"),
        node("Mul", ["h0", scalar("c4", 3.5)], "h", "middle_mul"),
        node("ReduceMax", ["h"], "i0", "peak", axes=[1], keepdims=1),
        node("Sub", ["h", "i0"], "i", "below"),
        node("MatMul", ["i", weight("w3", 40, 24)], "j0", "last"),
        node("Mul", ["j0", scalar("c5", 2.5)], "j", "last_mul"),
        node("Transpose", ["j"], "k", "turn", perm=[1, 0]),
        node("CumSum", ["k", "axis"], "l", "run"),
        node("MatMul", ["l", weight("w4", 2, 20)], "m0", "wide"),
        node("Add", ["m0", scalar("c6", 1.5)], "y", "wide_add"),
    ]
    weights["axis"] = np.array(0, np.int64)
    graph = helper.make_graph(
        nodes,
        "ten",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, (2, 3, 16, 16))],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, (24, 20))],
        [numpy_helper.from_array(v, n) for n, v in weights.items()],
    )
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)
    onnx.checker.check_model(made)
    onnx.save(made, path)
    return path


@pytest.fixture(autouse=True)
def _cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A cache of each test's own: wrong code must not stay."""
    monkeypatch.setenv("HEADRACE_CACHE_DIR", str(tmp_path / "cache"))


def altered(kernel: Kernel) -> Kernel | None:
    """The kernel with one of its constants changed; None where it has none."""
    for at, phase in enumerate(kernel.phases):
        body = list(phase.body)
        for n, operation in enumerate(body):
            if isinstance(operation, Constant) and isinstance(operation.value, float):
                body[n] = replace(operation, value=operation.value * 1.5 + 0.25)
                changed = replace(phase, body=tuple(body))
                break
        else:
            start = phase.reduction.initial[0] if phase.reduction is not None else None
            if phase.reduction is None or not isinstance(start, float):
                continue
            start = start + 0.25 if np.isfinite(start) else 1e3
            reduction = replace(phase.reduction, initial=(start,))
            changed = replace(phase, reduction=reduction)
        return replace(kernel, phases=(*kernel.phases[:at], changed, *kernel.phases[at + 1 :]))
    return None


Dispatches = dict[str, tuple[Kernel, list[str]]]


@pytest.fixture(scope="module")
def dispatches(tmp_path_factory: pytest.TempPathFactory) -> Dispatches:
    """`kernels` of the model of ten parts."""
    return kernels(model(tmp_path_factory.mktemp("ten") / "ten.onnx"))


def kernels(path: Path) -> Dispatches:
    """Of each executable of the model: its kernel, and the nodes of its first dispatch."""
    made = compile_to(load(path), "hal", Options((make("cpu"),)))
    (compiled,) = made.classes.values()
    found = {name: kernel for (name, _), kernel in kernels_of(compiled.ir).items()}
    return {
        op.executable_name: (found[op.executable_name], list(places(op)))
        for op in compiled.ir.walk()
        if isinstance(op, DispatchOp)
    }


def break_kernel(monkeypatch: pytest.MonkeyPatch, text: str, wrong: Kernel) -> None:
    """Has the CPU target emit `wrong` in place of the kernel with this text."""
    real = CpuTarget.translate

    def translate(self: CpuTarget, name: str, kernel: Kernel) -> Code:
        return real(self, name, wrong if print_kernel(kernel) == text else kernel)

    monkeypatch.setattr(CpuTarget, "translate", translate)


EXECUTABLES = [f"main_ex_dispatch_{n}{'_in_place' * (n in (5, 7))}" for n in range(11)]


@pytest.mark.parametrize("executable", EXECUTABLES)
def test_a_wrong_kernel_is_found(
    executable: str,
    dispatches: Dispatches,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    path = model(tmp_path / "ten.onnx")
    kernel, nodes = dispatches[executable]
    wrong = altered(kernel)
    assert wrong is not None and nodes
    break_kernel(monkeypatch, print_kernel(kernel), wrong)
    data = api.compare(path).data
    assert (data["agrees"], data["where"]) == (False, "dispatch")
    first = data["first"]
    assert first["executable"] == executable
    assert first["dispatch"] == list(dispatches).index(executable)
    assert first["nodes"] == nodes
    assert first["target"] == "cpu:x86-64-v3"
    assert first["max_abs_error"] == "inf" or first["max_abs_error"] > first["allowed"]


def test_a_right_model_agrees_with_both(dispatches: Dispatches, tmp_path: Path) -> None:
    path = model(tmp_path / "ten.onnx")
    steps: list[tuple[int, int]] = []
    for against, compared in (("interp", len(dispatches)), ("onnxruntime", 0)):
        made = api.compare(path, against=against, progress=lambda *n: steps.append(n))
        assert made.data["agrees"] and made.data["where"] is None
        assert made.data["compared"] == compared
        assert not made.data["outputs"]["y"]["wrong"]
        assert f"agrees with {against}" in made.text
    assert steps[-1] == (len(dispatches), len(dispatches))


def test_native_code_runs_here_and_so_does_the_unoptimised(tmp_path: Path) -> None:
    data = api.compare(model(tmp_path / "ten.onnx"), "cpu:native", level=0, threads=1).data
    assert data["agrees"] and data["compared"] > len(EXECUTABLES)


def test_against_onnxruntime_the_kernel_is_located(
    dispatches: Dispatches, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = model(tmp_path / "ten.onnx")
    kernel, nodes = dispatches["main_ex_dispatch_8"]
    wrong = altered(kernel)
    assert wrong is not None
    break_kernel(monkeypatch, print_kernel(kernel), wrong)
    made = api.compare(path, against="onnxruntime")
    assert made.data["where"] == "dispatch"
    assert made.data["first"]["nodes"] == nodes
    assert made.data["outputs"]["y"]["wrong"]
    assert "--> node 'last_mul'" in made.text


def test_a_wrong_meaning_is_no_kernels_fault(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from headrace import compare

    def another(*_: object) -> dict[str, Any]:
        return {"y": np.zeros((24, 20), np.float32)}

    monkeypatch.setattr(compare, "_run_onnxruntime", another)
    made = api.compare(model(tmp_path / "ten.onnx"), against="onnxruntime")
    assert (made.data["agrees"], made.data["where"]) == (False, "meaning")
    assert "an importer or a pass" in made.text


def test_a_fault_between_dispatches_is_told_from_one_in_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The run time loses what a step wrote: each dispatch alone is right."""
    from headrace.runtime.module import Module
    from headrace.runtime.outputs import Outputs

    real: Callable[..., Outputs] = Module.__call__

    def forgetful(self: Module, *args: Any, **kwargs: Any) -> Outputs:
        found = real(self, *args, **kwargs)
        if "x" in kwargs:
            found[0][...] = 0
        return found

    monkeypatch.setattr(Module, "__call__", forgetful)
    made = api.compare(model(tmp_path / "ten.onnx"))
    assert (made.data["agrees"], made.data["where"]) == (False, "memory")


def test_an_f32_made_of_bf16_is_as_exact_as_bf16(tmp_path: Path) -> None:
    """Products summed in another order round to another bf16 here and there."""
    random = np.random.default_rng(5)
    weights = [random.standard_normal((512, 512)).astype(np.float32) / 22 for _ in "ab"]
    nodes = [
        helper.make_node("Cast", ["x"], ["x16"], to=TensorProto.BFLOAT16),
        helper.make_node("Cast", ["w0"], ["v0"], to=TensorProto.BFLOAT16),
        helper.make_node("Cast", ["w1"], ["v1"], to=TensorProto.BFLOAT16),
        helper.make_node("MatMul", ["x16", "v0"], ["a"]),
        helper.make_node("MatMul", ["a", "v1"], ["b"]),
        helper.make_node("Cast", ["b"], ["y"], to=TensorProto.FLOAT),
    ]
    graph = helper.make_graph(
        nodes,
        "bf16",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, (16, 512))],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, (16, 512))],
        [numpy_helper.from_array(w, f"w{n}") for n, w in enumerate(weights)],
    )
    opsets = [helper.make_opsetid("", 18)]
    onnx.save(helper.make_model(graph, opset_imports=opsets, ir_version=8), tmp_path / "m.onnx")
    found = api.compare(tmp_path / "m.onnx")
    output = found.data["outputs"]["y"]
    assert found.data["agrees"] and output["max_abs_error"] > 0
    largest = output["allowed"] / TOLERANCES["bf16"]
    given = api.compare(tmp_path / "m.onnx", tolerance=0.5).data["outputs"]["y"]
    assert given["allowed"] == pytest.approx(0.5 * largest)


def test_open_sizes(tmp_path: Path) -> None:
    """Sizes come from the inputs: those with bounds stay open in the code."""
    graph = helper.make_graph(
        [
            helper.make_node("MatMul", ["x", "w"], ["h"], name="dense"),
            helper.make_node("Softmax", ["h"], ["y"], name="softmax", axis=-1),
        ],
        "open",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ("batch", "length", 5))],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ("batch", "length", 7))],
        [numpy_helper.from_array(np.ones((5, 7), np.float32), "w")],
    )
    path = tmp_path / "open.onnx"
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)
    onnx.save(made, path)
    data = api.compare(path, dims={"batch": (3, 9), "length": (2, None)}).data
    assert data["agrees"] and data["dims"] == {"batch": 3, "length": 2}
    assert data["compared"] == 2


@pytest.mark.parametrize(
    ("left", "right", "kind", "error", "wrong"),
    [
        ([1.0, 2.0], [1.0, 2.0001], F32, 1e-4, False),
        ([1.0, 2.0], [1.0, 2.001], F32, 1e-3, True),
        ([np.nan, np.inf], [np.nan, np.inf], F32, 0.0, False),
        ([np.nan, 1.0], [1.0, 1.0], F32, np.inf, True),
        ([np.inf, 1.0], [-np.inf, 1.0], F32, np.inf, True),
        ([1.0, 2.0], [1.0, 2.03125], BF16, 0.03125, False),
        ([5, 7], [5, 7], I32, 0.0, False),
        ([5, 7], [5, 8], I32, 1.0, True),
        ([], [], F32, 0.0, False),
    ],
)
def test_differences(left: Any, right: Any, kind: Any, error: float, wrong: bool) -> None:
    found = difference(
        np.array(left, kind.numpy_dtype), np.array(right, kind.numpy_dtype), kind
    )
    assert found.max_abs_error == pytest.approx(error, rel=1e-2)
    assert found.is_wrong == wrong
    json.dumps(found.data, allow_nan=False)


def test_the_command_line(
    dispatches: Dispatches,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    path = model(tmp_path / "ten.onnx")

    def run(*arguments: object) -> int:
        monkeypatch.setattr(sys, "argv", ["headrace", "compare", *map(str, arguments)])
        with pytest.raises(SystemExit) as ended:
            cli.main()
        return int(ended.value.code or 0)

    assert run(path, "--json", "--against", "onnxruntime") == 0
    assert json.loads(capsys.readouterr().out)["agrees"]
    monkeypatch.setenv("HEADRACE_CACHE_DIR", str(tmp_path / "wrong"))
    kernel, _ = dispatches["main_ex_dispatch_4"]
    wrong = altered(kernel)
    assert wrong is not None
    break_kernel(monkeypatch, print_kernel(kernel), wrong)
    assert run(path) == 1
    assert "--> node 'dense'" in capsys.readouterr().out
    assert run(tmp_path / "x.hrx") == 2
    assert "error[HR0120]" in capsys.readouterr().err
    assert run(tmp_path / "x.mlir", "--against", "onnxruntime") == 2
    assert "error[HR0121]" in capsys.readouterr().err


def test_onnxruntimes_refusal_is_an_error(tmp_path: Path) -> None:
    path = tmp_path / "no.onnx"
    path.write_bytes(b"no model")
    with pytest.raises(HeadraceError):
        api.compare(path, against="onnxruntime")
