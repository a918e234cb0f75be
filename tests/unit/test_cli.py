"""The command line as a user meets it: results, `--json`, errors with their status, Ctrl-C."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from headrace import cli
from headrace.base.errors import HeadraceError
from headrace.targets.table import disassemble

SIZE = 40


@dataclass(frozen=True)
class Done:
    """What a command left: exit status, standard output, standard error."""

    status: int
    out: str
    err: str

    @property
    def data(self) -> Any:
        """The one JSON object on standard output."""
        return json.loads(self.out)


Command = Callable[..., Done]


@pytest.fixture(scope="module", autouse=True)
def _cache(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """A cache of this module's own: the user's is neither read nor filled."""
    before = os.environ.get("HEADRACE_CACHE_DIR")
    os.environ["HEADRACE_CACHE_DIR"] = str(tmp_path_factory.mktemp("cache"))
    yield
    if before is None:
        del os.environ["HEADRACE_CACHE_DIR"]
    else:
        os.environ["HEADRACE_CACHE_DIR"] = before


@pytest.fixture
def headrace(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> Command:
    """Runs a command in this process, in an empty folder, through the entry point."""
    monkeypatch.chdir(tmp_path)

    def run(*arguments: object) -> Done:
        monkeypatch.setattr(sys, "argv", ["headrace", *map(str, arguments)])
        capfd.readouterr()
        with pytest.raises(SystemExit) as left:
            cli.main()
        out, err = capfd.readouterr()
        assert "Traceback" not in out + err
        return Done(int(left.value.code or 0), out, err)

    return run


def save_onnx(
    path: Path,
    nodes: Sequence[onnx.NodeProto],
    weights: dict[str, np.ndarray] | None = None,
    shape: Sequence[int | str] = ("batch", SIZE),
    inputs: Sequence[str] = ("x",),
    domains: Sequence[str] = (),
) -> Path:
    """A model of f32 inputs of one shape and the output y."""
    graph = helper.make_graph(
        list(nodes),
        path.stem,
        [helper.make_tensor_value_info(n, TensorProto.FLOAT, list(shape)) for n in inputs],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
        [numpy_helper.from_array(a, n) for n, a in (weights or {}).items()],
    )
    opsets = [helper.make_opsetid("", 17), *(helper.make_opsetid(d, 1) for d in domains)]
    onnx.save(helper.make_model(graph, opset_imports=opsets, ir_version=8), path)
    return path


def weights() -> dict[str, np.ndarray]:
    random = np.random.default_rng(1)
    return {
        "w": random.standard_normal((SIZE, SIZE), dtype=np.float32),
        "b": random.standard_normal(SIZE, dtype=np.float32),
    }


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """softmax(relu(x @ w + b)) over batch x SIZE."""
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["product"], "matmul"),
        helper.make_node("Add", ["product", "b"], ["sum"], "bias"),
        helper.make_node("Relu", ["sum"], ["positive"], "relu"),
        helper.make_node("Softmax", ["positive"], ["y"], "softmax", axis=-1),
    ]
    return save_onnx(tmp_path_factory.mktemp("model") / "tiny.onnx", nodes, weights())


@pytest.fixture(scope="module")
def compiled(model: Path) -> Path:
    from headrace import api

    return api.compile(model, model.with_suffix(".hrx"))


def expected(x: np.ndarray) -> np.ndarray:
    w = weights()
    positive = np.maximum(x @ w["w"] + w["b"], 0)
    grown = np.exp(positive - positive.max(-1, keepdims=True))
    return grown / grown.sum(-1, keepdims=True)


# -- compiling ---------------------------------------------------------------------------


def test_compile_says_where_and_how_much(headrace: Command, model: Path) -> None:
    done = headrace("compile", model, "-o", "t.hrx", "--json")
    assert (done.status, done.err) == (0, "")
    assert done.data == {"path": "t.hrx", "size_bytes": Path("t.hrx").stat().st_size}
    named = headrace("compile", model)
    assert named.out.startswith("tiny.hrx: ")
    assert Path("tiny.hrx").read_bytes() == Path("t.hrx").read_bytes()
    assert sorted(p.name for p in Path().iterdir()) == ["t.hrx", "tiny.hrx"]


PHASES = ("input", "tensor", "flow", "stream", "hal")


@pytest.mark.parametrize("level", [0, 2])
@pytest.mark.parametrize("phase", PHASES)
def test_the_text_of_a_phase_reads_back(
    headrace: Command, model: Path, phase: str, level: int
) -> None:
    done = headrace("compile", model, f"-O{level}", "--compile-to", phase)
    assert done.status == 0
    Path("phase.mlir").write_text(done.out)
    again = headrace("opt", "phase.mlir")
    assert (again.status, again.err) == (0, "")
    lines = [line for line in done.out.splitlines() if not line.startswith("//")]
    assert again.out.split() == "\n".join(lines).split()


def test_print_after_and_dump_to_show_passes(headrace: Command, model: Path) -> None:
    done = headrace(
        "compile", model, "-o", "t.hrx", "--print-after", "flow-form-dispatches",
        "--dump-to", "dumps",
    )  # fmt: skip
    assert done.status == 0
    assert done.out.count("// ----- after ") == 1
    assert "flow.dispatch.region" in done.out
    names = sorted(p.name for p in Path("dumps").iterdir())
    assert [n[:3] for n in names] == [f"{i:03}" for i in range(1, len(names) + 1)]
    for wanted in ("flow-form-dispatches", "hal-materialize-interfaces-cpu"):
        (path,) = (p for p in Path("dumps").iterdir() if p.stem[4:] == wanted)
        assert headrace("opt", path).status == 0


def test_print_after_a_name_that_is_none(headrace: Command, model: Path) -> None:
    done = headrace("compile", model, "--print-after", "tensor-fuse")
    assert done.status == 2
    assert "error[HR0101]" in done.err and "tensor-fold-constants" in done.err
    assert not list(Path().iterdir())


def test_fixed_and_bounded_sizes(headrace: Command, model: Path) -> None:
    done = headrace("compile", model, "--dim", "batch=3", "-o", "t.hrx")
    assert done.status == 0
    assert "x: 3x40 f32" in headrace("inspect", "t.hrx").out
    headrace("compile", model, "--dim", "batch=2..5", "-o", "t.hrx")
    assert headrace("inspect", "t.hrx", "--json").data["dimensions"] == [
        {"name": "batch", "minimum": 2, "maximum": 5}
    ]


@pytest.mark.parametrize(
    ("arguments", "code", "cure"),
    [
        (("--target", "tpu"), "HR0112", "cpu[:native"),
        (("--target", "cpu:386"), "HR0110", "x86-64-v3"),
        (("--target", "vulkan:0.9"), "HR0112", "vulkan"),
        (("--compile-to", "llvm"), "HR0103", "stream"),
        (("--dim", "batch"), "HR0104", "NAME=128"),
        (("--dim", "depth=3"), "HR0203", "batch"),
        (("-o", "no/such/folder.hrx"), "HR3101", "No such file"),
    ],
)
def test_wrong_arguments(
    headrace: Command, model: Path, arguments: tuple[str, ...], code: str, cure: str
) -> None:
    done = headrace("compile", model, *arguments)
    assert (done.status, done.out) == (2, "")
    assert f"error[{code}]" in done.err
    assert cure in done.err
    assert not list(Path().iterdir())


def test_unsupported_operators_are_listed_together(headrace: Command, tmp_path: Path) -> None:
    nodes = [
        helper.make_node("Frobnicate", ["x"], ["a"], "first", domain="ours"),
        helper.make_node("Frobnicate", ["a"], ["b"], "second", domain="ours"),
        helper.make_node("Wobble", ["b"], ["c"], "third", domain="ours"),
        helper.make_node("Relu", ["c"], ["y"], "fourth"),
    ]
    path = save_onnx(tmp_path / "odd.onnx", nodes, domains=("ours",))
    done = headrace("compile", path)
    assert done.status == 2
    assert done.err.count("error[HR1203]") == 2
    for text in ("Frobnicate", "2 times", "'first'", "'second'", "Wobble", "'third'", "2 of 3"):
        assert text in done.err
    assert "fourth" not in done.err
    assert "Frobnicate" in headrace("run", path, "--input", "random").err


@pytest.mark.parametrize("name", ["no.onnx", "no.hrx", "no.mlir"])
def test_a_model_that_is_not_there(headrace: Command, name: str) -> None:
    for command in ("compile", "run", "plan", "inspect", "calibrate"):
        done = headrace(command, name)
        assert done.status == 2, command
        assert "error[HR" in done.err and name in done.err


@pytest.mark.parametrize("suffix", [".onnx", ".mlir", ".hrx", ".keras", ".mlirbc", ".txt"])
def test_a_file_that_is_no_model(headrace: Command, suffix: str) -> None:
    path = Path(f"noise{suffix}")
    path.write_bytes(np.random.default_rng(3).bytes(2000))
    done = headrace("inspect", path)
    assert done.status == 2
    assert done.err.startswith("error[HR")


# -- running -----------------------------------------------------------------------------


def test_run_from_a_file_to_a_file(headrace: Command, compiled: Path) -> None:
    x = np.random.default_rng(2).standard_normal((3, SIZE), dtype=np.float32)
    np.save("x.npy", x)
    done = headrace("run", compiled, "--input", "x=@x.npy", "-o", "y.npz", "--json")
    assert done.status == 0
    assert done.data == {
        "outputs": {"y": {"shape": [3, SIZE], "dtype": "float32"}},
        "path": "y.npz",
    }
    with np.load("y.npz") as saved:
        np.testing.assert_allclose(saved["y"], expected(x), rtol=1e-5)
    assert headrace("run", compiled, "--input", "@x.npy", "-o", "y.npy").status == 0
    np.testing.assert_allclose(np.load("y.npy"), expected(x), rtol=1e-5)
    x.tofile("x.bin")
    raw = headrace("run", compiled, "--input", f"@x.bin:3x{SIZE}xf32", "--json")
    np.testing.assert_allclose(raw.data["outputs"]["y"]["values"], expected(x), rtol=1e-5)
    assert sorted(p.name for p in Path().iterdir()) == ["x.bin", "x.npy", "y.npy", "y.npz"]


def test_run_prints_values_and_a_report(headrace: Command, compiled: Path) -> None:
    done = headrace(
        "run", compiled, "--input", "random", "--dim", "batch=2", "--report", "--steps", "3"
    )
    assert done.status == 0
    assert done.out.startswith("y: 2x40 float32\n")
    assert "predicted" in done.out and "measured" in done.out
    data = headrace(
        "run", compiled, "--input", "random", "--dim", "batch=2", "--report", "--json"
    ).data
    assert data["report"]["steps"] == 1
    assert data["report"]["interpreted"] == 0


def test_a_seed_gives_the_same_inputs(headrace: Command, compiled: Path) -> None:
    def values(seed: int) -> Any:
        done = headrace(
            "run", compiled, "--input", "random", "--dim", "batch=1", "--seed", seed, "--json"
        )
        return done.data["outputs"]["y"]["values"]

    assert values(1) == values(1)
    assert values(1) != values(2)


def test_a_model_is_compiled_into_the_cache_once(headrace: Command, model: Path) -> None:
    cache = Path(os.environ["HEADRACE_CACHE_DIR"]) / "models"
    for _ in range(2):
        done = headrace("run", model, "--input", "random", "--dim", "batch=1", "--json")
        assert done.status == 0
        (made,) = cache.glob("tiny-*.hrx")
    stamp = made.stat().st_mtime_ns
    headrace("plan", model)
    assert made.stat().st_mtime_ns == stamp


@pytest.mark.parametrize(
    ("arguments", "code", "word"),
    [
        ((), "HR0302", "'x'"),
        (("--input", "q=@x.npy"), "HR0301", "'q'"),
        (("--input", "@no.npy"), "HR0304", "no.npy"),
        (("--input", "@text.npy"), "HR0304", "text.npy"),
        (("--input", "@x.npy", "--input", "@x.npy"), "HR0303", "too many"),
        (("--input", "@other.npz", "--input", "x=@other.npz"), "HR0304", "'x'"),
        (("--input", "@x.npy", "-o", "y.txt"), "HR0307", "y.txt"),
        (("--input", "@x.npy", "-o", "no/y.npy"), "HR0308", "no folder 'no'"),
        (("--input", "@x.npy", "-o", "."), "HR0308", "folder stands there"),
        (("--input", "@x.npy", "--trace", "no/t.json"), "HR4017", "no folder 'no'"),
        (("--input", "@x.npy", "--trace", "."), "HR4017", "--> ."),
        (("--input", "@x.npy", "--device", "null:tpu"), "HR4013", "null:cuda"),
        (("--input", "@double.npy"), "HR4001", "f32"),
        (("--input", "@wide.npy"), "HR4001", "9"),
        (("--input", "@x.npy", "--device", "tpu"), "HR4013", "cpu"),
        (("--input", "@x.npy", "--function", "decode"), "HR4007", "main"),
        (("--input", "@x.npy", "--weight-budget", "much"), "HR3201", "25MB"),
        (("--input", "@x.npy", "--weight-budget", "1"), "HR3202", "minimum"),
        (("--input", "@x.npy", "--memory-limit", "64"), "HR3203", "bytes"),
        (("--input", "@x.npy", "--memory-limit", "max"), "HR3201", "--> memory limit"),
        (("--input", "random"), "HR0306", "--dim batch=SIZE"),
        (("--input", "random", "--dim", "batch=1..2"), "HR0104", "batch=128"),
        (("--input", "@x.bin:3x3xf32"), "HR0305", "9"),
        (("--input", "@x.bin:3x40xf99"), "HR0305", "f99"),
        (("--input", "pear"), "HR0305", "pear"),
    ],
)
def test_wrong_ways_to_run(
    headrace: Command, compiled: Path, arguments: tuple[str, ...], code: str, word: str
) -> None:
    ones = np.ones((3, SIZE), np.float32)
    np.save("x.npy", ones)
    np.save("double.npy", ones.astype(np.float64))
    np.save("wide.npy", np.ones((3, 9), np.float32))
    np.savez("other.npz", z=ones)
    ones.tofile("x.bin")
    Path("text.npy").write_text("no array")
    before = sorted(Path().iterdir())
    done = headrace("run", compiled, *arguments)
    assert (done.status, done.out) == (2, "")
    assert f"error[{code}]" in done.err
    assert word in done.err
    assert sorted(Path().iterdir()) == before


def test_every_missing_input_is_listed(headrace: Command, tmp_path: Path) -> None:
    path = save_onnx(
        tmp_path / "two.onnx", [helper.make_node("Add", ["left", "right"], ["y"])],
        inputs=("left", "right"), shape=(2, 2),
    )  # fmt: skip
    done = headrace("run", path)
    assert done.err.count("error[HR0302]") == 2
    np.savez("both.npz", left=np.ones((2, 2), np.float32), right=np.ones((2, 2), np.float32))
    done = headrace("run", path, "--input", "@both.npz", "--json")
    assert done.data["outputs"]["y"]["values"] == [[2.0, 2.0], [2.0, 2.0]]


def test_an_output_is_whole_or_as_it_was(headrace: Command, compiled: Path) -> None:
    Path("y.npz").write_bytes(b"before")
    done = headrace("run", compiled, "--input", "pear", "-o", "y.npz")
    assert done.status == 2
    assert Path("y.npz").read_bytes() == b"before"


@pytest.mark.parametrize("kind", ["FLOAT16", "BFLOAT16", "DOUBLE", "INT8", "BOOL"])
def test_json_holds_numbers_of_any_type(headrace: Command, tmp_path: Path, kind: str) -> None:
    node = helper.make_node("Cast", ["x"], ["y"], to=getattr(TensorProto, kind))
    path = save_onnx(tmp_path / "cast.onnx", [node], shape=(3,))
    np.save("x.npy", np.array([0, 1, 2.5], np.float32))
    done = headrace("run", path, "--input", "@x.npy", "--json")
    assert done.status == 0, done.err
    last = {"INT8": 2, "BOOL": 1}.get(kind, 2.5)
    assert done.data["outputs"]["y"]["values"] == [0, 1, last]


# -- planning, inspecting ----------------------------------------------------------------


def test_plan_in_words_and_data(headrace: Command, compiled: Path) -> None:
    done = headrace("plan", compiled, "--dim", "batch=4")
    assert done.status == 0
    assert done.out.startswith("main(batch=4): ")
    data = headrace("plan", compiled, "--dim", "batch=4", "--json").data
    assert data["function"] == "main"
    assert data["dims"] == {"batch": 4}
    assert data["minimum_budget_bytes"] <= data["weight_budget_bytes"] <= data["stored_bytes"]
    assert data["predicted_step_ns"] == (
        data["predicted_compute_ns"] + data["predicted_stall_ns"]
    )


def test_plan_draws(headrace: Command, compiled: Path) -> None:
    done = headrace(
        "plan", compiled, "--dim", "batch=1", "--picture", "p.png", "--curve", "c.png", "--json"
    )
    assert done.status == 0
    assert done.data["pictures"] == ["p.png", "c.png"]
    for path in ("p.png", "c.png"):
        assert Path(path).read_bytes().startswith(b"\x89PNG")


def test_a_calibrated_plan_uses_measured_kernels(headrace: Command, compiled: Path) -> None:
    assert headrace("calibrate", compiled, "--dim", "batch=2", "--json").data["kernels"] >= 1
    assert headrace("plan", compiled, "--dim", "batch=2", "--calibrate").status == 0


def test_inspect_a_compiled_model(headrace: Command, compiled: Path, model: Path) -> None:
    done = headrace("inspect", compiled, "--weights", "--verify", "--disassemble")
    assert done.status == 0
    for text in ("from tiny.onnx", "all hashes right", "w: 40x40 f32", "ELF object"):
        assert text in done.out
    data = headrace("inspect", compiled, "--weights", "--json").data
    assert {w["name"] for w in data["weight_list"]} >= {"w"}
    assert data["programs"][0]["functions"][0]["inputs"] == ["x: (batch)x40 f32"]
    vulkan = headrace("compile", model, "--target", "vulkan", "-o", "v.hrx")
    assert vulkan.status == 0
    assert "OpEntryPoint GLCompute" in headrace("inspect", "v.hrx", "--disassemble").out
    done = headrace("run", "v.hrx", "--input", "random", "--dim", "batch=1")
    assert done.status == 2 and "HR4008" in done.err and "--target cpu" in done.err


def test_inspect_a_model_file(headrace: Command, model: Path) -> None:
    assert "dot_general" in headrace("inspect", model).out
    data = headrace("inspect", model, "--json").data
    assert data["parameters"] == 1
    assert data["operations"]["dot_general"] == 1


def test_inspect_finds_damage(headrace: Command, compiled: Path) -> None:
    data = bytearray(compiled.read_bytes())
    data[4096] ^= 1
    Path("bad.hrx").write_bytes(data)
    done = headrace("inspect", "bad.hrx", "--verify")
    assert done.status == 2 and "error[HR3106]" in done.err
    Path("cut.hrx").write_bytes(data[:5000])
    assert "error[HR3104]" in headrace("inspect", "cut.hrx").err


EMPTY_OBJECT = b"\x7fELF\x02\x01" + bytes(58)
NO_OBJECTS = {
    "empty": b"",
    "short": b"\x7fELF",
    "wild": b"\x7fELF\x02\x01" + b"\xff" * 90,
    "other": b"no object at all" * 8,
}


@pytest.mark.parametrize("name", NO_OBJECTS)
def test_listing_what_is_no_object(name: str) -> None:
    with pytest.raises(HeadraceError, match="HR9413"):
        disassemble("elf-object", NO_OBJECTS[name])


def test_listing_says_what_it_cannot_show() -> None:
    assert "not listed" in disassemble("elf-object", EMPTY_OBJECT)
    assert "no reader" in disassemble("cubin", b"")


# -- opt ----------------------------------------------------------------------------------

TEXT = """
func.func @main(%x: tensor<4xf32> {hr.name = "x"}) -> (tensor<4xf32> {hr.name = "y"}) {
  %0 = tensor.copy %x : (tensor<4xf32>) -> tensor<4xf32>
  %1 = tensor.tanh %0 : (tensor<4xf32>) -> tensor<4xf32>
  func.return %1 : tensor<4xf32>
}
"""


def test_opt_runs_passes(headrace: Command) -> None:
    Path("t.mlir").write_text(TEXT)
    done = headrace("opt", "t.mlir", "-p", "tensor-elide-copies", "--json")
    assert done.status == 0
    assert "tensor.tanh" in done.data["text"] and "tensor.copy" not in done.data["text"]


def test_opt_lists_passes(headrace: Command) -> None:
    listed = headrace("opt", "--list")
    assert listed.status == 0
    assert "flow-form-dispatches" in listed.out
    assert headrace("opt").status == 2


@pytest.mark.parametrize(
    ("text", "arguments", "code", "word"),
    [
        (TEXT, ("-p", "tensor-fuse"), "HR0101", "tensor-elide-copies"),
        (TEXT, ("-p", "flow-form-dispatches{depth=2}"), "HR0102", "level"),
        (TEXT, ("-p", "flow-form-dispatches{level=two}"), "HR0102", "two"),
        (TEXT.replace("%1 :", "%7 :"), (), "HR1001", "t.mlir:5"),
        (TEXT.replace("tanh", "tanhh"), (), "HR1001", "t.mlir:4"),
        ("func.func @main(", (), "HR1001", "t.mlir:1"),
    ],
)
def test_wrong_ways_to_opt(
    headrace: Command, text: str, arguments: tuple[str, ...], code: str, word: str
) -> None:
    Path("t.mlir").write_text(text)
    done = headrace("opt", "t.mlir", *arguments)
    assert (done.status, done.out) == (2, "")
    assert f"error[{code}]" in done.err
    assert word in done.err


def test_click_refuses_with_the_same_status(headrace: Command, compiled: Path) -> None:
    for arguments in (
        ("run",),
        ("run", compiled, "--what"),
        ("swim",),
        ("run", compiled, "--steps", "0"),
    ):
        done = headrace(*arguments)
        assert (done.status, done.out) == (2, "")
        assert "Usage:" in done.err


def test_debug_lets_the_traceback_through(
    headrace: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HEADRACE_DEBUG", "1")
    monkeypatch.setattr(sys, "argv", ["headrace", "compile", "no.onnx"])
    with pytest.raises(HeadraceError):
        cli.main()


def test_a_crash_is_named_a_defect(
    headrace: Command, monkeypatch: pytest.MonkeyPatch, model: Path
) -> None:
    from headrace import api

    def crash(*_: object, **__: object) -> None:
        raise ZeroDivisionError("one over nought")

    monkeypatch.setattr(api, "compile", crash)
    done = headrace("compile", model)
    assert done.status == 70
    assert "defect[HR9001]: ZeroDivisionError: one over nought" in done.err


# -- processes ---------------------------------------------------------------------------


def start(*arguments: object, folder: Path) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "headrace.cli", *map(str, arguments)],
        cwd=folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def test_a_closed_pipe_ends_it_quietly(model: Path, tmp_path: Path) -> None:
    process = start("compile", model, "--compile-to", "hal", folder=tmp_path)
    assert process.stdout is not None and process.stderr is not None
    process.stdout.close()
    assert process.stderr.read() == ""
    process.stderr.close()
    assert process.wait(60) == 1


def test_interrupting_a_long_run(tmp_path: Path) -> None:
    """Ctrl-C in a chain of layers over many steps: 130, at once, and nothing is left."""
    random = np.random.default_rng(0)
    count, size = 6, 512
    nodes = [
        helper.make_node("MatMul", [f"v{i}", f"w{i}"], [f"v{i + 1}"]) for i in range(count)
    ]
    nodes[-1].output[0] = "y"
    path = save_onnx(
        tmp_path / "chain.onnx",
        nodes,
        {
            f"w{i}": random.standard_normal((size, size), dtype=np.float32) / 32
            for i in range(count)
        },
        ("batch", size),
        ("v0",),
    )
    from headrace import api

    made = api.compile(path, tmp_path / "chain.hrx")
    folder = tmp_path / "run"
    folder.mkdir()
    process = start(
        "run", made, "--input", "random", "--dim", "batch=64", "--weight-budget", "min",
        "--steps", "10000000", "-o", "y.npz", folder=folder,
    )  # fmt: skip
    time.sleep(4)
    assert process.poll() is None, process.communicate()[1]
    process.send_signal(signal.SIGINT)
    before = time.monotonic()
    out, err = process.communicate(timeout=60)
    waited = time.monotonic() - before
    assert process.returncode == 130
    assert (out, err.strip()) == ("", "interrupted")
    assert list(folder.iterdir()) == []
    assert waited < 20, "a step takes milliseconds; this ran on"


_NEGATE = """func.func @main(%x: tensor<8xf32>) -> tensor<8xf32> {
  %y = stablehlo.negate %x : tensor<8xf32>
  return %y : tensor<8xf32>
}
"""


def test_what_nothing_runs_is_said(headrace: Command) -> None:
    pytest.importorskip("triton")
    Path("m.mlir").write_text(_NEGATE)
    done = headrace("compile", "m.mlir", "--target", "rocm:gfx942", "--target", "cuda")
    assert done.status == 0
    assert "note: rocm:gfx942 is compiled only" in done.err and "cuda is" not in done.err
    text = headrace("inspect", "m.hrx").out
    assert "cuda:sm_80, cuda:sm_90, rocm:gfx942 (compiled only)" in text


def test_needless_streaming_is_warned_of(
    headrace: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    from headrace.runtime.module import Module

    Path("m.mlir").write_text(_NEGATE)
    assert "warning" not in headrace("run", "m.mlir", "--input", "random").err
    assert "warning" not in headrace("plan", "m.mlir").out
    monkeypatch.setattr(Module, "warnings", lambda self, plan=None: ("weights stream",))
    done = headrace("run", "m.mlir", "--input", "random")
    assert done.status == 0 and done.err.splitlines()[-1] == "warning: weights stream"
    assert "  warning: weights stream" in headrace("plan", "m.mlir").out


def test_files_that_cannot_be_written_are_told_before_any_step(
    headrace: Command, compiled: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from headrace import api

    monkeypatch.setattr(api, "load", lambda *_, **__: pytest.fail("the model is opened"))
    for option in ("-o", "--trace"):
        assert headrace("run", compiled, "--input", "random", option, "no/f.npz").status == 2
