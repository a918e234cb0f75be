"""Outputs that take the place of inputs: caches and other state, updated where it stands.

Said of an ONNX model by the user (`--alias past_*=present_*`), by StableHLO itself
(`tf.aliasing_output`, `jax.buffer_donor`: see `importers/hlo/convert.py`). Either way the
result of the function carries `hr.alias`, the name of the input.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from xdsl.dialects.builtin import ArrayAttr, DictionaryAttr, StringAttr
from xdsl.dialects.func import FuncOp

from headrace.base.errors import Diagnostic, Problems
from headrace.ir.model import ALIAS, NAME, Model


def set_aliases(model: Model, aliases: Sequence[tuple[str, str]]) -> None:
    """Marks outputs that take the place of inputs, in every function that has both.

    Args:
        aliases: (input, output) names; `*` in both stands for the same text.

    Raises:
        HeadraceError HR0207: no function has the pair, the two have different types, or
            an input or output is in two pairs. All are listed.
    """
    problems = Problems()
    functions = [op for op in model.ir.ops if isinstance(op, FuncOp)]
    for given, after in aliases:
        found = [pair for f in functions for pair in _pairs(f, given, after)]
        if not found:
            have = [
                f"@{f.sym_name.data}: {', '.join(_names(f.arg_attrs))}"
                f" -> {', '.join(_names(f.res_attrs))}"
                for f in functions
            ]
            fact = f"no function has an input '{given}' with an output '{after}'"
            problems.add(Diagnostic("HR0207", fact, (model.name,), tuple(have)))
        for function, place, number in found:
            _mark(function, place, number, model.name, problems)
    problems.raise_if_any()


def _names(attributes: ArrayAttr[DictionaryAttr] | None) -> list[str]:
    found: list[str] = []
    for known in attributes.data if attributes is not None else ():
        name = known.data.get(NAME)
        found.append(name.data if isinstance(name, StringAttr) else "")
    return found


def _pairs(function: FuncOp, given: str, after: str) -> list[tuple[FuncOp, int, int]]:
    """(function, input, output) of every pair of names that fits."""
    outputs = {name: n for n, name in enumerate(_names(function.res_attrs))}
    pattern = re.compile("(.*)".join(map(re.escape, given.split("*"))))
    found: list[tuple[FuncOp, int, int]] = []
    for number, name in enumerate(_names(function.arg_attrs)):
        match = pattern.fullmatch(name)
        if match is None:
            continue
        parts = after.split("*")
        texts = [*match.groups(), *[""] * len(parts)]
        wanted = "".join(p + t for p, t in zip(parts, texts, strict=False))
        if wanted in outputs:
            found.append((function, number, outputs[wanted]))
    return found


def _mark(function: FuncOp, place: int, number: int, at: str, problems: Problems) -> None:
    kinds = (
        function.function_type.inputs.data[place],
        function.function_type.outputs.data[number],
    )
    name, output = _names(function.arg_attrs)[place], _names(function.res_attrs)[number]
    assert function.res_attrs is not None
    known = [dict(d.data) for d in function.res_attrs.data]
    taken = StringAttr(name) in [d.get(ALIAS) for n, d in enumerate(known) if n != number]
    where = (f"{at}: @{function.sym_name.data}",)
    if kinds[0] != kinds[1]:
        notes = (f"'{name}' is {kinds[0]}", f"'{output}' is {kinds[1]}")
        fact = f"output '{output}' cannot take the place of input '{name}'"
        problems.add(Diagnostic("HR0207", fact, where, notes))
    elif taken or known[number].get(ALIAS, StringAttr(name)) != StringAttr(name):
        fact = f"'{name}' and '{output}' are not the only ones in their place"
        problems.add(Diagnostic("HR0207", fact, where))
    else:
        known[number][ALIAS] = StringAttr(name)
        function.res_attrs = ArrayAttr([DictionaryAttr(d) for d in known])
