"""Everything illegal at the end of the stage is named, with its place."""

from __future__ import annotations

import pytest
from stream_texts import STREAM_PASSES, TWO_LAYERS, parsed, passed

from headrace.base.errors import HeadraceError
from headrace.stream import verify

PROGRAM = """
builtin.module {
  func.func @main(%x: !stream.resource<external> {stream.io = "input", stream.size = #hr.exprs<["64"]>}, %y: !stream.resource<external> {stream.io = "output", stream.size = #hr.exprs<["64"]>}) {
    %t = stream.resource.alloc : !stream.resource<transient>{64}
    %w = stream.resource.constant @w : !stream.resource<constant>{64}
    BODY
    func.return
  }
}
"""


def problems(body: str) -> list[str]:
    with pytest.raises(HeadraceError) as caught:
        verify.verify(parsed(PROGRAM.replace("BODY", body)).ir)
    return [d.code for d in caught.value.diagnostics]


COPY = "stream.cmd.copy %{}[{}], %{}[0], {} : !stream.resource<{}> -> !stream.resource<{}>"


@pytest.mark.parametrize(
    ("body", "code"),
    [
        ("%p = tensor.parameter @p : tensor<4xf32>", "HR9501"),
        (COPY.format("x", 32, "y", 64, "external", "external"), "HR9504"),
        (COPY.format("t", 0, "y", 64, "transient", "external"), "HR9505"),
        (COPY.format("y", 0, "t", 64, "external", "transient"), "HR9505"),
        (COPY.format("x", 0, "w", 64, "external", "constant"), "HR9506"),
        ("stream.cmd.dispatch @no::@where[1, 1, 1] {\n}", "HR2501"),
    ],
)
def test_each_problem(body: str, code: str) -> None:
    assert problems(body) == [code]


def test_branches_write_only_what_both_write() -> None:
    body = """stream.cmd.if %x : !stream.resource<external> {
      stream.cmd.fill %t[0 for 64] 0 : i32, !stream.resource<transient>
    } else {
    }
    """ + COPY.format("t", 0, "y", 64, "transient", "external")
    assert problems(body) == ["HR9505"]
    both = body.replace("} else {", "} else {\n" + body.splitlines()[1])
    verify.verify(parsed(PROGRAM.replace("BODY", both)).ir)


def test_results_are_refused_until_copies_are_materialised() -> None:
    model = passed(parsed(TWO_LAYERS), STREAM_PASSES[0])
    with pytest.raises(HeadraceError, match="HR9502"):
        verify.verify(model.ir)
