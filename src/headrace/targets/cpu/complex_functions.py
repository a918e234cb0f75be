"""Functions of complex numbers in operations on their parts."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from headrace.base.dtypes import I1, DType
from headrace.kernel.description import Compute, Constant
from headrace.targets.cpu.nest import Item

Pair = tuple[str, str]


@dataclass
class Parts:
    """Builds operations on the parts of complex numbers, which are of one float type."""

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


def magnitude(f: Parts, z: Pair) -> str:
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
    def apply(f: Parts, *operands: Pair) -> Pair:
        return (
            f.apply(operation, *(o[0] for o in operands)),
            f.apply(operation, *(o[1] for o in operands)),
        )

    return apply


def _multiply(f: Parts, x: Pair, y: Pair) -> Pair:
    m = f.apply
    real = m("subtract", m("multiply", x[0], y[0]), m("multiply", x[1], y[1]))
    imaginary = m("add", m("multiply", x[0], y[1]), m("multiply", x[1], y[0]))
    return real, imaginary


def _divide(f: Parts, x: Pair, y: Pair) -> Pair:
    """x * conj(y) / |y|**2, with y scaled by its magnitude first."""
    m = f.apply
    size = magnitude(f, y)
    unit = m("divide", y[0], size), m("negate", m("divide", y[1], size))
    product = _multiply(f, x, unit)
    return m("divide", product[0], size), m("divide", product[1], size)


def _exponential(f: Parts, z: Pair) -> Pair:
    size = f.apply("exponential", z[0])
    return (
        f.apply("multiply", size, f.apply("cosine", z[1])),
        f.apply("multiply", size, f.apply("sine", z[1])),
    )


def _log(f: Parts, z: Pair) -> Pair:
    """Where the magnitude is near 1 by log1p of what it differs by, which keeps digits."""
    m = f.apply
    a, b = m("abs", z[0]), m("abs", z[1])
    large, small = m("maximum", a, b), m("minimum", a, b)
    one, half = f.constant(1.0), f.constant(0.5)
    beyond = m("multiply", m("subtract", large, one), m("add", large, one))
    near = m("multiply", m("log_plus_one", m("add", beyond, m("multiply", small, small))), half)
    size = magnitude(f, z)
    is_near = m(
        "and",
        f.compare("GT", size, half),
        f.compare("LT", size, f.constant(2.0)),
        dtype=I1,
    )
    return m("select", is_near, near, m("log", size)), m("atan2", z[1], z[0])


def _sqrt(f: Parts, z: Pair) -> Pair:
    """The principal root: by its larger part, the other from it."""
    m = f.apply
    half, zero = f.constant(0.5), f.constant(0.0)
    size = m("add", magnitude(f, z), m("abs", z[0]))
    large = m("sqrt", m("multiply", size, half))
    small = m("divide", m("multiply", m("abs", z[1]), half), large)
    small = m("select", f.compare("EQ", large, zero), zero, small)
    right = f.compare("GE", z[0], zero)
    real, imaginary = m("select", right, large, small), m("select", right, small, large)
    below = f.compare("LT", z[1], zero)
    return real, m("select", below, m("negate", imaginary), imaginary)


def _hyperbolic(f: Parts, x: str) -> tuple[str, str]:
    """sinh and cosh, by expm1; in two factors where the exponential would overflow."""
    m = f.apply
    one, half = f.constant(1.0), f.constant(0.5)
    a = m("abs", x)
    t = m("exponential_minus_one", a)
    above = m("add", t, one)
    near_sinh = m("multiply", m("add", t, m("divide", t, above)), half)
    near_cosh = m("multiply", m("add", above, m("divide", one, above)), half)
    root = m("exponential", m("multiply", a, half))
    far = m("multiply", m("multiply", root, half), root)
    is_far = f.compare("GT", a, f.constant(30.0))
    sinh = m("select", is_far, far, near_sinh)
    below = f.compare("LT", x, f.constant(0.0))
    return m("select", below, m("negate", sinh), sinh), m("select", is_far, far, near_cosh)


def _sine(f: Parts, z: Pair) -> Pair:
    sinh, cosh = _hyperbolic(f, z[1])
    return (
        f.apply("multiply", f.apply("sine", z[0]), cosh),
        f.apply("multiply", f.apply("cosine", z[0]), sinh),
    )


def _cosine(f: Parts, z: Pair) -> Pair:
    sinh, cosh = _hyperbolic(f, z[1])
    product = f.apply("multiply", f.apply("sine", z[0]), sinh)
    return f.apply("multiply", f.apply("cosine", z[0]), cosh), f.apply("negate", product)


def _tanh(f: Parts, z: Pair) -> Pair:
    """W. Kahan's: with t = tan(y), of sinh and cosh of x; far out only the sign is left."""
    m = f.apply
    one = f.constant(1.0)
    t = m("tan", z[1])
    beta = m("add", one, m("multiply", t, t))
    sinh, cosh = _hyperbolic(f, z[0])
    square = m("multiply", sinh, sinh)
    below = m("add", one, m("multiply", beta, square))
    real = m("divide", m("multiply", beta, m("multiply", cosh, sinh)), below)
    imaginary = m("divide", t, below)
    is_far = f.compare("GT", m("abs", z[0]), f.constant(20.0))
    zero = m("multiply", f.constant(0.0), t)
    return m("select", is_far, m("sign", z[0]), real), m("select", is_far, zero, imaginary)


