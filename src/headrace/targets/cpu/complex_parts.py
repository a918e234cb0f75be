"""Complex elements as pairs of floats: a nest without complex values from one with them.

Every complex value `v` becomes `v.re` and `v.im`, every access two: elements 2 i and
2 i + 1 of the same place, counted in floats.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import cast

from headrace.base.dtypes import F32, F64, I1, DType
from headrace.base.errors import error
from headrace.kernel.description import Combiner, Compute, Constant, Reduction, Scalar
from headrace.targets.cpu.complex_functions import (
    FUNCTIONS,
    TRANSCENDENTAL,
    Pair,
    Parts,
    magnitude,
)
from headrace.targets.cpu.nest import Access, Array, Item, Nest, NestPhase, Read, Write


def has_complex(nest: Nest) -> bool:
    """Whether any value is complex."""
    dtypes: list[DType] = [*nest.scalars.values(), *(a.dtype for a in nest.arrays.values())]
    for phase in nest.phases:
        dtypes += [item.dtype for item in phase.body]
        dtypes += [write.dtype for write in phase.writes]
    return any(d.kind == "complex" for d in dtypes)


def split_complex(nest: Nest) -> Nest:
    """The nest with every complex value in two parts.

    Raises:
        HeadraceError HR2432: an operation of complex values that is not expressed here.
    """
    scalars: dict[str, DType] = {}
    for name, dtype in nest.scalars.items():
        for part in _parts(name) if dtype.kind == "complex" else (name,):
            scalars[part] = part_type(dtype)
    arrays = {
        name: Array(part_type(a.dtype), a.size * (2 if a.dtype.kind == "complex" else 1))
        for name, a in nest.arrays.items()
    }
    phases = tuple(_phase(p, nest.scalars) for p in nest.phases)
    return replace(nest, scalars=scalars, arrays=arrays, phases=phases)


def part_type(dtype: DType) -> DType:
    """The float type of the parts of a complex type; another type stays."""
    if dtype.kind != "complex":
        return dtype
    return F32 if dtype.bits == 64 else F64


def _parts(name: str) -> Pair:
    return f"{name}.re", f"{name}.im"


def _accesses(access: Access, scalars: Mapping[str, DType]) -> tuple[Access, Access]:
    if access.place in scalars:
        real, imaginary = _parts(str(access.place))
        return replace(access, place=real), replace(access, place=imaginary)
    offset = access.offset * 2
    return replace(access, offset=offset), replace(access, offset=offset + 1)


def _phase(phase: NestPhase, scalars: Mapping[str, DType]) -> NestPhase:
    splitter = _Splitter(scalars)
    for item in phase.body:
        splitter.item(item)
    reduction, results = phase.reduction, phase.results
    if reduction is not None:
        reduction, results = splitter.reduction(reduction, results)
    return replace(
        phase,
        body=tuple(splitter.body),
        reduction=reduction,
        results=results,
        writes=splitter.writes(phase.writes),
    )


class _Splitter:
    def __init__(self, scalars: Mapping[str, DType]) -> None:
        self._scalars = scalars
        self._complex: set[str] = set()
        self.body: list[Item] = []

    def declare(self, *names: str) -> None:
        """Says that values given from outside are complex."""
        self._complex.update(names)

    def item(self, item: Item) -> None:
        """Appends the item, in parts where it is or reads a complex value."""
        if isinstance(item, Compute):
            self._compute(item)
        elif item.dtype.kind != "complex":
            self.body.append(item)
        elif isinstance(item, Read):
            self._complex.add(item.result)
            parts = _both(item.otherwise or 0)
            places = _accesses(item.access, self._scalars)
            for name, place, other in zip(_parts(item.result), places, parts, strict=True):
                self.body.append(Read(name, place, part_type(item.dtype), other))
        elif isinstance(item, Constant):
            self._complex.add(item.result)
            for name, part in zip(_parts(item.result), _both(item.value), strict=True):
                self.body.append(Constant(name, part_type(item.dtype), part))
        else:
            raise error("HR2432", "the cpu target has no code for complex index values")

    def writes(self, writes: tuple[Write, ...]) -> tuple[Write, ...]:
        """Stores in parts."""
        found: list[Write] = []
        for write in writes:
            if write.dtype.kind != "complex":
                found.append(write)
                continue
            places = _accesses(write.access, self._scalars)
            for name, place in zip(_parts(write.value), places, strict=True):
                found.append(Write(name, place, part_type(write.dtype)))
        return tuple(found)

    def reduction(
        self, reduction: Reduction, results: tuple[Write, ...]
    ) -> tuple[Reduction, tuple[Write, ...]]:
        """A reduction that carries both parts of each complex value."""
        is_complex = [w.dtype.kind == "complex" for w in results]

        def names(all_names: tuple[str, ...]) -> tuple[str, ...]:
            return tuple(
                part
                for name, pair in zip(all_names, is_complex, strict=True)
                for part in (_parts(name) if pair else (name,))
            )

        initial: list[Scalar] = []
        for value, pair in zip(reduction.initial, is_complex, strict=True):
            initial += _both(value) if pair else (value,)
        combiner = reduction.combiner
        inner = _Splitter({})
        for left, right, pair in zip(combiner.left, combiner.right, is_complex, strict=True):
            if pair:
                inner.declare(left, right)
        for item in combiner.body:
            inner.item(item)
        body = cast(tuple[Compute | Constant, ...], tuple(inner.body))
        split = Combiner(
            names(combiner.left), names(combiner.right), body, names(combiner.results)
        )
        return (
            Reduction(names(reduction.values), tuple(initial), split, names(reduction.results)),
            self.writes(results),
        )

    def _compute(self, item: Compute) -> None:
        inputs = [o in self._complex for o in item.operands]
        if not any(inputs) and item.dtype.kind != "complex":
            self.body.append(item)
            return
        if item.operation == "convert":
            self._convert(item, inputs[0])
            return
        real = Parts(self.body, part_type(item.dtype), item.result)
        if item.dtype.kind != "complex":
            self._to_real(real, item)
            return
        self._complex.add(item.result)
        if item.operation == "select":
            predicate, *others = item.operands
            yes, no = (_parts(o) for o in others)
            pair = tuple(
                real.apply("select", predicate, a, b) for a, b in zip(yes, no, strict=True)
            )
        else:
            pair = self._function(real, item)
        for name, part in zip(_parts(item.result), pair, strict=True):
            self.body.append(Compute(name, "copy", (part,), real.dtype))

    def _function(self, real: Parts, item: Compute) -> Pair:
        if item.operation == "complex":
            left, right = item.operands
            return left, right
        function = FUNCTIONS.get(item.operation)
        if function is None:
            raise error(
                "HR2432",
                f"the cpu target has no code for '{item.operation}' of {item.dtype.name}",
            )
        operands = [_parts(o) for o in item.operands]
        if item.operation not in TRANSCENDENTAL or real.dtype == F64:
            return function(real, *operands)
        # Of f32 in f64: formulas of several steps then round once.
        wide = Parts(self.body, F64, f"{item.result}.wide")
        given = [(wide.apply("convert", z[0]), wide.apply("convert", z[1])) for z in operands]
        found = function(wide, *given)
        return real.apply("convert", found[0]), real.apply("convert", found[1])

    def _convert(self, item: Compute, from_complex: bool) -> None:
        (source,) = item.operands
        dtype = part_type(item.dtype)
        if item.dtype.kind != "complex":
            self.body.append(Compute(item.result, "convert", (_parts(source)[0],), dtype))
            return
        self._complex.add(item.result)
        real, imaginary = _parts(item.result)
        if from_complex:
            for name, part in zip((real, imaginary), _parts(source), strict=True):
                self.body.append(Compute(name, "convert", (part,), dtype))
            return
        self.body.append(Compute(real, "convert", (source,), dtype))
        self.body.append(Constant(imaginary, dtype, 0.0))

    def _to_real(self, real: Parts, item: Compute) -> None:
        """`abs`, `real`, `compare` and the like: a complex operand, another result."""
        operands = [_parts(o) for o in item.operands]
        if item.operation in ("real", "imag"):
            last = operands[0][0 if item.operation == "real" else 1]
        elif item.operation == "abs":
            last = magnitude(real, operands[0])
        elif item.operation == "is_finite":
            both = [real.apply("is_finite", p, dtype=I1) for p in operands[0]]
            last = real.apply("and", *both, dtype=I1)
        elif item.operation == "compare" and item.attribute in ("EQ", "NE"):
            both = [
                real.compare(item.attribute, a, b)
                for a, b in zip(operands[0], operands[1], strict=True)
            ]
            last = real.apply("and" if item.attribute == "EQ" else "or", *both, dtype=I1)
        else:
            raise error(
                "HR2432", f"the cpu target has no code for '{item.operation}' of complex values"
            )
        self.body.append(Compute(item.result, "copy", (last,), item.dtype))


def _both(value: Scalar) -> tuple[float, float]:
    return complex(value).real, complex(value).imag
