"""One entry function on one session: shapes seen before run without planning again."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from time import perf_counter_ns
from typing import TYPE_CHECKING, Any

import numpy as np

from headrace.base.errors import Diagnostic, Problems
from headrace.plan.model import Plan
from headrace.runtime.arrays import array_maker, overlapping
from headrace.runtime.drivers.api import Step
from headrace.runtime.outputs import Outputs, outputs_type
from headrace.runtime.signature import Matcher
from headrace.runtime.state_arrays import StateArrays

if TYPE_CHECKING:
    from headrace.runtime.session import Session

_ndarray = np.ndarray
_MOST_KEPT = 64
"""Prepared shapes per function; the oldest goes first."""


@dataclass
class Prepared:
    """A plan made ready for one set of input shapes.

    Attributes:
        outputs: shape and numpy dtype of each output.
        makers: each makes an array for an output.
        versions: of the module's budget and the session's slab it was made for.
    """

    plan: Plan
    step: Step
    outputs: tuple[tuple[tuple[int, ...], Any], ...]
    makers: tuple[Callable[[], Any], ...]
    versions: tuple[int, int]


class Executor:
    """Calls one entry function; the session's lock is held around every method."""

    def __init__(self, session: Session, function_index: int) -> None:
        self._session = session
        self.index = function_index
        module = session.module
        self.function = module.program.functions[function_index]
        self.matcher = Matcher(self.function, module.artifact.module.dimensions)
        self._outputs = outputs_type(tuple(o.name for o in self.function.outputs))
        self._dtypes = self.matcher.dtypes
        self._names = self.matcher.names
        self._arity = len(self.function.inputs)
        self._state = StateArrays(self.function)
        self._has_aliases = bool(self._state.aliases)
        self._prepared: dict[tuple[Any, ...], Prepared] = {}

    def __call__(
        self,
        args: Sequence[Any],
        kwargs: Mapping[str, Any],
        out: Sequence[Any] | None = None,
        donate: bool | Sequence[str] = (),
    ) -> Outputs:
        """Runs one step; see `Session.__call__`."""
        if self._has_aliases or donate:
            return self._run_on_state(args, kwargs, out, self._state.donated(donate))
        session = self._session
        arrays = self._quick(args, kwargs) or self.matcher.bind(args, kwargs)
        key = tuple([array.shape for array in arrays])
        prepared = self._prepared.get(key)
        if prepared is None or prepared.versions != session.versions():
            prepared = self._prepare(key, arrays)
        if out is None:
            results = [make() for make in prepared.makers]
        else:
            results = self._given(out, prepared)
            self._check_apart(arrays, results)
        start = perf_counter_ns()
        prepared.step.run(arrays, results)
        session.note_step(self, prepared, perf_counter_ns() - start)
        return self._outputs(results)

    @property
    def head(self) -> Executor:
        """The executor of the first function of a chain: itself."""
        return self

    def _run_on_state(
        self,
        args: Sequence[Any],
        kwargs: Mapping[str, Any],
        out: Sequence[Any] | None,
        donated: frozenset[int],
    ) -> Outputs:
        arrays = self.matcher.bind(args, kwargs)
        prepared = self.prepare(arrays)
        given = None if out is None else self._given(out, prepared)
        bound = self._state.bind(arrays, prepared.makers, given, donated)
        start = perf_counter_ns()
        prepared.step.run(bound.inputs, bound.outputs)
        self._session.note_step(self, prepared, perf_counter_ns() - start)
        return self._outputs(bound.finish())

    def _quick(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Sequence[Any] | None:
        """The inputs in order where they are all given one way and all of the right kind."""
        if kwargs:
            if args or len(kwargs) != self._arity:
                return None
            args = [kwargs.get(name) for name in self._names]
        elif len(args) != self._arity:
            return None
        for array, dtype in zip(args, self._dtypes, strict=True):
            if (
                type(array) is not _ndarray
                or array.dtype is not dtype
                or not array.flags.c_contiguous
            ):
                return None
        return args

    def run_named(
        self, values: Mapping[str, Any], dims: Mapping[str, int]
    ) -> tuple[dict[str, Any], dict[str, int]]:
        """One step on the arrays of its inputs' names: outputs by name, and all dimensions.

        Args:
            dims: those that are known.
        """
        arrays = self.matcher.bind((), {n: values[n] for n in self.matcher.names})
        key = (*[array.shape for array in arrays], *sorted(dims.items()))
        prepared = self._prepared.get(key)
        if prepared is None or prepared.versions != self._session.versions():
            prepared = self._prepare(key, arrays, dims)
        results = [make() for make in prepared.makers]
        start = perf_counter_ns()
        prepared.step.run(arrays, results)
        self._session.note_step(self, prepared, perf_counter_ns() - start)
        return dict(self._outputs(results).items()), dict(prepared.plan.dims)

    def prepare(self, arrays: Sequence[Any]) -> Prepared:
        """The prepared plan for arrays of these shapes, made where there is none."""
        key = tuple([array.shape for array in arrays])
        prepared = self._prepared.get(key)
        if prepared is None or prepared.versions != self._session.versions():
            prepared = self._prepare(key, arrays)
        return prepared

    def _prepare(
        self,
        key: tuple[Any, ...],
        arrays: Sequence[Any],
        known: Mapping[str, int] | None = None,
    ) -> Prepared:
        session = self._session
        dims = self.matcher.solve(arrays, known)
        outputs = self.output_shapes(dims)
        plan, step = session.prepare(self, dims)
        # Kept memory would be the module's own, which a limit counts.
        recycles = session.module.memory_limit is None
        makers = tuple(array_maker(shape, dtype, recycles) for shape, dtype in outputs)
        prepared = Prepared(plan, step, outputs, makers, session.versions())
        versions = prepared.versions
        stale = [k for k, p in self._prepared.items() if p.versions != versions]
        for old in stale:
            del self._prepared[old]
        while len(self._prepared) >= _MOST_KEPT:
            del self._prepared[next(iter(self._prepared))]
        self._prepared[key] = prepared
        return prepared

    def output_shapes(self, dims: Mapping[str, int]) -> tuple[tuple[tuple[int, ...], Any], ...]:
        """Shape and numpy dtype of each output at `dims`."""
        return tuple(
            (tuple(e.evaluate(dims) for e in o.shape), o.dtype.numpy_dtype)
            for o in self.function.outputs
        )

    def _given(self, out: Sequence[Any], prepared: Prepared) -> list[Any]:
        """The user's output arrays, checked: the step writes into them."""
        problems = Problems()
        if len(out) != len(prepared.outputs):
            fact = f"out= has {len(out)} arrays for {len(prepared.outputs)} outputs"
            problems.add(Diagnostic("HR4004", fact))
            problems.raise_if_any()
        for signature, array, (shape, dtype) in zip(
            self.function.outputs, out, prepared.outputs, strict=True
        ):
            name = f"out= array for '{signature.name}'"
            if not isinstance(array, _ndarray) or array.dtype != dtype or array.shape != shape:
                sizes = "x".join(map(str, (*shape, signature.dtype.name)))
                problems.add(Diagnostic("HR4004", f"the {name} is not {sizes}"))
            elif not (array.flags.c_contiguous and array.flags.writeable):
                problems.add(Diagnostic("HR4004", f"the {name} is not contiguous and writable"))
        problems.raise_if_any()
        return list(out)

    def _check_apart(self, arrays: Sequence[Any], out: Sequence[Any]) -> None:
        """Kernels read inputs after they have begun to write outputs."""
        problems = Problems()
        for number in sorted(overlapping((*arrays, *out))):
            if number >= len(arrays):
                name = self.function.outputs[number - len(arrays)].name
                fact = f"the out= array for '{name}' shares bytes with an input or output"
                cure = "give an array of its own"
                problems.add(Diagnostic("HR4004", fact, helps=(cure,)))
        problems.raise_if_any()

    def forget(self) -> None:
        """Drops all prepared plans."""
        self._prepared.clear()
