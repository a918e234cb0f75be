"""Bounds that a mask of places sets, and what is none."""

from __future__ import annotations

import math
from dataclasses import dataclass

import pytest

from headrace.kernel.softmax_rows import as_softmax_rows
from headrace.kernel.text import parse_kernel
from headrace.kernel.visible_keys import VisibleKeys, visible_keys

CAUSAL = """
kernel(%d0 = 4, %d1 = tokens) dims(tokens) {
  ro q : bf16[tokens, 4, 24]
  ro k : bf16[tokens, 2, 24]
  ro v : bf16[tokens, 2, 20]
  wo y : bf16[tokens, 4, 20]
  local fold0 : f32[tokens]
  local kept1 : bf16[tokens]
  local kept2 : f32[tokens]
  local fold3 : f32
  local fold4 : f32
  local kept5 : bf16[tokens]
  local fold6 : f32[20]
  local kept7 : bf16[20]
  reduce(%d2 = tokens, %r0 = 24) {
    %v0 = load q[%d1, %d0, %r0]
    %v1 = load k[%d2, %d0 floordiv 2, %r0]
    %v2 = convert(%v0) : f32
    %v3 = convert(%v1) : f32
    %v4 = multiply(%v2, %v3) : f32
    fold %v4 from 0.0 with add into fold0
  }
  map(%d2 = tokens) {
    %v5 = read fold0[%d2]
    %v6 = convert(%v5) : bf16
    set kept1[%d2] = %v6
  }
  map(%d2 = tokens) {
    %v7 = read kept1[%d2]
    %v8 = constant 0.203125 : bf16
    %v9 = multiply(%v7, %v8) : bf16
    %v10 = convert(%v9) : f32
    %v11 = index [%d2] : i64
    %v12 = index [%d1] : i64
    %v13 = compare LE(%v11, %v12) : i1
    %v14 = constant -inf : f32
    %v15 = select(%v13, %v10, %v14) : f32
    set kept2[%d2] = %v15
  }
  reduce(%r0 = tokens) {
    %v16 = read kept2[%r0]
    fold %v16 from -inf with maximum into fold3
  }
  reduce(%r0 = tokens) {
    %v17 = read kept2[%r0]
    %v18 = read fold3[]
    %v19 = subtract(%v17, %v18) : f32
    %v20 = exponential(%v19) : f32
    fold %v20 from 0.0 with add into fold4
  }
  map(%d2 = tokens) {
    %v21 = read kept2[%d2]
    %v22 = read fold3[]
    %v23 = subtract(%v21, %v22) : f32
    %v24 = exponential(%v23) : f32
    %v25 = read fold4[]
    %v26 = divide(%v24, %v25) : f32
    %v27 = convert(%v26) : bf16
    set kept5[%d2] = %v27
  }
  reduce(%d2 = 20, %r0 = tokens) {
    %v28 = read kept5[%r0]
    %v29 = load v[%r0, %d0 floordiv 2, %d2]
    %v30 = convert(%v28) : f32
    %v31 = convert(%v29) : f32
    %v32 = multiply(%v30, %v31) : f32
    fold %v32 from 0.0 with add into fold6
  }
  map(%d2 = 20) {
    %v33 = read fold6[%d2]
    %v34 = convert(%v33) : bf16
    set kept7[%d2] = %v34
  }
  map(%d2 = 20) {
    %v35 = read kept7[%d2]
    store %v35 to y[%d1, %d0, %d2]
  }
}
"""

LOWEST = "-3.4028234663852886e+38"


@dataclass(frozen=True)
class Mask:
    """Lines that make `%v13`, whether a key is visible, of `%v11` and `%v12`, the places of key
    and row; and operands for them."""

    lines: str
    operands: str = ""
    past: str = ""
    hides_before: bool = False


MASKS = {
    "causal": Mask("%v13 = compare LE(%v11, %v12) : i1"),
    "turned": Mask("%v13 = compare GE(%v12, %v11) : i1"),
    "before": Mask("%v13 = compare LT(%v11, %v12) : i1"),
    "past": Mask(
        "%v40 = index [%d1 + past] : i64\n%v13 = compare LE(%v11, %v40) : i1", past="past"
    ),
    "added": Mask(
        "%v40 = index [past] : i64\n%v41 = add(%v12, %v40) : i64\n"
        "%v13 = compare LE(%v11, %v41) : i1",
        past="past",
    ),
    "late": Mask(
        "%v40 = constant 20 : i64\n%v41 = subtract(%v12, %v40) : i64\n"
        "%v13 = compare LE(%v11, %v41) : i1"
    ),
    "window": Mask(
        "%v40 = constant 9 : i64\n%v41 = subtract(%v12, %v40) : i64\n"
        "%v42 = compare LE(%v11, %v12) : i1\n%v43 = compare GT(%v11, %v41) : i1\n"
        "%v13 = and(%v42, %v43) : i1",
        hides_before=True,
    ),
    "distance": Mask(
        "%v40 = constant 30 : i64\n%v41 = subtract(%v12, %v11) : i64\n"
        "%v13 = compare LE(%v41, %v40) : i1",
        hides_before=True,
    ),
    "ends": Mask(
        "%v40 = load ends[%d0]\n%v41 = convert(%v11) : i32\n%v13 = compare LT(%v41, %v40) : i1",
        "ro ends : i32[4]\n",
    ),
    "ends of rows": Mask(
        "%v40 = load ends[%d1]\n%v41 = add(%v12, %v40) : i64\n%v42 = load firsts[%d0]\n"
        "%v43 = compare LE(%v11, %v41) : i1\n%v44 = compare GE(%v11, %v42) : i1\n"
        "%v13 = and(%v43, %v44) : i1",
        "ro ends : i64[tokens]\nro firsts : i64[4]\n",
        hides_before=True,
    ),
}


