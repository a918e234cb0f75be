"""One peer with one model, in a process of its own: the child of `speed.py`.

    python peer.py PEER MODEL FOLDER [--reuse]

Answers one JSON line when it is ready, and one for each line it reads: a number of calls to
time. It is stopped (SIGSTOP) while others run, so no pool of threads of it spins meanwhile.
Every peer has two threads and computes in f32.
"""

from __future__ import annotations

import os

# Numpy and all peers are measured as they come: see the note on OPENBLAS_CORETYPE.
os.environ.pop("OPENBLAS_CORETYPE", None)
os.environ.pop("OPENBLAS_L2_SIZE", None)
# Modules are kept compiled between processes, as they are for users.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
os.environ["OMP_NUM_THREADS"] = "2"

import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

from models import CACHES, MODELS, Arrays, Model, torch_network

THREADS = 2
IN_PLACE = "headrace, caches in place"
"""The peer that only models with caches have."""


@dataclass(frozen=True)
class Ready:
    """A peer that can be called.

    Attributes:
        call: one step; returns its outputs.
        compile_s: seconds from the model's file to something that can be loaded or called.
        version: of the library.
    """

    call: Callable[[], Any]
    compile_s: float | None
    version: str


def timed(make: Callable[[], Any]) -> tuple[Any, float]:
    start = time.perf_counter()
    made = make()
    return made, time.perf_counter() - start


def run(command: list[str], **environment: str) -> float:
    """Seconds that a command took; its errors end this process."""
    start = time.perf_counter()
    done = subprocess.run(
        command, env={**os.environ, **environment}, capture_output=True, text=True
    )
    if done.returncode:
        raise RuntimeError(done.stderr.strip().splitlines()[0][:300])
    return time.perf_counter() - start


# -- the peers -------------------------------------------------------------------------


def _compiled(source: Path, compiled: Path, reuse: bool, *options: str) -> float | None:
    """Compiles in a child; seconds, or None where what was there is taken."""
    command = [
        *(sys.executable, "-m", "headrace", "compile"),
        *(str(source), "--target", "cpu", "-o", str(compiled), *options),
    ]
    if reuse:
        run(command)  # with the user's cache: nothing to do where nothing changed
        return None
    with tempfile.TemporaryDirectory() as cold:
        return run(command, HEADRACE_CACHE_DIR=cold)


def _headrace(model: Model, folder: Path, suffix: str, inputs: Arrays, reuse: bool) -> Ready:
    source, compiled = folder / f"{model.name}{suffix}", folder / f"{model.name}{suffix}.hrx"
    seconds = _compiled(source, compiled, reuse)
    import headrace

    module = headrace.load(compiled, weight_budget="max", threads=THREADS)
    arrays = list(inputs.values())
    return Ready(lambda: module(*arrays), seconds, version("headrace"))


def headrace_onnx(model: Model, folder: Path, inputs: Arrays, reuse: bool) -> Ready:
    return _headrace(model, folder, ".onnx", inputs, reuse)


def headrace_stablehlo(model: Model, folder: Path, inputs: Arrays, reuse: bool) -> Ready:
    return _headrace(model, folder, ".mlir", model.stablehlo_inputs(inputs), reuse)


def headrace_in_place(model: Model, folder: Path, inputs: Arrays, reuse: bool) -> Ready:
    """The caches are given away: only their new rows are written."""
    source, compiled = folder / f"{model.name}.onnx", folder / f"{model.name}.in_place.hrx"
    aliases = [f"--alias={old}={new}" for old, new in CACHES.items()]
    seconds = _compiled(source, compiled, reuse, *aliases)
    import headrace
    from headrace.runtime.arrays import aligned_array

    module = headrace.load(compiled, weight_budget="max", threads=THREADS)
    arrays: list[Any] = []
    for array in inputs.values():
        arrays.append(aligned_array(array.shape, array.dtype))
        arrays[-1][...] = array
    return Ready(lambda: module(*arrays, donate=True), seconds, version("headrace"))


def onnxruntime(model: Model, folder: Path, inputs: Arrays, reuse: bool) -> Ready:
    import onnxruntime as ort

    options = ort.SessionOptions()
    options.intra_op_num_threads = THREADS
    options.inter_op_num_threads = 1
    session, seconds = timed(
        lambda: ort.InferenceSession(
            folder / f"{model.name}.onnx", options, providers=["CPUExecutionProvider"]
        )
    )
    return Ready(lambda: session.run(None, inputs), seconds, ort.__version__)


