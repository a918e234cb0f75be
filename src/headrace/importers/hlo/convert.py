"""Makes the tensor stage from an HLO tree.

One function per operation, registered under its StableHLO name; names of older dialects
are aliases. Everything unsupported in the module is listed at once.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence
from typing import Any

from xdsl.dialects.builtin import ArrayAttr, DictionaryAttr, ModuleOp, StringAttr
from xdsl.dialects.func import FuncOp, ReturnOp
from xdsl.ir import Attribute, Block, Region, SSAValue

from headrace.base.errors import Diagnostic, Problems, error
from headrace.base.parameters import Source
from headrace.base.symbols import Expr
from headrace.importers.hlo import (
    chlo,
    collectives,
    composed,
    control,
    elementwise,
    folding,
    movement,
    quantization,
    sources,
    spectral,
)
from headrace.importers.hlo.donations import donations
from headrace.importers.hlo.helpers import flatten
from headrace.importers.hlo.open_sizes import Learned, OpenSizes
from headrace.importers.hlo.registry import CONVERTERS, Unsupported, Value, operation_key
from headrace.importers.hlo.tree import (
    HloFunction,
    HloModule,
    HloOpaqueType,
    HloOperation,
    HloRegion,
    HloTensorType,
    HloTupleType,
    HloType,
)
from headrace.ir.locations import location
from headrace.ir.model import ALIAS, Model
from headrace.ir.types import shape_of, tensor_type
from headrace.tensor.build import TensorBuilder

_TABLES = (
    chlo, collectives, composed, control, elementwise, folding, movement, quantization, sources, spectral,
)  # fmt: skip
"""Modules that register converters as they load."""
_CHECKED_LATER = ("reduce", "reduce_window", "sort", "scatter")
"""Operations that are built before their rules are checked."""


def convert_module(
    module: HloModule, name: str, weights: Mapping[int, tuple[str, Source]] | None = None
) -> Model:
    """The model for an HLO module.

    Args:
        module: as an importer read it.
        name: of the model.
        weights: arguments of `main` that are weights, position -> (name, source): they
            leave the signature and become parameters.

    Raises:
        HeadraceError HR1101: operations without a converter, all of them at once;
            HR1102: an operation that breaks its own rules, with its place; HR1115: there
            is no function to enter.
    """
    problems = Problems()
    if not any(f.public for f in module.functions):
        problems.add(
            Diagnostic("HR1115", "the module has no public function", (module.source,))
        )
    for function in module.functions:
        _list_unsupported(module, function.body, problems)
    problems.raise_if_any()
    parameters: dict[str, Source] = {}
    ranges: dict[str, tuple[int, int | None]] = {}
    block = Block()
    for function in module.functions:
        if not function.public:
            continue
        bound = (weights or {}) if function.name == "main" else {}
        sizes = OpenSizes()
        try:
            block.add_op(_converted(module, function, parameters, problems, bound, sizes))
        except _Stop:
            continue
        ranges.update(dict.fromkeys(sizes.decided, (0, None)))
    problems.raise_if_any()
    return Model(ModuleOp(Region(block)), parameters, name, ranges)


def _converted(
    module: HloModule,
    function: HloFunction,
    parameters: dict[str, Source],
    problems: Problems,
    weights: Mapping[int, tuple[str, Source]],
    sizes: OpenSizes,
) -> FuncOp:
    """The function, converted again for each two sizes that turn out to be equal."""
    while True:
        sizes.start()
        try:
            converter = FunctionConverter(module, function, parameters, problems, sizes)
            return converter.convert(weights)
        except Learned:
            continue


def _list_unsupported(module: HloModule, region: HloRegion, problems: Problems) -> None:
    for operation in region.operations:
        key = operation_key(operation.name)
        if key not in CONVERTERS and key not in ("return",):
            near = difflib.get_close_matches(key, CONVERTERS, n=1)
            problems.add(
                Diagnostic(
                    "HR1101",
                    f"operation '{operation.name}' is not supported",
                    (f"{module.source}: {operation.place}",),
                    helps=(f"'{near[0]}' is supported",) if near else (),
                )
            )
        for inner in operation.regions:
            _list_unsupported(module, inner, problems)


class _Stop(Exception):
    """An operation failed; the reason is in the problems."""


class FunctionConverter:
    """Converts one function; `values` maps value names to what they became, `known` keeps
    arrays that `control.py` has computed, `target` the shape that data gave last."""

    def __init__(
        self,
        module: HloModule,
        function: HloFunction,
        parameters: dict[str, Source],
        problems: Problems,
        open_sizes: OpenSizes,
    ) -> None:
        self.module = module
        self.function = function
        self.parameters = parameters
        self.problems = problems
        self.open_sizes = open_sizes
        self.target: Sequence[Expr] | None = None
        self.values: dict[str, Value] = {}
        self.known: dict[SSAValue, Any] = {}
        self.builder = TensorBuilder(Block())

    def convert(self, weights: Mapping[int, tuple[str, Source]]) -> FuncOp:
        """The `func.func`; tuples in the signature are spread out, weights leave it."""
        body = self.function.body
        inputs = [(n, a) for n, a in enumerate(body.arguments) if n not in weights]
        types: list[Any] = []
        for _, (_, kind) in inputs:
            for leaf in _leaves(kind):
                shape = [self.open_sizes.resolve(s) for s in leaf.shape]
                types.append(tensor_type(leaf.dtype, shape))
        block = Block(arg_types=types)
        self.builder = TensorBuilder(block)
        arguments = iter(block.args)
        for _, (name, kind) in inputs:
            self.values[name] = _take(kind, arguments)
        for position, (name, source) in weights.items():
            self.parameters[name] = source
            value = self.builder.parameter(name, source.dtype, source.shape)
            self.values[body.arguments[position][0]] = value
        results = [leaf for value in self.region_values(body) for leaf in flatten(value)]
        self.builder.insert(ReturnOp(*results))
        made = FuncOp(
            self.function.name, (types, [r.type for r in results]), region=Region(block)
        )
        given = [self.function.argument_names[n] for n, _ in inputs]
        names = _padded(given, len(types), "arg")
        outputs = _padded(self.function.result_names, len(results), "result")
        made.properties["arg_attrs"] = name_attributes(names)
        taken = self._donations([n for n, _ in inputs], made)
        made.properties["res_attrs"] = name_attributes(
            outputs, {result: names[place] for place, result in taken.items()}
        )
        return made

    def _donations(self, inputs: Sequence[int], made: FuncOp) -> Mapping[int, int]:
        """By place of an input, the result that takes it; see `donations.py`."""
        try:
            return donations(self.function, inputs, made)
        except ValueError as wrong:
            place = f"{self.module.source}: {self.function.place or self.function.name}"
            self.problems.add(Diagnostic("HR1102", str(wrong), (place,)))
            raise _Stop from wrong

    def region_values(self, region: HloRegion) -> list[Value]:
        """Converts a region's operations in place; what its return yields."""
        for operation in region.operations:
            if operation_key(operation.name) == "return":
                return [self.values[o] for o in operation.operands]
            self.operation(operation)
        return []

    def operation(self, operation: HloOperation) -> None:
        place = f"{self.module.source}: {operation.place}"
        self.builder.location = location(place)
        self.target = None
        if operation_key(operation.name) in _CHECKED_LATER:
            self._learn(operation)
        try:
            made = CONVERTERS[operation_key(operation.name)](self, operation)
        except (ValueError, KeyError, TypeError, IndexError) as wrong:
            if not isinstance(wrong, Unsupported):
                self._learn(operation)
            reason = f"lacks {wrong}" if isinstance(wrong, KeyError) else str(wrong)
            known = isinstance(wrong, Unsupported)
            code = "HR1101" if known else "HR1102"
            what = "not supported here" if known else "not well formed"
            fact = f"'{operation.name}' is {what}: {reason}"
            self.problems.add(Diagnostic(code, fact, (place,)))
            raise _Stop from wrong
        for name, value in zip(operation.results, made, strict=True):
            self.values[name] = value

    def _learn(self, operation: HloOperation) -> None:
        """Whether open sizes of an operation have to be equal, and are not yet.

        Raises:
            Learned: they are, and are from now on.
        """
        operands = [self.values.get(name) for name in operation.operands]
        if not all(isinstance(v, SSAValue) for v in operands):
            return
        shapes = [shape_of(v) for v in operands if isinstance(v, SSAValue)]
        if shapes:
            self.open_sizes.learn(operation, shapes, self.target)

    def operand(self, operation: HloOperation, index: int) -> SSAValue:
        """Operand `index` as a tensor value."""
        value = self.values[operation.operands[index]]
        if isinstance(value, tuple):
            raise ValueError(f"operand {index} is a tuple, not a tensor")
        return value

    def operands(self, operation: HloOperation) -> list[SSAValue]:
        return [self.operand(operation, n) for n in range(len(operation.operands))]

    def weight(self, source: Source) -> SSAValue:
        """A parameter for a large constant, one for equal sources."""
        for name, known in self.parameters.items():
            if known == source:
                return self.builder.parameter(name, source.dtype, source.shape)
        name = f"constant_{len(self.parameters)}"
        self.parameters[name] = source
        return self.builder.parameter(name, source.dtype, source.shape)


