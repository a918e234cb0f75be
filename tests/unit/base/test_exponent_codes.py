"""Packed weights come back bit for bit, whatever their bits are."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from headrace.base.exponent_codes import (
    MOST_BASE,
    ExponentCodes,
    best_base,
    decode,
    encode,
    histogram,
    most_escapes,
)

BLOCK = 1024


def fitted(array, block=BLOCK) -> ExponentCodes:
    base = best_base(histogram(array))
    return ExponentCodes(block, base, most_escapes(array, base, block))


def bits(array):
    return array.reshape(-1).view(np.uint16 if array.itemsize == 2 else np.uint32)


@pytest.mark.parametrize("dtype", [ml_dtypes.bfloat16, np.float32])
@pytest.mark.parametrize("tails", [False, True])
def test_values_come_back_and_take_less(dtype, tails):
    random = np.random.default_rng(0)
    values = random.standard_normal(64 * BLOCK) * 0.02
    if tails:
        values /= np.abs(random.standard_normal(values.size)) + 0.05
    values[[0, 1, 5000]] = 0.0, -0.0, np.nan
    values[[7, 9]] = np.inf, 1e-40
    array = values.astype(dtype)
    codes = fitted(array)
    packed = encode(array, codes)
    assert packed.dtype == np.uint8
    assert packed.size == codes.packed_bytes(array.size, array.itemsize)
    assert (decode(packed, codes, array.itemsize) == bits(array)).all()
    assert packed.size < (0.78 if array.itemsize == 2 else 0.9) * array.nbytes


def test_every_pattern_of_16_bits_comes_back():
    # Shuffled, a block of 128 values has escapes of all kinds and room for all of them.
    patterns = np.random.default_rng(1).permutation(1 << 16).astype(np.uint16)
    array = patterns.view(ml_dtypes.bfloat16)
    for base in (0, 100, MOST_BASE):
        codes = ExponentCodes(128, base, 128)
        assert (decode(encode(array, codes), codes, 2) == patterns).all()


def test_a_run_of_whole_blocks_unpacks_alone():
    array = np.random.default_rng(2).standard_normal(8 * BLOCK).astype(np.float32)
    codes = fitted(array)
    packed, size = encode(array, codes), codes.block_bytes(4)
    part = decode(packed[2 * size : 5 * size], codes, 4)
    assert (part == bits(array)[2 * BLOCK : 5 * BLOCK]).all()
    assert size % 16 == 0


def test_more_escapes_than_room_is_refused():
    array = np.zeros(BLOCK, ml_dtypes.bfloat16)
    with pytest.raises(ValueError, match="a block has 1024 escapes, not 3"):
        encode(array, ExponentCodes(BLOCK, 100, 3))
    with pytest.raises(ValueError, match="no whole blocks"):
        encode(array[:100], ExponentCodes(BLOCK, 0, 3))


def test_the_window_is_where_most_values_are():
    counts = np.zeros(256, np.int64)
    counts[110:125] = 10
    counts[90:105] = 9
    assert best_base(counts) == 110
