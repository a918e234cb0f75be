"""The CPU command machine of this process: compiled once, kept on disk, started lazily.

`machine()` returns it. It owns the worker pool; one run at a time, held by
`Machine.lock`.

After a fork the child has the code but no workers; they start again on its next run.
"""

from __future__ import annotations

import atexit
import ctypes
import hashlib
import os
import signal
import threading
import weakref
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any, Protocol

from headrace.base.errors import error
from headrace.runtime.cache import read_cached, write_cached
from headrace.runtime.drivers.cpu_machine_ir import TEXT
from headrace.runtime.drivers.cpu_machine_layout import CONTEXT_WORDS, Context

__all__ = ["BuiltIn", "Machine", "RunContext", "llvm", "machine"]

_DIGEST_BYTES = 32
_SYNCHRONOUS = {signal.SIGBUS, signal.SIGSEGV, signal.SIGFPE, signal.SIGILL}


class _Watched(Protocol):
    def reset_after_fork(self) -> None: ...


@cache
def llvm() -> Any:
    """llvmlite's binding with the native target ready; loads on first use."""
    import llvmlite.binding as binding

    binding.initialize_native_target()
    binding.initialize_native_asmprinter()
    return binding


def target_machine() -> Any:
    """A new LLVM target machine for this host; an engine takes the one it is made with."""
    binding = llvm()
    return binding.Target.from_default_triple().create_target_machine(
        cpu=binding.get_host_cpu_name(),
        features=binding.get_host_cpu_features().flatten(),
        opt=2,
        reloc="pic",
        codemodel="jitdefault",
    )


def load_objects(objects: list[bytes]) -> Any:
    """One MCJIT engine with all ELF objects linked. Keep it as long as the code runs."""
    binding = llvm()
    engine = binding.create_mcjit_compiler(binding.parse_assembly(""), target_machine())
    for data in objects:
        engine.add_object_file(binding.ObjectFileRef.from_data(data))
    engine.finalize_object()
    return engine


def _machine_object() -> bytes:
    """The machine's ELF object, from the cache where it is there and intact."""
    binding = llvm()
    key = hashlib.sha256(
        "\0".join(
            (
                TEXT,
                str(binding.llvm_version_info),
                binding.get_host_cpu_name(),
                binding.get_host_cpu_features().flatten(),
            )
        ).encode()
    ).hexdigest()
    name = f"cpu-machine-{key[:32]}.o"
    kept = read_cached(name)
    if kept is not None and len(kept) > _DIGEST_BYTES:
        digest, data = kept[:_DIGEST_BYTES], kept[_DIGEST_BYTES:]
        if hashlib.sha256(data).digest() == digest:
            return data
    module = binding.parse_assembly(TEXT)
    module.triple = binding.get_default_triple()
    module.verify()
    options = binding.create_pipeline_tuning_options(speed_level=2)
    target = target_machine()
    builder = binding.create_pass_builder(target, options)
    builder.getModulePassManager().run(module, builder)
    data = target.emit_object(module)
    write_cached(name, hashlib.sha256(data).digest() + data)
    return data


@dataclass(frozen=True)
class BuiltIn:
    """Addresses of the kernels that the machine itself holds."""

    fill: int
    copy: int
    advise: int
    touch: int
    several: int
    chain: int


class RunContext:
    """The context of runs: what the machine reads and writes beside the commands."""

    def __init__(self, threads: int = 1) -> None:
        self._memory = ctypes.create_string_buffer(CONTEXT_WORDS * 8 + 64)
        self.address = (ctypes.addressof(self._memory) + 63) & ~63
        self.words: Any = (ctypes.c_uint64 * CONTEXT_WORDS).from_address(self.address)
        self.words[Context.THREADS] = threads


