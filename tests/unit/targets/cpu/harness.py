"""Runs kernels compiled for the CPU in this process, without the run time.

`run` translates a kernel, links its object with MCJIT and calls every launch over all
tiles, through the calling convention of `targets/cpu/entry.py`.
"""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
from llvmlite import binding

from headrace.kernel.description import Kernel
from headrace.kernel.target import Code, Specialisation
from headrace.runtime.drivers.cpu_link import host_features
from headrace.targets.cpu.target import CpuTarget, make

NATIVE = make("cpu:x86-64-v3")
GENERIC = make("cpu:generic")
_ENTRY = ctypes.CFUNCTYPE(
    None, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64, ctypes.c_void_p
)


def link(code: Code) -> Any:
    """An execution engine with the object loaded."""
    binding.initialize_all_targets()
    binding.initialize_all_asmprinters()
    machine = binding.Target.from_default_triple().create_target_machine()
    engine = binding.create_mcjit_compiler(binding.parse_assembly(""), machine)
    engine.add_object_file(binding.ObjectFileRef.from_data(code.data))
    engine.finalize_object()
    return engine


def chosen(code: Code, dims: Mapping[str, int]) -> Specialisation:
    """The first specialisation whose conditions hold."""
    return next(s for s in code.specialisations if all(c.holds(dims) for c in s.conditions))


class Linked:
    """A kernel ready to run on flat numpy buffers."""

    def __init__(self, kernel: Kernel, target: CpuTarget = NATIVE, name: str = "k") -> None:
        self.kernel = kernel
        made = target.translate(name, kernel)
        here = host_features()
        self.code = next(c for c in (made, *made.others) if here.issuperset(c.features))
        self._engine = link(self.code)

    def family(self, dims: Mapping[str, int]) -> str:
        return chosen(self.code, dims).launches[-1].family

    def __call__(
        self, buffers: Sequence[Any], dims: Mapping[str, int], *, parts: int = 1
    ) -> None:
        """Runs all tiles in place, in `parts` calls (as several workers would)."""
        for launch in chosen(self.code, dims).launches:
            counts = [w.evaluate(dims) for w in launch.workgroups]
            words = struct.pack(
                f"={len(buffers)}Q6I{len(self.kernel.dims)}I",
                *(b.ctypes.data for b in buffers),
                *counts,
                0,
                0,
                0,
                *(dims[d] for d in self.kernel.dims),
            )
            arguments = ctypes.create_string_buffer(words, len(words))
            size = launch.scratch_bytes.evaluate(dims)
            scratch = aligned(size)
            entry = _ENTRY(self._engine.get_function_address(launch.symbol))
            tiles = counts[0] * counts[1] * counts[2]
            borders = [tiles * i // parts for i in range(parts + 1)]
            for begin, end in pairwise(borders):
                address = scratch.ctypes.data if size else None
                entry(ctypes.addressof(arguments), begin, end, address)


def aligned(size: int) -> Any:
    """`size` bytes, aligned to 64."""
    raw = np.zeros(size + 64, np.uint8)
    start = -raw.ctypes.data % 64
    return raw[start : start + size]


def copied(buffers: Sequence[Any]) -> list[Any]:
    """Copies aligned as the run time aligns bindings."""
    result: list[Any] = []
    for buffer in buffers:
        place = aligned(buffer.nbytes).view(buffer.dtype)
        place[...] = buffer
        result.append(place)
    return result