def _padded(names: Sequence[str], count: int, stem: str) -> list[str]:
    return [names[n] if n < len(names) and names[n] else f"{stem}{n}" for n in range(count)]


def name_attributes(
    names: Sequence[str], aliases: Mapping[int, str] | None = None
) -> ArrayAttr[DictionaryAttr]:
    """The user's names of a function's arguments or results, as its `arg_attrs`.

    Args:
        aliases: by number of a result, the name of the input whose place it takes.
    """
    found: list[DictionaryAttr] = []
    for number, name in enumerate(names):
        known: dict[str, Attribute] = {"hr.name": StringAttr(name)}
        if aliases and number in aliases:
            known[ALIAS] = StringAttr(aliases[number])
        found.append(DictionaryAttr(known))
    return ArrayAttr(found)


def _leaves(kind: HloType) -> list[HloTensorType]:
    if isinstance(kind, HloTensorType):
        return [kind]
    if isinstance(kind, HloOpaqueType) and kind.text == "!stablehlo.token":
        return []  # tokens hold nothing
    if isinstance(kind, HloOpaqueType):
        raise error("HR1004", f"nothing can be computed with a '{kind.text}'")
    return [leaf for element in kind.elements for leaf in _leaves(element)]


def _take(kind: HloType, values: Any) -> Value:
    if isinstance(kind, HloTupleType):
        return tuple(_take(e, values) for e in kind.elements)
    if isinstance(kind, HloOpaqueType):
        return ()
    return next(values)
