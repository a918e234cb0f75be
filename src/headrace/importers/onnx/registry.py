"""The table of ONNX operators: `@onnx_op("Conv")` on a function in `ops/<family>.py`.

Every module of `ops/` is loaded once; the function with the greatest `since` not above
the model's opset is the meaning of the operator there. Differences between opsets that
are small are handled inside, by `node.opset`.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable, Sequence
from functools import cache
from typing import TYPE_CHECKING, Any, TypeAlias, Union

from xdsl.ir import SSAValue

from headrace.importers.onnx.values import Value

if TYPE_CHECKING:
    from headrace.importers.onnx.context import NodeContext

Result: TypeAlias = Union[SSAValue, Value]
Handler: TypeAlias = Callable[["NodeContext"], Union[Result, Sequence[Result]]]
SizeRule: TypeAlias = Callable[["NodeContext", "list[Any]"], Any]

_HANDLERS: dict[tuple[str, str], list[tuple[int, Handler]]] = {}
_SIZE_RULES: dict[str, SizeRule] = {}


def onnx_op(*names: str, since: int = 1, domain: str = "") -> Callable[[Handler], Handler]:
    """Registers the meaning of operators from opset `since` on."""

    def register(handler: Handler) -> Handler:
        for name in names:
            versions = _HANDLERS.setdefault((domain, name), [])
            versions.append((since, handler))
            versions.sort(key=lambda item: item[0])
        return handler

    return register


def size_rule(*names: str) -> Callable[[SizeRule], SizeRule]:
    """Registers how operators compute on sizes.

    The rule gets the context and one object array of `Expr` an input (None where left
    out), and returns such an array, or None where the result is not known as sizes.
    """

    def register(rule: SizeRule) -> SizeRule:
        for name in names:
            _SIZE_RULES[name] = rule
        return rule

    return register


@cache
def load_operators() -> None:
    """Loads every family, so that the table is full."""
    package = importlib.import_module("headrace.importers.onnx.ops")
    for info in sorted(pkgutil.iter_modules(package.__path__), key=lambda i: i.name):
        importlib.import_module(f"headrace.importers.onnx.ops.{info.name}")


def find_handler(domain: str, op_type: str, opset: int) -> Handler | None:
    """The function for an operator at an opset; None where it is not supported."""
    load_operators()
    found: Handler | None = None
    for since, handler in _HANDLERS.get((domain, op_type), ()):
        if since <= opset:
            found = handler
    return found


def find_size_rule(domain: str, op_type: str) -> SizeRule | None:
    """The rule for sizes of an operator; None where there is none."""
    load_operators()
    return None if domain else _SIZE_RULES.get(op_type)


def supported_operators() -> dict[tuple[str, str], tuple[int, ...]]:
    """(domain, operator) -> the opsets from which a meaning is registered."""
    load_operators()
    return {key: tuple(s for s, _ in rows) for key, rows in sorted(_HANDLERS.items())}
