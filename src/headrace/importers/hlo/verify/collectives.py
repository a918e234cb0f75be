"""Rules of operations between processes."""

from __future__ import annotations

from typing import Any

from headrace.importers.hlo.registry import integers_of
from headrace.importers.hlo.tree import HloOperation, HloTensorType
from headrace.importers.hlo.verify.rules import (
    Refused,
    Scope,
    Sizes,
    fits,
    flag,
    is_token,
    known,
    natural,
    need,
    operand,
    positive,
    reducer,
    result,
    rule,
    same_element,
    same_shape,
    scalar,
    sizes_of,
    unique,
    yields,
)


def _groups(
    operation: HloOperation, padded: bool = False, some: bool = False
) -> list[list[int]] | None:
    """Which processes work together; None where a mesh says it.

    Args:
        padded: -1 fills groups that are shorter than others.
        some: not every process takes part.
    """
    given = operation.attributes["replica_groups"]
    if isinstance(given, str):
        return None
    shape = getattr(given, "shape", None)
    need(shape is not None and len(shape) == 2, "replica groups have a rank of 2")
    rows: list[list[int]] = [[int(v) for v in row] for row in given]
    ids = [v for row in rows for v in row]
    need(padded or all(v >= 0 for v in ids), "a replica's number is below 0")
    ids = [v for v in ids if v != -1]
    unique(ids, "the replica groups")
    need(
        some or sorted(ids) == list(range(len(ids))),
        f"a number is missing in the replica groups {rows}",
    )
    if flag(operation, "use_global_device_ids"):
        need(bool(ids), "the replica groups are empty")
    return rows


def _channel(operation: HloOperation) -> None:
    """With numbers of devices, there is a channel."""
    if not flag(operation, "use_global_device_ids"):
        return
    handle = operation.attributes.get("channel_handle", {})
    number = _field(handle, "handle")
    need(number is not None and number > 0, f"numbers of devices need a channel above 0, not {number}")  # fmt: skip


def _field(value: Any, name: str) -> int | None:
    found = value.get(name) if isinstance(value, dict) else None
    return found if isinstance(found, int) else None


def _body(operation: HloOperation, kinds: list[HloTensorType]) -> list[HloTensorType]:
    return reducer(operation.regions[0], kinds[:1], [scalar(k) for k in kinds[:1]])


@rule("all_reduce")
def _all_reduce(operation: HloOperation, _: Scope) -> None:
    _groups(operation, padded=True)
    _channel(operation)
    _reduced(operation, len(operation.types))


def _reduced(operation: HloOperation, count: int) -> None:
    if not known(operation):
        return
    need(len(operation.result_types) == count, "results and operands differ in number")
    for n in range(count):
        kind, made = operand(operation, n), result(operation, n)
        (element,) = reducer(operation.regions[0], [kind], [scalar(kind)])
        need(same_shape(kind, made), f"a {kind} becomes a {made}")
        need(made.dtype == element.dtype, f"a {made} is made, and {element} is combined")


@rule("collective_reduce", "collective_broadcast")
def _rooted(operation: HloOperation, _: Scope) -> None:
    _groups(operation, padded=True, some=True)
    _channel(operation)
    count = len(operation.types)
    need(count > 0, "there is nothing to send")
    if flag(operation, "has_dynamic_root"):
        need(count > 1, "a root that data chooses needs data beside it")
        count -= 1
        root = operation.types[-1]
        right = isinstance(root, HloTensorType) and len(root.shape) == 1 and root.dtype.name == "i32"  # fmt: skip
        need(right, f"the root is a {root}, not one dimension of i32")
        assert isinstance(root, HloTensorType)
        need(fits(sizes_of(root)[0], count), f"{root} chooses the roots of {count} operands")
    if operation.name.endswith("reduce"):
        _reduced(operation, count)
    elif known(operation):
        need(len(operation.result_types) == count, "results and operands differ in number")
        for n in range(count):
            need(same_shape(operand(operation, n), result(operation, n)), f"result {n} has another shape")  # fmt: skip


@rule("all_gather")
def _all_gather(operation: HloOperation, _: Scope) -> None:
    dimension = natural(operation, "all_gather_dim")
    _groups(operation)
    _channel(operation)
    if not known(operation):
        return
    need(len(operation.types) == len(operation.result_types), "results and operands differ in number")  # fmt: skip
    for n in range(len(operation.types)):
        kind, made = operand(operation, n), result(operation, n)
        a, b = sizes_of(kind), sizes_of(made)
        need(len(a) == len(b), f"{kind} and {made} differ in rank")
        need(dimension < len(a), f"dimension {dimension} is not there")
        need(a[dimension] != 0, f"dimension {dimension} is empty")
        need(all(fits(x, y) for i, (x, y) in enumerate(zip(a, b, strict=True)) if i != dimension), f"{kind} and {made} differ elsewhere")  # fmt: skip
        x, y = a[dimension], b[dimension]
        if x is not None and y is not None:
            need(y % x == 0, f"{y} elements are not gathered of {x}")


@rule("reduce_scatter")
def _reduce_scatter(operation: HloOperation, _: Scope) -> None:
    dimension = natural(operation, "scatter_dimension")
    _groups(operation)
    _channel(operation)
    if not known(operation):
        return
    kind, made = operand(operation, 0), result(operation)
    a, b = sizes_of(kind), sizes_of(made)
    need(len(a) == len(b), f"{kind} and {made} differ in rank")
    need(dimension < len(a), f"dimension {dimension} is not there")
    x, y = a[dimension], b[dimension]
    need(x != 0 and y != 0, f"dimension {dimension} is empty")
    if x is not None and y is not None:
        need(x % y == 0, f"{x} elements are not scattered in parts of {y}")
    need(all(fits(p, q) for i, (p, q) in enumerate(zip(a, b, strict=True)) if i != dimension), f"{kind} and {made} differ elsewhere")  # fmt: skip
    (element,) = _body(operation, [kind])
    need(made.dtype == element.dtype, f"a {made} is made, and {element} is combined")


