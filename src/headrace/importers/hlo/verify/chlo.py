"""Rules of CHLO's operations."""

from __future__ import annotations

from headrace.importers.hlo.registry import integers_of
from headrace.importers.hlo.tree import HloOperation
from headrace.importers.hlo.verify.contraction import precision
from headrace.importers.hlo.verify.rules import (
    Refused,
    Scope,
    Sizes,
    apart,
    fits,
    in_range,
    integer,
    known,
    need,
    operand,
    positive,
    result,
    returned,
    rule,
    same_element,
    same_shape,
    sizes_of,
    unique,
    yields,
)
from headrace.importers.hlo.verify.signatures import check_elements

_BROADCASTING = (
    "add", "and", "atan2", "compare", "complex", "divide", "maximum", "minimum", "multiply",
    "next_after", "or", "polygamma", "power", "remainder", "shift_left",
    "shift_right_arithmetic", "shift_right_logical", "subtract", "xor", "zeta",
)  # fmt: skip


@rule(*(f"chlo.broadcast_{name}" for name in _BROADCASTING))
def _broadcasting(operation: HloOperation, _: Scope) -> None:
    need(len(operation.types) == 2, f"{len(operation.types)} operands")
    if not known(operation):
        return
    lhs, rhs, made = operand(operation, 0), operand(operation, 1), result(operation)
    need(lhs.dtype == rhs.dtype, f"{lhs} and {rhs} have different elements")
    name = operation.name.removeprefix("chlo.broadcast_")
    if name == "compare":
        check_elements(made, "p", "the result")
    elif name == "complex":
        need(made.dtype.name == f"complex<{lhs.dtype.name}>", f"the result is a {made}")
    else:
        need(same_element(made, lhs), f"the result is a {made}, of {lhs}")
    a, b = sizes_of(lhs), sizes_of(rhs)
    given = operation.attributes.get("broadcast_dimensions")
    if given is not None and len(a) != len(b):
        dims = integers_of(given)
        need(len(dims) == min(len(a), len(b)), f"{len(dims)} dimensions are named")
        in_range(dims, max(len(a), len(b)), "'broadcast_dimensions'")
        need(dims == sorted(set(dims)), f"'broadcast_dimensions' is not sorted: {dims}")
        return
    short, long = sorted((a, b), key=len)
    found: Sizes = list(long)
    for n in range(1, len(short) + 1):
        x, y = short[-n], long[-n]
        need(1 in (x, y) or fits(x, y), f"{lhs} and {rhs} do not spread over each other")
        found[-n] = y if x == 1 else x if y == 1 else (x if x is not None else y)
        if (x is None or y is None) and 1 not in (x, y):
            found[-n] = x if y is None else y
            if found[-n] in (None, 1):
                found[-n] = None
    yields(operation, found, None)


@rule("chlo.broadcast_select")
def _broadcast_select(operation: HloOperation, _: Scope) -> None:
    if known(operation):
        predicate, yes, no = (operand(operation, n) for n in range(3))
        check_elements(predicate, "p", "operand 0")
        need(yes.dtype == no.dtype, f"{yes} and {no} are no choice")


_FLOATS = (
    "acos", "acosh", "asin", "asinh", "atan", "atanh", "bessel_i1e", "cosh", "digamma", "erf",
    "erf_inv", "erfc", "lgamma", "sinh", "square", "tan", "conj", "next_after", "polygamma",
    "zeta",
)  # fmt: skip


@rule(*(f"chlo.{name}" for name in _FLOATS))
def _elementwise(operation: HloOperation, _: Scope) -> None:
    if not known(operation):
        return
    made = result(operation)
    for n, kind in enumerate(operation.types):
        check_elements(kind, "fcq", f"operand {n}")
        need(same_shape(kind, made), f"shapes differ: {kind} and {made}")
    if operation.name != "chlo.conj":
        need(made.dtype == operand(operation, 0).dtype, f"the result is a {made}")


@rule("chlo.is_inf", "chlo.is_pos_inf", "chlo.is_neg_inf")
def _is_inf(operation: HloOperation, _: Scope) -> None:
    check_elements(operation.types[0], "fc", "operand 0")
    check_elements(operation.result_types[0], "p", "the result")
    need(same_shape(operation.types[0], operation.result_types[0]), "shapes differ")


@rule("chlo.mulhi")
def _mulhi(operation: HloOperation, _: Scope) -> None:
    for n, kind in enumerate(operation.types):
        check_elements(kind, "su", f"operand {n}")


@rule("chlo.constant_like")
def _constant_like(operation: HloOperation, _: Scope) -> None:
    if not known(operation) or "value" not in operation.attributes:
        return
    value, made = operation.attributes["value"], result(operation)
    kind = made.dtype
    whole = isinstance(value, int) and not isinstance(value, bool)
    agrees = (
        (isinstance(value, float) and (kind.is_float or kind.kind == "complex"))
        or (whole and kind.is_integer)
        or (isinstance(value, bool) and kind.kind == "bool")
        or not isinstance(value, (int, float, bool))
    )
    need(agrees, f"{value} is no element of a {made}")


