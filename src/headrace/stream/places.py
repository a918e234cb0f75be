"""Where an operation stands, for messages: the user's model, else the symbols around it."""

from __future__ import annotations

from xdsl.dialects.builtin import StringAttr
from xdsl.ir import Operation

from headrace.ir.locations import places


def place_of(op: Operation) -> tuple[str, ...]:
    """The places an operation came from; `@executable::@function` where none is known."""
    found = places(op)
    if found:
        return found
    names: list[str] = []
    at: Operation | None = op
    while at is not None:
        name = at.get_attr_or_prop("sym_name")
        if isinstance(name, StringAttr):
            names.append(f"@{name.data}")
        at = at.parent_op()
    return ("::".join(reversed(names)),) if names else ()
