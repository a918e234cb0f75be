"""ONNX's suite is that of the folder beside this one."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent / "onnx"))