def _tan(f: Parts, z: Pair) -> Pair:
    """-i tanh(i z)."""
    real, imaginary = _tanh(f, (f.apply("negate", z[1]), z[0]))
    return imaginary, f.apply("negate", real)


def _log_plus_one(f: Parts, z: Pair) -> Pair:
    m = f.apply
    one, half = f.constant(1.0), f.constant(0.5)
    square = m("multiply", z[1], z[1])
    grown = m("add", m("multiply", z[0], m("add", z[0], f.constant(2.0))), square)
    near = m("multiply", m("log_plus_one", grown), half)
    shifted = m("add", z[0], one)
    far, angle = _log(f, (shifted, z[1]))
    largest = m("maximum", m("abs", z[0]), m("abs", z[1]))
    is_near = f.compare("LT", largest, half)
    return m("select", is_near, near, far), angle


def _exponential_minus_one(f: Parts, z: Pair) -> Pair:
    """expm1(x) cos(y) - 2 sin(y/2)**2 keeps the accuracy near 0."""
    m = f.apply
    grown = m("exponential_minus_one", z[0])
    half = m("sine", m("multiply", z[1], f.constant(0.5)))
    lost = m("multiply", m("multiply", half, half), f.constant(2.0))
    real = m("subtract", m("multiply", grown, m("cosine", z[1])), lost)
    above = m("add", grown, f.constant(1.0))
    return real, m("multiply", above, m("sine", z[1]))


def _rsqrt(f: Parts, z: Pair) -> Pair:
    return _divide(f, (f.constant(1.0), f.constant(0.0)), _sqrt(f, z))


def _sign(f: Parts, z: Pair) -> Pair:
    size = magnitude(f, z)
    zero = f.compare("EQ", size, f.constant(0.0))
    safe = f.apply("select", zero, f.constant(1.0), size)
    return f.apply("divide", z[0], safe), f.apply("divide", z[1], safe)


def _logistic(f: Parts, z: Pair) -> Pair:
    negated = f.apply("negate", z[0]), f.apply("negate", z[1])
    grown = _exponential(f, negated)
    below = f.apply("add", grown[0], f.constant(1.0)), grown[1]
    return _divide(f, (f.constant(1.0), f.constant(0.0)), below)


def _power(f: Parts, z: Pair, w: Pair) -> Pair:
    """exp(w log z); 0 to a power is 0, anything to the power 0 is 1."""
    m = f.apply
    x, y = _exponential(f, _multiply(f, w, _log(f, z)))
    zero, one = f.constant(0.0), f.constant(1.0)

    def is_zero(pair: Pair) -> str:
        both = (f.compare("EQ", part, zero) for part in pair)
        return m("and", *both, dtype=I1)

    at_zero, to_zero = is_zero(z), is_zero(w)
    real, imaginary = m("select", at_zero, zero, x), m("select", at_zero, zero, y)
    return m("select", to_zero, one, real), m("select", to_zero, zero, imaginary)


def _cbrt(f: Parts, z: Pair) -> Pair:
    """The principal root."""
    m = f.apply
    size = m("cbrt", magnitude(f, z))
    angle = m("divide", m("atan2", z[1], z[0]), f.constant(3.0))
    return m("multiply", size, m("cosine", angle)), m("multiply", size, m("sine", angle))


FUNCTIONS: dict[str, Callable[..., Pair]] = {
    "add": _each("add"),
    "subtract": _each("subtract"),
    "negate": _each("negate"),
    "copy": _each("copy"),
    "multiply": _multiply,
    "divide": _divide,
    "exponential": _exponential,
    "log": _log,
    "sqrt": _sqrt,
    "cbrt": _cbrt,
    "cosine": _cosine,
    "exponential_minus_one": _exponential_minus_one,
    "log_plus_one": _log_plus_one,
    "logistic": _logistic,
    "power": _power,
    "rsqrt": _rsqrt,
    "sign": _sign,
    "sine": _sine,
    "tan": _tan,
    "tanh": _tanh,
}
"""Operation -> its parts from the parts of its operands."""

TRANSCENDENTAL = frozenset(FUNCTIONS) - {"add", "subtract", "negate", "copy", "multiply"}
"""Operations of several steps, each of which rounds."""
