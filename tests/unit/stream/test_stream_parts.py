"""Parts of a concatenation: what may stand in its buffer, and that answers stay the same."""

from __future__ import annotations

import numpy as np
import pytest
from tests.filecheck.test_filecheck import FOLDER
from xdsl.dialects.func import FuncOp

from headrace.base.dtypes import F32
from headrace.base.symbols import as_expr
from headrace.flow.layouts.halo import with_layouts
from headrace.ir.model import Model
from headrace.ir.passes import make_pass
from headrace.ir.text import parse_module
from headrace.kernel.buffers import unpack_operand
from headrace.kernel.description import Operand, ordered_layout
from headrace.kernel.interp import evaluate
from headrace.kernel.text import parse_kernel
from headrace.kernel.verify import verify_kernel
from headrace.pipeline import context, run_pass
from headrace.stream.commands import DispatchOp
from headrace.stream.interp import run
from headrace.stream.parts import copied_parts, part_layout, with_layout, without_parts

JOIN = """kernel(%d0 = 2, %d1 = 5) {
  ro a : f32[2, 3, 5]
  ro b : f32[2, 1, 5]
  wo y : f32[2, 4, 5]
  map(%d2 = 3) {
    %v0 = load a[%d0, %d2, %d1]
    store %v0 to y[%d0, %d2, %d1]
  }
  map(%d2 = 1) {
    %v0 = load b[%d0, %d2, %d1]
    store %v0 to y[%d0, %d2 + 3, %d1]
  }
}"""

OTHER_RANK = """
kernel(%d0 = 2, %d1 = 4) {
  ro a : f32[2, 4]
  wo y : f32[2, 4, 1]
  map() {
    %v0 = load a[%d0, %d1]
    store %v0 to y[%d0, %d1, 0]
  }
}"""


def _shape(*sizes: int) -> tuple:
    return tuple(as_expr(s) for s in sizes)


def _operand(
    shape: tuple, *order: int, halo: tuple[int, ...] = (), value: float = 0.0
) -> Operand:
    sides = halo or (0,) * len(shape)
    layout = ordered_layout(shape, order or None, sides, sides, value)
    return Operand("x", F32, shape, "ro", layout)


def test_the_parts_of_a_concatenation() -> None:
    kernel = parse_kernel(JOIN)
    parts = copied_parts(kernel, 2)
    assert [(p.phase, p.operand, [b.value for b in p.begin]) for p in parts] == [
        (0, 0, [0, 0, 0]),
        (1, 1, [0, 3, 0]),
    ]
    assert without_parts(kernel, 2, parts) is None


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("load a[%d0, %d2, %d1]", "load a[%d0, 2 - %d2, %d1]"),
        ("map(%d2 = 3) {", "map(%d2 = 2) {"),
        ("store %v0 to y[%d0, %d2, %d1]", "%v1 = negate(%v0) : f32\n    store %v1 to y[%d0, %d2, %d1]"),
        ("store %v0 to y[%d0, %d2, %d1]", "store %v0 to y[%d0, 2*%d2, %d1]"),
    ],
)  # fmt: skip
def test_what_is_not_copied_whole_is_no_part(old: str, new: str) -> None:
    kernel = parse_kernel(JOIN.replace(old, new))
    assert 0 not in [p.operand for p in copied_parts(kernel, 2)]


def test_a_box_of_a_buffer_in_any_order_holds_what_is_written_through_it() -> None:
    """Both parts written through their layouts are the concatenation, halos included."""
    kernel = parse_kernel(JOIN)
    whole = _operand(_shape(2, 4, 5), 0, 2, 1, halo=(0, 0, 1), value=-1.0)
    kernel = with_layouts(kernel, [*(o.layout for o in kernel.operands[:2]), whole.layout])
    random = np.random.default_rng(0)
    arrays = [random.standard_normal(s).astype(np.float32) for s in ((2, 3, 5), (2, 1, 5))]
    size = whole.layout.size.value
    expected = np.full(size, np.nan, np.float32)
    evaluate(kernel, [a.reshape(-1) for a in arrays] + [expected], {})
    found = np.full(size, np.nan, np.float32)
    for part, array in zip(copied_parts(kernel, 2), arrays, strict=True):
        x = _operand(_shape(*array.shape), 0, 2, 1)
        layout = part_layout(whole, x, part.begin)
        assert layout is not None
        copy = parse_kernel(
            f"""kernel(%d0 = 2, %d1 = {array.shape[1]}, %d2 = 5) {{
              ro x : f32{list(array.shape)}
              wo y : f32{list(array.shape)}
              map() {{
                %v0 = load x[%d0, %d1, %d2]
                store %v0 to y[%d0, %d1, %d2]
              }}
            }}"""
        )
        copy = with_layout(copy, [1], layout)
        verify_kernel(copy, ())
        evaluate(copy, [array.reshape(-1), found], {})
        np.testing.assert_array_equal(unpack_operand(found, copy.operands[1], {}), array)
    np.testing.assert_array_equal(found, expected)


def test_a_part_keeps_its_order_and_its_halo() -> None:
    begin = _shape(0, 3, 0)
    shape, part = _shape(2, 4, 5), _shape(2, 1, 5)
    whole = _operand(shape, 0, 2, 1, halo=(0, 0, 1))
    assert part_layout(whole, _operand(part, 0, 2, 1, halo=(0, 0, 1)), begin) is not None
    assert part_layout(whole, _operand(part, 0, 2, 1, halo=(0, 0, 2)), begin) is None
    assert part_layout(whole, _operand(part, 0, 2, 1, halo=(0, 0, 1), value=1.0), begin) is None
    assert part_layout(whole, _operand(part, 2, 1, 0), begin) is None
    beside = _operand(shape, 0, 2, 1, halo=(0, 1, 0))
    assert part_layout(beside, _operand(part, 0, 2, 1), begin) is None


@pytest.mark.parametrize("name", ["both", "one", "written_over"])
def test_answers_stay_the_same(name: str) -> None:
    text = (FOLDER / "stream" / "emplace_parts.mlir").read_text()
    x = np.random.default_rng(0).standard_normal((2, 3)).astype(np.float32)
    answers = []
    counts = []
    for emplaces in (False, True):
        model = Model(parse_module(text, "test.mlir", context()), {}, "test")
        if emplaces:
            run_pass(make_pass("stream-emplace-parts"), model)
        (function,) = [
            op for op in model.ir.ops if isinstance(op, FuncOp) and op.sym_name.data == name
        ]
        counts.append(sum(isinstance(op, DispatchOp) for op in function.body.block.ops))
        answers.append(run(model, {"x": x}, name)["out"])
    np.testing.assert_array_equal(*answers)
    assert counts[0] - counts[1] == (1 if name == "both" else 0)


def test_a_tensor_of_another_rank_is_no_part() -> None:
    kernel = parse_kernel(OTHER_RANK)
    assert copied_parts(kernel, 1) == []
