"""Memory of a CUDA device's modules and sessions, and host memory it can copy from."""

from __future__ import annotations

import weakref
from collections.abc import Mapping, Sequence

from headrace.plan.model import Plan
from headrace.runtime.arrays import ALIGNMENT_BYTES
from headrace.runtime.drivers.cuda_calls import CudaCalls
from headrace.runtime.memory import Slab, page_aligned


def aligned(size_bytes: int) -> int:
    """Rounded up to what kernels may assume of an address."""
    return -(-size_bytes // ALIGNMENT_BYTES) * ALIGNMENT_BYTES


class PinnedBuffer:
    """Host memory that the device copies at the link's full rate.

    Unpinned before it is unmapped, also when nobody refers to it any more: a page that
    stays pinned after it is gone can never be pinned again.

    Attributes:
        address: 0 for an empty one.
        size_bytes: whole pages.
    """

    def __init__(self, calls: CudaCalls, size_bytes: int) -> None:
        """Raises HeadraceError HR3010 (no memory), HR3014 (it may not be pinned)."""
        self._slab = Slab(size_bytes)
        self.address = self._slab.address
        self.size_bytes = self._slab.size_bytes
        if not self.address:
            return
        try:
            calls.pin(self.address, self.size_bytes)
        except BaseException:
            self._slab.close()
            raise
        self._release = weakref.finalize(self, _unpin, calls, self._slab)
        self._release.atexit = False

    def close(self) -> None:
        """Unpins and gives it back; nothing may still be copied from it."""
        if self.address:
            self._release()
            self.address = self.size_bytes = 0


def _unpin(calls: CudaCalls, slab: Slab) -> None:
    if calls.is_open:
        calls.enter()
        calls.unpin(slab.address)
    slab.close()


class CudaState:
    """One session's memory: slab and variables, inputs and outputs on both sides.

    Attributes:
        generation: grows when anything moves; steps prepared before are then stale.
        slab, staging: device addresses; 0 where there is nothing.
        variables: device address by name.
        pinned: host memory laid out like `staging`.
    """

    def __init__(self, calls: CudaCalls, variables: Mapping[str, int]) -> None:
        """Raises HeadraceError HR3013: no room for the variables."""
        self._calls = calls
        self.generation = 0
        self.slab = self.staging = 0
        self._slab_bytes = self._staging_bytes = 0
        self._variable_bytes = sum(aligned(size) for size in variables.values())
        self._variables = calls.allocate(self._variable_bytes, "variables")
        self.variables: dict[str, int] = {}
        at = self._variables
        for name, size in variables.items():
            self.variables[name] = at
            at += aligned(size)
        self.pinned = PinnedBuffer(calls, 0)

    def clear_variables(self, stream: object) -> None:
        """Zeros in all variables."""
        if self._variable_bytes:
            self._calls.fill(self._variables, self._variable_bytes, 0, 1, stream)
            self._calls.finish(stream)

    def reserve(self, plan: Plan, exact: bool = False) -> None:
        """Makes room for `plan`; with `exact`, no more than that is kept."""
        have, need = self._slab_bytes, page_aligned(plan.slab_bytes)
        if have == need or (have > need and not exact):
            return
        self._calls.enter()
        self.generation += 1
        # First out, then in: both together must not pass the limit.
        self._free_slab()
        self._free_staging()
        self.slab = self._calls.allocate(need, "values")
        self._slab_bytes = need

    def stage(self, sizes: Sequence[int]) -> list[int]:
        """Makes room for inputs and outputs; where each stands in the staging buffers."""
        offsets: list[int] = []
        total = 0
        for size in sizes:
            offsets.append(total)
            total += aligned(size)
        if self._staging_bytes < total:
            self.generation += 1
            self._free_staging()
            self.pinned = PinnedBuffer(self._calls, total)
            self.staging = self._calls.allocate(total, "inputs and outputs")
            self._staging_bytes = total
        return offsets

    def _free_slab(self) -> None:
        address, self.slab, self._slab_bytes = self.slab, 0, 0
        self._calls.free(address)

    def _free_staging(self) -> None:
        address, self.staging, self._staging_bytes = self.staging, 0, 0
        self._calls.free(address)
        self.pinned.close()

    @property
    def held_bytes(self) -> int:
        """See `api.State.held_bytes`; the host's part is not counted."""
        return self._slab_bytes + self._staging_bytes + self._variable_bytes

    @property
    def staging_bytes(self) -> int:
        """See `api.State.staging_bytes`."""
        return self._staging_bytes

    def close(self) -> None:
        """Gives everything back."""
        self.generation += 1
        if self._calls.is_open:
            self._calls.enter()
        self._free_slab()
        self._free_staging()
        address, self._variables, self._variable_bytes = self._variables, 0, 0
        self._calls.free(address)
