"""RNN, GRU and LSTM: the products with the inputs at once, then one step after another."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from xdsl.ir import SSAValue

from headrace.base.dtypes import I64
from headrace.base.symbols import Expr, as_expr
from headrace.importers.onnx.context import NodeContext
from headrace.importers.onnx.ops.points import working_type
from headrace.importers.onnx.ops.recurrent_activation import Activation, read_activations
from headrace.importers.onnx.ops.recurrent_weights import (
    ReadWeights,
    Weights,
    float_weights,
    number_weights,
    of_direction,
)
from headrace.importers.onnx.ops.steps import over_steps
from headrace.importers.onnx.registry import onnx_op
from headrace.ir.types import dtype_of, shape_of

_DIRECTIONS = ("forward", "reverse", "bidirectional")
States = list[SSAValue]
Cell = Callable[["Direction", SSAValue, States], States]


@dataclass(frozen=True)
class Direction:
    """What one direction works with.

    Attributes:
        c: the node.
        weights, recurrence: what inputs and states are multiplied with, all gates.
        input_bias, recurrence_bias: [gates hidden] each, or None.
        peepholes: [3 hidden] of an LSTM, or None.
        activations: of this direction.
        hidden: size of the state.
    """

    c: NodeContext
    weights: Weights
    recurrence: Weights
    input_bias: SSAValue | None
    recurrence_bias: SSAValue | None
    peepholes: SSAValue | None
    activations: Sequence[Activation]
    hidden: Expr

    def gate(self, x: SSAValue, n: int, count: int = 1) -> SSAValue:
        """Gate n (to n + count) of a tensor whose last dimension holds all gates."""
        axis = len(shape_of(x)) - 1
        return self.c.slice_axis(x, axis, self.hidden * n, self.hidden * (n + count))

    def times_recurrence(self, state: SSAValue, n: int, count: int) -> SSAValue:
        """The state times the recurrence of `count` gates from n: [batch, count hidden]."""
        start, end = self.hidden * n, self.hidden * (n + count)
        return self.recurrence.times(self.c, state, start, end)

    def activate(self, n: int, x: SSAValue) -> SSAValue:
        """Activation n, of the clipped operand."""
        c, b = self.c, self.c.build
        limit = c.float("clip")
        if limit > 0:
            x = b.clamp(c.scalar_like(-limit, x), x, c.scalar_like(limit, x))
        return self.activations[n](c, x)


def _recurrent(
    c: NodeContext,
    gates: int,
    states: Sequence[int],
    defaults: Sequence[str],
    cell: Cell,
    read: ReadWeights = float_weights,
) -> list[SSAValue]:
    """All of a recurrent operator but its cell.

    Args:
        states: the inputs that hold the first states; the first is the output's.
        read: makes the weights of inputs 1 and 2.
    """
    b, x = c.build, c.data(0)
    kind = dtype_of(x)
    by_batch = c.int("layout") == 1
    if by_batch:
        x = b.transpose(x, (1, 0, 2))
    rule = c.string("direction", "forward")
    if rule not in _DIRECTIONS:
        raise c.malformed(f"direction '{rule}' is unknown")
    count = 2 if rule == "bidirectional" else 1
    c.dims.same(shape_of(c.data(1))[0], as_expr(count))
    length, batch, features = shape_of(x)
    inner = 2 if read is float_weights else 1
    c.dims.same(features, c.shape(1)[inner])
    hidden = c.shape(2)[inner]
    if c.has_attribute("hidden_size"):
        c.dims.same(hidden, as_expr(c.int("hidden_size")))
    activations = read_activations(c, defaults, count)
    for at in (n for n in states if c.has(n)):
        c.dims.same(batch, c.shape(at)[0 if by_batch else 1])
        c.dims.same(hidden, c.shape(at)[2])
        c.dims.same(as_expr(count), c.shape(at)[1 if by_batch else 0])
    if c.has(4):
        c.dims.same(batch, c.shape(4)[0])
    for at, rows in ((3, 2 * gates), (7, 3)):
        if c.has(at):
            c.dims.same(hidden * rows, c.shape(at)[1])
    valid = _valid_steps(c, length, batch) if c.has(4) else None
    sequence: list[SSAValue] = []
    last: list[list[SSAValue]] = []
    for n in range(count):
        part = activations[n * len(defaults) : (n + 1) * len(defaults)]
        direction = _direction(c, n, gates, hidden, part, read)
        first = [_first_state(c, at, n, (batch, hidden), by_batch) for at in states]
        backward = rule == "reverse" or n == 1
        kept, after = _run(direction, x, gates, first, cell, valid, backward)
        sequence.append(b.reshape(b.convert(kept, kind), (length, 1, batch, hidden)))
        last.append([b.reshape(b.convert(s, kind), (1, batch, hidden)) for s in after])
    whole = b.concatenate(sequence, 1)
    finals = [b.concatenate(list(parts), 0) for parts in zip(*last, strict=True)]
    if by_batch:
        whole = b.transpose(whole, (2, 0, 1, 3))
        finals = [b.transpose(f, (1, 0, 2)) for f in finals]
    return [whole, *finals]


def _direction(
    c: NodeContext,
    n: int,
    gates: int,
    hidden: Expr,
    activations: Sequence[Activation],
    read: ReadWeights,
) -> Direction:
    bias = _of_direction(c, 3, n) if c.has(3) else None
    size = hidden * gates
    return Direction(
        c,
        read(c, 1, n),
        read(c, 2, n),
        None if bias is None else c.slice_axis(bias, 0, 0, size),
        None if bias is None else c.slice_axis(bias, 0, size, size * 2),
        _of_direction(c, 7, n) if c.has(7) else None,
        activations,
        hidden,
    )


def _of_direction(c: NodeContext, index: int, n: int) -> SSAValue:
    """One direction's part of an input, in the working type."""
    part = of_direction(c, index, n)
    return c.build.convert(part, working_type(dtype_of(part)))


