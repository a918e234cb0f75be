"""Addresses of arrays."""

import ml_dtypes
import numpy as np
import pytest

from headrace.runtime.arrays import address_of, aligned_array


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
