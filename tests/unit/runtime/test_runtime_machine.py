"""The command machine itself: chunks, built-in kernels, control flow, interrupts, forks."""

from __future__ import annotations

import ctypes
import os
import signal
import struct
import subprocess
import sys
import textwrap
import threading
import time
from pathlib import Path

import numpy as np
import pytest
from runtime_models import compiled

from headrace.plan.model import Address, PlannedFill
from headrace.runtime.drivers import cpu_machine
from headrace.runtime.drivers import cpu_machine_layout as layout
from headrace.runtime.drivers.cpu_chains import Chain
from headrace.runtime.drivers.cpu_commands import (
    Bases,
    CommandBuilder,
    chunk_count,
    command,
)
from headrace.runtime.drivers.cpu_machine import RunContext, load_objects, machine
from headrace.runtime.drivers.cpu_machine_layout import Context, Operation

COUNT_IR = """
; counts[tile] += 1 for its tiles; also adds 1 to this worker's scratch.
define void @count(ptr %args, i64 %begin, i64 %end, ptr %scratch) {
entry:
  %counts = load ptr, ptr %args
  %none = icmp eq ptr %scratch, null
  br i1 %none, label %loop, label %mark
mark:
  %old.mark = load i64, ptr %scratch
  %new.mark = add i64 %old.mark, 1
  store i64 %new.mark, ptr %scratch
  br label %loop
loop:
  %t = phi i64 [ %begin, %entry ], [ %begin, %mark ], [ %t.next, %one ]
  %more = icmp ult i64 %t, %end
  br i1 %more, label %one, label %out
one:
  %at = getelementptr i32, ptr %counts, i64 %t
  %old = load i32, ptr %at
  %new = add i32 %old, 1
  store i32 %new, ptr %at
  %t.next = add i64 %t, 1
  br label %loop
out:
  ret void
}

@ticket = global i32 0

; A number for each of its tiles, counted in the order in which they are run.
define void @take(ptr %args, i64 %begin, i64 %end, ptr %scratch) {
entry:
  %places = load ptr, ptr %args
  br label %loop
loop:
  %t = phi i64 [ %begin, %entry ], [ %t.next, %one ]
  %more = icmp ult i64 %t, %end
  br i1 %more, label %one, label %out
one:
  %at = getelementptr i32, ptr %places, i64 %t
  %number = atomicrmw add ptr @ticket, i32 1 seq_cst
  store i32 %number, ptr %at
  %t.next = add i64 %t, 1
  br label %loop
out:
  ret void
}

; Takes 1 from the counter at args[0]; the byte at args[1] tells whether any is left.
define void @step_down(ptr %args, i64 %begin, i64 %end, ptr %scratch) {
  %counter = load ptr, ptr %args
  %flag.at = getelementptr i64, ptr %args, i64 1
  %flag = load ptr, ptr %flag.at
  %old = load i64, ptr %counter
  %new = sub i64 %old, 1
  store i64 %new, ptr %counter
  %left = icmp ne i64 %new, 0
  %byte = zext i1 %left to i8
  store i8 %byte, ptr %flag
  ret void
}
"""


@pytest.fixture(scope="module")
def kernels():
    engine = load_objects([compiled(COUNT_IR)])
    return {
        name: engine.get_function_address(name) for name in ("count", "take", "step_down")
    } | {"engine": engine}


def builder(slab: int = 0, threads: int = 2) -> CommandBuilder:
    return CommandBuilder(Bases(slab, 0, ()), threads)


def run(built: CommandBuilder, threads: int = 2, context: RunContext | None = None) -> int:
    machine().want_threads(threads)
    context = context or RunContext(threads)
    commands, kept = built.finish()
    with machine().lock:
        status = machine().run(commands, context.address)
    del kept
    return status


@pytest.mark.parametrize("threads", [1, 2, 5])
@pytest.mark.parametrize(("tiles", "chunks"), [(1, 1), (7, 7), (1000, 16), (33, 5), (3, 2)])
def test_every_tile_runs_once(kernels, threads, tiles, chunks):
    counts = np.zeros(tiles, np.int32)
    place = counts.__array_interface__["data"][0]
    built = builder(place)
    for _ in range(3):
        built.dispatch(
            kernels["count"], built.block([Address("slab", 0)], b""), tiles, chunks, (0, 0), 0
        )
    assert run(built, threads) == layout.STATUS_FINISHED
    assert (counts == 3).all()


