"""Inputs against a signature: arrays in order, dimensions solved from their shapes.

Everything wrong with a call is listed at once. Arrays are never converted silently: only
Python numbers and lists take the element type that the model asks for.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from headrace.artifact import schema
from headrace.base.dtypes import from_numpy
from headrace.base.errors import Diagnostic, Problems
from headrace.base.symbols import Expr


@dataclass(frozen=True)
class TensorInfo:
    """One input or output as the user sees it.

    Attributes:
        name: the user's.
        dtype: the MLIR name of the element type.
        shape: sizes; an int, or the text of an expression over named dimensions.
    """

    name: str
    dtype: str
    shape: tuple[int | str, ...]

    def __str__(self) -> str:
        sizes = "".join(f"{size}x" for size in self.shape)
        return f"{self.name}: tensor<{sizes}{self.dtype}>"


def tensor_info(signature: schema.TensorSignature) -> TensorInfo:
    """The user's view of one signature."""
    shape = tuple(e.value if e.is_constant else str(e) for e in signature.shape)
    return TensorInfo(signature.name, signature.dtype.name, shape)


class Matcher:
    """Matches the arguments of calls with one entry function's inputs."""

    def __init__(
        self, function: schema.EntryFunction, dimensions: Sequence[schema.DimensionRange]
    ) -> None:
        self.function = function
        self.names = tuple(i.name for i in function.inputs)
        self.dtypes: tuple[Any, ...] = tuple(i.dtype.numpy_dtype for i in function.inputs)
        self._dimensions = tuple(dimensions)
        self._used = dimensions_of(function)

    def bind(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> list[Any]:
        """C-contiguous arrays in signature order, shapes not yet checked.

        Raises:
            HeadraceError HR4001: inputs are missing, unknown, or of another element type.
        """
        names = self.names
        problems = Problems()
        found: dict[str, Any] = dict(zip(names, args, strict=False))
        where = f"function '{self.function.name}'"
        if len(args) > len(names):
            self._add(problems, f"{len(args)} inputs are given and {where} takes {len(names)}")
        for name, value in kwargs.items():
            if name in found:
                self._add(problems, f"input '{name}' is given twice")
            elif name not in names:
                self._add(problems, f"{where} has no input '{name}'")
            found[name] = value
        arrays: list[Any] = []
        for name, dtype in zip(names, self.dtypes, strict=True):
            if name not in found:
                self._add(problems, f"input '{name}' is missing")
                continue
            arrays.append(self._array(name, found[name], dtype, problems))
        problems.raise_if_any()
        return arrays

    def _add(self, problems: Problems, fact: str, *notes: str, help_: str = "") -> None:
        inputs = ", ".join(str(tensor_info(i)) for i in self.function.inputs)
        problems.add(
            Diagnostic(
                "HR4001",
                fact,
                notes=(*notes, f"it takes {inputs or 'no inputs'}"),
                helps=(help_,) if help_ else (),
            )
        )

    def _array(self, name: str, value: Any, dtype: Any, problems: Problems) -> Any:
        if not isinstance(value, np.ndarray):
            if isinstance(value, np.generic) or hasattr(value, "__array__"):
                value = np.asarray(value)
            else:
                try:
                    value = np.asarray(value, dtype)
                except (TypeError, ValueError, OverflowError) as problem:
                    self._add(problems, f"input '{name}' is no array", str(problem))
                    return None
        if value.dtype != dtype:
            try:
                given = from_numpy(value.dtype).name
            except KeyError:
                given = str(value.dtype)
            self._add(
                problems,
                f"input '{name}' is {given}",
                help_=f"convert it: {name}.astype('{dtype}')",
            )
            return None
        # `asarray(order="C")` keeps shape (), which `ascontiguousarray` would not.
        return np.asarray(value, order="C")

    def solve(
        self, arrays: Sequence[Any], known: Mapping[str, int] | None = None
    ) -> dict[str, int]:
        """Sizes of all named dimensions, from the shapes and those that are known.

        Raises:
            HeadraceError HR4001: shapes do not fit; every wrong input is named.
        """
        problems = Problems()
        # Dimensions of other functions only have to be legal.
        dims: dict[str, int] = {
            d.name: d.minimum
            for d in self._dimensions
            if d.minimum == d.maximum or d.name not in self._used
        }
        dims.update(known or {})
        source: dict[str, str] = {name: "the model" for name in dims}
        equations: list[tuple[int, int, Expr, int]] = []
        for number, (signature, array) in enumerate(
            zip(self.function.inputs, arrays, strict=True)
        ):
            if len(array.shape) != len(signature.shape):
                self._add(
                    problems,
                    f"input '{signature.name}' has rank {array.ndim}, not {len(signature.shape)}",
                )
                continue
            for axis, (expr, size) in enumerate(zip(signature.shape, array.shape, strict=True)):
                equations.append((number, axis, expr, size))
        self._solve_linear(equations, dims, source)
        for number, axis, expr, size in equations:
            self._check(number, axis, expr, size, dims, source, problems)
        self._check_ranges(dims, problems)
        problems.raise_if_any()
        return dims

    def _solve_linear(
        self,
        equations: Sequence[tuple[int, int, Expr, int]],
        dims: dict[str, int],
        source: dict[str, str],
    ) -> None:
        """Sets every dimension that one equation alone decides, again and again."""
        progress = True
        while progress:
            progress = False
            for number, axis, expr, size in equations:
                rest = expr.substitute(dims)
                names = rest.names
                if len(names) != 1 or not rest.is_linear_in(names):
                    continue
                (name,) = names
                factor = rest.coefficient(name).value
                value, remainder = divmod(size - rest.constant_term, factor)
                if remainder or value < 0:
                    continue
                dims[name] = value
                source[name] = f"input '{self.names[number]}', axis {axis}"
                progress = True

    def _check(
        self,
        number: int,
        axis: int,
        expr: Expr,
        size: int,
        dims: dict[str, int],
        source: dict[str, str],
        problems: Problems,
    ) -> None:
        if not expr.names <= dims.keys():
            self._add(
                problems, f"axis {axis} of input '{self.names[number]}' is {size}, not {expr}"
            )
            return
        wanted = expr.evaluate(dims)
        if wanted == size:
            return
        notes = tuple(f"{n} is {dims[n]} by {source[n]}" for n in sorted(expr.names))
        text = f"{expr} = {wanted}" if expr.names else str(wanted)
        self._add(
            problems,
            f"axis {axis} of input '{self.names[number]}' is {size}, not {text}",
            *notes,
        )

    def _check_ranges(self, dims: Mapping[str, int], problems: Problems) -> None:
        for dimension in self._dimensions:
            size = dims.get(dimension.name)
            if size is None:
                if problems:
                    continue
                self._add(problems, f"no input decides the size of '{dimension.name}'")
            elif size < dimension.minimum or (
                dimension.maximum is not None and size > dimension.maximum
            ):
                upper = "" if dimension.maximum is None else f" to {dimension.maximum}"
                self._add(
                    problems,
                    f"dimension '{dimension.name}' is {size}",
                    f"it may be {dimension.minimum}{upper or ' and more'}",
                    help_=f"compile with --dim {dimension.name}={size} for this size alone",
                )


def dimensions_of(function: schema.EntryFunction) -> frozenset[str]:
    """Named dimensions that inputs, outputs or resources of a function depend on."""
    names: set[str] = set()
    for signature in (*function.inputs, *function.outputs):
        for expr in signature.shape:
            names |= expr.names
    for resource in function.resources:
        names |= resource.size_bytes.names
    return frozenset(names)
