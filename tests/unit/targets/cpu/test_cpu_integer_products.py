"""Products of narrow integers: exact on register tiles, whatever signs and sizes."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from tests.unit.targets.cpu.harness import GENERIC, NATIVE, Linked
from tests.unit.targets.cpu.test_cpu_contract import with_wishes

from headrace.base.dtypes import I8, I16, I32, UI8, DType
from headrace.kernel.buffers import pack_operand, unpack_operand
from headrace.kernel.description import Kernel, Operand
from headrace.kernel.interp import evaluate
from headrace.kernel.text import parse_kernel
from headrace.targets.cpu.target import make

PRODUCT = """
kernel(%d0 = M, %d1 = N) {
  ro a : LEFT[A_SHAPE]
  ro WEIGHT w : RIGHT[K, N]
  ro bias : i32[N]
  wo y : i32[M, N]
  local sum : i32
  reduce(%r0 = K) {
    %a = load a[A_INDEX]
    %w = load w[%r0, %d1]
    %wa = convert(%a) : i32
    %ww = convert(%w) : i32
    %p = multiply(%wa, %ww) : i32
    fold %p from 5 with add into sum
  }
  map() {
    %s = read sum[]
    %b = load bias[%d1]
    %y = add(%s, %b) : i32
    store %y to y[%d0, %d1]
  }
}
"""

CONVOLUTION = """
kernel(%d0 = 2, %d1 = O, %d2 = 7, %d3 = 7) {
  ro x : ui8[2, C, 7, 7]
  ro constant w : i8[O, C, 3, 3]
  wo y : i32[2, O, 7, 7]
  local sum : i32
  reduce(%r0 = C, %r1 = 3, %r2 = 3) {
    %a = load x[%d0, %r0, %d2 + %r1 - 1, %d3 + %r2 - 1] bounded [2, 3] otherwise 0
    %w = load w[%d1, %r0, %r1, %r2]
    %wa = convert(%a) : i32
    %ww = convert(%w) : i32
    %p = multiply(%wa, %ww) : i32
    fold %p from 0 with add into sum
  }
  map() {
    %s = read sum[]
    store %s to y[%d0, %d1, %d2, %d3]
  }
}
"""


def product(
    m: int | str,
    n: int | str,
    k: int,
    left: DType = UI8,
    right: DType = I8,
    *,
    turned: bool = False,
    constant: bool = True,
) -> Kernel:
    """`turned`: the left operand's terms do not stand side by side."""
    text = PRODUCT.replace("A_SHAPE", f"{k}, M" if turned else f"M, {k}")
    text = text.replace("A_INDEX", "%r0, %d0" if turned else "%d0, %r0")
    words = {"LEFT": left.name, "RIGHT": right.name, "WEIGHT": "constant" if constant else ""}
    for word, value in {**words, "M": m, "N": n, "K": k}.items():
        text = text.replace(word, str(value))
    names = sorted({s for s in (m, n) if isinstance(s, str)})
    if names:
        text = text.replace(") {", f") dims({', '.join(names)}) {{", 1)
    return parse_kernel(text)


def filled(operand: Operand, shape: list[int], random: Any, extreme: bool) -> Any:
    """Integers over the whole range, or its two ends alone."""
    info = np.iinfo(operand.dtype.numpy_dtype)
    if extreme:
        return random.choice([info.min, info.max], shape).astype(info.dtype)
    return random.integers(info.min, info.max, shape, endpoint=True).astype(info.dtype)


def run(kernel: Kernel, target: Any, dims: Any = None, extreme: bool = False) -> str:
    """Runs it against the interpreter; answers the family that it took."""
    dims = dims or {}
    random = np.random.default_rng(7)
    shapes = [[s.evaluate(dims) for s in o.shape] for o in kernel.operands]
    arrays = [
        filled(o, s, random, extreme) for o, s in zip(kernel.operands, shapes, strict=True)
    ]
    buffers = [pack_operand(a, o, dims) for a, o in zip(arrays, kernel.operands, strict=True)]
    expected, found = ([b.copy() for b in buffers] for _ in range(2))
    evaluate(kernel, expected, dims)
    found[-1][...] = 7
    linked = Linked(kernel, target)
    linked(found, dims, parts=3)
    got, wanted = (unpack_operand(b[-1], kernel.operands[-1], dims) for b in (found, expected))
    np.testing.assert_array_equal(got, wanted)
    return linked.family(dims)


WORDS = replace(NATIVE, machine=replace(NATIVE.machine, byte_variants=()))
"""Every AVX2."""

VNNI = make("cpu:native")
"""This machine, which multiplies bytes if it can."""

needs_vnni = pytest.mark.skipif(not VNNI.machine.byte_features, reason="this CPU has no VNNI")
TARGETS = pytest.mark.parametrize(
    "target",
    [
        pytest.param(WORDS, id="v3"),
        pytest.param(GENERIC, id="generic"),
        pytest.param(VNNI, id="vnni", marks=needs_vnni),
    ],
)


