"""Every sample kernel becomes valid SPIR-V, with the launch a driver needs."""

import pickle
import struct
from dataclasses import replace
from pathlib import Path

import pytest
from loop_kernels import LOOPS
from sample_kernels import SAMPLES, Sample
from spirv_validator import validate

from headrace.base.errors import HeadraceError
from headrace.base.symbols import as_expr
from headrace.kernel.description import Kernel
from headrace.kernel.text import parse_kernel
from headrace.targets.vulkan import naive
from headrace.targets.vulkan.target import make

BY_NAME = {s.name: s for s in SAMPLES}


@pytest.mark.parametrize("sample", [*SAMPLES, *LOOPS], ids=lambda s: s.name)
def test_every_sample_validates(sample: Sample, tmp_path: Path) -> None:
    code = naive.translate("main_dispatch_0", sample.kernel)
    assert validate(code.data, tmp_path) == ""
    assert code.format == "spirv"
    (launch,) = code.specialisations[-1].launches
    assert launch.symbol == "main_dispatch_0"
    assert launch.family == ("loop" if sample.kernel.loops else "naive")
    assert code == naive.translate("main_dispatch_0", sample.kernel)


def test_a_broken_module_is_seen_by_the_validator(tmp_path: Path) -> None:
    code = naive.translate("k", BY_NAME["softmax"].kernel)
    words = list(struct.unpack(f"<{len(code.data) // 4}I", code.data))
    words[3] = 5  # the bound
    assert "bound" in validate(struct.pack(f"<{len(words)}I", *words), tmp_path)


@pytest.mark.parametrize(
    ("name", "features"),
    [
        ("softmax", ()),
        ("gather", ("Int64",)),
        ("casts", ("StorageBuffer16BitAccess", "StorageBuffer8BitAccess")),
        ("long_integers", ("Float64", "Int64")),
    ],
)
def test_features_are_only_what_is_used(name: str, features: tuple[str, ...]) -> None:
    assert naive.translate("k", BY_NAME[name].kernel).features == features


def _launch(kernel: Kernel):
    return naive.translate("k", kernel).specialisations[-1].launches[0]


def test_workgroups_and_scratch() -> None:
    softmax = _launch(BY_NAME["softmax"].kernel)
    assert softmax.workgroups[0].evaluate({"batch": 129}) == 3
    # Beyond what one dimension of a dispatch holds, y counts on.
    x, y, z = (w.evaluate({"batch": 64 * 70000}) for w in softmax.workgroups)
    assert (x, y, z) == (32768, 3, 1) and x * y >= 70000
    assert softmax.scratch_bytes == as_expr(0)
    assert _launch(BY_NAME["layer_norm"].kernel).scratch_bytes == as_expr(0)
    symbolic = _launch(BY_NAME["layer_norm_symbolic"].kernel)
    assert symbolic.scratch_bytes.evaluate({"width": 100}) == 4 * 100 * 4
    # 600 doubles exceed a lane's own memory; the booleans still fit.
    assert _launch(BY_NAME["wide_locals"].kernel).scratch_bytes == as_expr(3 * 600 * 8)


def test_the_listing_reads_as_code() -> None:
    listing = naive.translate("k", BY_NAME["matmul"].kernel).listing
    assert listing.startswith("; SPIR-V 1.5")
    for wanted in ("OpCapability Shader", 'OpEntryPoint GLCompute %k "k"', "%float = OpTypeFloat",
                   "OpFMul %float", "OpLoopMerge", "NonWritable", "%float_0.0"):  # fmt: skip
        assert wanted in listing
    assert listing.count("\n") > 100


def test_too_many_dimensions_for_push_constants() -> None:
    names = ", ".join(f"n{i}" for i in range(30))
    size = " + ".join(f"n{i}" for i in range(30))
    text = (
        f"kernel(%d0 = {size}) dims({names}) {{\n  wo y : f32[{size}]\n  map() {{\n"
        "    %v0 = constant 1.0 : f32\n    store %v0 to y[%d0]\n  }\n}"
    )
    with pytest.raises(HeadraceError, match=r"HR2411.*132 bytes"):
        make("vulkan").translate("k", parse_kernel(text))


def test_offsets_beyond_31_bits_are_refused() -> None:
    kernel = parse_kernel(
        "kernel(%d0 = 4) {\n  ro table : f32[3000000000]\n  wo y : f32[4]\n  map() {\n"
        "    %v0 = load table[%d0]\n    store %v0 to y[%d0]\n  }\n}"
    )
    with pytest.raises(HeadraceError, match=r"HR2412.*'table'"):
        make("vulkan").translate("k", kernel)


def test_the_target_is_plain_data() -> None:
    target = make("vulkan")
    assert (target.name, target.device_class) == ("vulkan:1.3", "vulkan")
    assert pickle.loads(pickle.dumps(target)) == target
    assert set(target.layout_wishes(BY_NAME["matmul"].kernel)) == {1}
    with pytest.raises(HeadraceError, match="HR0112"):
        make("vulkan:1.0")


def test_names_of_operands_do_not_matter_to_the_code() -> None:
    kernel = BY_NAME["softmax"].kernel
    other = replace(
        kernel, operands=tuple(replace(o, name=f"z{o.name}") for o in kernel.operands)
    )
    target = make("vulkan")
    assert target.translate("k", kernel).data == target.translate("k", other).data
