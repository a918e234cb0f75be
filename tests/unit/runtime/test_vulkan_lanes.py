"""What SPIR-V says of its workgroups."""

from __future__ import annotations

import struct

from headrace.runtime.drivers.vulkan_lanes import lanes_of, workgroups_at_once


def instruction(kind: int, *words: int) -> list[int]:
    return [(len(words) + 1) << 16 | kind, *words]


def test_lanes_are_read_by_entry_point():
    name = struct.unpack("<2I", b"k_1\0" + bytes(4))
    words = [0x07230203, 0x10500, 0, 9, 0]
    words += instruction(17, 1)  # a capability
    words += instruction(15, 5, 4, *name)
    words += instruction(16, 4, 17, 16, 8, 2)
    words += instruction(54, 1, 4, 0, 2)
    words += instruction(16, 4, 17, 1, 1, 1)  # behind the functions nothing is read
    assert lanes_of(struct.pack(f"<{len(words)}I", *words)) == {"k_1": 256}
    assert lanes_of(b"no module") == {}


def test_workgroups_at_once_are_bound_by_lanes_and_shared_memory():
    assert workgroups_at_once(132, 256, 0) == 4 * 132
    assert workgroups_at_once(132, 256, 48 << 10) == 2 * 132
    assert workgroups_at_once(132, 2048, 0) == 132
    assert workgroups_at_once(132, 1, 0) == 32 * 132
    assert workgroups_at_once(0, 256, 0) == 0