@TARGETS
@pytest.mark.parametrize("left", [I8, UI8, I16], ids=lambda d: d.name)
@pytest.mark.parametrize("right", [I8, UI8, I16], ids=lambda d: d.name)
@pytest.mark.parametrize("extreme", [False, True])
def test_every_combination_of_signs(
    left: DType, right: DType, extreme: bool, target: Any
) -> None:
    """Two products of i16's least value are 2**31, which wraps."""
    kernel = with_wishes(product(7, 21, 19, left, right), target)
    assert run(kernel, target, extreme=extreme) == "contract"


@TARGETS
@pytest.mark.parametrize(
    ("m", "n", "k"),
    [(1, 10, 128), (1, 130, 33), (3, 40, 2), (13, 33, 65), (49, 64, 70), (6, 16, 3)],
)
def test_sizes(m: int, n: int, k: int, target: Any) -> None:
    assert run(with_wishes(product(m, n, k), target), target) == "contract"


@TARGETS
@pytest.mark.parametrize("columns", [17, 18, 19, 21, 28, 31])
def test_columns_behind_the_last_panel(columns: int, target: Any) -> None:
    for right in (I8, I16):
        kernel = with_wishes(product(5, columns, 9, I8, right), target)
        assert run(kernel, target, extreme=True) == "contract"


@TARGETS
@pytest.mark.parametrize("rows", [1, 5, 17])
def test_open_sizes_and_two_activations(rows: int, target: Any) -> None:
    kernel = with_wishes(product("m", 24, 40), target)
    assert run(kernel, target, {"m": rows}) == "contract"
    for left, right in ((I8, UI8), (I8, I8)):
        kernel = with_wishes(product("m", "n", 39, left, right, constant=False), target)
        assert run(kernel, target, {"m": rows, "n": 2 * rows + 1}) == "contract"


@TARGETS
@pytest.mark.parametrize("left", [I8, I16], ids=lambda d: d.name)
def test_terms_apart(left: DType, target: Any) -> None:
    kernel = with_wishes(product(9, 20, 35, left, turned=True), target)
    assert run(kernel, target, extreme=True) == "contract"


@TARGETS
@pytest.mark.parametrize(("channels", "outputs"), [(3, 20), (32, 32), (1, 16)])
def test_convolution(channels: int, outputs: int, target: Any) -> None:
    text = CONVOLUTION.replace("O", str(outputs)).replace("C", str(channels))
    assert run(with_wishes(parse_kernel(text), target), target) == "convolution"


def test_pairs_of_terms_are_multiplied_by_one_instruction() -> None:
    """And nothing is multiplied one by one."""
    kernel = with_wishes(product(64, 64, 64), WORDS)
    listing = WORDS.listing("k", kernel)
    assert sum("vpmaddwd" in line and "%ymm" in line for line in listing.splitlines()) >= 24
    assert "vpmulld" not in listing
    assert "pmaddwd" in GENERIC.listing("k", with_wishes(product(64, 64, 64), GENERIC))


@pytest.mark.parametrize(
    ("features", "needed"),
    [
        (("avxvnni",), {"avxvnni"}),
        (("avx512bw", "avx512f", "avx512vl", "avx512vnni"), {"avx512vl", "avx512vnni"}),
    ],
    ids=lambda names: "",
)
def test_four_bytes_are_multiplied_by_one_instruction(
    features: tuple[str, ...], needed: set[str]
) -> None:
    """And the code says what it asks for; products of wider integers ask for nothing."""
    target = replace(WORDS, machine=replace(WORDS.machine, byte_features=features))
    kernel = with_wishes(product(64, 64, 64), target)
    listing = target.listing("k", kernel)
    assert sum("vpdpbusd" in line and "%ymm" in line for line in listing.splitlines()) >= 48
    code = target.translate("k", kernel)
    assert needed <= set(code.features)
    (launch,) = code.specialisations[0].launches
    assert launch.scratch_bytes.value == 0  # nothing is widened
    words = target.translate("k", with_wishes(product(64, 64, 64, I16), target))
    assert words.features == NATIVE.machine.features


def test_code_for_every_avx2_has_variants_that_multiply_bytes() -> None:
    """The best first, and the one that every AVX2 runs last; wider products have one alone."""
    made = NATIVE.translate("k", with_wishes(product(64, 64, 64), NATIVE))
    asked = [set(c.features) - set(NATIVE.machine.features) for c in (made, *made.others)]
    assert asked == [{"avx512bw", "avx512f", "avx512vl", "avx512vnni"}, {"avxvnni"}, set()]
    assert len({c.data for c in (made, *made.others)}) == 3
    assert not NATIVE.translate("k", with_wishes(product(64, 64, 64, I16), NATIVE)).others


def test_sums_that_wait_in_scratch_are_for_floats() -> None:
    """A long sum of integers stays in registers: its panels are a quarter as large."""
    kernel = with_wishes(product(64, 64, 4096), WORDS)
    (launch,) = WORDS.translate("k", kernel).specialisations[0].launches
    assert launch.scratch_bytes.value == 6 * 4096 * 2
    assert run(kernel, WORDS, extreme=True) == "contract"


def test_wide_integers_have_no_panels() -> None:
    wide = product(8, 32, 16)
    operands = [replace(o, dtype=I32) if o.name in "aw" else o for o in wide.operands]
    assert NATIVE.layout_wishes(replace(wide, operands=tuple(operands))) == {}