def openvino(model: Model, folder: Path, inputs: Arrays, reuse: bool) -> Ready:
    import openvino as ov

    options = {
        "INFERENCE_NUM_THREADS": THREADS,
        "PERFORMANCE_HINT": "LATENCY",
        "INFERENCE_PRECISION_HINT": "f32",
    }
    compiled, seconds = timed(
        lambda: ov.Core().compile_model(folder / f"{model.name}.onnx", "CPU", options)
    )
    request = compiled.create_infer_request()
    arrays = list(inputs.values())
    return Ready(
        lambda: request.infer(arrays, share_inputs=True, share_outputs=True),
        seconds,
        version("openvino"),
    )


def iree(model: Model, folder: Path, inputs: Arrays, reuse: bool) -> Ready:
    import iree.runtime as rt

    rt.flags.parse_flags(f"--task_topology_group_count={THREADS}")
    module, seconds = folder / f"{model.name}.vmfb", None
    if not (reuse and module.exists()):
        command = [
            str(Path(sys.executable).parent / "iree-compile"),
            str(folder / f"{model.name}.mlir"),
            "--iree-hal-target-device=local",
            "--iree-hal-local-target-device-backends=llvm-cpu",
            "--iree-llvmcpu-target-cpu=host",
            "--iree-opt-data-tiling",
            "--iree-llvmcpu-enable-ukernels=all",
            "--iree-global-opt-use-im2col-for-convs",
            *("-o", str(module)),
        ]
        seconds = run(command)
    config = rt.Config("local-task")
    context = rt.SystemContext(config=config)
    context.add_vm_module(rt.VmModule.mmap(context.instance, str(module)))
    (name,) = (n for n in context.modules if n != "hal")
    main = context.modules[name]["main"]
    arrays = list(model.stablehlo_inputs(inputs).values())

    def call() -> Any:
        made = main(*arrays)
        many = made if isinstance(made, (list, tuple)) else [made]
        return [output.to_host() for output in many]

    return Ready(call, seconds, version("iree-base-runtime"))


def _torch(model: Model, compiles: bool) -> Ready:
    import torch

    torch.set_num_threads(THREADS)
    network, example = torch_network(model)
    with torch.inference_mode():
        seconds = None
        if compiles:
            network = torch.compile(network)
            _, seconds = timed(lambda: network(*example))

    def call() -> Any:
        with torch.inference_mode():
            return network(*example)

    return Ready(call, seconds, torch.__version__)


def torch_eager(model: Model, folder: Path, inputs: Arrays, reuse: bool) -> Ready:
    return _torch(model, compiles=False)


def torch_compile(model: Model, folder: Path, inputs: Arrays, reuse: bool) -> Ready:
    return _torch(model, compiles=True)


PEERS: dict[str, Callable[[Model, Path, Arrays, bool], Ready]] = {
    "headrace": headrace_onnx,
    "headrace, StableHLO": headrace_stablehlo,
    IN_PLACE: headrace_in_place,
    "onnxruntime": onnxruntime,
    "OpenVINO": openvino,
    "IREE": iree,
    "torch eager": torch_eager,
    "torch.compile": torch_compile,
}


# -- the child's side ------------------------------------------------------------------


def peak_bytes() -> int:
    """The most memory this process had resident."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("VmHWM"))


def main() -> None:
    answer = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what libraries print is no answer

    def say(**fields: Any) -> None:
        print(json.dumps(fields), file=answer, flush=True)

    peer, name, folder, *reuse = sys.argv[1:]
    model = MODELS[name]
    try:
        ready = PEERS[peer](model, Path(folder), model.inputs(0), "--reuse" in reuse)
        _, first_s = timed(ready.call)
        _, second_s = timed(ready.call)
    except Exception as wrong:
        say(missing=f"{type(wrong).__name__}: {wrong}"[:300])
        return
    say(version=ready.version, compile_s=ready.compile_s, first_s=first_s, step_s=second_s)
    for line in sys.stdin:
        ready.call()
        say(times_s=[timed(ready.call)[1] for _ in range(int(line))], peak_bytes=peak_bytes())


if __name__ == "__main__":
    main()