@rule("all_to_all")
def _all_to_all(operation: HloOperation, _: Scope) -> None:
    split, join = natural(operation, "split_dimension"), natural(operation, "concat_dimension")
    count = positive(operation, "split_count")
    groups = _groups(operation)
    shape = getattr(operation.attributes["replica_groups"], "shape", (0, count))
    need(groups is None or shape[1] == count, f"groups have not {count} members")
    if not known(operation):
        return
    need(len(operation.types) == len(operation.result_types), "results and operands differ in number")  # fmt: skip
    for n in range(len(operation.types)):
        kind, made = operand(operation, n), result(operation, n)
        found: Sizes = sizes_of(kind)
        need(split < len(found) and join < len(found), f"{kind} has no such dimension")
        size = found[split]
        need(size is None or size % count == 0, f"{size} elements are not split in {count}")
        found[split] = None if size is None else size // count
        wide = found[join]
        found[join] = None if wide is None else wide * count
        need(same_element(kind, made), f"a {kind} becomes a {made}")
        need(len(found) == len(made.shape) and all(map(fits, found, sizes_of(made))), f"a {kind} becomes a {made}")  # fmt: skip


@rule("collective_permute")
def _collective_permute(operation: HloOperation, _: Scope) -> None:
    given = operation.attributes["source_target_pairs"]
    shape = getattr(given, "shape", None)
    if shape is None:
        raise Refused("the pairs are no constant")
    need(len(shape) == 2, f"the pairs have a rank of {len(shape)}")
    need(shape[1] == 2, f"the pairs have the shape {shape}")
    flat = integers_of(given)
    need(all(v >= 0 for v in flat), "a replica's number is below 0")
    unique(flat[::2], "the sources")
    unique(flat[1::2], "the targets")
    if known(operation):
        kind = operand(operation, 0)
        yields(operation, sizes_of(kind), kind)


@rule("interpreter.run_parallel")
def _run_parallel(operation: HloOperation, scope: Scope) -> None:
    programs = operation.attributes.get("programs")
    if not isinstance(programs, list) or not programs:
        raise Refused("there are no programs")
    need(len({len(row) for row in programs}) == 1, "rows of programs differ in length")
    names = [name for row in programs for name in row]
    queue = operation.attributes.get("infeed")
    need(queue is None or bool(queue), "the infeed is empty")
    for name in [*names, *(queue or [])]:
        need(name in scope.functions, f"there is no function '{name}'")
    taken = sum(len(scope.functions[name].body.arguments) for name in names)
    made = sum(len(scope.functions[name].result_types) for name in names)
    need(taken == len(operation.types), f"{len(operation.types)} inputs for {taken}")
    need(
        made == len(operation.result_types), f"{len(operation.result_types)} results of {made}"
    )
    for name in queue or []:
        kinds = scope.functions[name].result_types
        right = len(kinds) == 1 and isinstance(kinds[0], HloTensorType)
        need(right, f"'{name}' yields no single tensor")


@rule("partition_id", "replica_id")
def _number(operation: HloOperation, _: Scope) -> None:
    kind = operation.result_types[0]
    need(str(kind) == "tensor<ui32>", f"the result is a {kind}, not a tensor<ui32>")


_CHANNELS = {("send", False): 1, ("send", True): 2, ("recv", False): 1, ("recv", True): 3}


@rule("send", "recv")
def _channels(operation: HloOperation, _: Scope) -> None:
    name = operation.name.partition(".")[2]
    wanted = _CHANNELS[name, flag(operation, "is_host_transfer")]
    kind = _field(operation.attributes["channel_handle"], "type")
    need(kind == wanted, f"a channel of type {kind} stands where {wanted} is needed")
    if name == "recv":
        _ends_with_token(operation)
    else:
        need(
            bool(operation.types) and is_token(operation.types[-1]),
            "the last operand is no token",
        )


def _ends_with_token(operation: HloOperation) -> None:
    kinds = operation.result_types
    need(bool(kinds), "there is no result")
    need(is_token(kinds[-1]), f"the last result is a {kinds[-1]}, not a token")
    need(all(isinstance(k, HloTensorType) for k in kinds[:-1]), "a result is no tensor")


@rule("infeed")
def _infeed(operation: HloOperation, _: Scope) -> None:
    _ends_with_token(operation)
    need(is_token(operation.types[0]), "the operand is no token")
    layout = operation.attributes.get("layout")
    if layout is None:
        return
    need(isinstance(layout, list), "the layout is no list")
    count = len(operation.result_types) - 1
    need(len(layout) == count, f"{len(layout)} layouts stand for {count} results")
    for entry in layout:
        need(isinstance(entry, list), f"the layout {entry} is no list")
        need(all(isinstance(v, int) for v in entry), f"the layout {entry} holds no integers")


@rule("outfeed")
def _outfeed(operation: HloOperation, _: Scope) -> None:
    need(
        bool(operation.types) and is_token(operation.types[-1]), "the last operand is no token"
    )
    need(is_token(operation.result_types[0]), "the result is no token")
