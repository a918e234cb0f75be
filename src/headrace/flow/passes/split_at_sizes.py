"""Cuts functions where sizes that data decides are read back.

An operation runs in the first part in which its operands are there and every dimension it
names has a size. Values that a later part needs are outputs of one part and inputs of the
other, under names such as `%3`; weights, constants and what only spreads them are made anew.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from xdsl.dialects.builtin import ArrayAttr, DictionaryAttr, StringAttr
from xdsl.dialects.func import FuncOp, ReturnOp
from xdsl.ir import Attribute, Block, BlockArgument, Operation, Region, SSAValue

from headrace.base.errors import error
from headrace.flow.fusion.groups import is_free
from headrace.ir.locations import places
from headrace.ir.model import ALIAS, Model
from headrace.ir.passes import Pass
from headrace.tensor import dialect as t
from headrace.tensor.control import used_values
from headrace.tensor.interp import argument_names, result_names
from headrace.tensor.sizes import DefineDimensionOp, Next, names_used, write_next


@dataclass(frozen=True)
class SplitAtSizes(Pass):
    """`@<function>$1`, `@<function>$2`, ... behind the function they go on from.

    Raises:
        HeadraceError HR2210: an output that takes an input's place comes after a cut.
    """

    def run(self, model: Model) -> None:
        for function in list(model.ir.ops):
            if isinstance(function, FuncOp) and any(
                isinstance(op, DefineDimensionOp) for op in function.body.block.ops
            ):
                _Split(function).run()


@dataclass
class _Part:
    """One function of the chain.

    Attributes:
        operations: in order.
        inputs: values of earlier parts that it uses, in order of use.
        outputs: values it hands out, by name.
        sizes: (dimension, value) of what it decides.
    """

    operations: list[Operation] = field(default_factory=list[Operation])
    inputs: dict[SSAValue, None] = field(default_factory=dict[SSAValue, None])
    outputs: dict[str, SSAValue] = field(default_factory=dict[str, SSAValue])
    sizes: list[tuple[str, SSAValue]] = field(default_factory=list[tuple[str, SSAValue]])


class _Split:
    def __init__(self, function: FuncOp) -> None:
        self.function = function
        self.block = function.body.block
        self.stage: dict[SSAValue, int] = {a: 0 for a in self.block.args}
        self.names: dict[SSAValue, str] = {}
        self.parts: list[_Part] = [_Part()]
        end = self.block.last_op
        assert isinstance(end, ReturnOp)
        self.results = list(zip(result_names(function), end.arguments, strict=True))
        self.arguments = dict(zip(self.block.args, argument_names(function), strict=True))

    def run(self) -> None:
        self._place()
        self._connect()
        self._refuse_aliases()
        self._write()

    def _place(self) -> None:
        """Says of every operation in which part it runs."""
        defined: dict[str, int] = {}
        for operation in self.block.ops:
            if isinstance(operation, ReturnOp):
                continue
            after = [defined.get(name, 0) for name in names_used(operation)]
            after += [self.stage[v] for v in used_values(operation)]
            stage = max(after, default=0)
            while len(self.parts) <= stage:
                self.parts.append(_Part())
            if isinstance(operation, DefineDimensionOp):
                self.parts[stage].sizes.append((operation.symbol.data, operation.size))
                defined[operation.symbol.data] = stage + 1
                continue
            self.stage.update(dict.fromkeys(operation.results, stage))
            if not _is_free(operation):
                self.parts[stage].operations.append(operation)
        last = max(defined.values())
        while len(self.parts) <= last:
            self.parts.append(_Part())

    def _connect(self) -> None:
        """Says what parts hand to one another and to the user."""
        for name, value in self.results:
            self.parts[self.stage[value]].outputs[name] = value
            self.names.setdefault(value, name)
        for argument, name in self.arguments.items():
            self.names[argument] = name
        for number, part in enumerate(self.parts):
            for operation in part.operations:
                for value in used_values(operation):
                    self._need(number, value)
            for value in part.outputs.values():
                self._need(number, value)
            for _, value in part.sizes:
                self._need(number, value)
                if value not in part.outputs.values():
                    part.outputs[self._name(value)] = value

    def _need(self, number: int, value: SSAValue) -> None:
        owner = value.owner
        if isinstance(owner, Operation) and _is_free(owner):
            for operand in owner.operands:
                self._need(number, operand)
            return
        made = self.stage[value]
        if isinstance(value, BlockArgument):
            if number > 0:
                self.parts[number].inputs[value] = None
        elif made < number:
            self.parts[number].inputs[value] = None
            if value not in self.parts[made].outputs.values():
                self.parts[made].outputs[self._name(value)] = value

    def _name(self, value: SSAValue) -> str:
        if value not in self.names:
            self.names[value] = f"%{len(self.names)}"
        return self.names[value]

    def _refuse_aliases(self) -> None:
        given = self.function.res_attrs.data if self.function.res_attrs is not None else ()
        for (name, value), attributes in zip(self.results, given, strict=False):
            if ALIAS in attributes.data and self.stage[value] > 0:
                raise error(
                    "HR2210",
                    f"output '{name}' takes an input's place after a size that data decides",
                    at=places(self.function),
                )

    # -- writing -------------------------------------------------------------------------

    def _write(self) -> None:
        given = self.function.res_attrs.data if self.function.res_attrs is not None else ()
        attributes = {name: row for (name, _), row in zip(self.results, given, strict=False)}
        made = [self._function(n, part, attributes) for n, part in enumerate(self.parts)]
        names = [f.sym_name.data for f in made]
        for number, function in enumerate(made[:-1]):
            part = self.parts[number]
            sizes = tuple((symbol, self.names[value]) for symbol, value in part.sizes)
            seen = tuple(name for name, _ in self.results) if number == 0 else ()
            write_next(function, Next(names[number + 1], sizes, seen))
        parent = self.function.parent_block()
        assert parent is not None
        for function in made:
            parent.insert_op_before(function, self.function)
        self.function.detach()
        self.function.erase()

    def _function(
        self, number: int, part: _Part, attributes: dict[str, DictionaryAttr]
    ) -> FuncOp:
        inputs: list[SSAValue] = list(part.inputs) if number else list(self.block.args)
        block = Block(arg_types=[v.type for v in inputs])
        inner: dict[SSAValue, SSAValue] = dict(zip(inputs, block.args, strict=True))
        for operation in part.operations:
            for value in used_values(operation):
                _make(value, inner, block)
            _copy(operation, inner, block)
        for value in part.outputs.values():
            _make(value, inner, block)
        block.add_op(ReturnOp(*(inner[v] for v in part.outputs.values())))
        base = self.function.sym_name.data
        function = FuncOp(
            base if not number else f"{base}${number}",
            ([v.type for v in inputs], [v.type for v in part.outputs.values()]),
            Region(block),
            visibility=self.function.sym_visibility,
            arg_attrs=self.function.arg_attrs if not number else self._named(inputs),
            res_attrs=ArrayAttr(
                [
                    attributes.get(name, DictionaryAttr({"hr.name": StringAttr(name)}))
                    for name in part.outputs
                ]
            ),
        )
        function.attributes.update(self.function.attributes)
        function.location = self.function.location
        return function

    def _named(self, values: Sequence[SSAValue]) -> ArrayAttr[DictionaryAttr]:
        rows: list[dict[str, Attribute]] = [
            {"hr.name": StringAttr(self.names[v])} for v in values
        ]
        return ArrayAttr([DictionaryAttr(row) for row in rows])


def _is_free(operation: Operation) -> bool:
    return isinstance(operation, t.ParameterOp) or is_free(operation)


def _make(value: SSAValue, inner: dict[SSAValue, SSAValue], block: Block) -> None:
    """Copies what is free and not there yet."""
    owner = value.owner
    if value in inner or not isinstance(owner, Operation):
        return
    for operand in owner.operands:
        _make(operand, inner, block)
    _copy(owner, inner, block)


def _copy(operation: Operation, inner: dict[SSAValue, SSAValue], block: Block) -> None:
    made = operation.clone(inner)
    for before, after in zip(operation.walk(), made.walk(), strict=True):
        after.location = before.location
    inner.update(zip(operation.results, made.results, strict=True))
    block.add_op(made)
