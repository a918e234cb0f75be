"""A kernel means what its text says."""

from __future__ import annotations

import kernel_examples as examples
import numpy as np
import pytest

from headrace.base.errors import HeadraceError
from headrace.kernel import interp
from headrace.kernel.buffers import pack_operand, unpack_operand
from headrace.kernel.interp import evaluate
from headrace.kernel.text import parse_kernel


def run(text, arrays, dims=None):
    kernel = parse_kernel(text)
    dims = dims or {}
    reads = iter(arrays)
    buffers = []
    for operand in kernel.operands:
        if operand.access == "ro":
            buffers.append(pack_operand(next(reads), operand, dims))
        else:
            buffers.append(
                np.zeros(operand.layout.size.evaluate(dims), operand.dtype.numpy_dtype)
            )
    evaluate(kernel, buffers, dims)
    return [unpack_operand(buffers[n], kernel.operands[n], dims) for n in kernel.outputs]


def random(*shape):
    return np.random.default_rng(0).standard_normal(shape).astype(np.float32)


def test_softmax_starts_its_sum_where_it_says():
    x = random(5, 10)
    e = np.exp(x - x.max(1, keepdims=True))
    (y,) = run(examples.SOFTMAX, [x], {"batch": 5})
    np.testing.assert_allclose(y, e / (0.5 + e.sum(1, keepdims=True)), rtol=1e-6)


def test_no_rows():
    (y,) = run(examples.SOFTMAX, [random(0, 10)], {"batch": 0})
    assert y.shape == (0, 10)


def convolution(x, w, b):
    padded = np.pad(x, ((0, 0), (0, 0), (1, 1), (1, 1)))
    out = np.zeros((2, 4, 5, 6))
    for h in range(5):
        for v in range(6):
            window = padded[:, :, 2 * h : 2 * h + 3, 2 * v : 2 * v + 3]
            out[:, :, h, v] = np.einsum("nihw,oihw->no", window, w)
    return np.maximum(out + b[None, :, None, None], 0)


@pytest.mark.parametrize("box", [1 << 22, 50, 1])
def test_convolution_in_boxes_of_any_size(box, monkeypatch):
    monkeypatch.setattr(interp, "_BOX_ELEMENTS", box)
    x, w, b = random(2, 3, 10, 12), random(4, 3, 3, 3), random(4)
    (y,) = run(examples.CONVOLUTION, [x, w, b])
    np.testing.assert_allclose(y, convolution(x, w, b), rtol=1e-4, atol=1e-5)


def test_a_reduction_carries_several_values():
    x = random(3, 7)
    x[1, 2] = x[1, 5] = 9
    (y,) = run(examples.ARGMAX, [x])
    assert y.tolist() == x.argmax(1).tolist()


def test_gather_clamps():
    ids, table = np.array([3, 25, -2]), random(20, 8)
    (y,) = run(examples.GATHER, [ids, table], {"seq": 3})
    assert (y == table[[3, 19, 0]]).all()


def test_array_locals():
    x = random(4, 6)
    centred = x - x.mean(1, keepdims=True)
    (y,) = run(examples.VARIANCE, [x])
    np.testing.assert_allclose(y, centred / x.std(1, keepdims=True), rtol=1e-5)


def test_layouts_and_halos():
    kernel = parse_kernel(examples.PADDED)
    x = random(2, 3)
    buffers = [pack_operand(x, kernel.operands[0], {}), np.zeros(24, np.float32)]
    assert (buffers[0] == x.T.reshape(-1)).all()
    evaluate(kernel, buffers, {})
    expected = np.pad(x, ((1, 1), (1, 2)), constant_values=-np.inf)
    assert (buffers[1].reshape(4, 6) == expected).all()


def test_a_read_outside_is_an_error():
    text = examples.PADDED.replace("load x[%d0, %d1]", "load x[%d0, %d1 + 2]")
    with pytest.raises(HeadraceError, match="operand 'x'"):
        run(text, [random(2, 3)])


@pytest.mark.parametrize(("count", "goes_on"), [(3, True), (9, True), (2, False)])
def test_a_loop_ends_by_its_condition_or_after_most_trips(count, goes_on):
    w, h = random(3, 5), random(5)
    state = [w.reshape(-1), h.copy(), np.array([count], np.int32), np.array([goes_on])]
    evaluate(parse_kernel(examples.LOOP), state, {})
    trips = min(count, 4) if goes_on else 0
    for _ in range(trips):
        h = np.tanh(h[:3] @ w + h)
    np.testing.assert_allclose(state[1], h, rtol=1e-5)
    assert state[2] == count - trips
    assert state[3] == (goes_on and count > 4)


def test_loops_nest():
    state = [np.array([n], np.int64) for n in (12, 0, 0)] + [np.array([True]), np.array([True])]
    evaluate(parse_kernel(examples.NESTED), state, {})
    assert state[1] == 6 + 3 + 1
    assert state[0] == 0