class Machine:
    """The machine's functions and its pool."""

    def __init__(self) -> None:
        engine = load_objects([_machine_object()])
        names = ("run", "call", "worker", "fill", "copy", "advise", "touch", "several", "chain")
        address = {name: engine.get_function_address(name) for name in names}
        self.lock = threading.Lock()
        run: Any = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_void_p, ctypes.c_void_p)
        self.run: Callable[[int, int], int] = run(address["run"])
        self.call: Callable[[int, int], int] = run(address["call"])
        self._worker = address["worker"]
        self.kernels = BuiltIn(*(address[name] for name in names[3:]))
        value = engine.get_global_value_address
        self._work = ctypes.c_uint64.from_address(value("work"))
        self._done = ctypes.c_uint64.from_address(value("done"))
        self._sleepers = ctypes.c_int32.from_address(value("sleepers"))
        self._stop = ctypes.c_int32.from_address(value("stop"))
        self._pool = ctypes.c_uint64.from_address(value("pool"))
        # Never unloaded: at exit a thread may still be inside.
        engine.detach()
        self._workers: list[int] = []
        self._watched: weakref.WeakSet[_Watched] = weakref.WeakSet()
        os.register_at_fork(after_in_child=self._reset_after_fork)
        atexit.register(self._stop_workers)

    def want_threads(self, threads: int) -> None:
        """Grows the pool until `threads` can work, the caller included.

        Raises:
            HeadraceError HR4010: the system starts no more threads.
        """
        if len(self._workers) + 1 >= threads:
            return
        create: Any = ctypes.CDLL(None).pthread_create
        create.argtypes = [ctypes.c_void_p] * 4
        with self.lock:
            # Workers must never run Python's signal handlers: they start with all blocked
            # but those that their own accesses raise.
            blocked = set(signal.valid_signals()) - _SYNCHRONOUS
            before = signal.pthread_sigmask(signal.SIG_BLOCK, blocked)
            try:
                while len(self._workers) + 1 < threads:
                    thread = ctypes.c_void_p()
                    number = len(self._workers) + 1
                    status = create(ctypes.addressof(thread), None, self._worker, number)
                    if status:
                        raise error(
                            "HR4010",
                            f"the system started only {number - 1} of {threads - 1} workers",
                            notes=os.strerror(status),
                            helps="pass a smaller threads=",
                        )
                    self._workers.append(thread.value or 0)
                    self._pool.value = len(self._workers) + 1
            finally:
                signal.pthread_sigmask(signal.SIG_SETMASK, before)

    def watch(self, owner: _Watched) -> None:
        """Has `owner.reset_after_fork()` called in a forked child."""
        self._watched.add(owner)

    def _reset_after_fork(self) -> None:
        self.lock = threading.Lock()
        self._workers.clear()
        self._pool.value = 1
        self._work.value &= ~0xFFFFFFFF
        self._done.value = 0
        self._sleepers.value = 0
        for owner in tuple(self._watched):
            owner.reset_after_fork()

    def _stop_workers(self) -> None:
        """Ends the pool at exit, so that no worker outlives the code it runs."""
        if not self._workers:
            return
        join: Any = ctypes.CDLL(None).pthread_join
        join.argtypes = [ctypes.c_void_p, ctypes.c_void_p]
        # A run that an exception left behind on another thread still owns the pool.
        if not self.lock.acquire(timeout=1.0):
            return
        try:
            self._stop.value = 1
            self._work.value = (self._work.value & ~0xFFFFFFFF) + (1 << 32)
            futex: Any = ctypes.CDLL(None).syscall
            generation = ctypes.addressof(self._work) + 4
            futex(202, ctypes.c_void_p(generation), 129, 2**31 - 1, None, None, 0)
            for thread in self._workers:
                join(thread, None)
            self._workers.clear()
        finally:
            self.lock.release()


_guard = threading.Lock()
_machine: Machine | None = None


def machine() -> Machine:
    """The machine of this process; built on first use (about 0.1 s from the cache)."""
    global _machine
    with _guard:
        if _machine is None:
            _machine = Machine()
        return _machine
