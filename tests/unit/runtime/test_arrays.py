"""Addresses of arrays."""

import ml_dtypes
import numpy as np
import pytest

from headrace.runtime.arrays import SMALL_BYTES, address_of, aligned_array, array_maker


@pytest.mark.parametrize("dtype", [np.float32, np.bool_, np.complex128, ml_dtypes.bfloat16])
def test_the_address_is_what_numpy_says(dtype):
    whole = np.zeros((4, 6), dtype)
    read_only = whole.copy()
    read_only.flags.writeable = False
    empty, scalar = np.zeros((0, 3), dtype), np.zeros((), dtype)
    matrix = whole.view(np.matrix)
    for array in (whole, whole[1:, 2:], whole[::-1], read_only, empty, scalar, matrix):
        assert address_of(array) == array.__array_interface__["data"][0]


def test_aligned_arrays_are():
    assert address_of(aligned_array((3, 5), np.dtype(np.int8))) % 64 == 0


@pytest.mark.parametrize("count", [0, 1, SMALL_BYTES, SMALL_BYTES + 1])
def test_a_maker_gives_a_fresh_array_each_time_a_large_one_aligned(count):
    make = array_maker((1, count), np.dtype(np.int8))
    first, second = make(), make()
    for array in (first, second):
        assert array.shape == (1, count) and array.dtype == np.int8
        assert array.flags.c_contiguous and array.flags.writeable
        assert count <= SMALL_BYTES or address_of(array) % 64 == 0
    assert not np.shares_memory(first, second)
