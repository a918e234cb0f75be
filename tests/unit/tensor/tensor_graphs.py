"""Small models for tests: a function built by a callback."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from xdsl.dialects.builtin import ArrayAttr, DictionaryAttr, ModuleOp, StringAttr
from xdsl.dialects.func import FuncOp, ReturnOp
from xdsl.ir import Block, Region, SSAValue

from headrace.base.dtypes import DType
from headrace.base.parameters import Source
from headrace.base.symbols import ExprLike
from headrace.ir.locations import location
from headrace.ir.model import Model
from headrace.ir.types import tensor_type
from headrace.tensor.build import TensorBuilder

Body = Callable[..., SSAValue | Sequence[SSAValue]]


def model(
    arguments: Sequence[tuple[DType, Sequence[ExprLike]]],
    body: Body,
    parameters: dict[str, Source] | None = None,
) -> Model:
    """A model whose `main` takes `arguments` and returns what `body(builder, *args)` does."""
    types = [tensor_type(k, s) for k, s in arguments]
    block = Block(arg_types=types)
    builder = TensorBuilder(block, location("node 'test'"))
    found = body(builder, *block.args)
    results = [found] if isinstance(found, SSAValue) else list(found)
    block.add_op(ReturnOp(*results))
    function = FuncOp("main", (types, [r.type for r in results]), Region(block))
    function.arg_attrs = _names("x", len(types))
    function.res_attrs = _names("y", len(results))
    return Model(ModuleOp([function]), dict(parameters or {}), "test")


def _names(letter: str, count: int) -> Any:
    return ArrayAttr(
        [DictionaryAttr({"hr.name": StringAttr(f"{letter}{n}")}) for n in range(count)]
    )
