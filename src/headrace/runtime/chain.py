"""Functions that go on in others: sizes that data decides are read back between them.

Each function of a chain is planned when its sizes are known, and plans are kept by sizes as
those of any function. What one hands to the next stands in arrays of the host.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from headrace.artifact import schema
from headrace.base.errors import error
from headrace.runtime.executor import Executor
from headrace.runtime.outputs import Outputs, outputs_type

if TYPE_CHECKING:
    from headrace.runtime.session import Session


def chain_of(program: schema.Program, index: int) -> list[int]:
    """A function and those it goes on in, in order."""
    found = [index]
    while (following := program.functions[found[-1]].following) is not None:
        found.append(following.function)
    return found


def followers(program: schema.Program) -> frozenset[int]:
    """Functions that only go on from others: the user does not call them."""
    return frozenset(f.following.function for f in program.functions if f.following)


def results_of(program: schema.Program, index: int) -> tuple[schema.TensorSignature, ...]:
    """What the user gets of a function, whichever of its chain makes it."""
    function = program.functions[index]
    if function.following is None:
        return function.outputs
    made = {o.name: o for n in chain_of(program, index) for o in program.functions[n].outputs}
    return tuple(made[name] for name in function.following.results)


def synchronisation_note(program: schema.Program, index: int) -> str:
    """What the report says of a function that reads sizes back; empty for others."""
    parts = [program.functions[n].following for n in chain_of(program, index)]
    names = [name for part in parts if part is not None for name, _ in part.sizes]
    if not names:
        return ""
    points = len(parts) - 1
    return (
        f"data decides {', '.join(names)}: the program plans again at {points} "
        f"synchronisation point{'s' if points > 1 else ''}, so its peak is not known beforehand"
    )


class ChainExecutor:
    """Calls a function that goes on in others, as `Executor` does one that does not."""

    def __init__(self, session: Session, index: int) -> None:
        program = session.module.program
        self._parts = [Executor(session, n) for n in chain_of(program, index)]
        self._head = self._parts[0]
        self._results = tuple(o.name for o in results_of(program, index))
        self._outputs = outputs_type(self._results)
        self._most = {d.name: d.maximum for d in session.module.artifact.module.dimensions}

    def __call__(
        self,
        args: Sequence[Any],
        kwargs: Mapping[str, Any],
        out: Sequence[Any] | None = None,
        donate: bool | Sequence[str] = (),
    ) -> Outputs:
        """Runs all parts; see `Session.__call__`.

        Raises:
            HeadraceError HR4016: `out` or `donate` are given; HR4015: data gives a size a
                value out of its range.
        """
        if out is not None or donate:
            raise error(
                "HR4016",
                "sizes of outputs are not known before the call: out= and donate= cannot be",
                helps="call it without them",
            )
        matcher = self._head.matcher
        arrays = matcher.bind(args, kwargs)
        values = dict(zip(matcher.names, arrays, strict=True))
        dims = dict[str, int]()
        for part in self._parts:
            outputs, dims = part.run_named(values, dims)
            values.update(outputs)
            following = part.function.following
            for name, output in following.sizes if following is not None else ():
                dims[name] = self._size(name, values[output])
        return self._outputs([values[name] for name in self._results])

    def _size(self, name: str, value: Any) -> int:
        size, most = int(np.asarray(value)), self._most.get(name)
        if size < 0 or (most is not None and size > most):
            upper = "and more" if most is None else f"to {most}"
            raise error(
                "HR4015",
                f"data gives size '{name}' the value {size}",
                notes=f"it may be 0 {upper}",
            )
        return size

    @property
    def head(self) -> Executor:
        """The executor of the first function."""
        return self._head

    def forget(self) -> None:
        """Drops all prepared plans."""
        for part in self._parts:
            part.forget()
