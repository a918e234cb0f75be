"""Dimensions solved from shapes, and everything wrong listed at once."""

from __future__ import annotations

import numpy as np
import pytest

from headrace.artifact import schema as s
from headrace.base.dtypes import BF16, F32, I64
from headrace.base.errors import HeadraceError
from headrace.base.symbols import as_expr
from headrace.runtime.signature import Matcher, tensor_info


def matcher(shapes: dict[str, str], ranges: tuple[s.DimensionRange, ...], dtype=F32) -> Matcher:
    inputs = tuple(
        s.TensorSignature(
            name, dtype, tuple(as_expr(e.strip()) for e in text.split(",") if e), i
        )
        for i, (name, text) in enumerate(shapes.items())
    )
    resources = tuple(s.Resource(n, "external", as_expr(1)) for n in shapes)
    return Matcher(s.EntryFunction("main", inputs, (), resources, s.Block(())), ranges)


def solve(matching: Matcher, *shapes: tuple[int, ...]) -> dict[str, int]:
    return matching.solve([np.zeros(shape, np.float32) for shape in shapes])


def test_linear_sizes_are_solved_in_any_order():
    ranges = tuple(s.DimensionRange(n) for n in ("batch", "seq", "past"))
    m = matcher({"k": "batch, seq + past", "x": "batch, 2*seq + 1", "m": "batch*seq"}, ranges)
    assert solve(m, (2, 9), (2, 11), (10,)) == {"batch": 2, "seq": 5, "past": 4}


def test_operations_are_checked_once_their_names_are_known():
    m = matcher({"y": "(n + 1) floordiv 2", "x": "n"}, (s.DimensionRange("n"),))
    assert solve(m, (4,), (7,)) == {"n": 7}
    with pytest.raises(HeadraceError, match=r"axis 0 of input 'y' is 5, not .* = 4"):
        solve(m, (5,), (7,))


def test_contradictions_name_both_places():
    m = matcher({"a": "n, 3", "b": "n, 4"}, (s.DimensionRange("n", 1, 8),))
    with pytest.raises(HeadraceError) as caught:
        solve(m, (2, 5), (3, 4))
    text = str(caught.value)
    assert "axis 1 of input 'a' is 5, not 3" in text
    assert "axis 0 of input 'b' is 3, not n = 2" in text
    assert "n is 2 by input 'a', axis 0" in text


def test_ranges_and_fractions_are_refused():
    m = matcher({"a": "2*n"}, (s.DimensionRange("n", 2, 8),))
    with pytest.raises(HeadraceError, match="axis 0 of input 'a' is 5"):
        solve(m, (5,))
    with pytest.raises(HeadraceError, match="it may be 2 to 8"):
        solve(m, (18,))


def test_a_dimension_that_nothing_decides_is_an_error_unless_it_is_fixed_or_unused():
    ranges = (s.DimensionRange("n", 3, 3), s.DimensionRange("other", 2))
    assert solve(matcher({"a": "n"}, ranges), (3,)) == {"n": 3, "other": 2}
    m = matcher({"a": "(n*k) floordiv 2"}, (s.DimensionRange("n"), s.DimensionRange("k")))
    with pytest.raises(HeadraceError, match="HR4001"):
        solve(m, (3,))


def test_scalars_and_other_dtypes():
    m = matcher({"a": ""}, (), I64)
    (array,) = m.bind([7], {})
    assert array.shape == () and array.dtype == np.int64
    assert m.solve([array]) == {}
    with pytest.raises(HeadraceError, match="input 'a' is f32"):
        m.bind([np.float32(7)], {})
    with pytest.raises(HeadraceError, match="is no array"):
        m.bind(["seven"], {})
    import ml_dtypes

    b = matcher({"a": "2"}, (), BF16)
    assert b.bind([np.zeros(2, ml_dtypes.bfloat16)], {})[0].dtype == ml_dtypes.bfloat16
    assert b.bind([[1.0, 2.0]], {})[0].dtype == ml_dtypes.bfloat16
    with pytest.raises(HeadraceError, match=r"is <U3|is str"):
        b.bind([np.array(["one", "two"])], {})


def test_info_shows_expressions_as_text():
    signature = s.TensorSignature("x", F32, (as_expr("2*n + 1"), as_expr(4)), 0)
    assert tensor_info(signature).shape == ("2*n + 1", 4)
