"""Rules of windows and of batch norms."""

from __future__ import annotations

from headrace.importers.hlo.tree import HloOperation
from headrace.importers.hlo.verify.contraction import window_sizes
from headrace.importers.hlo.verify.rules import (
    Scope,
    Sizes,
    fit_shape,
    fits,
    integers,
    known,
    natural,
    need,
    operand,
    reducer,
    result,
    returned,
    rule,
    same_shape,
    scalar,
    sizes_of,
    yields,
)


@rule("reduce_window")
def _reduce_window(operation: HloOperation, _: Scope) -> None:
    count = len(operation.types) // 2
    need(count > 0 and len(operation.types) == 2 * count, "inputs and starts differ in number")
    window = integers(operation, "window_dimensions")
    if not known(operation):
        return
    inputs = [operand(operation, n) for n in range(count)]
    starts = [operand(operation, count + n) for n in range(count)]
    sizes = sizes_of(inputs[0])
    need(len(window) == len(sizes), f"a window of {len(window)} dimensions over {len(sizes)}")
    for kind in inputs:
        need(same_shape(kind, inputs[0]), "inputs have different shapes")
    found = window_sizes(
        operation, sizes, list(window), operation.attributes.get("padding"), True
    )
    made = reducer(operation.regions[0], inputs, [scalar(s) for s in starts])
    need(len(operation.result_types) == count, "results and inputs differ in number")
    for n, element in enumerate(made):
        kind = result(operation, n)
        need(fit_shape(found, kind), f"result {n} is a {kind}, not of the shape {found}")
        need(kind.dtype == element.dtype, f"result {n} is a {kind}, and {element} is combined")


@rule("select_and_scatter")
def _select_and_scatter(operation: HloOperation, _: Scope) -> None:
    if not known(operation):
        return
    kind, source, start = (operand(operation, n) for n in range(3))
    sizes = sizes_of(kind)
    given = operation.attributes.get("window_dimensions")
    window: Sizes = list(integers(operation, "window_dimensions")) if given is not None else [1] * len(sizes)  # fmt: skip
    need(len(window) == len(sizes), f"a window of {len(window)} dimensions over {len(sizes)}")
    found = window_sizes(operation, sizes, window, operation.attributes.get("padding"), True)
    need(fit_shape(found, source), f"the source is a {source}, not of the shape {found}")
    need(source.dtype == kind.dtype, f"the source is a {source}, of a {kind}")
    need(not start.shape, f"the start is a {start}")
    select, body = operation.regions
    need(len(select.arguments) == 2, f"the selection takes {len(select.arguments)} arguments")
    for n, (_name, argument) in enumerate(select.arguments):
        wanted = getattr(argument, "dtype", None) == kind.dtype and not getattr(argument, "shape", (1,))  # fmt: skip
        need(wanted, f"argument {n} of the selection is a {argument}")
    chosen = returned(select)
    need(len(chosen) == 1 and str(chosen[0]) == "tensor<i1>", "the selection returns no single tensor<i1>")  # fmt: skip
    (element,) = reducer(body, [source], [scalar(start)])
    yields(operation, sizes, None)
    need(result(operation).dtype == element.dtype, f"the result is a {result(operation)}")


# -- batch norms -------------------------------------------------------------------------------


@rule("batch_norm_training", "batch_norm_inference", "batch_norm_grad")
def _batch_norm(operation: HloOperation, _: Scope) -> None:
    feature = natural(operation, "feature_index")
    if not known(operation):
        return
    kind = operand(operation, 0)
    sizes = sizes_of(kind)
    need(feature < len(sizes), f"feature dimension {feature} of rank {len(sizes)}")
    gradient = operation.name.endswith("grad")
    for n in range(1, len(operation.types)):
        other = operand(operation, n)
        need(other.dtype == kind.dtype, f"operand {n} is a {other}, of a {kind}")
        if gradient and n == 4:
            need(same_shape(other, kind), f"operand {n} is a {other}, of a {kind}")
            continue
        need(len(other.shape) == 1, f"operand {n} is a {other}")
        (length,) = sizes_of(other)
        need(fits(length, sizes[feature]), f"operand {n} has {length} elements for {sizes[feature]} features")  # fmt: skip
    yields(operation, sizes, kind)
    for n in range(1, len(operation.result_types)):
        made = result(operation, n)
        need(made.dtype == kind.dtype, f"result {n} is a {made}")
        need(fit_shape([sizes[feature]], made), f"result {n} is a {made}")
