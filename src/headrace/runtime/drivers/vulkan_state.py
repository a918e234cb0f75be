"""One session's memory on a Vulkan device: slab, variables, inputs and outputs.

Where the host reaches the device's memory, or what passes is small, kernels read inputs and
write outputs where the host put them or looks for them; else they are copied through.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from headrace.plan.model import Plan
from headrace.runtime.drivers.vulkan_calls import VulkanCalls
from headrace.runtime.drivers.vulkan_heap import Buffer, Kind
from headrace.runtime.memory import page_aligned

_ALIGNMENT_BYTES = 256
"""No device asks for more (`minStorageBufferOffsetAlignment`)."""

_DIRECT_BYTES, _NEAR_BYTES = 64 << 10, 4 << 20
"""Up to the first all inputs, or all outputs, pass over the link as kernels touch them, and up to
the second the host writes inputs to the device's own memory, where it reaches it: a copy and its
barrier cost more."""


def aligned(size_bytes: int) -> int:
    """Rounded up to where any binding may begin."""
    return -(-size_bytes // _ALIGNMENT_BYTES) * _ALIGNMENT_BYTES


@dataclass(frozen=True)
class Place:
    """Bytes of a buffer of the driver."""

    buffer: int
    offset_bytes: int


@dataclass(frozen=True)
class External:
    """Where one input or output passes.

    Attributes:
        address: where the host writes or reads it.
        host, device: the same place for copies, and where kernels find it; equal where
            nothing is copied.
        size_bytes: 0 for an empty one.
    """

    address: int
    host: Place
    device: Place
    size_bytes: int


class _Side:
    """All inputs, or all outputs, of a session."""

    def __init__(self, calls: VulkanCalls, host: Kind, purpose: str) -> None:
        self._calls = calls
        self._host_kind: Kind = host
        self._purpose = purpose
        self._size = 0
        self._copied = False
        self._host = self._device = Buffer(0, 0, 0)

    def place(self, sizes: Sequence[int]) -> list[External]:
        places: list[External] = []
        at = 0
        for size in sizes:
            host = Place(self._host.handle, at)
            device = Place(self._device.handle, at) if self._copied else host
            places.append(External(self._host.address + at, host, device, size))
            at += aligned(size)
        return places

    def grow(self, sizes: Sequence[int]) -> bool:
        """Makes room; whether anything moved."""
        total = sum(aligned(size) for size in sizes)
        if total <= self._size:
            return False
        self.free()
        heap = self._calls.heap
        upload = self._host_kind == "upload"
        most = _NEAR_BYTES if upload and heap.has_near else _DIRECT_BYTES
        direct = total <= most or self._calls.physical.is_unified
        near = direct and upload
        self._host = heap.buffer(total, "near" if near else self._host_kind, self._purpose)
        if not direct:
            self._device = heap.buffer(total, "device", self._purpose)
        self._size, self._copied = total, not direct
        return True

    @property
    def held_bytes(self) -> int:
        return self._size

    def free(self) -> None:
        self._calls.heap.free(self._host)
        self._calls.heap.free(self._device)
        self._size = 0


class VulkanState:
    """One session's memory.

    Attributes:
        generation: grows when the slab moves; steps prepared before are then stale.
        staged: grows when inputs or outputs move; steps record themselves anew.
        slab: of values and scratch.
        variables: place by name.
    """

    def __init__(self, calls: VulkanCalls, variables: Mapping[str, int]) -> None:
        """Raises HeadraceError HR3013: no room for the variables."""
        self._calls = calls
        self.generation = self.staged = 0
        self.slab = Buffer(0, 0, 0)
        total = sum(aligned(size) for size in variables.values())
        self._variables = calls.heap.buffer(total, "device", "variables")
        self.variables: dict[str, Place] = {}
        at = 0
        for name, size in variables.items():
            self.variables[name] = Place(self._variables.handle, at)
            at += aligned(size)
        self._inputs = _Side(calls, "upload", "inputs")
        self._outputs = _Side(calls, "readback", "outputs")

    @property
    def variables_buffer(self) -> Buffer:
        """All variables side by side."""
        return self._variables

    def reserve(self, plan: Plan, exact: bool = False) -> None:
        """Makes room for `plan`; with `exact`, no more than that is kept."""
        have, need = self.slab.size_bytes, page_aligned(plan.slab_bytes)
        if have == need or (have > need and not exact):
            return
        self.generation += 1
        # First out, then in: both together must not pass the limit.
        self._calls.heap.free(self.slab)
        self._inputs.free()
        self._outputs.free()
        self.slab = self._calls.heap.buffer(need, "device", "values")

    def stage(
        self, inputs: Sequence[int], outputs: Sequence[int]
    ) -> tuple[list[External], list[External]]:
        """Makes room for inputs and outputs of these sizes, and says where they pass."""
        if self._inputs.grow(inputs) | self._outputs.grow(outputs):
            self.staged += 1
        return self._inputs.place(inputs), self._outputs.place(outputs)

    @property
    def staging_bytes(self) -> int:
        """See `api.State.staging_bytes`: once, though it may stand on both sides."""
        return self._inputs.held_bytes + self._outputs.held_bytes

    @property
    def held_bytes(self) -> int:
        """See `api.State.held_bytes`."""
        return self.slab.size_bytes + self.staging_bytes + self._variables.size_bytes

    def close(self) -> None:
        """Gives everything back."""
        self.generation += 1
        if not self._calls.is_open:
            return
        self._inputs.free()
        self._outputs.free()
        self._calls.heap.free(self.slab)
        self._calls.heap.free(self._variables)
