"""What the targets of a class wish, and wishes written in the text of a kernel's entry.

`hr.wishes` on an entry function names operands: an order of dimensions, then a halo
(elements before / behind each dimension = what it holds), a panel (dimension and tile of a
packed weight; `transform winograd` behind it) and `strict`, each where wanted::

    attributes {hr.wishes = {x = "0 2 3 1 halo 0 0 1 1 / 0 0 1 1 = 0.0 strict",
                             w = "0 panel 1 16 strict"}}

For kernels written by hand and for text tests; they come before the targets' own.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from xdsl.dialects.builtin import DictionaryAttr, StringAttr
from xdsl.dialects.func import FuncOp

from headrace.base.errors import error
from headrace.ir.locations import places
from headrace.kernel.description import Kernel, Scalar
from headrace.kernel.target import LayoutWish, Target

WISHES = "hr.wishes"

_WISH = re.compile(
    r"(?P<order>\d+(?: \d+)*)?"
    r"(?: ?halo (?P<low>\d+(?: \d+)*) / (?P<high>\d+(?: \d+)*) = (?P<value>[-\w.+]+))?"
    r"(?: ?panel (?P<dimension>\d+) (?P<tile>\d+)(?: transform (?P<transform>\w+))?)?"
    r"(?P<strict> ?strict)?"
)


def merged_wishes(
    function: FuncOp, kernel: Kernel, targets: Sequence[Target]
) -> dict[int, LayoutWish]:
    """Wishes by operand; of targets of one class the first that has one decides.

    A wish whose order does not fit the operand's rank is ignored.

    Raises:
        HeadraceError HR2404: a written wish cannot be read.
    """
    found = _written(function, kernel)
    for target in targets:
        for number, wish in sorted(target.layout_wishes(kernel).items()):
            rank = len(kernel.operands[number].shape) - (wish.panel is not None)
            if len(wish.order) == rank:
                found.setdefault(number, wish)
    return found


def _written(function: FuncOp, kernel: Kernel) -> dict[int, LayoutWish]:
    given = function.attributes.get(WISHES)
    if not isinstance(given, DictionaryAttr):
        return {}
    numbers = {operand.name: n for n, operand in enumerate(kernel.operands)}
    found: dict[int, LayoutWish] = {}
    for name, text in given.data.items():
        wish = read_wish(text.data) if isinstance(text, StringAttr) else None
        if wish is None or name not in numbers:
            raise error(
                "HR2404",
                f"@{function.sym_name.data} has no readable wish for operand '{name}': {text}",
                at=places(function),
            )
        found[numbers[name]] = wish
    return found


def read_wish(text: str) -> LayoutWish | None:
    """The wish a text says; None where it says none."""
    match = _WISH.fullmatch(text.strip())
    if match is None:
        return None
    panel = (int(match["dimension"]), int(match["tile"])) if match["dimension"] else None
    return LayoutWish(
        _numbers(match["order"]),
        _numbers(match["low"]),
        _numbers(match["high"]),
        _scalar(match["value"]) if match["value"] else None,
        panel,
        bool(match["strict"]),
        match["transform"] or "",
    )


def _numbers(text: str | None) -> tuple[int, ...]:
    return tuple(int(word) for word in (text or "").split())


def _scalar(text: str) -> Scalar:
    return int(text) if re.fullmatch(r"-?\d+", text) else float(text)
