"""Weights read packed: the bits of the plain weight, in every generator; cuts by whole blocks."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from test_triton_naive import needs_interpreter, needs_triton

from headrace.base.bundle import split_code
from headrace.base.exponent_codes import ExponentCodes, most_escapes
from headrace.kernel.buffers import pack_operand
from headrace.kernel.description import Kernel
from headrace.kernel.interp import evaluate
from headrace.kernel.products import as_product
from headrace.kernel.text import parse_kernel, print_kernel
from headrace.kernel.verify import verify_kernel
from headrace.targets.triton import contract, naive, rows
from headrace.targets.triton.row_schedule import choose_schedule
from headrace.targets.triton.schedule import Tiles, packed_tiles
from headrace.targets.triton.target import make

K, N = 96, 70


def product(dtype: str, count: int | str, depth: int = K, columns: int = N) -> Kernel:
    dims = f" dims({count})" if isinstance(count, str) else ""
    return parse_kernel(
        f"""
kernel(%d0 = {count}, %d1 = {columns}){dims} {{
  ro x : {dtype}[{count}, {depth}]
  ro constant w : {dtype}[{depth}, {columns}] layout [1, {depth}] offset 0 size {depth * columns}
  wo y : f32[{count}, {columns}]
  local a : f32
  reduce(%r0 = {depth}) {{
    %v0 = load x[%d0, %r0]
    %v1 = convert(%v0) : f32
    %v2 = load w[%r0, %d1]
    %v3 = convert(%v2) : f32
    %v4 = multiply(%v1, %v3) : f32
    fold %v4 from 0.0 with add into a
  }}
  map() {{
    %v5 = read a[]
    store %v5 to y[%d0, %d1]
  }}
}}"""
    )


def packed(kernel: Kernel, codes: ExponentCodes) -> Kernel:
    x, w, y = kernel.operands
    return replace(kernel, operands=(x, replace(w, layout=replace(w.layout, codes=codes)), y))


def weights(dtype) -> np.ndarray:
    random = np.random.default_rng(4)
    values = random.standard_normal((K, N)) * 0.02
    # Escapes: too large, too small, zeros of both signs.
    values[random.random((K, N)) < 0.03] = 0.0
    values[3, 5], values[4, 5], values[5, 6], values[7, :] = 9.5, -1e-30, -0.0, 300.0
    return values.astype(dtype)


def both(dtype: str, count: int) -> tuple[Kernel, Kernel, list, list]:
    plain = product(dtype, count)
    x, w, _ = plain.operands
    array = weights(w.dtype.numpy_dtype)
    buffer = pack_operand(array, w, {})
    base = 108
    codes = ExponentCodes(K, base, most_escapes(buffer, base, K))
    assert codes.escapes > 3
    other = packed(plain, codes)
    inputs = np.random.default_rng(5).standard_normal((count, K)).astype(x.dtype.numpy_dtype)
    result = np.zeros(count * N, np.float32)
    first = [inputs.reshape(-1), buffer, result]
    second = [inputs.reshape(-1), pack_operand(array, other.operands[1], {}), result.copy()]
    return plain, other, first, second


@pytest.mark.parametrize("dtype", ["bf16", "f32"])
@pytest.mark.parametrize(
    ("count", "generate"),
    [(1, rows.generate), (20, contract.generate), (3, naive.generate)],
    ids=["rows", "contract", "naive"],
)
@needs_interpreter
@pytest.mark.filterwarnings("ignore")
def test_packed_weights_give_the_bits_of_plain_ones(dtype, count, generate) -> None:
    from interpret import run

    plain, other, first, second = both(dtype, count)
    run(plain, first, {}, generate)
    run(other, second, {}, generate)
    assert np.abs(first[2]).max() > 100
    if generate is rows.generate:
        # Escapes are added by themselves, behind all others.
        np.testing.assert_allclose(first[2], second[2], rtol=1e-5, atol=1e-4)
    else:
        assert first[2].tobytes() == second[2].tobytes()
    if (dtype, generate) == ("bf16", contract.generate):
        return  # the interpreter multiplies the bits of bf16 tiles, packed or not
    expected = [*second[:2], np.zeros_like(second[2])]
    evaluate(other, expected, {})
    np.testing.assert_allclose(second[2], expected[2], rtol=2e-2, atol=1e-2)


def special(depth: int, dtype) -> np.ndarray:
    """Weights with escapes of all kinds: many in a block, or none, side by side, at both ends."""
    random = np.random.default_rng(6)
    values = random.standard_normal((depth, N)) * 0.02
    values[random.random((depth, N)) < 0.01] = 0.0
    values[:, 8:40:3] = 0.02
    values[20:60, 11], values[0, 12], values[-1, 12] = 700.0, -1e-38, 1e38
    values[32:34, 13], values[35:37, 14], values[63, 15] = -0.0, 5.0, np.inf
    values[64, 16], values[-2:, 17], values[96:104, 69] = np.nan, -np.inf, -300.0
    return values.astype(dtype)


@pytest.mark.parametrize("dtype", ["bf16", "f32"])
@pytest.mark.parametrize("depth", [160, 256])
@pytest.mark.parametrize(
    "tiles", [Tiles(16, 32, 128), Tiles(32, 16, 64), Tiles(16, 64, 32)], ids=str
)
@needs_interpreter
@pytest.mark.filterwarnings("ignore")
def test_tiles_unpacked_in_words_give_the_bits_of_plain_ones(dtype, depth, tiles) -> None:
    from interpret import run

    rows = 21
    plain = product(dtype, "n", depth)
    x, w, _ = plain.operands
    array = special(depth, w.dtype.numpy_dtype)
    buffer = pack_operand(array, w, {})
    codes = ExponentCodes(depth, 108, most_escapes(buffer, 108, depth))
    assert codes.escapes > 39
    other = packed(plain, codes)
    inputs = np.random.default_rng(5).standard_normal((rows, depth))
    inputs = inputs.astype(x.dtype.numpy_dtype).reshape(-1)
    results = [np.zeros(rows * N, np.float32) for _ in range(2)]

    def generate(name: str, kernel: Kernel):
        made = contract.generate(name, kernel, tiles=tiles)
        assert ("while nearest" in made.text) == (kernel is other)
        # Weights are there before other launches end: only their lists are read before that.
        before = made.text.partition("gdc_wait")[0].count("tl.load(")
        assert before == (kernel is other)
        # The end of a last tile that is not whole: what is nowhere stays behind it.
        bounded = f"tl.minimum(depth + {tiles.depth}, {depth})" in made.text
        assert bounded == (kernel is other and depth % tiles.depth > 0)
        return made

    run(plain, [inputs, buffer, results[0]], {"n": rows}, generate)
    weight = pack_operand(array, other.operands[1], {})
    run(other, [inputs, weight, results[1]], {"n": rows}, generate)
    assert np.isnan(results[0]).any() and np.isinf(results[0]).any()
    np.testing.assert_array_equal(results[0], results[1])


@pytest.mark.parametrize(
    ("dtype", "beside", "depth"),
    [
        ("bf16", "bf16", 160),
        ("bf16", "bf16", 1120),
        ("bf16", "bf16", 2048),
        ("bf16", "f32", 1120),
        ("f32", "f32", 160),
    ],
)
@needs_interpreter
@pytest.mark.filterwarnings("ignore")
def test_one_row_meets_escapes_of_all_kinds_in_runs_of_any_length(dtype, beside, depth) -> None:
    from interpret import run

    kernel = product(dtype, 1, depth)
    x, w, y = kernel.operands
    kernel = replace(kernel, operands=(product(beside, 1, depth).operands[0], w, y))
    x = kernel.operands[0]
    array = special(depth, w.dtype.numpy_dtype)
    buffer = pack_operand(array, w, {})
    codes = ExponentCodes(depth, 108, most_escapes(buffer, 108, depth))
    other = packed(kernel, codes)
    # A zero meets an infinity: no number.
    inputs = np.random.default_rng(5).standard_normal(depth)
    inputs[[63, 64, -2, -1]] = 0.0, 2.0, 1.0, 1.0
    inputs = inputs.astype(x.dtype.numpy_dtype)
    weight = pack_operand(array, other.operands[1], {})
    buffers = [inputs, weight, np.zeros(N, np.float32)]

    def generate(name: str, kernel: Kernel):
        made = rows.generate(name, kernel)
        assert made is not None
        assert ("tl.uint64" in made.text) == (beside == dtype == "bf16")
        return made

    run(other, buffers, {}, generate)
    columns = array.astype(np.float64).T
    with np.errstate(invalid="ignore"):
        expected = columns @ inputs.astype(np.float64)
        size = np.abs(columns) @ np.abs(inputs.astype(np.float64))
    assert np.isnan(expected).any() and np.isinf(expected).any()
    finite = np.isfinite(expected)
    np.testing.assert_array_equal(buffers[2][~finite], expected[~finite].astype(np.float32))
    assert (np.abs(buffers[2] - expected)[finite] <= 1e-5 * size[finite]).all()


@needs_interpreter
@pytest.mark.filterwarnings("ignore")
def test_the_one_row_may_be_the_last_of_many() -> None:
    from interpret import run

    text = print_kernel(product("bf16", 1)).replace(f"x : bf16[1, {K}]", f"x : bf16[n, {K}]")
    text = text.replace("load x[%d0, ", "load x[(%d0 + n) - 1, ").replace(
        ") {", ") dims(n) {", 1
    )
    kernel = parse_kernel(text)
    _, alone, _, buffers = both("bf16", 1)
    other = packed(kernel, alone.operands[1].layout.codes)
    inputs = np.random.default_rng(7).standard_normal((3, K)).astype(buffers[0].dtype)
    many = [inputs.reshape(-1), buffers[1], buffers[2].copy()]
    buffers[0][:] = inputs[2]

    def generate(name: str, kernel: Kernel):
        made = rows.generate(name, kernel)
        assert made is not None and "tl.uint64" in made.text
        return made

    run(other, many, {"n": 3}, generate)
    run(alone, buffers, {}, generate)
    assert many[2].tobytes() == buffers[2].tobytes()


@pytest.mark.parametrize("rows", [8, 64, 128, 4096])
def test_a_packed_weight_is_unpacked_once_for_all_rows_that_are_few(rows) -> None:
    found = as_product(product("bf16", "n", 512, 4096))
    assert found is not None
    tiles = packed_tiles(found, rows)
    assert tiles.rows >= min(rows, 256)
    assert not tiles.descriptors and tiles.parts == 1


def test_what_is_wide_is_cut_otherwise_than_what_is_not() -> None:
    def wide(count: int | str, columns: int, depth: int) -> Kernel:
        kernel = product("bf16", count, depth, columns)
        return packed(kernel, ExponentCodes(depth, 108, 7))

    products = [as_product(wide("n", columns, 512)) for columns in (4096, 12288)]
    assert [packed_tiles(p, 128).columns for p in products if p is not None] == [32, 64]
    schedules = [choose_schedule(wide(1, columns, 4096)) for columns in (4096, 12288)]
    assert [(s.rows, s.lanes, s.warps) for s in schedules] == [(2, 2048, 2), (4, 1024, 2)]


def test_the_text_of_a_packed_kernel_reads_back() -> None:
    kernel = packed(product("bf16", 4), ExponentCodes(K, 108, 7))
    assert f"size {K * N} codes {K} 108 7" in print_kernel(kernel)
    assert parse_kernel(print_kernel(kernel)) == kernel
    verify_kernel(kernel)
    wrong = packed(product("f16", 4), ExponentCodes(K, 108, 7))
    with pytest.raises(Exception, match="packed, but its elements are f16"):
        verify_kernel(wrong)


@needs_interpreter
@pytest.mark.filterwarnings("ignore")
def test_an_infinity_meets_an_escape_and_no_zero() -> None:
    from interpret import run

    _, other, _, buffers = both("f32", 1)
    buffers[0][5] = np.inf
    expected = [*buffers[:2], np.zeros_like(buffers[2])]
    evaluate(other, expected, {})
    run(other, buffers, {}, rows.generate)
    finite = np.isfinite(expected[2])
    assert np.isinf(expected[2]).any()
    assert (np.isnan(buffers[2]) == np.isnan(expected[2])).all()
    np.testing.assert_allclose(buffers[2][finite], expected[2][finite], rtol=1e-5)


@pytest.mark.parametrize("count", [1, 64])
@needs_triton
def test_a_launch_is_cut_by_whole_blocks(count) -> None:
    plain = make("cuda:sm_90").translate("a", product("bf16", count))
    codes = ExponentCodes(K, 108, 7)
    code = make("cuda:sm_90").translate("a", packed(product("bf16", count), codes))
    assert all(c[:4] == b"\x7fELF" for c in split_code(code.data))
    for one, other in zip(plain.specialisations, code.specialisations, strict=True):
        for launch, cut in zip(one.launches, other.launches, strict=True):
            assert launch.slice is not None and cut.slice is not None
            columns = launch.slice.step_bytes.value // (2 * K)
            assert cut.slice.step_bytes.value == columns * codes.block_bytes(2)
