"""What a GPU has free, by the account of the machine."""

from __future__ import annotations

import importlib
from collections.abc import Callable


class Account:
    """What a GPU has free by the management library, which needs no context.

    Where it cannot be had, nothing is said to be taken.
    """

    def __init__(self, bus: bytes) -> None:
        """`bus`: the GPU's place, as `cuDeviceGetPCIBusId` says it."""
        self._free: Callable[[], int] | None = None
        self._before = 0
        try:
            # `cuda.bindings.nvml` says the same, but takes 0.5 s to import.
            library = importlib.import_module("pynvml")
            library.nvmlInit()
            device = library.nvmlDeviceGetHandleByPciBusId(bus.split(b"\0")[0])
            self._free = lambda: int(library.nvmlDeviceGetMemoryInfo(device).free)
            self._before = self._free()
        except Exception:  # a library of its own, with errors of its own
            self._free = None

    def taken_bytes(self) -> int:
        """By everybody, since this was made."""
        return max(0, self._before - self._free()) if self._free else 0
