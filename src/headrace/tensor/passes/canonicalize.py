"""Brings operations to one form and drops those that do nothing.

Movement that moves nothing, reshapes of reshapes, transposes of transposes, arithmetic
with neutral constants, powers that are products, operations of broadcasts (which become
broadcasts of operations). Constants go to the right. Copies stay: see `elide_copies`.
The rules are in `tensor/rules/`; exact but for the licences named in `rules/arithmetic.py`
and `rules/products.py`.
"""

from __future__ import annotations

from dataclasses import dataclass

from headrace.ir.model import Model
from headrace.ir.passes import Pass
from headrace.tensor.rewrite import apply_rules, functions
from headrace.tensor.rules import arithmetic, movement, products, reductions

RULES = {**movement.RULES, **arithmetic.RULES, **reductions.RULES, **products.RULES}


@dataclass(frozen=True)
class Canonicalize(Pass):
    """Applies every rule until none fits."""

    def run(self, model: Model) -> None:
        for _function, block in functions(model):
            apply_rules(block, RULES)
