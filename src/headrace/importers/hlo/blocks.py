"""Functions of several blocks as one loop: each trip runs the block whose number it carries.

Text of 2019 and 2020 branches between blocks (`br`, `cond_br`); nothing later does. What one
block defines and another reads is carried from trip to trip, beside the arguments of blocks
and what the function returns. The first block runs before the loop.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from headrace.base.dtypes import BY_NAME
from headrace.importers.hlo.tree import HloOperation, HloRegion, HloTensorType, HloType

_NUMBER = HloTensorType(BY_NAME["i32"], ())
_HOLDS = HloTensorType(BY_NAME["i1"], ())
_BLOCK = "%block"


@dataclass
class HloBlock:
    """A block: its label (empty for the first), its arguments and its operations.

    The last operation is a `return`, or a `br` or `cond_br` whose attribute `targets` holds
    a label and the names handed over for each block that may follow.
    """

    label: str
    arguments: list[tuple[str, HloType]]
    operations: list[HloOperation]


class NotStructured(ValueError):
    """Blocks that no loop stands for; the text says why, in lower case."""


def as_one_block(blocks: Sequence[HloBlock], results: Sequence[HloType]) -> list[HloOperation]:
    """The operations of a function of one block that computes the same.

    Args:
        blocks: the first is where the function begins.
        results: types of what the function returns.

    Raises:
        NotStructured: a block is missing, or a carried value has no known size.
    """
    if len(blocks) == 1:
        return blocks[0].operations
    return _Loop(blocks, results).operations()


class _Loop:
    def __init__(self, blocks: Sequence[HloBlock], results: Sequence[HloType]) -> None:
        self.first, *self.others = blocks
        self.numbers = {block.label: n for n, block in enumerate(self.others)}
        self.results = [(f"%result.{n}", kind) for n, kind in enumerate(results)]
        self.carried = [*self._carried(), *self.results]
        self.made = 0

    def _carried(self) -> Iterator[tuple[str, HloType]]:
        used: dict[str, set[str]] = {}
        for block in self.others:
            for name in _reads(block.operations):
                used.setdefault(name, set()).add(block.label)
        for block in self.others:
            yield from block.arguments
            for operation in block.operations:
                # Text names a type behind `return` too, which has no result.
                for name, kind in zip(operation.results, operation.result_types, strict=False):
                    if used.get(name, set()) - {block.label}:
                        yield name, kind

    def operations(self) -> list[HloOperation]:
        before, end = self.first.operations[:-1], self.first.operations[-1]
        before += [self._nothing(name, kind, end.place) for name, kind in self.carried]
        values = self._next(end, before)
        kinds: list[HloType] = [_NUMBER, *(kind for _, kind in self.carried)]
        after = [f"{name}.after" for name in (_BLOCK, *(n for n, _ in self.carried))]
        loop = HloOperation(
            "xla_hlo.while", values, after, {}, kinds, kinds, end.place,
            [self._condition(kinds, end.place), self._body(kinds, end.place)],
        )  # fmt: skip
        returned = [f"{name}.after" for name, _ in self.results]
        types = [kind for _, kind in self.results]
        return [
            *before,
            loop,
            HloOperation("std.return", returned, [], {}, types, [], end.place),
        ]

    def _condition(self, kinds: Sequence[HloType], place: str) -> HloRegion:
        """Goes on until a block has returned."""
        names = [f"%condition.{n}" for n in range(len(kinds))]
        last, goes_on = self._number(len(self.others), place), "%condition.holds"
        compare = HloOperation(
            "xla_hlo.compare", [names[0], last.results[0]], [goes_on],
            {"comparison_direction": "NE"}, [_NUMBER, _NUMBER], [_HOLDS], place,
        )  # fmt: skip
        end = HloOperation("xla_hlo.return", [goes_on], [], {}, [_HOLDS], [], place)
        return HloRegion(list(zip(names, kinds, strict=True)), [last, compare, end])

    def _body(self, kinds: list[HloType], place: str) -> HloRegion:
        after = [f"%chosen.{n}" for n in range(len(kinds))]
        regions = [HloRegion([], self._branch(block, kinds)) for block in self.others]
        choice = HloOperation(
            "xla_hlo.case", [_BLOCK], after, {}, [_NUMBER], kinds, place, regions
        )
        end = HloOperation("xla_hlo.return", after, [], {}, kinds, [], place)
        return HloRegion([(_BLOCK, _NUMBER), *self.carried], [choice, end])

    def _branch(self, block: HloBlock, kinds: list[HloType]) -> list[HloOperation]:
        made, end = block.operations[:-1], block.operations[-1]
        values = self._next(end, made)
        return [*made, HloOperation("xla_hlo.return", values, [], {}, kinds, [], end.place)]

    def _next(self, end: HloOperation, made: list[HloOperation]) -> list[str]:
        """The number of the block that follows, and what is carried to it."""
        if end.name.endswith("return"):
            if len(end.operands) != len(self.results):
                raise NotStructured(f"{end.place} returns {len(end.operands)} values")
            given = dict(zip((name for name, _ in self.results), end.operands, strict=True))
            return self._state(len(self.others), given, made, end.place)
        targets: list[tuple[str, list[str]]] = end.attributes.get("targets", [])
        if not targets:
            raise NotStructured(f"the block does not end at {end.place}")
        states: list[list[str]] = []
        for label, names in targets:
            if label not in self.numbers:
                raise NotStructured(f"there is no block '{label}'")
            arguments = self.others[self.numbers[label]].arguments
            if len(arguments) != len(names):
                raise NotStructured(
                    f"'{label}' takes {len(arguments)} values, not {len(names)}"
                )
            given = dict(zip((name for name, _ in arguments), names, strict=True))
            states.append(self._state(self.numbers[label], given, made, end.place))
        if len(states) == 1:
            return states[0]
        kinds: list[HloType] = [_NUMBER, *(kind for _, kind in self.carried)]
        return [
            one if one == other else self._select(end, one, other, kind, made)
            for one, other, kind in zip(states[0], states[1], kinds, strict=True)
        ]

    def _state(
        self, number: int, given: dict[str, str], made: list[HloOperation], place: str
    ) -> list[str]:
        following = self._number(number, place)
        made.append(following)
        return [following.results[0], *(given.get(name, name) for name, _ in self.carried)]

    def _select(
        self, end: HloOperation, one: str, other: str, kind: HloType, made: list[HloOperation]
    ) -> str:
        name = self._fresh("select")
        made.append(
            HloOperation(
                "xla_hlo.select", [end.operands[0], one, other], [name], {},
                [_HOLDS, kind, kind], [kind], end.place,
            )
        )  # fmt: skip
        return name

    def _number(self, number: int, place: str) -> HloOperation:
        import numpy as np

        value = {"value": np.array(number, np.int32)}
        return HloOperation(
            "std.constant", [], [self._fresh("number")], value, [], [_NUMBER], place
        )

    def _nothing(self, name: str, kind: HloType, place: str) -> HloOperation:
        """What a value is before its block has run: nothing reads it."""
        import numpy as np

        if not isinstance(kind, HloTensorType) or not all(s.is_constant for s in kind.shape):
            raise NotStructured(f"'{name}' goes from block to block and is a {kind}")
        value = {"value": np.zeros((), kind.dtype.numpy_dtype)}
        return HloOperation("std.constant", [], [name], value, [], [kind], place)

    def _fresh(self, stem: str) -> str:
        self.made += 1
        return f"%{stem}.{self.made}"


def _reads(operations: Sequence[HloOperation]) -> Iterator[str]:
    for operation in operations:
        yield from operation.operands
        for _, names in _targets(operation):
            yield from names
        for region in operation.regions:
            yield from _reads(region.operations)


def _targets(operation: HloOperation) -> list[tuple[str, list[Any]]]:
    return operation.attributes.get("targets", [])
