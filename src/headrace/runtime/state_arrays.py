"""Arrays that a step updates where they stand: outputs that take the place of inputs.

An input that the caller donates is overwritten and becomes the output: nothing is copied.
One that he does not is copied first, into the output, so that he finds it as it was.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from headrace.artifact import schema
from headrace.base.errors import Diagnostic, Problems
from headrace.runtime.arrays import ALIGNMENT_BYTES, address_of, overlapping


@dataclass
class Bound:
    """The arrays of one step.

    Attributes:
        inputs, outputs: as the driver wants them: state is one array in both.
        back: (the caller's array, number of the output to copy to it) after the step.
    """

    inputs: list[Any]
    outputs: list[Any]
    back: list[tuple[Any, int]] = field(default_factory=list[tuple[Any, int]])

    def finish(self) -> list[Any]:
        """The outputs for the caller, after the step."""
        for array, number in self.back:
            np.copyto(array, self.outputs[number])
            self.outputs[number] = array
        return self.outputs


class StateArrays:
    """Binds the arrays of calls of one entry function.

    Attributes:
        aliases: (output, input) of every output that takes an input's place.
    """

    def __init__(self, function: schema.EntryFunction) -> None:
        self.aliases = function.aliases
        self._name = function.name
        self._inputs = {function.inputs[before].name: before for _, before in self.aliases}

    def donated(self, donate: bool | Sequence[str]) -> frozenset[int]:
        """Numbers of the inputs that may be overwritten.

        Args:
            donate: their names; True for all that an output takes the place of.

        Raises:
            HeadraceError HR4009: no output takes the place of an input of that name.
        """
        if isinstance(donate, bool):
            return frozenset(self._inputs.values()) if donate else frozenset()
        problems = Problems()
        for name in (donate,) if isinstance(donate, str) else donate:
            if name not in self._inputs:
                fact = f"input '{name}' cannot be donated: no output takes its place"
                listed = ", ".join(self._inputs) or "no inputs"
                note = f"function '{self._name}' updates {listed}"
                cure = "compile the model with --alias INPUT=OUTPUT"
                problems.add(Diagnostic("HR4009", fact, notes=(note,), helps=(cure,)))
        problems.raise_if_any()
        return frozenset(self._inputs[name] for name in donate)

    def bind(
        self,
        arrays: Sequence[Any],
        makers: Sequence[Callable[[], Any]],
        out: Sequence[Any] | None,
        donated: frozenset[int],
    ) -> Bound:
        """The arrays of a step.

        Args:
            arrays: inputs, C-contiguous.
            makers: each makes an array for an output.
            out: the caller's arrays for outputs, checked; the array of an input itself
                donates it.
            donated: inputs that may be overwritten.
        """
        bound = Bound(list(arrays), list(out) if out is not None else [None] * len(makers))
        shared = overlapping(arrays) if donated else frozenset[int]()
        for after, before in self.aliases:
            given, wanted = arrays[before], bound.outputs[after]
            ours = before in donated and before not in shared
            place = given if wanted is None and ours else wanted
            if place is None or not _is_usable(place):
                place = makers[after]()
                if wanted is not None:
                    bound.back.append((wanted, after))
            if place is not given:
                np.copyto(place, given)
            bound.inputs[before] = bound.outputs[after] = place
        for number, make in enumerate(makers):
            if bound.outputs[number] is None:
                bound.outputs[number] = make()
        return bound


def _is_usable(array: Any) -> bool:
    """Whether kernels may update an array where it stands."""
    return array.flags.writeable and address_of(array) % ALIGNMENT_BYTES == 0
