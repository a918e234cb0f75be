"""Matrices as parameters of a kernel, with the driver's library played by a function."""

from __future__ import annotations

import ctypes
from types import SimpleNamespace

import pytest

from headrace.artifact.schema import TensorMap
from headrace.base.errors import HeadraceError
from headrace.base.symbols import as_expr, parse_expr
from headrace.runtime.drivers import cuda_tensor_map
from headrace.runtime.drivers.cuda_commands import Parameters
from headrace.runtime.drivers.cuda_tensor_map import matrix


def encode(made, kind, rank, address, sizes, strides, box, steps, *rest):
    assert ctypes.addressof(made) % 64 == 0
    if address.value % 16:
        return 1
    made[:8] = [kind, rank, address.value, *sizes, *strides, *box]
    return 0


def _map(rows):
    return TensorMap(0, 0x80, parse_expr(rows), as_expr(40), 96, (64, 32), 2)


@pytest.fixture(autouse=True)
def library(monkeypatch):
    found = SimpleNamespace(cuTensorMapEncodeTiled=encode)
    monkeypatch.setattr(cuda_tensor_map, "_library", lambda: found)


def test_a_matrix_stands_behind_the_words():
    given = matrix(_map("rows"), 0xF80, {"rows": 70})
    assert list(given.tensor_map)[:8] == [1, 2, 0x1000, 40, 70, 96, 32, 64]
    parameters = Parameters([7, 8], [1, 2, 3], [given])
    places = (ctypes.c_uint64 * 12).from_address(parameters.address)
    words = [ctypes.c_uint32.from_address(p).value for p in places[2:5]]
    sizes = [ctypes.c_uint32.from_address(p).value for p in places[6:8]]
    wide = [ctypes.c_uint64.from_address(p).value for p in (*places[:2], *places[8:])]
    assert words == [1, 2, 3] and sizes == [70, 40]
    assert places[5] == ctypes.addressof(given.tensor_map)
    assert wide == [7, 8, 48, 1, 0, 0]


def test_what_the_driver_refuses_is_said():
    with pytest.raises(HeadraceError, match=r"cuTensorMapEncodeTiled[^$]*70 x 40 at 0x1004"):
        matrix(_map("70"), 0xF84, {})
