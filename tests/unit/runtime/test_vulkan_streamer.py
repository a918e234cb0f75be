"""The kernels that bring weights beside a step, as far as one queue can show them.

Mesa's lavapipe has one queue: here each side runs when what it waits for is there already.
What both do at the same time is shown by `test_gates.py` without a device, and by the tests
on a GPU.
"""

from __future__ import annotations

import ctypes

import numpy as np
import pytest
from inline_streamer import InlineStreamer, stream_inline

import headrace
from headrace.base.errors import HeadraceError
from headrace.runtime.drivers import vulkan_weights
from headrace.runtime.drivers.gates import Gate, Gated, Row
from headrace.runtime.drivers.vulkan_calls import VulkanCalls
from headrace.runtime.drivers.vulkan_instance import find_device, missing
from headrace.runtime.drivers.vulkan_streamer import Streamer, stream_code, stream_ns

_REASON = missing()
pytestmark = pytest.mark.skipif(bool(_REASON), reason=_REASON or "none")


@pytest.fixture
def calls():
    opened = VulkanCalls(find_device())
    yield opened
    opened.finish()
    opened.close()


@pytest.fixture(scope="module")
def chain(tmp_path_factory):
    import onnx
    from tests.models import builders

    folder = tmp_path_factory.mktemp("chain")
    onnx.save(builders.mlp_chain(8, 512), folder / "m.onnx")
    path = headrace.compile(folder / "m.onnx", folder / "m.hrx", targets=["vulkan"])
    return np.random.default_rng(0).standard_normal((1, 512)).astype(np.float32), path


def _gate(calls, streamer, gate, ends=False):
    command = calls.begin()
    streamer.record_gate(command, gate, ends)
    calls.end(command)
    calls.run(command)
    calls.free_command(command)


def test_transfers_land_once_their_places_are_free(calls):
    sizes = (4096, 65536, 12288, 4096, 40960)
    heap, total = calls.heap, sum(sizes)
    source, target = (
        heap.buffer(total, "upload", "a test"),
        heap.buffer(total, "near", "a test"),
    )
    data = np.random.default_rng(0).integers(0, 256, total, np.uint8)
    ctypes.memmove(source.address, data.ctypes.data, total)
    begins = np.cumsum((0, *sizes[:-1])).tolist()
    places = [
        (calls.address(source) + total - b - s, calls.address(target) + b, s)
        for b, s in zip(begins, sizes, strict=True)
    ]
    wanted = b"".join(
        data[total - b - s : total - b].tobytes() for b, s in zip(begins, sizes, strict=True)
    )
    gated = Gated(
        tuple(Row(n, release) for n, release in enumerate((0, 0, 2, 3, 7))), 0, (), (), ()
    )
    code = stream_code(calls)
    streamer = Streamer(calls, code, gated, places, commands=7, polls=2000)
    for _ in range(2):
        streamer.reset(())
        for _ in range(3):
            ctypes.memset(target.address, 0, total)
            _gate(calls, streamer, Gate(7))  # all places are free
            streamer.start()
            _gate(calls, streamer, Gate(0, 4), ends=True)
            assert not streamer.has_failed
            assert ctypes.string_at(target.address, total) == wanted
    assert stream_ns(calls, code, places[0][:2], 2, 4096, 1) > 0
    streamer.close()
    code.close()
    for buffer in (source, target):
        heap.free(buffer)
    assert heap.allocations == 0


def test_a_gate_gives_up_on_what_never_comes(calls):
    code = stream_code(calls)
    streamer = Streamer(
        calls, code, Gated((Row(0, 0),), 0, (), (), ()), [(0, 0, 0)], 1, polls=500
    )
    streamer.reset(())
    _gate(calls, streamer, Gate(1, 0))
    assert streamer.has_failed
    with pytest.raises(HeadraceError, match=r"HR4036.*side by side"):
        streamer.check()
    streamer.check()
    # What has come lets it pass.
    streamer.reset(())
    streamer.start()
    _gate(calls, streamer, Gate(1, 0))
    assert not streamer.has_failed
    streamer.close()
    code.close()


@pytest.mark.parametrize("share", [0, 0.1, 0.3, 0.6, 0.9])
def test_a_step_is_one_command_buffer_with_gates(chain, monkeypatch, share):
    x, path = chain
    monkeypatch.setattr(vulkan_weights, "streamer_of", InlineStreamer)
    with headrace.load(path, "vulkan", weight_budget="max") as module:
        wanted = module(x)[0].copy()
        calls = module.device.calls
        stream_inline(module.device)
        least, most = module.minimum_weight_budget, module.stored_bytes
        module.weight_budget = int(least + share * (most - least))
        assert module.plan().fetches
        for steps in range(4):
            computed = calls.computed.value
            assert (module(x)[0] == wanted).all()
            assert calls.computed.value == computed + (1 if steps else 2)
        assert module.weights.streamer.starts == 4
        with module.session() as other:  # its commands meet the same transfers
            assert (other(x)[0] == wanted).all()
            assert (module(x)[0] == wanted).all()
        assert module.weights.streamer.starts == 6
        module.calibrate()
        assert (module(x)[0] == wanted).all()
        module.weight_budget = "max"
        assert (module(x)[0] == wanted).all()
