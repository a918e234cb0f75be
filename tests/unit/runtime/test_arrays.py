"""Addresses of arrays."""

import ml_dtypes
import numpy as np
import pytest

from headrace.runtime.arrays import (
    LARGE_BYTES,
    SMALL_BYTES,
    address_of,
    aligned_array,
    array_maker,
)


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


@pytest.mark.parametrize("count", [0, 1, SMALL_BYTES, SMALL_BYTES + 1, LARGE_BYTES])
def test_a_maker_gives_a_fresh_array_each_time_a_large_one_aligned(count):
    make = array_maker((1, count), np.dtype(np.int8), recycles=True)
    first, second = make(), make()
    for array in (first, second):
        assert array.shape == (1, count) and array.dtype == np.int8
        assert array.flags.c_contiguous and array.flags.writeable
        assert count <= SMALL_BYTES or address_of(array) % 64 == 0
    assert not np.shares_memory(first, second)


def test_memory_of_a_large_array_is_used_again_once_nobody_has_any_of_it():
    make = array_maker((LARGE_BYTES // 4,), np.dtype(np.float32), recycles=True)
    first = make()
    place = address_of(first)
    view = first[5:].reshape(-1, 1)[::2]
    shared = memoryview(view)
    del first, view
    second = make()
    assert address_of(second) != place  # a view of a view of the first is still there
    shared.release()
    third = make()
    assert address_of(third) == place
    fourth = make()
    assert not any(np.shares_memory(fourth, other) for other in (second, third))


def test_at_most_two_are_kept():
    make = array_maker((LARGE_BYTES,), np.dtype(np.int8), recycles=True)
    arrays = [make() for _ in range(5)]
    places = {address_of(array) for array in arrays}
    assert len(places) == 5
    kept = {address_of(array) for array in arrays[3:]}
    del arrays
    assert {address_of(array) for array in [make(), make()]} == kept


def test_nothing_is_kept_where_it_would_count():
    make = array_maker((LARGE_BYTES,), np.dtype(np.int8), recycles=False)
    assert make.func is aligned_array
