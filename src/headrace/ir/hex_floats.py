"""Mends xDSL 0.74: hexadecimal literals in `dense<>` of a float type are bit patterns.

xDSL reads `dense<0xFF800000> : tensor<f32>` (-inf, the start of every max) as the number
4286578688 and prints -inf that way itself. `install` is idempotent; `ir/context.py` calls
it. Delete this file when the pinned xDSL reads its own output.
"""

from __future__ import annotations

from typing import Any

from xdsl.dialects.builtin import AnyFloat
from xdsl.parser import attribute_parser

_ELEMENT: Any = attribute_parser.AttrParser._TensorLiteralElement  # pyright: ignore
_READ_AS_NUMBER: Any = _ELEMENT.to_type


def _to_type(self: Any, parser: Any, type: Any) -> Any:
    if isinstance(type, AnyFloat):
        text = self.span.text.lower()
        if text.startswith("0x"):
            size: int = type.compile_time_size  # pyright: ignore
            bits = int(text, 16).to_bytes(size, "little")
            return type.unpack(bits, 1)[0]  # pyright: ignore
    return _READ_AS_NUMBER(self, parser, type)


def install() -> None:
    """Makes every parser read hexadecimal float elements as bit patterns."""
    _ELEMENT.to_type = _to_type
