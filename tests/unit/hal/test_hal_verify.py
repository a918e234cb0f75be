"""Everything illegal at the end of the hal stage is named."""

from __future__ import annotations

import pytest
from stream_texts import STREAM_PASSES, TWO_LAYERS, parsed, passed, printed

from headrace.base.errors import HeadraceError
from headrace.hal import interp, verify

TEXT = printed(
    passed(parsed(TWO_LAYERS), *STREAM_PASSES, "hal-materialize-interfaces{targets=cpu}")
)


def test_what_the_pass_makes_is_legal() -> None:
    verify.verify(parsed(TEXT).ir)


@pytest.mark.parametrize(
    ("before", "after", "code"),
    [
        ("func.return\n        }\n", 'tensor.parameter @p : tensor<1xf32>\n func.return\n        }\n', "HR9501"),
        ("@product_entry ordinal(0)", "@product_entry ordinal(1)", "HR9602"),
        ("func.func @product_entry()", "func.func @other()", "HR9603"),
        ("ordinal(0) interface(@io)", "ordinal(0) interface(@oi)", "HR9604"),
        (" attributes {hal.interface.bindings = [@product::@io::@s0b0_ro", " attributes {a = [@product::@io::@s0b0_ro", "HR9605"),
        ("hal.interface.bindings = [@product::@io::@s0b0_ro", "hal.interface.bindings = [@product::@io::@gone", "HR9605"),
    ],
)  # fmt: skip
def test_each_problem(before: str, after: str, code: str) -> None:
    text = TEXT.replace(before, after, 1)
    assert text != TEXT
    with pytest.raises(HeadraceError) as caught:
        verify.verify(parsed(text).ir)
    assert [d.code for d in caught.value.diagnostics] == [code]


def test_constants_have_32_bits() -> None:
    text = TEXT.replace(
        "arith.index_cast %n : index to i32", "arith.index_cast %n : index to i64"
    )
    text = text.replace("(%4 : i32)", "(%4 : i64)")
    for name in range(20):
        text = text.replace(f"(%{name} : i32)", f"(%{name} : i64)")
    with pytest.raises(HeadraceError, match="HR9606"):
        verify.verify(parsed(text).ir)


def test_bindings_out_of_order_are_a_defect() -> None:
    text = TEXT.replace("@io::@s0b1_ro[%zero]", "@io::@s0b0_ro[%zero]")
    assert text != TEXT
    with pytest.raises(HeadraceError, match="HR9607"):
        interp.kernels_of(parsed(text).ir)