def with_mask(text: str, name: str, hidden: str) -> str:
    """The kernel `CAUSAL`, or one like it, with another mask; `hidden` for what it hides."""
    mask = MASKS[name]
    text = text.replace("%v13 = compare LE(%v11, %v12) : i1", mask.lines)
    text = text.replace("constant -inf : f32", f"constant {hidden} : f32")
    text = text.replace("  wo y", f"{mask.operands}  wo y")
    if mask.past:
        for before, after in (
            ("(%d2 = tokens", "(%d2 = tokens + past"),
            ("(%r0 = tokens", "(%r0 = tokens + past"),
            (", %r0 = tokens", ", %r0 = tokens + past"),
            ("[tokens]\n", "[tokens + past]\n"),
            ("[tokens, 2,", "[tokens + past, 2,"),
            ("dims(tokens)", "dims(tokens, past)"),
        ):
            text = text.replace(before, after)
    return text


def found(text: str) -> VisibleKeys | None:
    rows = as_softmax_rows(parse_kernel(text))
    assert rows is not None
    return visible_keys(rows)


@pytest.mark.parametrize(
    ("mask", "first", "last"),
    [
        ("causal", [], ["%d1"]),
        ("turned", [], ["%d1"]),
        ("before", [], ["%d1 - 1"]),
        ("past", [], ["%d1 + past"]),
        ("added", [], ["%d1 + past"]),
        ("late", [], ["%d1 - 20"]),
        ("window", ["%d1 - 8"], ["%d1"]),
        ("distance", ["%d1 - 30"], []),
    ],
)
@pytest.mark.parametrize("hidden", ["-inf", LOWEST])
def test_bounds_of_places(mask: str, first: list[str], last: list[str], hidden: str) -> None:
    seen = found(with_mask(CAUSAL, mask, hidden))
    assert seen is not None and seen.hidden == float(hidden)
    assert [str(b.place) for b in seen.first] == first
    assert [str(b.place) for b in seen.last] == last
    assert all(b.tree is None for b in (*seen.first, *seen.last))


def test_bounds_that_are_loaded() -> None:
    seen = found(with_mask(CAUSAL, "ends", "-inf"))
    assert seen is not None and not seen.first
    (last,) = seen.last
    assert str(last.place) == "-1" and last.tree is not None


def test_the_condition_may_say_what_is_hidden() -> None:
    text = CAUSAL.replace("compare LE(%v11", "compare GT(%v11")
    text = text.replace("select(%v13, %v10, %v14)", "select(%v13, %v14, %v10)")
    seen = found(text)
    assert seen is not None and [str(b.place) for b in seen.last] == ["%d1"]


def test_what_else_the_condition_says_stays_in_the_scores() -> None:
    text = CAUSAL.replace(
        "%v13 = compare LE(%v11, %v12) : i1",
        "%v40 = load allowed[%d2]\n%v41 = compare LE(%v11, %v12) : i1\n"
        "%v13 = and(%v41, %v40) : i1",
    ).replace("  wo y", "ro allowed : i1[tokens]\n  wo y")
    seen, plain = found(text), found(CAUSAL)
    assert seen is not None and plain is not None
    assert [str(b.place) for b in seen.last] == ["%d1"]
    assert "select" in str(seen.scores) and "select" not in str(plain.scores)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        # A hidden score that is no constant, one that an infinity might not hide,
        # a place times two, and conditions that do not compare places.
        ("select(%v13, %v10, %v14)", "select(%v13, %v10, %v10)"),
        ("%v14 = constant -inf : f32", "%v14 = constant inf : f32"),
        ("%v14 = constant -inf : f32", "%v14 = constant nan : f32"),
        ("index [%d2]", "index [2*%d2]"),
        ("compare LE(%v11, %v12)", "compare EQ(%v11, %v12)"),
        (
            "%v13 = compare LE(%v11, %v12) : i1",
            "%v40 = constant 0.5 : f32\n%v13 = compare LE(%v10, %v40) : i1",
        ),
    ],
)
def test_what_hides_nothing_for_sure(before: str, after: str) -> None:
    assert before in CAUSAL
    assert found(CAUSAL.replace(before, after)) is None


def test_an_addend_may_not_hide_an_infinite_score() -> None:
    """inf - inf is no number: what is added is no mask for sure."""
    text = CAUSAL.replace(
        "%v15 = select(%v13, %v10, %v14) : f32",
        "%v40 = constant 0.0 : f32\n%v41 = select(%v13, %v40, %v14) : f32\n"
        "%v15 = add(%v10, %v41) : f32",
    )
    assert found(text) is None


def test_hidden_is_an_exact_constant() -> None:
    text = CAUSAL.replace("%v14 = constant -inf : f32", "%v14 = constant -1e9 : f32")
    seen = found(text)
    assert seen is not None and seen.hidden == -1e9 and not math.isinf(seen.hidden)
