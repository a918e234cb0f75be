"""Rules of products and of linear algebra."""

from __future__ import annotations

from typing import Any

from headrace.importers.hlo.registry import integers_of
from headrace.importers.hlo.tree import HloOperation
from headrace.importers.hlo.verify.rules import (
    Refused,
    Scope,
    Sizes,
    fit_shape,
    fits,
    in_range,
    integers,
    known,
    need,
    operand,
    result,
    rule,
    shown,
    sizes_of,
    unique,
    yields,
)

_PRECISIONS = ("DEFAULT", "HIGH", "HIGHEST")


def precision(operation: HloOperation, most: int = 2) -> list[str]:
    """The precision of each operand. Refuses what is none."""
    given = operation.attributes.get("precision_config") or []
    if not isinstance(given, list):
        raise Refused("the precision is no list")
    need(len(given) <= most, f"the precision of {len(given)} operands is given")
    for word in given:
        need(word in _PRECISIONS, f"'{word}' is no precision")
    return [str(word) for word in given]


@rule("dot")
def _dot(operation: HloOperation, _: Scope) -> None:
    precision(operation)
    if not known(operation):
        return
    a, b = sizes_of(operand(operation, 0)), sizes_of(operand(operation, 1))
    need(len(a) in (1, 2) and len(b) in (1, 2), "factors have a rank of 1 or 2")
    need(fits(a[-1], b[0]), f"{a[-1]} and {b[0]} elements are not summed over")
    yields(operation, [*a[:-1], *b[1:]], None)


@rule("dot_general")
def _dot_general(operation: HloOperation, _: Scope) -> None:
    given = precision(operation)
    algorithm = operation.attributes.get("algorithm")
    if isinstance(algorithm, dict):
        _algorithm(algorithm, given)
    numbers = operation.attributes["dot_dimension_numbers"]
    if not isinstance(numbers, dict):
        raise Refused("the dimension numbers cannot be read")
    names = ("batching_dimensions", "contracting_dimensions")
    lhs = [integers_of(numbers.get(f"lhs_{n}", [])) for n in names]
    rhs = [integers_of(numbers.get(f"rhs_{n}", [])) for n in names]
    for n, what in enumerate(("batching", "contracting")):
        need(len(lhs[n]) == len(rhs[n]), f"factors differ in their number of {what} dimensions")
    if not known(operation):
        return
    a, b = sizes_of(operand(operation, 0)), sizes_of(operand(operation, 1))
    for side, dims, sizes in (("left", lhs, a), ("right", rhs, b)):
        both = [*dims[0], *dims[1]]
        in_range(both, len(sizes), f"dimensions of the {side} factor")
        unique(both, f"batching and contracting dimensions of the {side} factor")
    for n, what in enumerate(("batching", "contracting")):
        for x, y in zip(lhs[n], rhs[n], strict=True):
            need(fits(a[x], b[y]), f"{what} dimensions have {a[x]} and {b[y]} elements")
    free_a = [s for n, s in enumerate(a) if n not in lhs[0] and n not in lhs[1]]
    free_b = [s for n, s in enumerate(b) if n not in rhs[0] and n not in rhs[1]]
    yields(operation, [*(a[n] for n in lhs[0]), *free_a, *free_b], None)
    _quantised(operation)


def _quantised(operation: HloOperation) -> None:
    kinds = [operand(operation, 0), operand(operation, 1), result(operation)]
    if kinds[0].grid:
        need(bool(kinds[1].grid), "the left factor is quantised, and the right is not")


_ALGORITHM_TYPES = ("bf16", "f8", "f16", "f32", "f64", "i8", "i4", "tf32")


def _algorithm(algorithm: dict[str, Any], given: list[str]) -> None:
    for name in ("lhs_component_count", "rhs_component_count", "num_primitive_operations"):
        value = algorithm.get(name, 1)
        need(isinstance(value, int) and value > 0, f"'{name}' is {value}")
    need(all(word == "DEFAULT" for word in given), "an algorithm needs the default precision")
    types = [str(algorithm.get(n, "")) for n in ("lhs_precision_type", "rhs_precision_type", "accumulation_type")]  # fmt: skip
    types = [t.removeprefix("tensor<").removesuffix(">") for t in types]
    counts = [int(algorithm.get(n, 1)) for n in ("lhs_component_count", "rhs_component_count", "num_primitive_operations")]  # fmt: skip
    need(_hardware(types, counts), f"no machine multiplies {types[0]} by {types[1]} into {types[2]} so")  # fmt: skip