def _first_state(
    c: NodeContext, index: int, n: int, shape: tuple[Expr, Expr], by_batch: bool
) -> SSAValue:
    b, work = c.build, working_type(c.dtype(0))
    if not c.has(index):
        return b.splat(0, work, shape)
    axis = 1 if by_batch else 0
    part = c.slice_axis(c.data(index), axis, n, n + 1)
    return b.convert(b.reshape(part, shape), work)


def _valid_steps(c: NodeContext, length: Expr, batch: Expr) -> SSAValue:
    """[length, batch]: whether the step belongs to the entry's sequence."""
    b, shape = c.build, (length, batch)
    lengths = b.broadcast_in_dim(b.convert(c.data(4), I64), (1,), shape)
    return b.compare("LT", b.iota(I64, shape, 0), lengths)


def _run(
    d: Direction,
    x: SSAValue,
    gates: int,
    first: States,
    cell: Cell,
    valid: SSAValue | None,
    backward: bool,
) -> tuple[SSAValue, States]:
    """The state after every step [length, batch, hidden], and those after the last."""
    c, b = d.c, d.c.build
    inputs = d.weights.times(c, x, 0, d.hidden * gates)
    if d.input_bias is not None:
        inputs = b.binary("add", inputs, c.along(d.input_bias, 2, shape_of(inputs)))

    def step(slices: Sequence[SSAValue], states: Sequence[SSAValue]) -> tuple[States, States]:
        after = cell(d, slices[0], list(states))
        if valid is None:
            return after, [after[0]]
        inside = b.broadcast_in_dim(slices[1], (0,), shape_of(after[0]))
        kept = [b.select(inside, new, old) for new, old in zip(after, states, strict=True)]
        return kept, [b.select(inside, after[0], c.scalar_like(0, after[0]))]

    sequences = [inputs] if valid is None else [inputs, valid]
    after, kept = over_steps(c, sequences, first, step, backward)
    return kept[0], after


