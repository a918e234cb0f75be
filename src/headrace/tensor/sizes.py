"""Sizes that data decides: `tensor.define_dimension`, and functions that go on in others.

A definition gives a named dimension its size: the value of an i64 scalar, read back when the
program runs (a *synchronisation point*). `flow-split-at-sizes` cuts a function there. What
follows is a function of its own, planned when the sizes are known; attributes of a function
say which (`Next`), and `run_chain` is what that means.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from xdsl.dialects.builtin import ArrayAttr, StringAttr, TensorType
from xdsl.dialects.func import FuncOp
from xdsl.ir import Operation
from xdsl.irdl import IRDLOperation, irdl_op_definition, operand_def, prop_def

from headrace.base.errors import error
from headrace.ir.types import ExprsAttr, shape_of


@irdl_op_definition
class DefineDimensionOp(IRDLOperation):
    """The dimension `symbol` is the i64 scalar `size`; operations behind may use it.

    It stands in a function's own block, before everything that names the dimension.
    """

    name = "tensor.define_dimension"
    size = operand_def(TensorType)
    symbol = prop_def(StringAttr)
    assembly_format = "$symbol `=` $size attr-dict `:` type($size)"


def names_used(operation: Operation) -> set[str]:
    """Named dimensions in an operation's types and properties, regions included."""
    found: set[str] = set()
    for op in operation.walk():
        values = [*op.results, *(a for r in op.regions for b in r.blocks for a in b.args)]
        for value in values:
            if isinstance(value.type, TensorType):
                found |= {n for s in shape_of(value) for n in s.names}
        for attribute in op.properties.values():
            if isinstance(attribute, ExprsAttr):
                found |= {n for e in attribute.exprs for n in e.names}
    return found


# -- functions that go on ----------------------------------------------------------------

_NEXT, _SIZES, _RESULTS = "hr.next", "hr.sizes", "hr.results"


@dataclass(frozen=True)
class Next:
    """How a function goes on.

    Attributes:
        function: name of the function that follows.
        sizes: (dimension, output) of each dimension that an output of this one decides.
        results: of the first function: the outputs that the user sees, in order.
    """

    function: str
    sizes: tuple[tuple[str, str], ...]
    results: tuple[str, ...] = ()


def read_next(function: FuncOp) -> Next | None:
    """What follows a function; None where it is the last."""
    name = function.attributes.get(_NEXT)
    if not isinstance(name, StringAttr):
        return None
    return Next(name.data, _pairs(function, _SIZES), _texts(function.attributes.get(_RESULTS)))


def write_next(function: FuncOp, following: Next) -> None:
    """Says so in the function's attributes."""
    function.attributes[_NEXT] = StringAttr(following.function)
    function.attributes[_SIZES] = ArrayAttr(
        [ArrayAttr([StringAttr(a), StringAttr(b)]) for a, b in following.sizes]
    )
    if following.results:
        function.attributes[_RESULTS] = ArrayAttr([StringAttr(r) for r in following.results])


def _texts(attribute: Any) -> tuple[str, ...]:
    if not isinstance(attribute, ArrayAttr):
        return ()
    return tuple(e.data for e in attribute.data if isinstance(e, StringAttr))


def _pairs(function: FuncOp, key: str) -> tuple[tuple[str, str], ...]:
    found = function.attributes.get(key)
    if not isinstance(found, ArrayAttr):
        return ()
    rows = [_texts(row) for row in found.data]
    return tuple((row[0], row[1]) for row in rows)


Evaluate = Callable[
    [FuncOp, Mapping[str, Any], Mapping[str, int]],
    tuple[Mapping[str, Any], Mapping[str, int]],
]
"""One function on named arrays, some dimensions known: its outputs by name, and all
dimensions."""


def defined_size(symbol: str, value: Any) -> int:
    """The size that a value read back gives a dimension.

    Raises:
        HeadraceError HR4015: it is negative.
    """
    size = int(value)
    if size < 0:
        raise error("HR4015", f"data gives size '{symbol}' the value {size}")
    return size


def run_chain(
    find: Callable[[str], FuncOp], name: str, inputs: Mapping[str, Any], evaluate: Evaluate
) -> dict[str, Any]:
    """A function and all that follow: the outputs that the user sees.

    Raises:
        HeadraceError HR4015: a size is negative.
    """
    values, dims = dict(inputs), dict[str, int]()
    first = function = find(name)
    while True:
        outputs, solved = evaluate(function, values, dims)
        values.update(outputs)
        dims.update(solved)
        following = read_next(function)
        if following is None:
            break
        for symbol, output in following.sizes:
            dims[symbol] = defined_size(symbol, values[output])
        function = find(following.function)
    head = read_next(first)
    return dict(outputs) if head is None else {n: values[n] for n in head.results}
