import sys
from pathlib import Path

_HERE = Path(__file__).parent
_TESTS = next(p for p in _HERE.parents if p.name == "tests")
sys.path[:0] = [str(_HERE), str(_TESTS / "models")]
