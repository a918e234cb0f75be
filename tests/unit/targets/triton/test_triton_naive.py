"""Sample kernels as Triton source: compiled without a GPU, run in the interpreter."""

import importlib.metadata
import importlib.util
import os
import pickle
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from loop_kernels import LOOPS
from sample_kernels import SAMPLES, Sample, assert_close

from headrace.base.bundle import split_code
from headrace.base.errors import HeadraceError
from headrace.base.symbols import as_expr
from headrace.targets.triton import compile as compilation
from headrace.targets.triton.naive import generate
from headrace.targets.triton.target import make

EVERY = (*SAMPLES, *LOOPS)
BY_NAME = {s.name: s for s in EVERY}
HANDFUL = ("matmul", "convolution_halo", "softmax", "layer_norm_symbolic", "casts", "gather")
REST = tuple(s.name for s in EVERY if s.name not in HANDFUL)
SLOW_IN_INTERPRETER = ("wide_locals", "elementary")

needs_triton = pytest.mark.skipif(
    importlib.util.find_spec("triton") is None,
    reason="triton is not installed (the extra headrace[cuda])",
)


def _interpreter_lacks() -> str:
    """Why Triton's interpreter cannot run here; empty where it can."""
    if importlib.util.find_spec("triton") is None:
        return "triton is not installed (the extra headrace[cuda])"
    major, minor = (int(n) for n in importlib.metadata.version("triton").split(".")[:2])
    if (major, minor) < (3, 8):
        return "the interpreter before Triton 3.8 fails on numpy 2.4's scalars"
    return ""


needs_interpreter = pytest.mark.skipif(
    bool(_interpreter_lacks()), reason=_interpreter_lacks() or "none"
)


def _check(target: str, sample: Sample) -> None:
    code = make(target).translate("main_dispatch_0", sample.kernel)
    assert all(c[:4] == b"\x7fELF" for c in split_code(code.data))
    assert b"main_dispatch_0" in code.data
    launches = code.specialisations[-1].launches
    assert launches[-1].symbol.startswith("main_dispatch_0")
    assert all(launch.family in FAMILIES for launch in launches)
    assert all(launch.symbol.encode() in code.data for launch in launches)
    assert "@triton.jit" in code.listing


FAMILIES = ("naive", "contract", "row", "reduce", "loop")


@needs_triton
@pytest.mark.parametrize("name", HANDFUL)
def test_compiles_to_a_cubin(name: str) -> None:
    _check("cuda", BY_NAME[name])


@needs_triton
@pytest.mark.parametrize("name", ["softmax"])
@pytest.mark.parametrize("target", ["rocm", "cuda:sm_80"])
def test_compiles_for_other_architectures(target: str, name: str) -> None:
    _check(target, BY_NAME[name])


@needs_triton
@pytest.mark.slow
@pytest.mark.parametrize("name", REST)
@pytest.mark.parametrize("target", ["cuda", "rocm"])
def test_compiles_every_sample(target: str, name: str) -> None:
    _check(target, BY_NAME[name])


@needs_interpreter
@pytest.mark.parametrize(
    "name",
    [
        pytest.param(s.name, marks=pytest.mark.slow)
        if s.name in SLOW_IN_INTERPRETER
        else s.name
        for s in EVERY
    ],
)
@pytest.mark.filterwarnings("ignore")
def test_values_in_the_interpreter(name: str) -> None:
    from interpret import run

    sample = BY_NAME[name]
    buffers = sample.buffers()
    expected = sample.expected(buffers)
    run(sample.kernel, buffers, sample.dims)
    assert_close(sample, buffers, expected)


_DIGEST = """
import hashlib, sys
sys.path.insert(0, sys.argv[1])
from sample_kernels import SAMPLES
from headrace.targets.triton.target import make
sample = next(s for s in SAMPLES if s.name == "softmax")
print(hashlib.sha256(make("cuda").translate("k", sample.kernel).data).hexdigest())
"""


@needs_triton
def test_the_same_kernel_gives_the_same_bytes(tmp_path: Path) -> None:
    here = str(Path(__file__).parent.parent)
    digests: set[str] = set()
    for seed in ("1", "2"):
        folder = tmp_path / seed
        folder.mkdir()
        environment = {**os.environ, "PYTHONHASHSEED": seed, "TMPDIR": str(folder)}
        environment["TRITON_CACHE_DIR"] = str(folder / "cache")
        done = subprocess.run(
            [sys.executable, "-c", _DIGEST, here],
            capture_output=True, text=True, check=True, env=environment, cwd=folder,
        )  # fmt: skip
        digests.add(done.stdout.strip())
        assert not (folder / "cache").exists(), "Triton's own cache was written"
    assert len(digests) == 1


def test_signature_and_launch() -> None:
    source = generate("k", BY_NAME["layer_norm_symbolic"].kernel)
    assert source.signature == (
        ("p0", "*fp32"), ("p1", "*fp32"), ("p2", "*u32"),
        ("first_x", "i32"), ("first_y", "i32"), ("first_z", "i32"), ("dim0", "i32"),
    )  # fmt: skip
    assert source.workgroups == (as_expr(1),) * 3
    assert source.scratch_bytes.evaluate({"width": 10}) == 4 * 10 * 4
    softmax = generate("k", BY_NAME["softmax"].kernel)
    assert softmax.workgroups[0].evaluate({"batch": 129}) == 2
    narrow = generate("k", BY_NAME["casts"].kernel).signature
    assert [kind for _, kind in narrow[:7]] == [
        "*fp32", "*u16", "*u16", "*u8", "*u8", "*u8", "*u8",
    ]  # fmt: skip
    assert generate("k", BY_NAME["softmax"].kernel) == softmax


def test_a_missing_triton_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "triton", None)
    with pytest.raises(HeadraceError, match=r"HR2421[\s\S]*pip install headrace\[cuda\]"):
        make("cuda").translate("k", BY_NAME["softmax"].kernel)


@needs_triton
def test_what_triton_refuses_is_reported() -> None:
    source = generate("k", BY_NAME["softmax"].kernel)
    broken = compilation.TritonSource(
        source.name, source.text.replace("tl.arange", "tl.no_such"), source.signature,
        source.workgroups, source.scratch_bytes,
    )  # fmt: skip
    with pytest.raises(HeadraceError, match="HR2422"):
        compilation.compile_source(broken, "cuda", 90, 32)


@needs_triton
def test_names_of_users_stay_names() -> None:
    kernel = BY_NAME["reshape"].kernel
    operands = tuple(replace(o, name=f"{o.name}\nraise SystemExit") for o in kernel.operands)
    hostile = replace(kernel, operands=operands)
    for name, symbol in (("tl", b"k_tl"), ("while", b"k_while"), ("a/b:0", b"a_b_0")):
        code = make("cuda").translate(name, hostile)
        assert symbol in code.data
        assert code.specialisations[0].launches[0].symbol == symbol.decode()


def test_targets_are_plain_data() -> None:
    target = make("cuda")
    assert (target.name, target.device_class) == ("cuda:sm_90", "cuda")
    assert make("rocm").name == "rocm:gfx942"
    assert make("rocm:gfx942").device_class == "cuda"
    assert pickle.loads(pickle.dumps(target)) == target
    for wrong in ("cuda:sm_10", "rocm:sm_90", "metal"):
        with pytest.raises(HeadraceError, match="HR0112"):
            make(wrong)