def chain(
    kernels: dict[str, int],
    place: int,
    slices: list[tuple[int, int, int, tuple[int, ...]]],
    threads: int,
    kernel: str,
) -> tuple[CommandBuilder, RunContext]:
    """Slices of (tiles, chunks, turns beside it, commands beside which its weights come).

    Tiles and turns stand at `place` in order, 4 bytes each.
    """
    built = builder(place, threads)
    context = RunContext(threads)
    found = Chain(built, machine().kernels, context.address, (0, 0), 0)
    at = 0
    for command_number, (tiles, chunks, turns, brought) in enumerate(slices):
        inner = built.block([Address("slab", 4 * at)], b"")
        at += tiles
        sides: list[tuple[int, int]] = []
        for _ in range(turns):
            sides.append((kernels[kernel], built.block([Address("slab", 4 * at)], b"")))
            at += 1
        found.add(command_number, kernels[kernel], inner, tiles, chunks, sides, brought)
    found.finish()
    return built, context


@pytest.mark.parametrize("threads", [1, 2, 5])
@pytest.mark.parametrize(
    "slices",
    [
        [(7, 4, 2, ())],
        [(1, 1, 1, ())],
        [(3, 3, 1, ()), (3, 3, 2, (0,)), (3, 3, 2, (1,)), (3, 3, 1, (2,))],
        [(1000, 16, 0, ()), (1, 1, 0, ()), (33, 5, 2, ())],
    ],
)
def test_every_tile_and_turn_of_a_chain_runs_once(kernels, threads, slices):
    counts = np.zeros(sum(tiles + turns for tiles, _, turns, _ in slices), np.int32)
    place = counts.__array_interface__["data"][0]
    built, context = chain(kernels, place, slices, threads, "count")
    assert run(built, threads, context) == layout.STATUS_FINISHED
    assert run(built, threads, context) == layout.STATUS_FINISHED
    assert (counts == 2).all()


@pytest.mark.parametrize("threads", [1, 2, 5])
def test_a_turn_waits_for_the_slice_before_and_is_waited_for(kernels, threads):
    slices = [(3, 3, 1, ()), *((3, 3, 2, (n,)) for n in range(50))]
    memory = np.zeros(sum(tiles + turns for tiles, _, turns, _ in slices), np.int32)
    place = memory.__array_interface__["data"][0]
    built, context = chain(kernels, place, slices, threads, "take")
    assert run(built, threads, context) == layout.STATUS_FINISHED
    at = 0
    before: list[int] = []
    turn: list[int] = []
    for number, (tiles, _, turns, _) in enumerate(slices):
        own = memory[at : at + tiles].tolist()
        turns_own = memory[at + tiles : at + tiles + turns].tolist()
        at += tiles + turns
        if number:
            assert max(turn) < min(own)
            assert max(before) < min(turns_own)
        assert turns_own == sorted(turns_own)
        before, turn = [*own, *turns_own], turns_own


def test_a_failure_in_a_turn_ends_the_chain(kernels):
    built = builder(0, 2)
    context = RunContext(2)
    found = Chain(built, machine().kernels, context.address, (0, 0), 0)
    bad = struct.pack("<7Q", 1, 4096, 1 << 20, context.address, 4096, 2, 0)
    counts = np.zeros(64, np.int32)
    inner = built.block((), struct.pack("<Q", counts.__array_interface__["data"][0]))
    sides = [(machine().kernels.advise, built.block((), bad))]
    found.add(0, kernels["count"], inner, 64, 64, sides, ())
    found.add(1, kernels["count"], inner, 64, 64, sides, (0,))
    found.finish()
    assert run(built, 2, context) == layout.STATUS_FAILED_CALL


def test_no_worker_beyond_the_limit_runs(kernels):
    """Scratch is sized for the threads asked for; a larger pool must keep out of it."""
    run(builder(), 6)
    counts = np.zeros(400, np.int32)
    scratch = np.zeros((6, 8), np.int64)
    built = builder(counts.__array_interface__["data"][0])
    place = scratch.__array_interface__["data"][0]
    for _ in range(200):
        built.dispatch(
            kernels["count"], built.block([Address("slab", 0)], b""), 400, 40, (place, 64), 0
        )
    assert run(built, 2) == layout.STATUS_FINISHED
    assert (counts == 200).all()
    assert scratch[:2, 0].sum() == 200 * 40
    assert (scratch[2:] == 0).all()


