"""Turns a test's function into one that computes: its data as inputs, what is checked as
results.

Test files hold their data as constants and compare inside of the function. Compiled as it
stands, a compiler would know everything and compute nothing; so constants that the tested
operations read become inputs, and each `check.*` becomes a comparison outside.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from headrace.importers.hlo.parallel import without_processes
from headrace.importers.hlo.tree import (
    HloFunction,
    HloModule,
    HloOperation,
    HloRegion,
    HloTensorType,
    HloType,
)

_PROBE = "interpreter.probe"
CHECKS = ("eq", "expect_eq", "expect_close", "expect_almost_eq", "expect_serialized_eq")
"""Names of checks without `check.`; of two tensors each."""

_STATIC_OPERANDS: dict[str, tuple[int, ...]] = {
    "dynamic_broadcast_in_dim": (1,),
    "dynamic_conv": (2,),
    "dynamic_gather": (2,),
    "dynamic_iota": (0,),
    "dynamic_pad": (1, 2, 3, 4),
    "dynamic_reshape": (1,),
    "pad": (1,),
    "real_dynamic_slice": (1, 2, 3),
    "select_and_scatter": (2,),
    "set_dimension_size": (1,),
}
"""Operands that say a shape or a filling: they stay constants."""

_STARTS = ("reduce", "reduce_window")
"""Operations whose second half of operands are starts of folds: they stay constants."""

_OPAQUE = ("call", "while", "case", "if", "map", "composite", "return")
"""Operations that do not say which operands they compute with."""


_SPREADING = ("broadcast_in_dim", "reshape")
"""Of a scalar constant they make another constant: nothing is left to compute."""


@dataclass(frozen=True)
class Reference:
    """A tensor that a check compares: data of the test, or a result of the function."""

    result: int | None
    data: Any = None


@dataclass(frozen=True)
class Check:
    """One comparison.

    Attributes:
        kind: one of `CHECKS`.
        actual, expected: what is compared.
        attributes: `tolerance`, `min_ulp_difference`, `max_ulp_difference` where given.
        place: where it stands, for messages.
    """

    kind: str
    actual: Reference
    expected: Reference
    attributes: Mapping[str, Any]
    place: str


@dataclass(frozen=True)
class CheckedFunction:
    """A test ready to compile.

    Attributes:
        name: of the tested function.
        module: its `main` takes `inputs` in order and yields what is checked; without
            results there is nothing to run.
        inputs: arrays.
        checks: what to compare.
    """

    name: str
    module: HloModule
    inputs: list[Any]
    checks: list[Check]


def checked_functions(module: HloModule) -> list[CheckedFunction]:
    """The tests of a module: its public functions without arguments that check something.

    Raises:
        ValueError: a check stands where it cannot be taken out, or is of an unknown kind.
    """
    found: list[CheckedFunction] = []
    module = without_processes(module)
    for function in module.functions:
        if function.public and not function.body.arguments:
            made = _Extraction(module, function).run()
            if made.checks:
                found.append(made)
    return found


def check_name(operation: HloOperation) -> str | None:
    """`expect_eq` for a check in any spelling, None for another operation."""
    name = operation.name
    if name.endswith("custom_call"):
        name = str(operation.attributes.get("call_target_name", ""))
    if not name.startswith("check."):
        return None
    return name.removeprefix("check.").removesuffix("_const")


@dataclass
class _Extraction:
    module: HloModule
    function: HloFunction
    data: dict[str, Any] = field(default_factory=dict[str, Any])
    types: dict[str, HloType] = field(default_factory=dict[str, HloType])
    given: set[str] = field(default_factory=set[str])

    def run(self) -> CheckedFunction:
        operations = list(self._spread())
        checks = [op for op in operations if check_name(op) is not None]
        others = [op for op in operations if check_name(op) is None]
        for operation in others:
            for region in operation.regions:
                _refuse_nested(region)
        lifted = self._lifted(others, checks)
        others = [o for o in others if not (o.results and o.results[0] in lifted)]
        results: dict[str, int] = {}
        made = [self._check(check, lifted, results) for check in checks]
        used = {o for op in _all(others) for o in op.operands}
        inputs = [name for name in lifted if name in used]
        end = HloOperation("func.return", list(results), [], {}, [], [], "the end")
        body = HloRegion(
            [(name, self.types[name]) for name in inputs],
            [*(o for o in others if not o.name.endswith("return")), end],
        )
        entry = HloFunction(
            "main", body, [self.types[r] for r in results], [f"arg{n}" for n in range(len(inputs))], []
        )  # fmt: skip
        private = [replace(f, public=False) for f in self._called(others)]
        return CheckedFunction(
            self.function.name,
            HloModule(self.module.source, [entry, *private]),
            [self.data[name] for name in inputs],
            made,
        )

    def _called(self, operations: Sequence[HloOperation]) -> list[HloFunction]:
        """The functions that operations call, and those that these call."""
        wanted = {_callee(op) for op in _all(operations)}
        pending = [f for f in self.module.functions if f.name in wanted]
        found: dict[str, HloFunction] = {}
        while pending:
            function = pending.pop()
            if function.name in found:
                continue
            found[function.name] = function
            inner = {_callee(op) for op in _all(function.body.operations)}
            pending += [f for f in self.module.functions if f.name in inner]
        return list(found.values())

    def _spread(self) -> Iterator[HloOperation]:
        """The function's operations; calls that only yield data are replaced by it."""
        callees = {f.name: f for f in self.module.functions}
        for operation in self.function.body.operations:
            for name, kind in zip(operation.results, operation.result_types, strict=False):
                self.types[name] = kind
            callee = callees.get(_callee(operation))
            if operation.name.endswith("call") and callee and not operation.operands:
                constants = _constants_of(callee)
                if constants is not None:
                    for name, constant in zip(operation.results, constants, strict=True):
                        self.data[name] = _spread_out(constant)
                        self.given.add(name)
                        yield replace(constant, results=[name])
                    continue
            if operation.name.endswith("constant") and len(operation.results) == 1:
                self.data[operation.results[0]] = _spread_out(operation)
            yield operation

    def _lifted(
        self, operations: Sequence[HloOperation], checks: Sequence[HloOperation]
    ) -> dict[str, None]:
        """Constants that become inputs: data of calls, and what is computed with nothing
        else than constants."""
        lifted = {name: None for name in self.data if name in self.given}
        static: set[str] = set()
        for operation in operations:
            key = operation.name.rpartition(".")[2]
            half = len(operation.operands) // 2
            for n, name in enumerate(operation.operands):
                if n in _STATIC_OPERANDS.get(key, ()) or (key in _STARTS and n >= half):
                    static.add(name)
            if key in _OPAQUE or (
                operation.regions
                and key not in (*_STARTS, "scatter", "sort", "select_and_scatter")
            ):
                continue  # fmt: skip
            if key in _SPREADING and all(not _rank(self.types[n]) for n in operation.operands):
                continue
            read = [
                name
                for n, name in enumerate(operation.operands)
                if n not in _STATIC_OPERANDS.get(key, ()) and not (key in _STARTS and n >= half)
            ]
            if all(name in self.data for name in read):
                lifted.update((name, None) for name in read)
        for check in checks:
            for name in check.operands[1:] if check_name(check) != "eq" else check.operands:
                if name in self.data:
                    lifted[name] = None
        captured = {
            name
            for operation in operations
            for region in operation.regions
            for inner in _all(region.operations)
            for name in inner.operands
        }
        kept = static | captured
        return {name: None for name in lifted if name not in kept}

    def _check(
        self, check: HloOperation, lifted: Mapping[str, None], results: dict[str, int]
    ) -> Check:
        kind = check_name(check)
        if kind not in CHECKS:
            raise ValueError(f"'check.{kind}' cannot be run here")

        def reference(name: str) -> Reference:
            if name in lifted:
                return Reference(None, self.data[name])
            return Reference(results.setdefault(name, len(results)))

        operands = [reference(name) for name in check.operands]
        if kind == "expect_serialized_eq":
            kind = "expect_eq"
            operands.insert(0, reference(self._probed(check)))
        if len(operands) == 1 and "value" in check.attributes:
            kind_of = self.types[check.operands[0]]
            operands.append(Reference(None, _fitted(check.attributes["value"], kind_of)))
        actual, expected = operands
        if kind == "eq":  # written the other way round
            actual, expected = expected, actual
        return Check(kind, actual, expected, check.attributes, check.place)

    def _probed(self, check: HloOperation) -> str:
        """The value that a probe of the function wrote down."""
        wanted = check.attributes.get("probe_id")
        for operation in self.function.body.operations:
            if operation.name == _PROBE and operation.attributes.get("probe_id") == wanted:
                return operation.operands[0]
        raise ValueError(f"no probe '{wanted}' stands in the function itself")