@rule("chlo.top_k")
def _top_k(operation: HloOperation, _: Scope) -> None:
    count = positive(operation, "k")
    if not known(operation):
        return
    sizes = sizes_of(operand(operation, 0))
    need(len(sizes) >= 1, "single elements have no greatest")
    last = sizes[-1]
    need(last is None or last >= count, f"{count} of {last} elements")
    yields(operation, [*sizes[:-1], count], operand(operation, 0))


@rule("chlo.ragged_dot")
def _ragged_dot(operation: HloOperation, _: Scope) -> None:
    precision(operation)
    numbers = operation.attributes.get("ragged_dot_dimension_numbers")
    if not isinstance(numbers, dict) or not known(operation):
        return
    names = (
        "lhs_batching_dimensions", "lhs_contracting_dimensions", "rhs_batching_dimensions",
        "rhs_contracting_dimensions", "lhs_ragged_dimensions", "rhs_group_dimensions",
    )  # fmt: skip
    lb, lc, rb, rc, ragged, groups = (integers_of(numbers.get(n, [])) for n in names)
    a, b = sizes_of(operand(operation, 0)), sizes_of(operand(operation, 1))
    given = sizes_of(operand(operation, 2))
    need(len(lb) == len(rb) and len(lc) == len(rc), "factors differ in their dimensions")
    for dims, size in (([*lb, *lc, *ragged], len(a)), ([*rb, *rc, *groups], len(b))):
        in_range(dims, size, "dimensions of a factor")
    unique([*lb, *lc], "batching and contracting dimensions")
    unique([*rb, *rc], "batching and contracting dimensions")
    for x, y in zip([*lb, *lc], [*rb, *rc], strict=True):
        need(fits(a[x], b[y]), f"dimensions of {a[x]} and {b[y]} elements meet")
    need(len(ragged) == 1, f"{len(ragged)} dimensions are ragged, not one")
    apart(groups, rb, "group and batching dimensions")
    apart(groups, rc, "group and contracting dimensions")
    free = ragged[0] not in lb and ragged[0] not in lc
    need(
        len(groups) == (1 if free else 0),
        f"the right factor has {len(groups)} group dimensions",
    )
    count = given[-1] if given else None
    if free and groups:
        need(fits(b[groups[0]], count), f"{b[groups[0]]} groups have {count} sizes")
    _group_sizes(given, a, lb, lc, ragged[0])


def _group_sizes(given: Sizes, a: Sizes, lb: list[int], lc: list[int], ragged: int) -> None:
    """Sizes of groups: of one list, or one for each row before the ragged dimension."""
    if len(given) <= 1:
        need(len(given) == 1, "the sizes of groups are one number")
        return
    if ragged in lb:
        before = [a[n] for n in lb[: lb.index(ragged)]]
    elif ragged in lc:
        before = [a[n] for n in lb] + [a[n] for n in lc[: lc.index(ragged)]]
    else:
        rows = [n for n in range(ragged) if n not in lb and n not in lc]
        before = [a[n] for n in lb] + [a[n] for n in rows]
    need(len(given) == len(before) + 1, f"the sizes of groups have a rank of {len(given)}")
    need(all(map(fits, given[:-1], before)), "the sizes of groups have another shape")


@rule("chlo.scan")
def _scan(operation: HloOperation, _: Scope) -> None:
    """Operands are inputs, then starts; the body takes a slice of each input, then what is
    carried."""
    if not known(operation) or not operation.regions:
        return
    dimension = integer(operation, "dimension")
    body = operation.regions[0]
    segments = operation.attributes.get("operandSegmentSizes")
    inputs = integers_of(segments)[0] if segments is not None else len(operation.types) // 2
    need(len(body.arguments) == len(operation.types), f"the body takes {len(body.arguments)} arguments")  # fmt: skip
    for n, (_name, argument) in enumerate(body.arguments):
        kind = operand(operation, n)
        wanted = sizes_of(kind)
        if n < inputs:
            need(0 <= dimension < len(wanted), f"operand {n} has no dimension {dimension}")
            size = operation.attributes.get("scan_dim_size")
            need(size is None or fits(wanted[dimension], int(size)), f"operand {n} is scanned over {wanted[dimension]}")  # fmt: skip
            del wanted[dimension]
        have = sizes_of(argument)
        dtype = getattr(argument, "dtype", None)
        need(dtype == kind.dtype and len(have) == len(wanted) and all(map(fits, have, wanted)), f"argument {n} of the body is a {argument}")  # fmt: skip
    if not returned(body):
        raise Refused("the body returns nothing")
