"""What all programs of a module share: code, and weights in the order of their first use."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, field

from headrace.artifact.writer import WeightSpec
from headrace.base.exponent_codes import ExponentCodes
from headrace.base.parameters import ExpressionSource, Source, size_bytes

PACKED_SUFFIX = re.compile(r"\$layout\d+$")
"""What `flow-assign-layouts` puts behind a parameter's name for a packed copy."""


@dataclass
class Blobs:
    """Code, each distinct blob once."""

    data: list[bytes] = field(default_factory=list[bytes])
    known: dict[bytes, int] = field(default_factory=dict[bytes, int])

    def index(self, code: bytes) -> int:
        if code not in self.known:
            self.known[code] = len(self.data)
            self.data.append(code)
        return self.known[code]


@dataclass
class _WeightUse:
    """What is known of one weight: the steps of all its users, and its rows.

    Attributes:
        steps: bytes at which each user may cut it; 0 for one that may not.
        rows: bytes of the rows each user gathers; 0 for one that reads otherwise.
    """

    name: str
    source: Source
    steps: list[int] = field(default_factory=list[int])
    rows: list[int] = field(default_factory=list[int])


class Weights:
    """The weights of all classes, in order of first use."""

    def __init__(self) -> None:
        self._known: dict[tuple[str, str], int] = {}
        self._uses: list[_WeightUse] = []

    def index(self, name: str, source: Source) -> int:
        plain = PACKED_SUFFIX.sub("", name)
        key = (plain, source.digest)
        if key not in self._known:
            self._known[key] = len(self._uses)
            self._uses.append(_WeightUse(plain, source))
        return self._known[key]

    def use(self, index: int, step: int, row: int) -> None:
        self._uses[index].steps.append(step)
        self._uses[index].rows.append(row)

    def _join_equal(self) -> None:
        """A source under several names is stored once, so it is cut for all of its users."""
        first: dict[str, _WeightUse] = {}
        for use in self._uses:
            known = first.setdefault(use.source.digest, use)
            if known is not use:
                known.steps += use.steps
                known.rows += use.rows
                use.steps, use.rows = known.steps, known.rows

    def specs(self) -> list[WeightSpec]:
        self._join_equal()
        found: list[WeightSpec] = []
        for use in self._uses:
            logical, codes = use.source, None
            if isinstance(logical, ExpressionSource) and logical.operation == "exponent_codes":
                codes = ExponentCodes(**dict(logical.attributes))
                logical = logical.operands[0]
            if isinstance(logical, ExpressionSource) and logical.operation == "pack":
                logical = logical.operands[0]
            if isinstance(logical, ExpressionSource) and logical.operation == "winograd":
                logical = logical.operands[0]
            size = size_bytes(use.source)
            row = use.rows[0] if use.rows and len(set(use.rows)) == 1 else 0
            step = math.lcm(*use.steps) if use.steps and all(use.steps) and not row else 0
            found.append(
                WeightSpec(
                    use.name,
                    use.source,
                    size,
                    step if step < size else 0,
                    logical.dtype,
                    logical.shape,
                    row,
                    len(use.steps),
                    codes,
                )
            )
        return found
