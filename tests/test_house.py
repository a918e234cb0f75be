"""The rules of the house, checked on the source itself: names, codes, imports, sizes, docs."""

from __future__ import annotations

import ast
import importlib.util
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from headrace.ir.passes import STAGES, pass_table

ROOT = Path(__file__).parent.parent
SOURCE = ROOT / "src" / "headrace"
FILECHECK = ROOT / "tests" / "filecheck"

LONG_FILES = {
    "base/symbols.py": "one algebra: a normal form and every rule that keeps it",
    "targets/cpu/contract.py": "the one family tuned to the peak; its parts share the tile",
    "targets/cpu/ir_text.py": "a table: one method for each LLVM instruction used",
    "tensor/build.py": "a table: one method for each tensor operation",
    "tensor/dialect.py": "a dialect reads as one manual",
}
"""Files of more than 500 lines, and why they stay whole."""

HEAVY = ("numpy", "xdsl", "onnx", "llvmlite", "ml_dtypes", "matplotlib", "rich", "jax", "keras")

ENVIRONMENT = {
    "base/knobs.py": "the only reader",
    "translation.py": "hands the whole environment on to a worker",
    "importers/hlo/mlir_service.py": "hands a few variables on to the parser's process",
    "importers/keras.py": "sets a variable of Keras before Keras is imported",
}
"""Files that touch `os.environ`, and what for."""


def sources() -> list[Path]:
    return sorted(SOURCE.rglob("*.py"))


def name_of(path: Path) -> str:
    return path.relative_to(SOURCE).as_posix()


