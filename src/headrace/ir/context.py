"""The xDSL context with headrace's dialects, each loaded on first use."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from xdsl.context import Context
from xdsl.dialects.builtin import Builtin
from xdsl.dialects.func import Func
from xdsl.ir import Dialect

from headrace.ir import hex_floats


def make_context(dialects: Iterable[tuple[str, Callable[[], Dialect]]]) -> Context:
    """A context that knows builtin, func and the dialects given by name and loader."""
    hex_floats.install()
    context = Context()
    context.load_dialect(Builtin)
    context.load_dialect(Func)
    for name, loader in dialects:
        context.register_dialect(name, loader)
    return context
