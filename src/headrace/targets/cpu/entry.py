"""The CPU kernel's calling convention, and size expressions as code.

A kernel is `void symbol(ptr args, i64 begin, i64 end, ptr scratch)`; it runs the tiles
`begin` to `end - 1`. `args` points to::

    u64 binding_address[bindings]
    u32 workgroup_count[3]
    u32 first_workgroup[3]
    u32 push_constant[dims]

Tile `t` is workgroup x = t % nx + fx, y = (t / nx) % ny + fy, z = t / (nx * ny) + fz.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from headrace.base.symbols import Expr, Operation, bounds
from headrace.kernel.description import Kernel
from headrace.targets.cpu.ir_text import Function, Module, Value, integer
from headrace.targets.cpu.machine import Machine

DIM_LIMIT = (1 << 31) - 1
"""Named dimensions travel as 32 bits; sizes are taken to lie in 0 to this."""

Ranges = Mapping[str, tuple[int, int]]


def evaluate(
    function: Function, expr: Expr, names: Mapping[str, Value], ranges: Ranges | None = None
) -> Value:
    """Code for an expression: i64, a vector of i64 where a name is one.

    Args:
        names: the value of every name in `expr` (i64 or vectors of i64).
        ranges: inclusive ranges of names; they save the fix-up of rounding down where
            a numerator cannot be negative. Names without one may be negative.
    """
    total: Value = integer(0)
    for monomial, coefficient in expr.terms:
        product: Value = integer(1)
        for atom, power in monomial:
            if isinstance(atom, str):
                factor = names[atom]
            else:
                factor = _operation(function, atom, names, ranges or {})
            for _ in range(power):
                product = function.mul(product, factor)
        total = function.add(total, function.mul(product, coefficient))
    return total


def _operation(
    function: Function, atom: Operation, names: Mapping[str, Value], ranges: Ranges
) -> Value:
    values = [evaluate(function, o, names, ranges) for o in atom.operands]
    if atom.name in ("max", "min"):
        pick = function.maximum if atom.name == "max" else function.minimum
        result = values[0]
        for value in values[1:]:
            result = pick(result, value)
        return result
    numerator, divisor = values
    known = bounds(atom.operands[0], ranges)
    positive = known is not None and known[0] >= 0
    quotient = atom.name == "floordiv"
    return divide(function, numerator, divisor, quotient=quotient, positive=positive)


def divide(
    function: Function, numerator: Value, divisor: Value, *, quotient: bool, positive: bool
) -> Value:
    """`numerator floordiv divisor`, or its `mod`; a dynamic divisor of 0 counts as 1.

    `positive` says that the numerator is known to be at least 0.
    """
    known = divisor.constant
    if numerator.constant is not None and known:
        a = numerator.constant
        return integer(a // known if quotient else a % known)
    if known == 1:
        return numerator if quotient else function.value(0, numerator.type)
    if known is not None and known > 0 and known & (known - 1) == 0:
        if quotient:
            return function.binary("ashr", numerator, known.bit_length() - 1)
        return function.binary("and", numerator, known - 1)
    if known is None:
        # A size of 0 leaves no point to compute, but must not trap before that is seen.
        zero = function.compare("eq", divisor, 0)
        divisor = function.select(zero, function.value(1, divisor.type), divisor)
    if positive:
        return function.binary("udiv" if quotient else "urem", numerator, divisor)
    rest = function.binary("srem", numerator, divisor)
    differs = function.compare("slt", function.binary("xor", rest, divisor), 0)
    wrong = function.binary("and", differs, function.compare("ne", rest, 0))
    if not quotient:
        return function.select(wrong, function.add(rest, divisor), rest)
    whole = function.binary("sdiv", numerator, divisor)
    return function.select(wrong, function.sub(whole, 1), whole)


class Entry:
    """The entry function of a kernel with its arguments loaded.

    Attributes:
        function: the builder; at the entry block after construction.
        bindings: the address of each operand's buffer.
        begin, end: the tiles to run.
        scratch: the worker's scratch.
        workgroups, first: counts and first of x, y and z, i64.
        names: every named dimension of the kernel, i64.
        ranges: 0 to `DIM_LIMIT` for each of them.
    """

    def __init__(self, module: Module, symbol: str, kernel: Kernel, machine: Machine) -> None:
        self.function = function_for(
            module,
            symbol,
            [("ptr", "args"), ("i64", "begin"), ("i64", "end"), ("ptr", "scratch")],
            machine,
        )
        arguments, self.begin, self.end, self.scratch = self.function.parameters
        count = len(kernel.operands)
        self.bindings = [
            self.function.load("ptr", self.function.offset(arguments, 8 * i), 8)
            for i in range(count)
        ]
        self._arguments = arguments
        self._after_bindings = 8 * count
        self.workgroups = [self._word(i) for i in range(3)]
        self.first = [self._word(3 + i) for i in range(3)]
        self.names: dict[str, Value] = {
            name: self._word(6 + i) for i, name in enumerate(kernel.dims)
        }
        self.ranges: dict[str, tuple[int, int]] = {n: (0, DIM_LIMIT) for n in kernel.dims}

    def _word(self, position: int) -> Value:
        address = self.function.offset(self._arguments, self._after_bindings + 4 * position)
        return self.function.cast("zext", self.function.load("i32", address, 4), "i64")

    def size(self, expr: Expr) -> Value:
        """A size over named dimensions as i64; a constant where it is static."""
        return evaluate(self.function, expr, self.names, self.ranges)

    def tiles(self, body: Callable[[Value], None]) -> None:
        """Runs `body(x)` for every tile of a launch with workgroups (n, 1, 1)."""

        def one(tile: Value, _: list[Value]) -> None:
            body(self.function.add(tile, self.first[0]))

        self.function.loop(self.begin, self.end, 1, one)

    def tiles_3d(self, body: Callable[[Value, Value, Value], None]) -> None:
        """Runs `body(x, y, z)` for every tile of the launch."""
        function = self.function
        nx, ny, _ = self.workgroups

        def one(tile: Value, _: list[Value]) -> None:
            row = function.binary("udiv", tile, nx)
            x = function.sub(tile, function.mul(row, nx))
            z = function.binary("udiv", row, ny)
            y = function.sub(row, function.mul(z, ny))
            body(*(function.add(i, f) for i, f in zip((x, y, z), self.first, strict=True)))

        function.loop(self.begin, self.end, 1, one)

    def finish(self) -> None:
        """Returns from the kernel and adds it to the module."""
        self.function.finish()


def function_for(
    module: Module,
    name: str,
    parameters: list[tuple[str, str]],
    machine: Machine,
    *,
    result: str = "void",
    internal: bool = False,
) -> Function:
    """A function builder set to what the machine has."""
    return Function(
        module,
        name,
        parameters,
        result=result,
        internal=internal,
        has_fma=machine.has("fma"),
        has_round=machine.has("sse4.1"),
    )