def load_tool() -> Any:
    spec = importlib.util.spec_from_file_location("docs", ROOT / "tools" / "generate_docs.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["docs"] = module
    spec.loader.exec_module(module)
    return module


docs = load_tool()


# -- passes ----------------------------------------------------------------------------


def pass_files() -> list[str]:
    return [
        f"{stage}/{path.stem}"
        for stage in STAGES
        for path in sorted((SOURCE / stage / "passes").glob("*.py"))
        if path.stem != "__init__"
    ]


def test_a_pass_is_named_by_its_path() -> None:
    expected = {f.replace("/", "-").replace("_", "-") for f in pass_files()}
    assert set(pass_table()) == expected
    for name, kind in pass_table().items():
        stem = kind.__module__.rpartition(".")[2]
        assert kind.__name__ == "".join(word.capitalize() for word in stem.split("_")), name


@pytest.mark.parametrize("name", pass_files())
def test_a_pass_has_a_text_test_that_checks_it(name: str) -> None:
    path = FILECHECK / f"{name}.mlir"
    assert path.is_file(), f"tests/filecheck/{name}.mlir is missing"
    text = path.read_text()
    spelled = name.replace("/", "-").replace("_", "-")
    assert spelled in text.partition("\n")[0], "its RUN line does not run the pass"
    cases = [part for part in text.split("// -----") if re.search(r"// (CHECK|ERROR)", part)]
    assert cases, "it checks nothing"


def test_text_tests_belong_to_a_pass() -> None:
    known = pass_files()
    for path in FILECHECK.rglob("*.mlir"):
        stage = path.parent.name
        if stage in STAGES:
            name = f"{stage}/{path.stem}"
            assert any(name.startswith(k) for k in known), f"{path} tests no pass"


# -- errors ----------------------------------------------------------------------------


def families() -> dict[str, set[str]]:
    """Of each code the parts of the package that raise it."""
    found: dict[str, set[str]] = {}
    for use in docs.code_uses():
        found.setdefault(use.code, set()).add(use.file)
    return found


def test_codes_are_well_formed() -> None:
    for path in sources():
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                text = node.value
                if re.fullmatch(r"HR\w{1,8}", text) and text not in ("HR", "HR9"):
                    assert re.fullmatch(r"HR[0-49]\d{3}", text), f"{name_of(path)}: {text}"


def test_codes_stand_in_their_family() -> None:
    """The digit says who raises: importers 1, compiler stages and targets 2, run time 3, 4."""
    may = {
        "1": ("importers", "ir", "inputs.py"),
        "2": ("tensor", "flow", "stream", "hal", "kernel", "targets", "assemble"),
        "3": ("base", "artifact", "plan", "runtime", "tensor"),
        "4": ("runtime", "plan", "tensor"),
    }
    wrong = [
        f"{code} in {file}"
        for code, files in families().items()
        for file in files
        if code[2] in may and file.partition("/")[0] not in may[code[2]]
    ]
    assert not wrong


SHARED_CODES = {
    "HR0101": "a name that is not in a table, of passes or of targets",
    "HR0202": "a file that is not there",
    "HR1001": "text that does not parse, in any dialect",
    "HR3105": "the file changed since it was opened",
    "HR4001": "inputs that do not fit, for the oracle and for devices",
    "HR4015": "a size read back that cannot be one, for the oracle and for devices",
    "HR4007": "a function that is not there, for the oracle and for devices",
}
"""Codes raised in more than one part of the package, and their one meaning."""


def test_a_code_has_one_meaning() -> None:
    spread = {
        code
        for code, files in families().items()
        if len({file.partition("/")[0] for file in files}) > 1
    }
    assert spread == set(SHARED_CODES)


def test_a_fact_is_lower_case_without_a_full_stop() -> None:
    wrong: list[str] = []
    for use in docs.code_uses():
        first = use.fact.split(" ")[0]
        proper = not first or not first[0].isupper() or any(c.isupper() for c in first[1:])
        if not proper and first not in PROPER_NAMES:
            wrong.append(f"{use.code} in {use.file}: {use.fact}")
        if use.fact.endswith("."):
            wrong.append(f"{use.code} in {use.file}: {use.fact}")
    assert not wrong


PROPER_NAMES = ("Keras", "Triton", "Slice", "Loop", "If", "Scan")
"""Words that begin a fact with a capital because they are names."""


# -- text of the source ------------------------------------------------------------------


def test_nothing_is_left_undone() -> None:
    pattern = re.compile(r"\b(TODO|FIXME|XXX|NotImplementedError)\b")
    found = [
        f"{name_of(path)}:{number}"
        for path in sources()
        for number, line in enumerate(path.read_text().splitlines(), 1)
        if pattern.search(line)
    ]
    assert not found


def test_the_environment_is_read_in_one_place() -> None:
    found = {
        name_of(p) for p in sources() if re.search(r"\benviron\b|\bgetenv\b", p.read_text())
    }
    assert found == set(ENVIRONMENT)


def test_every_knob_is_listed() -> None:
    from headrace.base import knobs

    defined = {k.name for k in vars(knobs).values() if isinstance(k, knobs.Knob)}
    assert defined == {k.name for k in knobs.KNOBS}
    assert all(k.meaning for k in knobs.KNOBS)


def test_files_are_short_or_say_why_not() -> None:
    long = {name_of(p) for p in sources() if len(p.read_text().splitlines()) > 500}
    assert long - set(LONG_FILES) == set(), "split these, or give a reason in LONG_FILES"
    assert set(LONG_FILES) - long == set(), "these are short now: take them off LONG_FILES"


def public_definitions(tree: ast.Module) -> Iterator[ast.FunctionDef | ast.ClassDef]:
    for node in tree.body:
        if isinstance(node, (ast.FunctionDef, ast.ClassDef)) and not node.name.startswith("_"):
            yield node


def test_every_module_has_a_docstring() -> None:
    assert [
        name_of(p) for p in sources() if not ast.get_docstring(ast.parse(p.read_text()))
    ] == []


def test_every_public_class_has_a_docstring() -> None:
    bare = [
        f"{name_of(path)}: {node.name}"
        for path in sources()
        for node in public_definitions(ast.parse(path.read_text()))
        if isinstance(node, ast.ClassDef) and not ast.get_docstring(node)
    ]
    assert not bare


# -- what is imported ---------------------------------------------------------------------


def imported_by(code: str) -> set[str]:
    """Top-level names of the modules that a fresh interpreter holds after running code."""
    listing = "\nimport sys; print(' '.join({m.partition('.')[0] for m in sys.modules}))"
    done = subprocess.run(
        [sys.executable, "-c", code + listing],
        capture_output=True,
        text=True,
        check=True,
        env={"PYTHONPATH": str(ROOT / "src")},
    )
    return set(done.stdout.splitlines()[-1].split())


def test_importing_headrace_imports_nothing_heavy() -> None:
    assert imported_by("import headrace").isdisjoint({*HEAVY, "click"})


def test_help_imports_nothing_heavy() -> None:
    code = "from headrace.cli import cli\ncli.main(['--help'], standalone_mode=False)"
    assert imported_by(code).isdisjoint(HEAVY)


def test_importing_the_api_imports_no_compiler() -> None:
    assert imported_by("import headrace.api").isdisjoint(HEAVY)


def test_loading_and_running_import_no_compiler() -> None:
    code = "import headrace.runtime.module, headrace.runtime.drivers.cpu"
    assert imported_by(code).isdisjoint({"xdsl", "onnx", "triton", "jaxlib", "matplotlib"})


# -- documentation ---------------------------------------------------------------------


@pytest.mark.parametrize("name", docs.PAGES)
def test_a_generated_page_is_fresh(name: str) -> None:
    assert (ROOT / "docs" / name).read_text() == docs.rendered(name), (
        "run python tools/generate_docs.py"
    )


def test_links_lead_somewhere() -> None:
    assert docs.broken_links() == []


def test_every_page_is_in_the_navigation() -> None:
    text = (ROOT / "mkdocs.yml").read_text()
    pages = {p.relative_to(ROOT / "docs").as_posix() for p in (ROOT / "docs").rglob("*.md")}
    assert {p for p in pages if f": {p}\n" not in text} == set()


def test_pages_name_files_that_exist() -> None:
    """`src/...` and `tests/...` in code spans are paths; `<name>` and `*` stand for any."""
    span = re.compile(r"`((?:src|tests|tools|examples|benchmarks)/[\w./-]+)`")
    wrong = [
        f"{page.name}: {path}"
        for page in sorted((ROOT / "docs").rglob("*.md"))
        for path in span.findall(page.read_text())
        if not (ROOT / path).exists()
    ]
    assert not wrong
