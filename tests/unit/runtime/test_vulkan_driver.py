"""The Vulkan driver: choosing devices and variants, memory, hazards, control flow, layers."""

from __future__ import annotations

import itertools
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from vulkan_programs import doubling_loop

import headrace
from headrace.artifact import schema
from headrace.base.errors import HeadraceError
from headrace.runtime.drivers import vulkan_instance
from headrace.runtime.drivers.table import open_device
from headrace.runtime.drivers.vulkan_calls import VulkanCalls
from headrace.runtime.drivers.vulkan_commands import Hazards, Range
from headrace.runtime.drivers.vulkan_instance import find_device, missing
from headrace.runtime.drivers.vulkan_link import pick_variants

_REASON = missing()
needs_device = pytest.mark.skipif(bool(_REASON), reason=_REASON or "none")
ROOT = Path(__file__).parents[3]

# -- errors ------------------------------------------------------------------------------


def test_no_loader_is_told_with_the_cure(monkeypatch):
    vulkan_instance.loader.cache_clear()
    monkeypatch.setattr(vulkan_instance.ctypes, "CDLL", _refuse)
    with pytest.raises(HeadraceError, match=r"HR4030.*loader(.|\n)*help: on Debian") as found:
        vulkan_instance.loader()
    assert "libvulkan.so.1: cannot open" in str(found.value)
    vulkan_instance.loader.cache_clear()


def _refuse(name):
    raise OSError(f"{name}: cannot open")


@needs_device
def test_a_device_that_is_not_there_lists_those_that_are():
    with pytest.raises(HeadraceError, match=r"HR4031(.|\n)*none is called 'no such gpu'") as e:
        find_device("no such gpu")
    assert find_device().name in str(e.value)
    name = find_device().name
    assert find_device(name.upper()[:6]).name == name


def test_a_machine_without_a_device_is_told(monkeypatch):
    if not Path("/usr/lib/x86_64-linux-gnu/libvulkan.so.1").exists():
        pytest.skip("the Vulkan loader is not installed")
    command = [sys.executable, "-c", "import headrace; headrace.load('x.hrx', 'vulkan')"]
    command[2] = (
        "from headrace.runtime.drivers.table import open_device\n"
        "from headrace.base.errors import HeadraceError\n"
        "try: open_device('vulkan')\n"
        "except HeadraceError as e: print(e)"
    )
    done = subprocess.run(
        command,
        env={
            **os.environ,
            "VK_DRIVER_FILES": "/nowhere.json",
            "VK_ICD_FILENAMES": "/nowhere.json",
        },
        capture_output=True,
        text=True,
        check=True,
    )
    assert "HR4031" in done.stdout and "mesa-vulkan-drivers" in done.stdout


def test_threads_are_refused_for_a_gpu():
    with pytest.raises(HeadraceError, match=r"HR4035.*'vulkan' has no threads"):
        open_device("vulkan", threads=2)
    with pytest.raises(HeadraceError, match=r"HR4013.*'cpu:fast'"):
        open_device("cpu:fast")


def _program(*features: tuple[str, ...]) -> schema.Program:
    cases = (schema.Specialisation((), (schema.Launch("k"),)),)
    variants = tuple(
        schema.Variant("vulkan:1.3", "spirv", 0, needed, (cases,)) for needed in features
    )
    point = schema.EntryPoint("k", 0, ("wo",), 0)
    return schema.Program("vulkan", (), (schema.Executable("e", (point,), variants),))


@needs_device
def test_the_first_variant_that_fits_is_taken_and_missing_features_are_named():
    physical = replace(find_device(), features=("Int64", "gpu"))
    assert pick_variants(_program(("Float16",), ("gpu",), ()), physical) == (1,)
    assert pick_variants(_program(("Float16",), ()), physical) == (1,)
    with pytest.raises(HeadraceError, match=r"HR4002(.|\n)*it lacks Float64, Int8") as found:
        pick_variants(_program(("Int8", "Float64", "Int64"), ("Float16",)), physical)
    assert "it lacks Float16" in str(found.value)
    lacking = replace(physical, lacking=("timelineSemaphore",))
    assert lacking.lacking


