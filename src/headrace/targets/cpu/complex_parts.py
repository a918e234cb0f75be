"""Complex elements as pairs of floats: a nest without complex values from one with them.

Every complex value `v` becomes `v.re` and `v.im`, every access two: elements 2 i and
2 i + 1 of the same place, counted in floats.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import cast

from headrace.base.dtypes import F32, F64, I1, DType
from headrace.base.errors import error
from headrace.kernel.description import Combiner, Compute, Constant, Reduction, Scalar
from headrace.targets.cpu.nest import Access, Array, Item, Nest, NestPhase, Read, Write

Pair = tuple[str, str]


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


@dataclass
class _Real:
    """A builder of float operations of one type."""

    body: list[Item]
    dtype: DType
    prefix: str

    def apply(self, operation: str, *operands: str, dtype: DType | None = None) -> str:
        name = f"{self.prefix}.{len(self.body)}"
        self.body.append(Compute(name, operation, operands, dtype or self.dtype))
        return name

    def constant(self, value: float) -> str:
        name = f"{self.prefix}.{len(self.body)}"
        self.body.append(Constant(name, self.dtype, value))
        return name

    def compare(self, direction: str, left: str, right: str) -> str:
        name = f"{self.prefix}.{len(self.body)}"
        self.body.append(Compute(name, "compare", (left, right), I1, direction))
        return name


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
        real = _Real(self.body, part_type(item.dtype), item.result)
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
            function = _FUNCTIONS.get(item.operation)
            if function is None:
                raise error(
                    "HR2432",
                    f"the cpu target has no code for '{item.operation}' of {item.dtype.name}",
                )
            pair = function(real, *(_parts(o) for o in item.operands))
        for name, part in zip(_parts(item.result), pair, strict=True):
            self.body.append(Compute(name, "copy", (part,), real.dtype))

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

    def _to_real(self, real: _Real, item: Compute) -> None:
        """`abs`, `compare` and `is_finite`: a complex operand, another result."""
        operands = [_parts(o) for o in item.operands]
        if item.operation == "abs":
            last = _magnitude(real, operands[0])
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


def _magnitude(f: _Real, z: Pair) -> str:
    """sqrt(re**2 + im**2) without overflow on the way."""
    a, b = (f.apply("abs", p) for p in z)
    large, small = f.apply("maximum", a, b), f.apply("minimum", a, b)
    plain = f.compare("LE", large, f.constant(0.0))
    infinite = f.compare("EQ", large, f.constant(float("inf")))
    ratio = f.apply("divide", small, large)
    one = f.constant(1.0)
    root = f.apply("sqrt", f.apply("add", f.apply("multiply", ratio, ratio), one))
    found = f.apply("multiply", large, root)
    found = f.apply("select", plain, large, found)
    return f.apply("select", infinite, large, found)


def _each(operation: str) -> Callable[..., Pair]:
    def apply(f: _Real, *operands: Pair) -> Pair:
        return (
            f.apply(operation, *(o[0] for o in operands)),
            f.apply(operation, *(o[1] for o in operands)),
        )

    return apply


def _multiply(f: _Real, x: Pair, y: Pair) -> Pair:
    m = f.apply
    real = m("subtract", m("multiply", x[0], y[0]), m("multiply", x[1], y[1]))
    imaginary = m("add", m("multiply", x[0], y[1]), m("multiply", x[1], y[0]))
    return real, imaginary


def _divide(f: _Real, x: Pair, y: Pair) -> Pair:
    """x * conj(y) / |y|**2, with y scaled by its magnitude first."""
    m = f.apply
    size = _magnitude(f, y)
    unit = m("divide", y[0], size), m("negate", m("divide", y[1], size))
    product = _multiply(f, x, unit)
    return m("divide", product[0], size), m("divide", product[1], size)


def _exponential(f: _Real, z: Pair) -> Pair:
    size = f.apply("exponential", z[0])
    return (
        f.apply("multiply", size, f.apply("cosine", z[1])),
        f.apply("multiply", size, f.apply("sine", z[1])),
    )


def _log(f: _Real, z: Pair) -> Pair:
    return f.apply("log", _magnitude(f, z)), f.apply("atan2", z[1], z[0])


def _sqrt(f: _Real, z: Pair) -> Pair:
    """The principal root: by its larger part, the other from it."""
    m = f.apply
    half, zero = f.constant(0.5), f.constant(0.0)
    size = m("add", _magnitude(f, z), m("abs", z[0]))
    large = m("sqrt", m("multiply", size, half))
    small = m("divide", m("multiply", m("abs", z[1]), half), large)
    small = m("select", f.compare("EQ", large, zero), zero, small)
    right = f.compare("GE", z[0], zero)
    real, imaginary = m("select", right, large, small), m("select", right, small, large)
    below = f.compare("LT", z[1], zero)
    return real, m("select", below, m("negate", imaginary), imaginary)


_FUNCTIONS: dict[str, Callable[..., Pair]] = {
    "add": _each("add"),
    "subtract": _each("subtract"),
    "negate": _each("negate"),
    "copy": _each("copy"),
    "multiply": _multiply,
    "divide": _divide,
    "exponential": _exponential,
    "log": _log,
    "sqrt": _sqrt,
}