@pytest.mark.parametrize("size", [0, 1, 7, 8, 65536, 65537, 300_001])
@pytest.mark.parametrize(
    ("pattern", "width"), [(0xAB, 1), (0x1234, 2), (0x3F800001, 4), (1, 8)]
)
def test_fill_repeats_the_pattern(size, pattern, width):
    from headrace.runtime.drivers.cpu_commands import _add_built_in, _eight_bytes

    data = np.full(size + 16, 0xEE, np.uint8)
    built = builder(data.__array_interface__["data"][0])
    fill = PlannedFill(Address("slab", 8), size, pattern, width)
    tail = struct.pack("<Q", size) + _eight_bytes(fill)
    _add_built_in(built, machine().kernels.fill, [fill.target], tail, fill, 0)
    assert run(built) == layout.STATUS_FINISHED
    one = np.frombuffer(pattern.to_bytes(width, "little"), np.uint8)
    assert (data[8 : 8 + size] == np.resize(one, size)).all()
    assert (data[:8] == 0xEE).all() and (data[8 + size :] == 0xEE).all()


def test_a_branch_and_a_jump_make_a_loop(kernels):
    memory = np.zeros(4, np.int64)
    memory[0], memory[1] = 5, 1
    counts = np.zeros(1, np.int32)
    place = memory.__array_interface__["data"][0]
    built = builder(place)
    count_place = counts.__array_interface__["data"][0] - place
    built.mark()  # 0: leave the loop where the flag is 0
    built.branch(Address("slab", 8), 4)
    built.mark()  # 1
    built.dispatch(
        kernels["count"], built.block([Address("slab", count_place)], b""), 1, 1, (0, 0), 0
    )
    built.mark()  # 2
    block = built.block([Address("slab", 0), Address("slab", 8)], b"")
    built.dispatch(kernels["step_down"], block, 1, 1, (0, 0), 0)
    built.mark()  # 3
    built.jump(0)
    assert run(built) == layout.STATUS_FINISHED
    assert counts[0] == 5 and memory[0] == 0


def test_a_failed_madvise_stops_the_run(kernels):
    counts = np.zeros(1, np.int32)
    built = builder(counts.__array_interface__["data"][0])
    context = RunContext(2)
    block = struct.pack("<4Q", 4096, 4096, 22, context.address)  # nothing is mapped there
    built.fetch(machine().kernels.advise, built.block((), block), 0, 0, 0)
    built.dispatch(kernels["count"], built.block([Address("slab", 0)], b""), 1, 1, (0, 0), 0)
    commands, kept = built.finish()
    with machine().lock:
        status = machine().run(commands, context.address)
    assert status == layout.STATUS_FAILED_CALL
    assert context.words[Context.FAILED_ADDRESS] == 4096
    assert os.strerror(context.words[Context.ERROR_NUMBER])
    assert counts[0] == 0
    del kept


def test_commands_have_eight_words():
    assert len(command(Operation.JUMP, -64)) == layout.COMMAND_BYTES
    assert struct.unpack("<8q", command(Operation.JUMP, -64))[1] == -64


def test_chunks_follow_time_and_tiles():
    assert chunk_count(1, 8, 10**9) == 1
    assert chunk_count(100, 2, 1000) == 1
    assert chunk_count(100, 2, 0) == 16
    assert chunk_count(10**9, 4096, 0) == 4096 * 8
    assert chunk_count(10**9, 65535, 10**12) == 65535
    assert chunk_count(1000, 2, 8_000) == 8


