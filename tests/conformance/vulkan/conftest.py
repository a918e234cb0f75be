"""The suites of ONNX and StableHLO are those of the folders beside this one."""

import sys
from pathlib import Path

_HERE = Path(__file__).parent
sys.path.insert(0, str(_HERE.parent / "onnx"))
sys.path.insert(0, str(_HERE.parent / "stablehlo"))
