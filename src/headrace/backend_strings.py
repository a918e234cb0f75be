"""Models with strings on the ONNX backend: strings on the host, the rest compiled.

Compiled code has no strings. Nodes that take or give them run by their numpy meaning before or
after the compiled part (`importers/onnx/strings`), and the report counts them as interpreted.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, Protocol

import numpy as np
import onnx
from onnx.backend.base import BackendRep

from headrace.importers.onnx.strings.meaning import strings
from headrace.importers.onnx.strings.split import SplitModel
from headrace.runtime.report import Report

_MOST_KEPT = 16


class Compiled(Protocol):
    """What the part without strings becomes: `HeadraceRep`."""

    specialised: bool

    def run(self, inputs: Any, **kwargs: Any) -> tuple[Any, ...]: ...

    def report(self) -> Report | None: ...

    def close(self) -> None: ...


class StringRep(BackendRep):
    """A model with strings, made ready; `HeadraceRep` is for others.

    Attributes:
        specialised: whether contents of inputs are compiled in.
    """

    def __init__(self, parts: SplitModel, make: Callable[[onnx.ModelProto], Compiled]) -> None:
        """
        Args:
            make: compiles the part without strings, once for each shape that it takes from
                strings.
        """
        self._parts = parts
        self._make = make
        self._kept: dict[Any, Compiled] = {}
        self._last: Compiled | None = None
        graph = parts.model.graph
        weights = {t.name for t in graph.initializer}
        self.input_names = tuple(v.name for v in graph.input if v.name not in weights)
        self.specialised = False

    def run(self, inputs: Any, **kwargs: Any) -> tuple[Any, ...]:
        """Computes all outputs; strings are arrays of `str`, maps dictionaries.

        Args:
            inputs: as `HeadraceRep.run`.

        Raises: as `HeadraceRep.run`.
        """
        parts = self._parts
        if not isinstance(inputs, Mapping):
            several = inputs if isinstance(inputs, (list, tuple)) else [inputs]
            inputs = dict(zip(self.input_names, several, strict=False))
        values: dict[str, Any] = {"": None, **parts.constants}
        values.update({name: _taken(value) for name, value in inputs.items()})
        for node in parts.before:
            node.run(values)
        if parts.compiled:
            given = {name: values[name] for name in parts.given}
            found = self._last = self._compiled(given)
            values.update(zip(parts.made, found.run(given), strict=True))
            self.specialised = found.specialised
        for node in parts.after:
            node.run(values)
        return tuple(values[o.name] for o in parts.model.graph.output)

    def _compiled(self, given: Mapping[str, Any]) -> Compiled:
        from_host = {o for node in self._parts.before for o in node.node.outputs}
        key = tuple((n, a.shape) for n, a in given.items() if n in from_host)
        if key not in self._kept:
            while len(self._kept) >= _MOST_KEPT:
                self._kept.pop(next(iter(self._kept))).close()
            self._kept[key] = self._make(self._parts.compiled_model(given))
        return self._kept[key]

    def report(self) -> Report:
        """What the compiled part measured last, with the nodes on the host as interpreted."""
        count = len(self._parts.before) + len(self._parts.after)
        note = "strings are computed on the host, by their numpy meaning"
        found = None if self._last is None else self._last.report()
        if found is None:
            return Report(
                device="host",
                driver="numpy",
                function="main",
                dims=(),
                steps=0,
                predicted_step_ns=0,
                measured_step_ns=0,
                predicted_stall_ns=0,
                measured_stall_ns=0,
                predicted_peak_bytes=0,
                measured_peak_bytes=0,
                staging_bytes=0,
                context_bytes=0,
                code_bytes=0,
                weight_budget_bytes=0,
                minimum_budget_bytes=0,
                stored_bytes=0,
                streamed_bytes=0,
                weights=(),
                transfers=(),
                stalls=(),
                interpreted=count,
                notes=(note,),
            )
        return replace(found, interpreted=count, notes=(*found.notes, note))

    def close(self) -> None:
        """Gives everything back."""
        while self._kept:
            self._kept.popitem()[1].close()


def _taken(value: Any) -> Any:
    array = np.asarray(value)
    return strings(array) if array.dtype.kind in "OSU" else array