def test_a_damaged_cached_object_is_compiled_again(tmp_path, monkeypatch):
    monkeypatch.setenv("HEADRACE_CACHE_DIR", str(tmp_path))
    first = cpu_machine._machine_object()
    (kept,) = tmp_path.iterdir()
    data = bytearray(kept.read_bytes())
    data[len(data) // 2] ^= 0xFF
    kept.write_bytes(bytes(data))
    assert cpu_machine._machine_object() == first
    assert kept.read_bytes() != bytes(data)


def test_a_cache_that_cannot_be_written_is_no_error(tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("HEADRACE_CACHE_DIR", str(tmp_path / "file" / "below"))
    assert len(cpu_machine._machine_object()) > 1000


def test_a_forked_child_has_a_pool_of_its_own(kernels):
    """The child has no threads but its own; its runs must not wait for the parent's."""
    code = textwrap.dedent("""
        import os, sys, time
        sys.path.insert(0, sys.argv[1])
        import numpy as np
        from test_runtime_machine import COUNT_IR, builder, run, load_objects, compiled, Address
        engine = load_objects([compiled(COUNT_IR)])
        count = engine.get_function_address("count")
        def work():
            counts = np.zeros(64, np.int32)
            built = builder(counts.__array_interface__["data"][0])
            for _ in range(50):
                built.dispatch(count, built.block([Address("slab", 0)], b""), 64, 16, (0, 0), 0)
            return run(built) == 0 and (counts == 50).all()
        assert work()
        child = os.fork()
        if child == 0:
            os._exit(0 if work() else 3)
        _, status = os.waitpid(child, 0)
        assert work()
        sys.exit(os.waitstatus_to_exitcode(status))
    """)
    here = str(Path(__file__).parent)
    done = subprocess.run([sys.executable, "-c", code, here], timeout=60, check=False)
    assert done.returncode == 0


LONG_STEP = textwrap.dedent("""
    import sys, time
    sys.path.insert(0, sys.argv[1])
    from test_runtime_machine import builder, run, load_objects, compiled, Address
    SPIN = '''
    define void @spin(ptr %args, i64 %begin, i64 %end, ptr %scratch) {
    entry:
      br label %loop
    loop:
      %i = phi i64 [ 0, %entry ], [ %next, %loop ]
      call void @llvm.x86.sse2.pause()
      %next = add i64 %i, 1
      %more = icmp ult i64 %next, 1000000
      br i1 %more, label %loop, label %out
    out:
      ret void
    }
    declare void @llvm.x86.sse2.pause()
    '''
    engine = load_objects([compiled(SPIN)])
    built = builder()
    for _ in range(2000):
        built.dispatch(engine.get_function_address("spin"), built.block([], b""), 8, 8, (0, 0), 0)
    from headrace.runtime.drivers.cpu_machine import machine, RunContext
    from headrace.runtime.drivers.cpu_machine_layout import Context
    machine().want_threads(2)
    context = RunContext(2)
    context.words[Context.CATCH] = 1
    commands, kept = built.finish()
    print("running", flush=True)
    try:
        with machine().lock:
            status = machine().run(commands, context.address)
        time.sleep(60)
    except KeyboardInterrupt:
        print("interrupted", flush=True)
    # Python's own handler is back in place.
    import signal
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    try:
        print("waiting", flush=True)
        time.sleep(60)
    except KeyboardInterrupt:
        print("again", flush=True)
""")


def test_an_interrupt_stops_a_long_step_at_once():
    here = str(Path(__file__).parent)
    process = subprocess.Popen(
        [sys.executable, "-c", LONG_STEP, here], stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    # A step that does not stop must not stop the tests.
    limit = threading.Timer(60, process.kill)
    limit.start()
    assert process.stdout.readline() == "running\n"
    time.sleep(0.3)
    start = time.monotonic()
    process.send_signal(signal.SIGINT)
    assert process.stdout.readline() == "interrupted\n"
    # The whole run would take minutes.
    assert time.monotonic() - start < 10
    assert process.stdout.readline() == "waiting\n"
    time.sleep(0.2)
    process.send_signal(signal.SIGINT)
    assert process.stdout.readline() == "again\n"
    assert process.wait(timeout=30) == 0
    limit.cancel()


def test_the_address_of_a_context_is_aligned():
    assert RunContext().address % 64 == 0
    assert ctypes.sizeof(ctypes.c_uint64) * layout.CONTEXT_WORDS >= 8 * (max(Context) + 1)


INTERRUPTED_MODULE = textwrap.dedent("""
    import signal, sys, threading, time, os
    sys.path.insert(0, sys.argv[1])
    import numpy as np
    from pathlib import Path
    from runtime_programs import doubling_loop
    from headrace.runtime.module import load_module
    module = load_module(doubling_loop(Path(sys.argv[2]) / "loop.hrx", 4096))
    x = np.ones(4096, np.float32)
    start = time.monotonic()
    module(x, 1 << 14)
    two_seconds = round((1 << 15) / (time.monotonic() - start))
    def later():
        time.sleep(0.3)
        os.kill(os.getpid(), signal.SIGINT)
    for own_handler in (False, True):
        threading.Thread(target=later).start()
        if own_handler:
            signal.signal(signal.SIGINT, lambda *_: print("mine", flush=True))
        try:
            module(x, two_seconds if own_handler else 1 << 40)
            print("finished", flush=True)
        except KeyboardInterrupt:
            print("stopped", flush=True)
    assert (module(x, 3)[0] == 1008).all()
""")


def test_a_module_goes_on_after_an_interrupt_and_respects_handlers(tmp_path):
    here = str(Path(__file__).parent)
    done = subprocess.run(
        [sys.executable, "-c", INTERRUPTED_MODULE, here, str(tmp_path)],
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == ["stopped", "mine", "finished"]
