"""Runs `onnx.backend.test`, for every way of computing: the interpreter or a target.

A case passes where every output has the shape, element type and values that ONNX states.
A case whose shapes depend on the contents of an input (`Reshape` by an input) is imported
again with its small inputs as constants; such cases are counted apart.
"""

from __future__ import annotations

import contextlib
import hashlib
import io
import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, numpy_helper

from headrace.base.errors import HeadraceDefect, HeadraceError
from headrace.importers.onnx.reader import import_model
from headrace.ir.model import Model

Evaluate = Callable[[Model, Mapping[str, Any]], Mapping[str, Any]]
KINDS = ("node", "simple", "pytorch-converted", "pytorch-operator")


@dataclass(frozen=True)
class Outcome:
    """What became of one case.

    Attributes:
        name: of the case.
        kind: `pass`, `unsupported` (a clear error of ours), `wrong` or `crash`.
        detail: the error.
        specialised: whether small inputs had to be constants.
    """

    name: str
    kind: str
    detail: str = ""
    specialised: bool = False


@cache
def load_cases(kind: str) -> tuple[Any, ...]:
    """The cases of one kind, sorted by name."""
    from onnx.backend.test.loader import load_model_tests

    with warnings.catch_warnings(), contextlib.redirect_stderr(io.StringIO()):
        warnings.simplefilter("ignore")
        return tuple(sorted(load_model_tests(kind=kind), key=lambda c: c.name))


def sampled(cases: Iterable[Any], count: int) -> list[Any]:
    """`count` of the cases, by the hash of their names: the same ones everywhere."""
    ranked = sorted(cases, key=lambda c: hashlib.sha256(c.name.encode()).hexdigest())
    return sorted(ranked[:count], key=lambda c: c.name)


def run_case(case: Any, evaluate: Evaluate) -> Outcome:
    """Imports, computes and compares one case."""
    specialised = False
    try:
        for proto, inputs, wanted in _data_sets(case):
            model, given, was = _imported(case.name, proto, inputs)
            specialised |= was
            _compare(case, proto, evaluate(model, given), wanted)
    except HeadraceDefect as wrong:
        return Outcome(case.name, "crash", str(wrong), specialised)
    except HeadraceError as wrong:
        return Outcome(case.name, "unsupported", str(wrong), specialised)
    except AssertionError as wrong:
        return Outcome(case.name, "wrong", str(wrong), specialised)
    except Exception as wrong:
        return Outcome(case.name, "crash", f"{type(wrong).__name__}: {wrong}", specialised)
    return Outcome(case.name, "pass", specialised=specialised)


def summary(outcomes: Sequence[Outcome]) -> str:
    """One line: how many passed, and what became of the others."""
    counts = Counter(o.kind for o in outcomes)
    apart = sum(o.specialised for o in outcomes if o.kind == "pass")
    rate = 100 * counts["pass"] / max(len(outcomes), 1)
    others = ", ".join(f"{n} {k}" for k, n in sorted(counts.items()) if k != "pass")
    return (
        f"{counts['pass']} of {len(outcomes)} pass ({rate:.1f} %), {apart} of them with small "
        f"inputs as constants; {others or 'no others'}"
    )


def _data_sets(case: Any) -> Iterator[tuple[onnx.ModelProto, list[Any], list[Any]]]:
    if case.model is not None:
        for inputs, outputs in case.data_sets:
            yield case.model, [_array(i) for i in inputs], [_array(o) for o in outputs]
        return
    folder = Path(case.model_dir)
    proto = onnx.load(folder / "model.onnx")
    for data in sorted(folder.glob("test_data_set_*")):
        yield proto, _stored(data, "input"), _stored(data, "output")


def _stored(folder: Path, kind: str) -> list[Any]:
    count = len(list(folder.glob(f"{kind}_*.pb")))
    tensors = [
        TensorProto.FromString((folder / f"{kind}_{n}.pb").read_bytes()) for n in range(count)
    ]
    return [numpy_helper.to_array(t) for t in tensors]


def _array(value: Any) -> Any:
    if isinstance(value, TensorProto):
        return numpy_helper.to_array(value)
    return value if isinstance(value, (list, dict)) else np.asarray(value)


def _imported(
    name: str, proto: onnx.ModelProto, inputs: list[Any]
) -> tuple[Model, dict[str, Any], bool]:
    weights = {t.name for t in proto.graph.initializer}
    names = [v.name for v in proto.graph.input if v.name not in weights]
    given = dict(zip(names, inputs, strict=False))
    try:
        return import_model(proto, name=name), given, False
    except HeadraceError as wrong:
        if wrong.diagnostics[0].code not in ("HR1204", "HR1205"):
            raise
        constants = {n: a for n, a in given.items() if _decides_shapes(a)}
        if not constants:
            raise
    rest = {n: a for n, a in given.items() if n not in constants}
    return import_model(proto, name=name, constants=constants), rest, True


def _decides_shapes(array: Any) -> bool:
    """Whether an input may hold sizes, axes, scales or a condition."""
    return isinstance(array, np.ndarray) and (array.dtype.kind in "iub" or array.ndim <= 1)


def _compare(
    case: Any, proto: onnx.ModelProto, results: Mapping[str, Any], wanted: Sequence[Any]
) -> None:
    for output, expected in zip(proto.graph.output, wanted, strict=True):
        want, got = np.asarray(expected), np.asarray(results[output.name])
        assert got.shape == want.shape, f"shape {got.shape}, not {want.shape}"
        assert got.dtype == want.dtype, f"element type {got.dtype}, not {want.dtype}"
        if want.dtype.kind in "fcV":
            wide = np.complex128 if want.dtype.kind == "c" else np.float64
            np.testing.assert_allclose(
                got.astype(wide), want.astype(wide), rtol=case.rtol, atol=case.atol
            )
        else:
            np.testing.assert_array_equal(got, want)
