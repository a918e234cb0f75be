"""Rules of `reduce` and `map`."""

from __future__ import annotations

from headrace.importers.hlo.tree import HloOperation, HloTensorType
from headrace.importers.hlo.verify.rules import (
    Refused,
    Scope,
    fit_shape,
    in_range,
    integers,
    known,
    need,
    operand,
    reducer,
    result,
    returned,
    rule,
    same_shape,
    shown,
    sizes_of,
    unique,
    yields,
)


@rule("reduce")
def _reduce(operation: HloOperation, _: Scope) -> None:
    count = len(operation.types) // 2
    need(count > 0 and len(operation.types) == 2 * count, "inputs and starts differ in number")
    dims = integers(operation, "dimensions")
    unique(dims, "'dimensions'")
    if not known(operation):
        return
    inputs = [operand(operation, n) for n in range(count)]
    starts = [operand(operation, count + n) for n in range(count)]
    sizes = sizes_of(inputs[0])
    in_range(dims, len(sizes), "'dimensions'")
    for n, kind in enumerate(inputs):
        need(same_shape(kind, inputs[0]), f"input {n} has another shape")
    found = [s for n, s in enumerate(sizes) if n not in dims]
    for n, kind in enumerate(starts):
        need(not kind.shape or fit_shape(found, kind), f"start {n} is a {kind}")
    made = reducer(operation.regions[0], inputs, starts)
    need(len(operation.result_types) == count, "results and inputs differ in number")
    for n, element in enumerate(made):
        kind = result(operation, n)
        need(fit_shape(found, kind), f"result {n} is a {kind}, not of the shape {shown(found)}")
        need(kind.dtype == element.dtype, f"result {n} is a {kind}, and {element} is combined")


@rule("map")
def _map(operation: HloOperation, _: Scope) -> None:
    dims = integers(operation, "dimensions")
    if not known(operation):
        return
    kinds = [operand(operation, n) for n in range(len(operation.types))]
    need(bool(kinds), "there is nothing to map")
    rank = len(kinds[0].shape)
    need(dims == list(range(rank)), f"dimensions {dims} are not those of rank {rank}")
    body = operation.regions[0]
    need(len(body.arguments) == len(kinds), f"the body takes {len(body.arguments)} arguments")
    for n, (kind, (_name, argument)) in enumerate(zip(kinds, body.arguments, strict=True)):
        need(same_shape(kind, kinds[0]), f"operand {n} has another shape")
        if not isinstance(argument, HloTensorType) or argument.shape:
            raise Refused(f"argument {n} of the body is a {argument}")
        need(argument.dtype == kind.dtype, f"argument {n} of the body is a {argument}")
    made = returned(body)
    need(len(made) == 1, f"the body returns {len(made)} values")
    element = made[0]
    if not isinstance(element, HloTensorType) or element.shape:
        raise Refused(f"the body returns a {element}")
    yields(operation, sizes_of(kinds[0]), element)
