"""Drives every text test in this folder, in-process: 15 ms a case instead of a second.

A file's first line is `// RUN: <pass> [<pass>...]`. Cases are split at `// -----`; each is
parsed, the passes run, and the printed module is matched against its `// CHECK` lines; a
case with `// ERROR: text` expects an error that holds the text instead.
"""

from __future__ import annotations

import contextlib
import io
import re
from pathlib import Path

import numpy as np
import pytest

from headrace.base.errors import HeadraceError
from headrace.base.parameters import array_source
from headrace.ir.model import Model
from headrace.ir.passes import make_pass
from headrace.ir.types import dtype_of, static_shape
from headrace.pipeline import context, run_pass

FOLDER = Path(__file__).parent


def cases() -> list[tuple[str, str, str]]:
    found: list[tuple[str, str, str]] = []
    for path in sorted(FOLDER.rglob("*.mlir")):
        text = path.read_text()
        run = re.match(r"// RUN:(.*)\n", text)
        assert run is not None, f"{path} has no RUN line"
        for number, part in enumerate(re.split(r"^// -----.*$", text, flags=re.M)):
            name = f"{path.relative_to(FOLDER)}:{number}"
            found.append((name, run.group(1).strip(), part))
    return found


def parse(text: str) -> Model:
    from headrace.ir.text import parse_module

    module = parse_module(text, "test.mlir", context())
    model = Model(module, {}, "test")
    random = np.random.default_rng(0)
    for op in module.walk():
        if op.name == "tensor.parameter":
            name = op.properties["parameter"].root_reference.data
            shape = static_shape(op.results[0])
            kind = dtype_of(op.results[0]).numpy_dtype
            array = random.standard_normal(shape).astype(kind)
            if name.startswith("splat"):
                array = np.full(shape, 0.5, kind)
            model.parameters.setdefault(name, array_source(array))
    return model


def run_case(passes: str, text: str) -> str:
    model = parse(text)
    for name in re.findall(r"[\w-]+(?:\{[^}]*\})?", passes):
        run_pass(make_pass(name), model)
    model.ir.verify()
    return str(model.ir)


def check(printed: str, text: str) -> None:
    from filecheck.finput import FInput
    from filecheck.matcher import Matcher
    from filecheck.options import Options
    from filecheck.parser import Parser, pattern_for_opts

    options = Options(match_filename="case.mlir")
    parser = Parser(options, io.StringIO(text), *pattern_for_opts(options))
    output = io.StringIO()
    with contextlib.redirect_stdout(output), contextlib.redirect_stderr(output):
        status = Matcher(options, FInput("printed", printed), parser).run()
    assert status == 0, f"{output.getvalue()}\n--- printed ---\n{printed}"


@pytest.mark.parametrize(("name", "passes", "text"), cases(), ids=[c[0] for c in cases()])
def test_text(name: str, passes: str, text: str) -> None:
    expected = re.findall(r"// ERROR: (.*)", text)
    if expected:
        with pytest.raises(HeadraceError) as caught:
            run_case(passes, text)
        for line in expected:
            assert line.strip() in str(caught.value)
        return
    assert "CHECK" in text, f"{name} checks nothing"
    check(run_case(passes, text), text)
