"""Arguments that the caller gives away: which result takes the place of which.

`tf.aliasing_output = 1 : i32` on an argument names the result; `jax.buffer_donor = true`
leaves the choice to the compiler: the first result of its type that is still free. JAX
writes both for `jax.jit(f, donate_argnums=...)`.
"""

from __future__ import annotations

from collections.abc import Sequence

from xdsl.dialects.func import FuncOp

from headrace.importers.hlo.tree import HloFunction, HloTensorType

_NAMED, _ANY = "tf.aliasing_output", "jax.buffer_donor"


def donations(function: HloFunction, inputs: Sequence[int], made: FuncOp) -> dict[int, int]:
    """The result that takes the place of each input that is given away.

    Args:
        inputs: positions of the function's arguments that are inputs, in order.
        made: the function as it is now, its signature one tensor a place.

    Raises:
        ValueError: an argument names a result that there is not, or that has another type
            or another argument.
    """
    kinds = made.function_type.inputs.data
    results = made.function_type.outputs.data
    attributes = function.argument_attributes
    tensors = all(isinstance(kind, HloTensorType) for _, kind in function.body.arguments)
    if not attributes or not tensors:
        return {}
    found: dict[int, int] = {}
    for place, position in enumerate(inputs):
        number = attributes[position].get(_NAMED)
        if number is None:
            continue
        if not 0 <= number < len(results) or results[number] != kinds[place]:
            raise ValueError(f"argument {position} cannot be result {number}")
        if number in found.values():
            raise ValueError(f"two arguments are to be result {number}")
        found[place] = number
    for place, position in enumerate(inputs):
        if attributes[position].get(_ANY) is not True or place in found:
            continue
        taken = set(found.values())
        free = [n for n, r in enumerate(results) if r == kinds[place] and n not in taken]
        if free:
            found[place] = free[0]
    return found
