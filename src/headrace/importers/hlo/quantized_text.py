"""Quantised tensors in text as tensors of floats on a grid.

jaxlib does not know the dialect `quant`. StableHLO defines an operation of quantised
tensors as the operation of the floats they stand for, rounded to the grid of its result;
so types lose their grid here, and a custom call `@headrace.quantize` behind each operation
rounds to it. One operation a line, as MLIR prints them.
"""

from __future__ import annotations

import re

_QUANT = re.compile(r"!quant\.uniform<((?:[^<>]|<[^<>]*>)*)>")
_NUMBER = re.compile(r"(?<![\w.])\d+\.\d*(?:[eE][-+]?\d+)?")
_RESULT = re.compile(r"^(\s*)(%[\w$.-]+)(\s*=\s*)(.*)$")
_CONVERSION = re.compile(
    r'"?stablehlo\.(uniform_quantize|uniform_dequantize)"?[ (]\s*(%[\w$.#-]+)'
)
_CAST = re.compile(r'"?stablehlo\.bitcast_convert"?[ (]\s*(%[\w$.#-]+)')
_STORED = re.compile(r"\{value = (dense<.*>) : (tensor<[^<>]*>)\}")


def without_grids(text: str) -> str:
    """The text with floats in place of quantised types; line numbers stay."""
    if "!quant.uniform<" not in text:
        return text
    return "\n".join(
        _line(line) if "!quant.uniform<" in line else line for line in text.split("\n")
    )


def _line(line: str) -> str:
    plain = _QUANT.sub(lambda found: expressed_type(found.group(1)), line)
    named = _RESULT.match(line)
    if named is None:
        return plain
    kinds = _QUANT.findall(_result_type(line))
    indent, name, equals, rest = named.groups()
    plain_rest = _QUANT.sub(lambda found: expressed_type(found.group(1)), rest)
    kind = _result_type(plain).strip()
    conversion = _CONVERSION.match(rest)
    if conversion and conversion.group(1) == "uniform_dequantize":
        source = _function_type(plain_rest)
        return (
            f"{indent}{name}{equals}stablehlo.custom_call @headrace.dequantize"
            f"({conversion.group(2)}) : {source}"
        )
    cast = _CAST.match(rest)
    if cast and not kinds:
        (grid,) = _QUANT.findall(rest)
        types = _function_type(plain_rest)
        return f"{indent}{name}{equals}{_call('store', cast.group(1), grid, types)}"
    if len(kinds) != 1:
        return plain
    if cast:
        types = _function_type(plain_rest)
        return f"{indent}{name}{equals}{_call('restore', cast.group(1), kinds[0], types)}"
    if conversion:
        types = _function_type(plain_rest)
        return (
            f"{indent}{name}{equals}{_call('quantize', conversion.group(2), kinds[0], types)}"
        )
    exact = f"%exact_{name[1:]}"
    stored = _STORED.search(rest)
    if "stablehlo.constant" in rest and stored:
        value, storage = stored.groups()
        made = f"{indent}{exact} = stablehlo.constant {value} : {storage}"
        call = _call("restore", exact, kinds[0], f"({storage}) -> {kind}")
        return f"{made} {name}{equals}{call}"
    call = _call("quantize", exact, kinds[0], f"({kind}) -> {kind}")
    return f"{indent}{exact}{equals}{plain_rest} {name}{equals}{call}"


def _call(what: str, operand: str, grid: str, types: str) -> str:
    # Numbers in one spelling, whoever printed them.
    same = _NUMBER.sub(lambda found: repr(float(found.group())), grid).replace(" ", "")
    return f'stablehlo.custom_call @headrace.{what}({operand}) {{grid = "{same}"}} : {types}'


def _result_type(line: str) -> str:
    """What stands behind the last arrow, or behind the last colon of the operation."""
    if "->" in line:
        return line.rpartition("->")[2]
    return line.rpartition(" : ")[2]


def _function_type(rest: str) -> str:
    typed = rest.rpartition(" : ")[2]
    return typed if typed.startswith("(") else f"({typed}) -> {typed}"


def expressed_type(grid: str) -> str:
    """`f32` of `i8:f32, 0.5:-3`."""
    return re.split(r"[:,]", re.sub(r"<[^>]*>", "", grid))[1].strip()
