"""Writes `runtime/drivers/vulkan_copy_code.py`: the kernel that the driver streams weights by.

    python tools/generate_vulkan_copy.py

The run time imports no assembler, so the module's words are checked in. It copies binding 0
to binding 1, in fours of 32 bits; push constant 3 counts them.
"""

from __future__ import annotations

import textwrap
from pathlib import Path

from headrace.base.dtypes import BY_NAME
from headrace.kernel.lanes.machine import Value
from headrace.targets.vulkan.builder import Buffer, ShaderBuilder

LANES, WORKGROUPS = 256, 64
NAME = "copy"


def shader() -> bytes:
    """The SPIR-V module."""
    word = BY_NAME["ui32"]
    buffers = [Buffer(word, writable, in_fours=True) for writable in (False, True)]
    made = ShaderBuilder(NAME, buffers, ["fours"], LANES)
    lane = made.workgroup()[0] * LANES + made.local_index()
    count = made.dimension("fours")
    stride = LANES * WORKGROUPS

    def turn(number: Value) -> None:
        at = number * stride + lane
        made.guarded(at.lt(count), lambda: made.copy_four(0, 1, at))

    made.loop((count + (stride - 1)) / stride, turn)
    return made.finish()


def generate() -> str:
    """The module's text."""
    lines = textwrap.wrap(shader().hex(), 92)
    return "\n".join(
        [
            '"""The kernel that copies weights; written by tools/generate_vulkan_copy.py."""',
            "",
            "from __future__ import annotations",
            "",
            f'NAME = "{NAME}"',
            f"WORKGROUPS = {WORKGROUPS}",
            "",
            "CODE = bytes.fromhex(",
            *(f'    "{line}"' for line in lines),
            ")",
            "",
        ]
    )


if __name__ == "__main__":
    folder = Path(__file__).parent.parent / "src" / "headrace" / "runtime" / "drivers"
    (folder / "vulkan_copy_code.py").write_text(generate())
