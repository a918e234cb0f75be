"""A model on its way through the compiler: the module and its table of parameters."""

from __future__ import annotations

from dataclasses import dataclass, field

from xdsl.dialects.builtin import ModuleOp

from headrace.base.parameters import Source

ALIAS = "hr.alias"
"""Attribute of a result, and of the output argument it becomes: see `Model.ir`."""

NAME = "hr.name"
"""Attribute of an input, an output, or a constant: what the user calls it."""


@dataclass
class Model:
    """The module of one stage with what stands beside it.

    Attributes:
        ir: `builtin.module`. Each public `func.func`
            is an entry; its `arg_attrs` and `res_attrs` hold `hr.name`, the user's names.
            A result's `hr.alias` names the input of its type that it takes the place of.
        parameters: `tensor.parameter @name` -> where the bytes come from.
        name: of the model, for messages and provenance.
        dimension_ranges: bounds of named dimensions, (least, greatest or None).
        dimension_names: what users may call dimensions, fixed ones included.
    """

    ir: ModuleOp
    parameters: dict[str, Source]
    name: str
    dimension_ranges: dict[str, tuple[int, int | None]] = field(
        default_factory=dict[str, tuple[int, int | None]]
    )
    dimension_names: tuple[str, ...] = ()