@onnx_op("RNN")
def rnn(c: NodeContext) -> list[SSAValue]:
    """h = f(x W + h R + b)."""

    def cell(d: Direction, x: SSAValue, states: States) -> States:
        total = c.build.binary("add", x, _with_bias(d, d.times_recurrence(states[0], 0, 1), 0))
        return [d.activate(0, total)]

    return _recurrent(c, 1, (5,), ("Tanh",), cell)


def _with_bias(d: Direction, x: SSAValue, n: int, count: int = 1) -> SSAValue:
    """The recurrence's bias of gates n to n + count added."""
    if d.recurrence_bias is None:
        return x
    return d.c.build.binary(
        "add", x, d.c.along(d.gate(d.recurrence_bias, n, count), 1, shape_of(x))
    )


@onnx_op("GRU")
def gru(c: NodeContext) -> list[SSAValue]:
    """Gates in the order update (z), reset (r), hidden (h)."""
    b = c.build
    linear = c.flag("linear_before_reset")

    def cell(d: Direction, x: SSAValue, states: States) -> States:
        (h,) = states
        both = _with_bias(d, d.times_recurrence(h, 0, 2), 0, 2)
        both = d.activate(0, b.binary("add", d.gate(x, 0, 2), both))
        update, reset = d.gate(both, 0), d.gate(both, 1)
        if linear:
            inner = _with_bias(d, d.times_recurrence(h, 2, 1), 2)
            inner = b.binary("multiply", reset, inner)
        else:
            inner = d.times_recurrence(b.binary("multiply", reset, h), 2, 1)
            inner = _with_bias(d, inner, 2)
        new = d.activate(1, b.binary("add", d.gate(x, 2), inner))
        rest = b.binary("subtract", c.scalar_like(1, update), update)
        kept = b.binary("multiply", update, h)
        return [b.binary("add", b.binary("multiply", rest, new), kept)]

    return _recurrent(c, 3, (5,), ("Sigmoid", "Tanh"), cell)


@onnx_op("LSTM")
def lstm(c: NodeContext) -> list[SSAValue]:
    """Gates in the order input (i), output (o), forget (f), cell (c)."""
    return _lstm(c, float_weights)


@onnx_op("DynamicQuantizeLSTM", domain="com.microsoft")
def dynamic_quantize_lstm(c: NodeContext) -> list[SSAValue]:
    """An LSTM whose weights are numbers of 8 bits, transposed.

    The inputs become numbers all at once, the state at each step, both over the range of
    the whole batch.
    """
    return _lstm(c, number_weights)


def _lstm(c: NodeContext, read: ReadWeights) -> list[SSAValue]:
    b = c.build
    coupled = c.flag("input_forget")

    def peep(d: Direction, x: SSAValue, state: SSAValue, n: int) -> SSAValue:
        if d.peepholes is None:
            return x
        weights = c.along(d.gate(d.peepholes, n), 1, shape_of(state))
        return b.binary("add", x, b.binary("multiply", weights, state))

    def cell(d: Direction, x: SSAValue, states: States) -> States:
        h, old = states
        total = b.binary("add", x, _with_bias(d, d.times_recurrence(h, 0, 4), 0, 4))
        gate = [d.gate(total, n) for n in range(4)]
        enter = d.activate(0, peep(d, gate[0], old, 0))
        if coupled:
            forget = b.binary("subtract", c.scalar_like(1, enter), enter)
        else:
            forget = d.activate(0, peep(d, gate[2], old, 2))
        new = b.binary("multiply", enter, d.activate(1, gate[3]))
        state = b.binary("add", b.binary("multiply", forget, old), new)
        leave = d.activate(0, peep(d, gate[1], state, 1))
        return [b.binary("multiply", leave, d.activations[2](c, state)), state]

    return _recurrent(c, 4, (5, 6), ("Sigmoid", "Tanh", "Tanh"), cell, read)