# -- hazards -----------------------------------------------------------------------------


def test_barriers_stand_only_where_bytes_meet():
    a, b, rest = Range(1, 0, 64), Range(1, 64, 128), Range(2, 0, 64)
    hazards = Hazards()
    assert not hazards.needs_barrier((rest,), (a,))
    assert not hazards.needs_barrier((rest,), (b,))  # other bytes of the same buffer
    assert hazards.needs_barrier((a,), (Range(3, 0, 4),))  # read after write
    assert not hazards.needs_barrier((a,), ())  # two reads
    assert hazards.needs_barrier((), (Range(1, 60, 70),))  # write after read
    assert hazards.needs_barrier((), (b,))  # write after write


def test_a_barrier_is_wide_only_beside_copies():
    a, b = Range(1, 0, 64), Range(1, 64, 128)
    hazards = Hazards()
    assert not hazards.needs_barrier((a,), (b,))
    assert hazards.needs_barrier((b,), (a,)) and hazards.among_kernels
    assert hazards.needs_barrier((a,), (b,), copies=True) and not hazards.among_kernels
    assert hazards.needs_barrier((b,), (a,)) and not hazards.among_kernels
    assert hazards.needs_barrier((a,), (b,)) and hazards.among_kernels


# -- memory ------------------------------------------------------------------------------


@needs_device
def test_small_buffers_share_allocations_and_all_go_back():
    calls = VulkanCalls(find_device())
    heap = calls.heap
    small = [heap.buffer(5000 + 64 * n, "device", "a test") for n in range(50)]
    assert heap.allocations == 1
    places = sorted((b.offset_bytes, b.offset_bytes + b.taken_bytes) for b in small)
    assert all(end <= begin for (_, end), (begin, _) in itertools.pairwise(places))
    large = heap.buffer(5 << 20, "device", "a test")
    assert heap.allocations == 2
    heap.free(large)
    for buffer in small[::2] + small[1::2]:
        heap.free(buffer)
    assert heap.allocations == 0
    assert heap.buffer(0, "device", "nothing").handle == 0
    with pytest.raises(HeadraceError, match=r"HR3013.*for a test"):
        heap.buffer(1 << 50, "device", "a test")
    calls.close()
    calls.close()


# -- steps -------------------------------------------------------------------------------


@needs_device
@pytest.mark.parametrize("synchronous", ["0", "1"])
def test_a_loop_reads_its_condition_back(tmp_path, monkeypatch, synchronous):
    monkeypatch.setenv("HEADRACE_GPU_SYNCHRONOUS", synchronous)
    with headrace.load(doubling_loop(tmp_path / "m.hrx"), "vulkan") as module:
        x = np.arange(5, dtype=np.float32)
        for call, n in enumerate((0, 1, 5, 2)):
            doubled, count, told, pattern = module(np.int32(n), x)
            assert (doubled == x * 2**n).all() and count == n
            assert told == call + 1  # state is kept between steps
            assert pattern.tobytes() == b"\xcd\xab" * 3
        module.calibrate()


@needs_device
def test_a_step_whose_weights_stay_is_one_command_buffer(tmp_path):
    import onnx
    from tests.models import builders

    onnx.save(builders.mlp_chain(8, 512), tmp_path / "m.onnx")
    path = headrace.compile(tmp_path / "m.onnx", tmp_path / "m.hrx", targets=["vulkan"])
    x = np.random.default_rng(0).standard_normal((1, 512)).astype(np.float32)
    with headrace.load(path, "vulkan", weight_budget="max") as module:
        wanted = module(x)[0].copy()
        computed, copied = module.device.calls.computed, module.device.calls.copied
        before = computed.value, copied.value
        module(x)
        assert (computed.value, copied.value) == (before[0] + 1, before[1])
        module.weight_budget = "min"
        for _ in range(3):
            before = copied.value
            assert (module(x)[0] == wanted).all()
        plan = module.plan()
        assert copied.value - before == len(plan.fetches) > 4
        assert module.report().measured_stall_ns >= 0
        with module.trace() as trace:
            assert (module(x)[0] == wanted).all()
        brought = [e["args"]["copy"] for e in trace.events if e["cat"] == "copy"]
        ran = [e for e in trace.events if e["cat"] == "compute"]
        assert sorted(brought) == list(range(len(plan.fetches)))
        assert len(ran) == len(plan.commands)
        assert all(e["dur"] > 0 for e in trace.events)


