"""What `headrace opt` does: runs passes on the text of a module."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from headrace.base.errors import error

if TYPE_CHECKING:
    from headrace.ir.model import Model


def pass_lines() -> list[tuple[str, str]]:
    """Every pass by name, with the first line of what its file says."""
    import sys

    from headrace.ir.passes import pass_table

    return [
        (name, (sys.modules[kind.__module__].__doc__ or "").strip().partition("\n")[0])
        for name, kind in sorted(pass_table().items())
    ]


def run_passes(
    text: str,
    source: str,
    names: Sequence[str],
    verify_each: bool = True,
    print_locations: bool = False,
) -> str:
    """Runs passes on the text of a module; parameters get zeros of their type.

    Raises:
        HeadraceError HR1001: the text cannot be parsed; HR0101: no such pass.
    """
    from xdsl.utils.exceptions import VerifyException

    from headrace.ir.model import Model
    from headrace.ir.passes import make_pass
    from headrace.ir.text import parse_module, print_module
    from headrace.pipeline import context, run_pass

    model = Model(parse_module(text, source, context()), {}, Path(source).stem)
    _declare_parameters(model)
    for name in names:
        run_pass(make_pass(name), model)
        if verify_each:
            try:
                model.ir.verify()
            except VerifyException as wrong:
                raise error("HR9104", f"pass '{name}' broke the module: {wrong}") from wrong
    return print_module(model.ir, print_locations)


def _declare_parameters(model: Model) -> None:
    """Text holds no weights: each parameter becomes zeros that are never spread out."""
    import numpy as np

    from headrace.base.parameters import array_source, expression
    from headrace.ir.types import dtype_of, static_shape
    from headrace.tensor.dialect import ParameterOp

    for op in model.ir.walk():
        if isinstance(op, ParameterOp):
            kind = dtype_of(op.result)
            zero = array_source(np.zeros((), kind.numpy_dtype))
            model.parameters[op.parameter.string_value()] = expression(
                "broadcast_in_dim",
                (zero,),
                kind,
                static_shape(op.result),
                broadcast_dimensions=(),
            )
