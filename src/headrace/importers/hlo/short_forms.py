"""Short forms of operations: `stablehlo.add %a, %b : tensor<2xf32>`.

Most are operands, words and `key = value` pairs between commas, then attributes and types;
one reader takes them all, and tables say what the words mean. Those with syntax of their own
have a function each.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from headrace.importers.hlo.text_cursor import NUMBER, STRING, SYMBOL, VALUE, WORD
from headrace.importers.hlo.tree import (
    HloOperation,
    HloRegion,
    HloTensorType,
    HloTupleType,
    HloType,
)

if TYPE_CHECKING:
    from headrace.importers.hlo.text_reader import TextReader

Form = Callable[["TextReader", str], HloOperation]

_KEYS = {
    "broadcast": {"sizes": "broadcast_sizes"},
    "broadcast_in_dim": {"dims": "broadcast_dimensions"},
    "cholesky": {"lower": "lower"},
    "concatenate": {"dim": "dimension"},
    "dot": {"precision": "precision_config"},
    "dynamic_broadcast_in_dim": {"dims": "broadcast_dimensions"},
    "dynamic_iota": {"dim": "iota_dimension"},
    "dynamic_slice": {"sizes": "slice_sizes"},
    "einsum": {"config": "einsum_config"},
    "fft": {"type": "fft_type", "length": "fft_length"},
    "get_dimension_size": {"dim": "dimension"},
    "iota": {"dim": "iota_dimension"},
    "pad": {
        "low": "edge_padding_low", "high": "edge_padding_high", "interior": "interior_padding",
    },
    "reverse": {"dims": "dimensions"},
    "rng": {"distribution": "rng_distribution"},
    "rng_bit_generator": {"algorithm": "rng_algorithm"},
    "set_dimension_size": {"dim": "dimension"},
    "transpose": {"dims": "permutation"},
}  # fmt: skip
"""What the words of a short form are called in the generic form."""

_WORDS = {"compare": ("comparison_direction", "compare_type")}
"""Attributes that stand as words alone, in order."""

_PREDICATES = ("stablehlo.is_finite", "chlo.is_inf", "chlo.is_neg_inf", "chlo.is_pos_inf")
_DIALECTS = ("stablehlo", "chlo", "check", "func", "arith", "interpreter")
_FLAGS = re.compile(r"e(\d+)m(\d+)")


def read(at: TextReader, name: str) -> HloOperation | None:
    """The operation whose name was taken; None where its form is unknown."""
    if name in ("return", "call", "constant"):
        name = f"func.{name}"
    dialect, _, bare = name.partition(".")
    if dialect not in _DIALECTS or name in _UNKNOWN:
        return None
    form = _FORMS.get(bare if name != "func.constant" else "", _regular)
    return form(at, name)


_UNKNOWN = ("func.constant", "chlo.ragged_dot")


# -- what most look like ---------------------------------------------------------------------


def _regular(at: TextReader, name: str) -> HloOperation:
    bare = name.partition(".")[2]
    operands: list[tuple[str, HloType]] = []
    attributes: dict[str, Any] = {}
    words = iter(_WORDS.get(bare, ()))
    keys = _KEYS.get(bare, {})
    begin = at.at
    wrapped = at.try_("(")
    while not (at.sees(":") or at.sees("{") or at.sees(")") or at.sees("}")):
        if at.sees("%"):
            operands.append(at.operand())
        elif at.sees("dense<"):
            attributes["value"] = at.dense()[0]
            if name.startswith("check."):
                break
        else:
            _word(at, attributes, keys, words)
        if not at.try_(","):
            break
    if wrapped:
        at.expect(")")
    return _finished(at, name, operands, attributes, begin)


def _word(at: TextReader, attributes: dict[str, Any], keys: dict[str, str], words: Any) -> None:
    begin = at.at
    word = at.need(WORD, "an operand, or a word")
    if not at.try_("="):
        key = next(words, None)
        if key is None:
            raise at.fail(f"'{word}' is not expected here", begin)
        attributes[key] = word
    elif word in ("batching_dims", "contracting_dims"):
        lhs = at.attribute()
        at.expect("x")
        numbers = attributes.setdefault("dot_dimension_numbers", _no_dimensions())
        stem = word.replace("dims", "dimensions")
        numbers[f"lhs_{stem}"], numbers[f"rhs_{stem}"] = lhs, at.attribute()
    elif word == "precision":
        attributes["precision_config"] = at.attribute()
    elif word == "format":
        text = at.need(WORD, "a format")
        found = _FLAGS.fullmatch(text)
        if found is None:
            raise at.fail(f"'{text}' is no format of floats", begin)
        attributes["exponent_bits"], attributes["mantissa_bits"] = map(int, found.groups())
    elif word == "algorithm" and at.sees("<"):
        attributes["algorithm"] = _algorithm(at)
    else:
        # A colon behind a number or a string begins the types of the operation.
        number, text = at.match(NUMBER), at.match(STRING)
        if number is None and text is None:
            attributes[keys.get(word, word)] = at.attribute()
        else:
            attributes[keys.get(word, word)] = _number(number) if number else str(text)[1:-1]


def _number(text: str) -> int | float:
    return float(text) if "." in text or "e" in text.lower() else int(text, 0)


def _no_dimensions() -> dict[str, list[int]]:
    names = ("batching", "contracting")
    return {f"{side}_{n}_dimensions": [] for n in names for side in ("lhs", "rhs")}


def _algorithm(at: TextReader) -> dict[str, Any]:
    at.expect("<")

    def item() -> tuple[str, Any]:
        key = at.need(WORD, "a field")
        at.expect("=")
        return key, at.attribute()

    return dict(at.list_of(item, ">"))


def _finished(
    at: TextReader,
    name: str,
    operands: list[tuple[str, HloType]],
    attributes: dict[str, Any],
    begin: int,
) -> HloOperation:
    """Attributes in braces and types, behind the operands."""
    if at.try_("{"):
        attributes.update(at.attributes())
    types, results = _types(at, name, [kind for _, kind in operands], begin)
    at.check_types(operands, types, begin)
    return HloOperation(name, [n for n, _ in operands], [], attributes, types, results, "")


def _types(
    at: TextReader, name: str, actual: list[HloType], begin: int
) -> tuple[list[HloType], list[HloType]]:
    """Types of operands and of results, from what stands behind the colon."""
    if not at.try_(":"):
        if name.startswith("check."):  # a constant brought the type along
            return list(actual), []
        if actual or not name.endswith("return"):
            at.expect(":")
        return [], []
    if at.sees("("):
        return at.function_type()
    said = [at.type()]
    while at.try_(","):
        said.append(at.type())
    if at.try_("->"):
        results = at.list_of(at.type, ")") if at.try_("(") else [at.type()]
        return (said * len(actual) if len(said) == 1 else said), results
    bare = name.partition(".")[2]
    if bare == "return" or name.startswith("check."):
        said = said * len(actual) if len(said) == 1 and name.startswith("check.") else said
        return said, []
    if bare == "optimization_barrier":
        return said, said
    if bare == "select" and len(said) == 2:
        return [said[0], said[1], said[1]], said[1:]
    if bare in ("complex", "real", "imag", "tuple"):
        return _parts(bare, said[0], actual)
    if len(said) != 1:
        raise at.fail(f"'{name}' has {len(said)} types", begin)
    return said * len(actual), said


def _parts(
    bare: str, kind: HloType, actual: list[HloType]
) -> tuple[list[HloType], list[HloType]]:
    """Of complex numbers and tuples, whose operands follow from the one type."""
    if isinstance(kind, HloTupleType):
        return list(kind.elements), [kind]
    if bare == "tuple" or not isinstance(kind, HloTensorType):
        return [kind] * len(actual), [kind]
    return list(actual), [kind]


# -- forms of their own ------------------------------------------------------------------------


def _constant(at: TextReader, name: str) -> HloOperation:
    if at.try_("("):  # a quantised one stands in the generic form without quotes
        at.expect(")")
        at.expect("{")
        attributes = at.attributes()
        at.expect(":")
        _, results = at.function_type()
        return HloOperation(name, [], [], attributes, [], results, "")
    attributes = at.attributes() if at.try_("{") else {}
    if at.sees("dense"):
        attributes["value"], kind = at.dense()
        return HloOperation(name, [], [], attributes, [], [kind], "")
    import numpy as np

    begin = at.at
    value = (
        at.need(re.compile(r"true|false"), "a value") if at.sees("t") or at.sees("f") else None
    )
    if value is not None:
        kind = at.type() if at.try_(":") else None
        from headrace.base.dtypes import I1

        attributes["value"] = np.array(value == "true")
        return HloOperation(name, [], [], attributes, [], [kind or HloTensorType(I1, ())], "")
    number = at.need(NUMBER, "a value")
    at.expect(":")
    kind = at.type()
    if not isinstance(kind, HloTensorType):
        raise at.fail("a constant of no element type", begin)
    from headrace.importers.hlo.dense import parse_elements

    attributes["value"] = parse_elements(number, kind.dtype).reshape(())
    return HloOperation(name, [], [], attributes, [], [kind], "")


def _slice(at: TextReader, name: str) -> HloOperation:
    begin = at.at
    operand = at.operand()
    at.expect("[")
    bounds: dict[str, list[int]] = {"start_indices": [], "limit_indices": [], "strides": []}

    def dimension() -> None:
        bounds["start_indices"].append(int(at.need(NUMBER, "a start")))
        at.expect(":")
        bounds["limit_indices"].append(int(at.need(NUMBER, "a limit")))
        bounds["strides"].append(int(at.need(NUMBER, "a stride")) if at.try_(":") else 1)

    at.list_of(dimension, "]")
    return _finished(at, name, [operand], dict(bounds), begin)


def _convolution(at: TextReader, name: str) -> HloOperation:
    import numpy as np

    begin = at.at
    at.expect("(")
    operands = at.list_of(at.operand, ")")
    attributes: dict[str, Any] = {}
    at.expect("dim_numbers")
    at.expect("=")
    attributes["dimension_numbers"] = at.convolution_numbers()
    at.expect(",")
    at.expect("window")
    at.expect("=")
    at.expect("{")

    def entry() -> None:
        key = at.need(WORD, "a word of the window")
        if key not in _WINDOW or _WINDOW[key] in attributes:
            raise at.fail(f"'{key}' is no word of a window, or stands twice")
        at.expect("=")
        value = at.attribute()
        pairs = key == "pad" and value and isinstance(value[0], list)
        attributes[_WINDOW[key]] = np.array(value, np.int64) if pairs else value

    at.list_of(entry, "}")
    return _finished(at, name, operands, attributes, begin)


_WINDOW = {
    "stride": "window_strides", "pad": "padding", "lhs_dilate": "lhs_dilation",
    "rhs_dilate": "rhs_dilation", "reverse": "window_reversal",
}  # fmt: skip


def _named_call(attribute: str) -> Form:
    """A symbol or a name, then operands."""

    def read(at: TextReader, name: str) -> HloOperation:
        begin = at.at
        text = at.match(STRING) or at.need(SYMBOL, "a name")
        wrapped = at.try_("(")
        operands: list[tuple[str, HloType]] = []
        while at.sees("%"):
            operands.append(at.operand())
            if not at.try_(","):
                break
        if wrapped:
            at.expect(")")
        called = text.lstrip("@").strip('"')
        return _finished(at, name, operands, {attribute: called}, begin)

    return read


def _get_tuple_element(at: TextReader, name: str) -> HloOperation:
    begin = at.at
    operand = at.operand()
    at.expect("[")
    index = int(at.need(NUMBER, "an index"))
    at.expect("]")
    return _finished(at, name, [operand], {"index": index}, begin)


def _reduce(at: TextReader, name: str) -> HloOperation:
    begin = at.at
    operands: list[tuple[str, HloType]] = []
    starts: list[tuple[str, HloType]] = []
    while True:
        at.expect("(")
        operands.append(at.operand())
        at.expect("init")
        at.expect(":")
        starts.append(at.operand())
        at.expect(")")
        if not at.try_(","):
            break
    applied = at.need(WORD, "an operation") if at.try_("applies") else None
    at.expect("across")
    at.expect("dimensions")
    at.expect("=")
    attributes: dict[str, Any] = {"dimensions": at.attribute()}
    made = _finished(at, name, operands + starts, attributes, begin)
    if applied is not None:
        made.regions = [_applied(at, applied, made.types[len(operands)])]
        return made
    at.expect("reducer")
    pairs: list[list[tuple[str, HloType]]] = []
    while at.try_("("):
        pairs.append(at.list_of(lambda: _typed(at), ")"))
    if any(len(pair) != 2 for pair in pairs):
        raise at.fail("each operand of a reduction has two arguments in its body", begin)
    ordered = [p[0] for p in pairs] + [p[1] for p in pairs]
    made.regions = [at.short_region(ordered)]
    return made


def _typed(at: TextReader) -> tuple[str, HloType]:
    name = at.need(VALUE, "an argument")
    at.expect(":")
    kind = at.type()
    at.location()
    return name, kind


def _applied(at: TextReader, applied: str, start: HloType) -> HloRegion:
    """The body that `applies stablehlo.add` stands for."""
    if applied not in _COMMUTATIVE:
        raise at.fail(f"'{applied}' does not combine pairs in any order")
    kind = start
    if isinstance(start, HloTensorType):
        kind = HloTensorType(start.dtype, (), start.grid)
    a, b = at.fresh(), at.fresh()
    made = at.fresh()
    dialect = applied.partition(".")[0]
    body = HloOperation(applied, [a, b], [made], {}, [kind, kind], [kind], "")
    end = HloOperation(f"{dialect}.return", [made], [], {}, [kind], [], "")
    body.place = end.place = f"line {at.line(at.at - 1)} '{applied}'"
    return HloRegion([(a, kind), (b, kind)], [body, end])


_COMMUTATIVE = tuple(
    f"{dialect}.{name}"
    for dialect in ("stablehlo", "vhlo")
    for name in ("add", "and", "maximum", "minimum", "multiply", "or", "xor")
)


def _scan(at: TextReader, name: str) -> HloOperation:
    begin = at.at
    at.expect("(")
    inputs = at.list_of(at.operand, ")")
    at.expect("inits")
    at.expect("(")
    starts = at.list_of(at.operand, ")")
    at.expect("dimension")
    at.expect("=")
    attributes: dict[str, Any] = {"dimension": int(at.need(NUMBER, "a dimension"))}
    if at.try_("attributes"):
        at.expect("{")
        attributes.update(at.attributes())
    body = at.region()
    made = _finished(at, name, [*inputs, *starts], attributes, begin)
    made.attributes["operandSegmentSizes"] = [len(inputs), len(starts)]
    made.regions = [body]
    return made


def _while(at: TextReader, name: str) -> HloOperation:
    begin = at.at
    at.expect("(")

    def carried() -> tuple[str, tuple[str, HloType]]:
        argument = at.need(VALUE, "an argument")
        at.expect("=")
        return argument, at.operand()

    given = at.list_of(carried, ")")
    types: list[HloType] = []
    if given:
        at.expect(":")
        types = [at.type()]
        while at.try_(","):
            types.append(at.type())
    attributes: dict[str, Any] = {}
    if at.try_("attributes"):
        at.expect("{")
        attributes = at.attributes()
    operands = [value for _, value in given]
    at.check_types(operands, types, begin)
    arguments = [(n, k) for (n, _), k in zip(given, types, strict=True)]
    at.expect("cond")
    condition = at.short_region(arguments)
    at.expect("do")
    body = at.short_region(arguments)
    return HloOperation(
        name, [n for n, _ in operands], [], attributes, types, types, "", [condition, body]
    )


_FORMS: dict[str, Form] = {
    "constant": _constant,
    "slice": _slice,
    "convolution": _convolution,
    "custom_call": _named_call("call_target_name"),
    "call": _named_call("callee"),
    "composite": _named_call("name"),
    "get_tuple_element": _get_tuple_element,
    "reduce": _reduce,
    "scan": _scan,
    "while": _while,
}