def _callee(operation: HloOperation) -> str:
    """The function that an operation names, empty where it names none."""
    named = operation.attributes.get("callee", operation.attributes.get("decomposition", ""))
    return str(named).lstrip("@")


def _rank(kind: HloType) -> int:
    return len(kind.shape) if isinstance(kind, HloTensorType) else 0


def _refuse_nested(region: HloRegion) -> None:
    for operation in _all(region.operations):
        if check_name(operation) is not None:
            raise ValueError(f"{operation.place}: a check inside of a region cannot be run")


def _all(operations: Sequence[HloOperation]) -> Iterator[HloOperation]:
    for operation in operations:
        yield operation
        for region in operation.regions:
            yield from _all(region.operations)


def _constants_of(function: HloFunction) -> list[HloOperation] | None:
    """What a function without arguments returns, where it is constants and nothing else."""
    made: dict[str, HloOperation] = {}
    for operation in function.body.operations:
        if operation.name.endswith("return"):
            return [made[name] for name in operation.operands]
        if not operation.name.endswith("constant"):
            return None
        made[operation.results[0]] = operation
    return None


def _spread_out(constant: HloOperation) -> Any:
    return _fitted(constant.attributes["value"], constant.result_types[0])


def _fitted(value: Any, kind: HloType) -> Any:
    """The array of a constant in its type; one element stands for all."""
    import numpy as np

    assert isinstance(kind, HloTensorType)
    shape = tuple(s.value for s in kind.shape)
    array = np.asarray(value)
    if array.dtype != kind.dtype.numpy_dtype:
        array = array.astype(kind.dtype.numpy_dtype)
    if array.size == 1 and array.shape != shape:
        return np.full(shape, array.reshape(-1)[0], dtype=array.dtype)
    return np.ascontiguousarray(array).reshape(shape)
