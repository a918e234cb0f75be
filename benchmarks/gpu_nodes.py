"""Row 9 of the CUDA issue: the ONNX node tests that `tests/conformance/cuda` fixes, on a GPU.

The suite's data are made by the onnx package; nothing is fetched.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

_SUITES = Path(__file__).parent.parent / "tests" / "conformance"
_LIST = _SUITES / "cuda" / "onnx_node.txt"


def nodes(folder: Path, seconds: float) -> dict[str, Any]:
    """Counts of tests that pass with nothing interpreted; failures stand in `nodes.txt`.

    Raises:
        subprocess.TimeoutExpired: it takes longer than `seconds`.
    """
    path = folder / "nodes.json"
    command = [sys.executable, str(_SUITES / "onnx" / "scoreboard.py"), "--device", "CUDA"]
    command += ["--jobs", f"{min(12, os.cpu_count() or 1)}", "--list", str(_LIST)]
    command += ["--failures", str(folder / "nodes.txt"), "--json", str(path)]
    subprocess.run(command, check=True, timeout=seconds)
    return counts(path.read_text())


def counts(text: str) -> dict[str, int]:
    """Of a file of `scoreboard.py --json`."""
    rows = [json.loads(line) for line in text.splitlines()[1:]]
    passed = [r for r in rows if r["kind"] == "pass"]
    return {
        "count": len(rows),
        "passed": sum(not r["interpreted"] for r in passed),
        "interpreted": sum(r["interpreted"] > 0 for r in passed),
    }
