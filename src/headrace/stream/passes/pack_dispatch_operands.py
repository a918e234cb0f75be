"""Packs every scalar operand of a dispatch into 32-bit push constants.

    index       cast to i32 (sizes of named dimensions are below 2**31)
    i1 .. i16   extended with zeros
    i32         as it is
    i64         two words, low first
    f16, bf16   bit pattern, extended
    f32         bit pattern
    f64         bit pattern, two words

The kernel function puts the value together again, so its body does not change. Types
with no place in 32-bit words (complex, 8-bit floats) are left to the errors of
`hal-materialize-interfaces`. Alignment and known values stay with words that hold the
value itself (index, i32).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from xdsl.dialects import arith
from xdsl.dialects.builtin import (
    ArrayAttr,
    BFloat16Type,
    DenseArrayBase,
    DictionaryAttr,
    Float16Type,
    Float32Type,
    Float64Type,
    IndexType,
    IntegerAttr,
    IntegerType,
    ModuleOp,
    Signedness,
    i16,
    i32,
    i64,
)
from xdsl.dialects.func import FuncOp
from xdsl.ir import Attribute, Operation, SSAValue

from headrace.ir.model import Model
from headrace.ir.passes import Pass
from headrace.stream.commands import DispatchOp
from headrace.stream.dialect import ExecutableOp
from headrace.stream.executables import entry_functions
from headrace.stream.types import BindingType

Add = Callable[[Operation], SSAValue]


@dataclass(frozen=True)
class PackDispatchOperands(Pass):
    """`stream-pack-dispatch-operands`."""

    def run(self, model: Model) -> None:
        for executable in model.ir.ops:
            if isinstance(executable, ExecutableOp):
                for _export, function in entry_functions(executable):
                    _pack_function(function)
        _pack_sites(model.ir)


def words_of(kind: Attribute) -> int | None:
    """32-bit words a scalar takes; None where it cannot be packed."""
    if isinstance(kind, (IndexType, Float16Type, BFloat16Type, Float32Type)):
        return 1
    if isinstance(kind, Float64Type):
        return 2
    if isinstance(kind, IntegerType) and kind.signedness.data == Signedness.SIGNLESS:
        return 1 if kind.bitwidth <= 32 else 2 if kind.bitwidth == 64 else None
    return None


def _is_packed(kind: Attribute) -> bool:
    return kind == i32 or words_of(kind) is None


# -- dispatch sites -----------------------------------------------------------------


def _pack_sites(module: ModuleOp) -> None:
    sites = [op for op in module.walk() if isinstance(op, DispatchOp)]
    for site in sites:
        if all(_is_packed(v.type) for v in site.constants):
            continue
        packed: list[SSAValue] = []
        for value in site.constants:
            packed += _split(value, lambda op, at=site: _insert(op, at))
        resources = tuple(site.resources)
        site.operands = [*packed, *resources]
        site.properties["operandSegmentSizes"] = DenseArrayBase.from_list(
            i32, [len(packed), len(resources)]
        )


def _insert(op: Operation, at: DispatchOp) -> SSAValue:
    op.location = at.location
    block = at.parent_block()
    assert block is not None
    block.insert_op_before(op, at)
    return op.results[0]


def _split(value: SSAValue, add: Add) -> list[SSAValue]:
    """The words of a value, low first."""
    kind = value.type
    if _is_packed(kind):
        return [value]
    if isinstance(kind, IndexType):
        return [add(arith.IndexCastOp(value, i32))]
    if isinstance(kind, Float32Type):
        return [add(arith.BitcastOp(value, i32))]
    if isinstance(kind, (Float16Type, BFloat16Type)):
        return [add(arith.ExtUIOp(add(arith.BitcastOp(value, i16)), i32))]
    if isinstance(kind, Float64Type):
        value = add(arith.BitcastOp(value, i64))
    if value.type != i64:
        return [add(arith.ExtUIOp(value, i32))]
    shift = add(arith.ConstantOp(IntegerAttr(32, i64)))
    high = add(arith.ShRUIOp(value, shift))
    return [add(arith.TruncIOp(value, i32)), add(arith.TruncIOp(high, i32))]


# -- kernel functions ---------------------------------------------------------------


def _pack_function(function: FuncOp) -> None:
    block = function.body.block
    old = list(block.args)
    if all(isinstance(a.type, BindingType) or _is_packed(a.type) for a in old):
        return
    given = function.arg_attrs.data if function.arg_attrs is not None else ()
    attributes: list[DictionaryAttr] = []
    first = block.first_op
    assert first is not None

    def add(op: Operation) -> SSAValue:
        op.location = function.location
        block.insert_op_before(op, first)
        return op.results[0]

    for number, argument in enumerate(old):
        known = given[number] if number < len(given) else DictionaryAttr({})
        if isinstance(argument.type, BindingType) or _is_packed(argument.type):
            attributes.append(known)
            continue
        count = words_of(argument.type) or 1
        words = [block.insert_arg(i32, argument.index) for _ in range(count)]
        words = sorted(words, key=lambda a: a.index)
        for n, word in enumerate(words):
            word.name_hint = f"{argument.name_hint or 'word'}_i32" + (f"_{n}" if n else "")
        whole = _join(argument.type, words, add)
        whole.name_hint = argument.name_hint
        argument.replace_all_uses_with(whole)
        block.erase_arg(argument)
        keeps = count == 1 and isinstance(whole.type, IndexType)
        attributes += [known if keeps else DictionaryAttr({})] * count
    function.update_function_type()
    if any(a.data for a in attributes):
        function.arg_attrs = ArrayAttr(attributes)
    else:
        function.properties.pop("arg_attrs", None)


def _join(kind: Attribute, words: Sequence[SSAValue], add: Add) -> SSAValue:
    """The value from its words."""
    if isinstance(kind, IndexType):
        return add(arith.IndexCastOp(words[0], kind))
    if isinstance(kind, Float32Type):
        return add(arith.BitcastOp(words[0], kind))
    if isinstance(kind, (Float16Type, BFloat16Type)):
        return add(arith.BitcastOp(add(arith.TruncIOp(words[0], i16)), kind))
    if len(words) == 1:
        assert isinstance(kind, IntegerType)
        return add(arith.TruncIOp(words[0], kind))
    low, high = (add(arith.ExtUIOp(w, i64)) for w in words)
    shift = add(arith.ConstantOp(IntegerAttr(32, i64)))
    whole = add(arith.OrIOp(low, add(arith.ShLIOp(high, shift))))
    return whole if kind == i64 else add(arith.BitcastOp(whole, kind))