def _hardware(types: list[str], counts: list[int]) -> bool:
    """Whether some machine computes so (the specification's list of algorithms)."""
    lhs, rhs, sum_ = types
    same = lhs == rhs
    if lhs.startswith("f8") and rhs.startswith("f8"):
        return sum_ in ("f32", "f16") and counts == [1, 1, 1]
    if not same:
        return False
    allowed = {
        ("f16", "f16"): {1}, ("f16", "f32"): {1}, ("bf16", "bf16"): {1},
        ("bf16", "f32"): {1, 3, 6, 9}, ("tf32", "f32"): {1, 3}, ("f32", "f32"): {1},
        ("f64", "f64"): {1}, ("f32", "f64"): {1}, ("i8", "i32"): {1}, ("i8", "f32"): {1},
    }.get((lhs, sum_))  # fmt: skip
    components = {1: 1, 3: 2, 6: 3, 9: 3}
    number = counts[2]
    if allowed is None or number not in allowed:
        return False
    wanted = components[number]
    return counts[0] == counts[1] == (2 if lhs == "tf32" and number == 3 else wanted)


@rule("triangular_solve")
def _triangular_solve(operation: HloOperation, _: Scope) -> None:
    how = str(operation.attributes["transpose_a"])
    need(how in ("NO_TRANSPOSE", "TRANSPOSE", "ADJOINT"), f"'{how}' is no way to transpose")
    if not known(operation):
        return
    a, b = operand(operation, 0), operand(operation, 1)
    x, y = sizes_of(a), sizes_of(b)
    need(len(x) >= 2, f"a system of rank {len(x)}")
    need(len(x) == len(y), f"{a} and {b} differ in rank")
    need(a.dtype == b.dtype, f"{a} and {b} differ in elements")
    need(fits(x[-1], x[-2]), f"{a} is not square")
    shared = y[-2] if operation.attributes["left_side"] else y[-1]
    need(fits(x[-1], shared), f"{a} does not solve for {b}")
    need(all(map(fits, x[:-2], y[:-2])), f"batches of {a} and {b} differ")
    yields(operation, y, b)


@rule("cholesky")
def _cholesky(operation: HloOperation, _: Scope) -> None:
    if not known(operation):
        return
    kind = operand(operation, 0)
    sizes = sizes_of(kind)
    need(len(sizes) >= 2, f"a matrix of rank {len(sizes)}")
    need(fits(sizes[-1], sizes[-2]), f"{kind} is not square")
    yields(operation, sizes, kind)