# -- layers ------------------------------------------------------------------------------

_LAYERS = {
    "VK_INSTANCE_LAYERS": "VK_LAYER_KHRONOS_validation",
    "VK_LAYER_ENABLES": "VK_VALIDATION_FEATURE_ENABLE_SYNCHRONIZATION_VALIDATION_EXT",
}


def _under_validation(*command: str) -> str:
    """What a command prints under the Khronos layer with synchronization validation."""
    if not list(Path("/usr/share/vulkan/explicit_layer.d").glob("*validation*")):
        pytest.skip("the validation layer is not installed (vulkan-validationlayers)")
    done = subprocess.run(
        command,
        cwd=ROOT,
        env={**os.environ, **_LAYERS, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    return done.stdout + done.stderr


def _messages(text: str) -> list[str]:
    return [line for line in text.splitlines() if "VUID" in line or "SYNC-HAZARD" in line]


@needs_device
def test_the_driver_suite_draws_no_message_from_the_validation_layer():
    text = _under_validation(
        sys.executable, "-m", "pytest", "-v", "-s", "-p", "no:xdist",
        "tests/conformance/drivers", "-k", "vulkan",
    )  # fmt: skip
    assert " passed" in text and "skipped" not in text.lower()
    assert _messages(text) == []


_MODELS = """
import sys
import numpy as np
import onnx
import headrace
from inline_streamer import stream_inline
from tests.models import builders

folder, name = sys.argv[1:3]
make = {"mnist": builders.mnist_mlp, "resnet": lambda: builders.resnet50(size=32)}[name]
onnx.save(make(), folder + "/m.onnx")
path = headrace.compile(folder + "/m.onnx", folder + "/m.hrx", targets=["vulkan"])
for inline in (False, True):
    with headrace.load(path, "vulkan", weight_budget="max") as module:
        if inline:
            stream_inline(module.device)
        x = np.ones(module.inputs[0].shape, np.float32)
        for budget in ("max", "min"):
            module.weight_budget = budget
            module(x)
            module(x)
print("ran")
"""


@needs_device
@pytest.mark.parametrize("name", ["mnist", pytest.param("resnet", marks=pytest.mark.slow)])
def test_models_draw_no_message_from_the_validation_layer(name: str, tmp_path: Path) -> None:
    text = _under_validation(sys.executable, "-c", _MODELS, str(tmp_path), name)
    assert "ran" in text and _messages(text) == []


@needs_device
def test_the_layer_sees_a_barrier_that_is_missing(tmp_path):
    script = (
        "import sys, onnx, numpy, headrace\n"
        "from tests.models import builders\n"
        "from headrace.runtime.drivers.vulkan_commands import Hazards\n"
        "Hazards.needs_barrier = lambda *_, **__: False\n"
        "onnx.save(builders.mlp_chain(3, 64), sys.argv[1] + '/m.onnx')\n"
        "path = headrace.compile(sys.argv[1] + '/m.onnx', sys.argv[1] + '/m.hrx', targets=['vulkan'])\n"
        "with headrace.load(path, 'vulkan') as m: m(numpy.ones((1, 64), numpy.float32))\n"
    )
    text = _under_validation(sys.executable, "-c", script, str(tmp_path))
    assert any("SYNC-HAZARD-READ-AFTER-WRITE" in line or "SYNC-HAZARD-READ_AFTER_WRITE" in line
               for line in _messages(text))  # fmt: skip