@rule("fft")
def _fft(operation: HloOperation, _: Scope) -> None:
    lengths = integers(operation, "fft_length")
    how = str(operation.attributes["fft_type"])
    need(how in ("FFT", "IFFT", "RFFT", "IRFFT"), f"'{how}' is no transform")
    need(1 <= len(lengths) <= 3, f"a transform of {len(lengths)} dimensions")
    if not known(operation):
        return
    kind, made = operand(operation, 0), result(operation)
    sizes = sizes_of(kind)
    count = len(lengths)
    need(len(sizes) >= count, f"{kind} has fewer than {count} dimensions")
    need((kind.dtype.kind == "complex") == (how != "RFFT"), f"a {how} takes no {kind}")
    if how == "RFFT":
        need(kind.dtype.name in ("f32", "f64"), f"a {how} takes no {kind}")
    need((made.dtype.kind == "complex") == (how != "IRFFT"), f"a {how} makes no {made}")
    found: Sizes = list(sizes)
    last = lengths[-1]
    whole = list(lengths) if how != "IRFFT" else [*lengths[:-1], last // 2 + 1]
    if how in ("RFFT", "IRFFT"):
        for size, length in zip(sizes[-count:], whole, strict=True):
            need(fits(size, length), f"{kind} has no {whole} elements at its end")
        found[-1] = last // 2 + 1 if how == "RFFT" else last
    yields(operation, found, None)


# -- convolutions ------------------------------------------------------------------------------


@rule("convolution", "dynamic_conv")
def _convolution(operation: HloOperation, scope: Scope) -> None:
    precision(operation)
    features = integers(operation, "feature_group_count")[0]
    batches = integers(operation, "batch_group_count")[0]
    need(features > 0 and batches > 0, "a number of groups is not above 0")
    need(features == 1 or batches == 1, "features and batches are both grouped")
    if not known(operation):
        return
    lhs, rhs = operand(operation, 0), operand(operation, 1)
    a, b = sizes_of(lhs), sizes_of(rhs)
    need(len(a) == len(b) >= 2, f"{lhs} and {rhs} differ in rank")
    numbers = operation.attributes["dimension_numbers"]
    if not isinstance(numbers, dict):
        raise Refused("the dimension numbers cannot be read")
    places = {k: integers_of(v) for k, v in numbers.items()}
    rank = len(a) - 2
    for stem, one, two in (
        ("input", "batch", "feature"), ("kernel", "input_feature", "output_feature"),
        ("output", "batch", "feature"),
    ):  # fmt: skip
        spatial = places[f"{stem}_spatial_dimensions"]
        every = [places[f"{stem}_{one}_dimension"][0], places[f"{stem}_{two}_dimension"][0], *spatial]  # fmt: skip
        need(
            len(spatial) == rank,
            f"the {stem} has {len(spatial)} spatial dimensions, not {rank}",
        )
        in_range(every, rank + 2, f"dimensions of the {stem}")
        unique(every, f"dimensions of the {stem}")
    window = [b[n] for n in places["kernel_spatial_dimensions"]]
    padding = operation.attributes.get("padding")
    known_padding = operation.name.endswith("convolution")
    if not known_padding:
        given = scope.integers(operation.operands[2])
        known_padding, padding = given is not None, given
    spatial = window_sizes(
        operation, [a[n] for n in places["input_spatial_dimensions"]], window,
        padding if known_padding else None, known_padding,
    )  # fmt: skip
    in_features, channels = a[places["input_feature_dimension"][0]], b[places["kernel_input_feature_dimension"][0]]  # fmt: skip
    out_features = b[places["kernel_output_feature_dimension"][0]]
    batch = a[places["input_batch_dimension"][0]]
    _divides(features, in_features, "input features")
    _divides(features, out_features, "output features")
    _divides(batches, batch, "batches")
    _divides(batches, out_features, "output features")
    if in_features is not None:
        need(fits(in_features // features, channels), f"{in_features} features in {features} groups meet {channels}")  # fmt: skip
    found: Sizes = [None] * len(a)
    found[places["output_batch_dimension"][0]] = None if batch is None else batch // batches
    found[places["output_feature_dimension"][0]] = out_features
    for place, size in zip(places["output_spatial_dimensions"], spatial, strict=True):
        found[place] = size
    need(fit_shape(found, result(operation)), f"the result has the shape {shown(found)}")
    if lhs.grid:
        need(bool(rhs.grid), "the input is quantised, and the kernel is not")


def _divides(groups: int, size: int | None, what: str) -> None:
    need(size is None or size % groups == 0, f"{size} {what} are not split in {groups}")


def window_sizes(
    operation: HloOperation, sizes: Sizes, window: Sizes, padding: Any, padding_known: bool
) -> Sizes:
    """Sizes of what a window yields as it moves over padded, dilated dimensions."""
    rank = len(sizes)

    def each(*names: str) -> list[int]:
        for name in names:
            if operation.attributes.get(name) is not None:
                values = integers(operation, name)
                need(len(values) == rank, f"'{name}' has {len(values)} numbers, not {rank}")
                need(all(v > 0 for v in values), f"'{name}' holds {min(values, default=1)}")
                return values
        return [1] * rank

    strides = each("window_strides")
    base = each("lhs_dilation", "base_dilations")
    inner = each("rhs_dilation", "window_dilations")
    reversal = operation.attributes.get("window_reversal")
    if reversal is not None:
        count = len(integers_of(reversal))
        need(count == rank, f"'window_reversal' has {count} numbers, not {rank}")
    pairs = [(0, 0)] * rank
    if padding is not None:
        shape = getattr(padding, "shape", None)
        need(shape is None or shape == (rank, 2), f"the padding has the shape {shape}")
        flat = integers_of(padding)
        need(len(flat) == 2 * rank, f"the padding holds {len(flat)} numbers")
        pairs = list(zip(flat[::2], flat[1::2], strict=True))
    found: Sizes = []
    for n, size in enumerate(sizes):
        length = window[n]
        need(length is None or length > 0, f"the window has {length} elements in dimension {n}")
        if size is None or length is None or not padding_known:
            found.append(None)
            continue
        wide = (max((size - 1) * base[n] + 1, 0) if size else 0) + sum(pairs[n])
        reach = (length - 1) * inner[n] + 1
        found.append(0 if wide <= 0 or reach > wide else (wide - reach) // strides[n] + 1)
    return found
