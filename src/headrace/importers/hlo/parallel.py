"""Several processes of a StableHLO program as one: `interpreter.run_parallel` of test files.

Each process's function is written out, and what passes between processes becomes operations
on the values of both: a gather concatenates them, a reduction combines them, a receive is
the value that was sent. Grids of processes are rows of replicas and columns of partitions, as
in the specification's section on parallel execution.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from headrace.importers.hlo.registry import Unsupported, integers_of
from headrace.importers.hlo.tree import (
    HloFunction,
    HloModule,
    HloOperation,
    HloRegion,
    HloTensorType,
    HloType,
)

TOKEN_MAKERS = ("after_all", "create_token")
_TOGETHER = (
    "all_gather", "all_reduce", "all_to_all", "collective_broadcast", "collective_permute",
    "collective_reduce", "reduce_scatter",
)  # fmt: skip


def without_processes(module: HloModule) -> HloModule:
    """The module with each `interpreter.run_parallel` written out.

    Raises:
        Unsupported: processes wait for each other for ever, or data decides who sends.
    """
    functions = {f.name: f for f in module.functions}
    return replace(
        module, functions=[_without(function, functions) for function in module.functions]
    )


def _without(function: HloFunction, functions: dict[str, HloFunction]) -> HloFunction:
    runs = [op for op in function.body.operations if op.name == "interpreter.run_parallel"]
    if not runs:
        return function
    made: list[HloOperation] = []
    renamed: dict[str, str] = {}
    for operation in function.body.operations:
        operation = _renamed(operation, renamed, "")
        if operation.name != "interpreter.run_parallel":
            made.append(operation)
            continue
        grid = _Grid(operation, functions, made)
        renamed.update(zip(operation.results, grid.run(), strict=True))
    return replace(function, body=HloRegion(function.body.arguments, made))


def _renamed(operation: HloOperation, names: dict[str, str], mark: str) -> HloOperation:
    """A copy of an operation with other names of values, inside of regions too."""
    inner = dict(names)
    regions: list[HloRegion] = []
    for region in operation.regions:
        arguments = [(name + mark, kind) for name, kind in region.arguments]
        inner.update({name: name + mark for name, _ in region.arguments})
        operations: list[HloOperation] = []
        for op in region.operations:
            inner.update({name: name + mark for name in op.results})
            operations.append(_renamed(op, inner, mark))
        regions.append(HloRegion(arguments, operations))
    return replace(
        operation,
        operands=[names.get(n, n) for n in operation.operands],
        results=[names.get(n, n) if mark else n for n in operation.results],
        regions=regions,
    )


@dataclass
class _Process:
    """One process: where it stands, and the operation that it waits with."""

    replica: int
    partition: int
    mark: str
    pending: list[HloOperation]
    names: dict[str, str] = field(default_factory=dict[str, str])
    feeds: int = 0

    def next(self) -> HloOperation:
        """The operation at the front, with this process's names."""
        operation = self.pending[0]
        self.names.update({name: name + self.mark for name in operation.results})
        return _renamed(operation, self.names, self.mark)


class _Grid:
    """Runs the processes of one `run_parallel` as far as each can go, in turn."""

    def __init__(
        self, run: HloOperation, functions: dict[str, HloFunction], made: list[HloOperation]
    ) -> None:
        self.made = made
        self.place = run.place
        self.sent: dict[int, list[tuple[str, HloType]]] = {}
        self.queue = [functions[name] for name in run.attributes.get("infeed", [])]
        self.processes: list[_Process] = []
        self.partitions = len(run.attributes["programs"][0])
        given = iter(run.operands)
        for i, row in enumerate(run.attributes["programs"]):
            for j, name in enumerate(row):
                mark = f"@{len(made)}.{i}.{j}"
                body = functions[name].body
                process = _Process(i, j, mark, list(body.operations))
                process.names = {argument: next(given) for argument, _ in body.arguments}
                self.processes.append(process)
        self._fresh = 0

    def run(self) -> list[str]:
        """Names of the results of all processes, in their order."""
        while any(not self._at_end(p) for p in self.processes):
            moved = [self._advance(p) for p in self.processes]
            if not any(moved) and not self._together():
                raise Unsupported("the processes wait for each other")
        return [n for p in self.processes for n in p.next().operands]

    def _at_end(self, process: _Process) -> bool:
        return process.pending[0].name.endswith("return")

    def _advance(self, process: _Process) -> bool:
        """Goes on for as long as a process needs no other; whether it did."""
        moved = False
        while not self._at_end(process):
            operation = process.next()
            if not self._alone(process, operation):
                return moved
            process.pending.pop(0)
            moved = True
        return moved

    def _alone(self, process: _Process, operation: HloOperation) -> bool:
        """Does an operation that needs no other process; False where it needs one."""
        match operation.name.rpartition(".")[2]:
            case name if name in _TOGETHER:
                return False
            case "replica_id" | "partition_id" as name:
                number = process.replica if name == "replica_id" else process.partition
                self._constant(operation.results[0], operation.result_types[0], number)
            case "send":
                channel = operation.attributes["channel_handle"]["handle"]
                pairs = zip(operation.operands[:-1], operation.types, strict=False)
                self.sent.setdefault(channel, []).extend(pairs)
                self._token(operation.results[0], operation.result_types[0])
            case "recv":
                waiting = self.sent.get(operation.attributes["channel_handle"]["handle"], [])
                count = len(operation.results) - 1
                if len(waiting) < count:
                    return False
                for result in operation.results[:-1]:
                    self._same(result, *waiting.pop(0))
                self._token(operation.results[-1], operation.result_types[-1])
            case "infeed":
                self._feed(process, operation)
            case "outfeed":
                self._token(operation.results[0], operation.result_types[0])
            case _:
                self.made.append(operation)
        return True

    def _feed(self, process: _Process, operation: HloOperation) -> None:
        if process.feeds >= len(self.queue):
            raise Unsupported("the infeed is empty")
        source = self.queue[process.feeds]
        mark = f"{process.mark}.{process.feeds}"
        process.feeds += 1
        names: dict[str, str] = {}
        for op in source.body.operations:
            names.update({name: name + mark for name in op.results})
            copy = _renamed(op, names, mark)
            if not op.name.endswith("return"):
                self.made.append(copy)
                continue
            for result, name, kind in zip(
                operation.results, copy.operands, copy.types, strict=False
            ):
                self._same(result, name, kind)
        self._token(operation.results[-1], operation.result_types[-1])

    # -- what processes do together -----------------------------------------------------

    def _together(self) -> bool:
        """Does one operation that processes wait with; False where none can."""
        for process in self.processes:
            if self._at_end(process) or process.next().name.rpartition(".")[2] not in _TOGETHER:
                continue
            name = process.pending[0].name
            waiting = [p for p in self.processes if not self._at_end(p) and p.pending[0].name == name]  # fmt: skip
            operations = {id(p): p.next() for p in waiting}
            groups = self._groups(operations[id(process)], waiting)
            for group in groups:
                if all(id(p) in operations for p in group):
                    _Exchange(self, [operations[id(p)] for p in group]).run()
            outside = [p for p in waiting if not any(p is q for g in groups for q in g)]
            for alone in outside:
                for result, kind in zip(operations[id(alone)].results, operations[id(alone)].result_types, strict=True):  # fmt: skip
                    self._constant(result, kind, 0)
            for p in waiting:
                p.pending.pop(0)
            return True
        return False

    def _groups(
        self, operation: HloOperation, waiting: Sequence[_Process]
    ) -> list[list[_Process]]:
        handle = operation.attributes.get("channel_handle") or {}
        channel = handle.get("handle", 0) > 0
        at = {(p.replica, p.partition): p for p in self.processes}
        replicas = sorted({p.replica for p in self.processes})
        name = operation.name.rpartition(".")[2]
        if name == "collective_permute":
            pairs = integers_of(operation.attributes["source_target_pairs"])
            return self._permuted(operation, list(zip(pairs[::2], pairs[1::2], strict=True)), channel)  # fmt: skip
        rows = [[int(v) for v in row if int(v) >= 0] for row in operation.attributes["replica_groups"]]  # fmt: skip
        if operation.attributes.get("use_global_device_ids"):
            return [[at[divmod(v, self.partitions)] for v in row] for row in rows]
        if not channel:
            return [[at[v, j] for v in row] for j in range(self.partitions) for row in rows]
        if name in ("all_to_all", "collective_broadcast", "collective_reduce"):
            return [[at[i, v] for v in row] for i in replicas for row in rows]
        return [[at[v, j] for j in range(self.partitions) for v in row] for row in rows]

    def _permuted(
        self, operation: HloOperation, pairs: list[tuple[int, int]], channel: bool
    ) -> list[list[_Process]]:
        """Groups of one target each, its value taken from its source here."""
        done: list[list[_Process]] = []
        for process in self.processes:
            own = process.partition if channel else process.replica
            source = next((a for a, b in pairs if b == own), None)
            if source is None:
                continue
            wanted = (process.replica, source) if channel else (source, process.partition)
            other = next(p for p in self.processes if (p.replica, p.partition) == wanted)
            value, target = other.next(), process.next()
            self._same(target.results[0], value.operands[0], value.types[0])
            done.append([process])
        return done

    # -- operations that are made ---------------------------------------------------------

    def fresh(self) -> str:
        self._fresh += 1
        return f"%made{len(self.made)}.{self._fresh}"

    def add(
        self, name: str, operands: Sequence[str], types: Sequence[HloType], kind: HloType,
        attributes: dict[str, Any] | None = None, regions: Sequence[HloRegion] = (),
        result: str | None = None,
    ) -> str:  # fmt: skip
        """Appends an operation of StableHLO; the name of its result."""
        made = result or self.fresh()
        inner = list(regions)
        operation = HloOperation(
            f"stablehlo.{name}", list(operands), [made], attributes or {}, list(types), [kind],
            self.place, inner,
        )  # fmt: skip
        self.made.append(operation)
        return made

    def _same(self, result: str, name: str, kind: HloType) -> None:
        self.add("reshape", [name], [kind], kind, result=result)

    def _token(self, result: str, kind: HloType) -> None:
        self.add("after_all", [], [], kind, result=result)

    def _constant(self, result: str, kind: HloType, number: int) -> None:
        import numpy as np

        assert isinstance(kind, HloTensorType)
        shape = [s.value for s in kind.shape]
        value = np.full(shape, number).astype(kind.dtype.numpy_dtype)
        self.add("constant", [], [], kind, {"value": value}, result=result)


class _Exchange:
    """One operation of a group of processes that work together."""

    def __init__(self, grid: _Grid, operations: Sequence[HloOperation]) -> None:
        self.grid = grid
        self.operations = operations

    def run(self) -> None:
        first = self.operations[0]
        name = first.name.rpartition(".")[2]
        if first.attributes.get("has_dynamic_root"):
            raise Unsupported("data decides who sends")
        if name == "collective_permute":
            return
        for number in range(len(first.results)):
            for own, operation in enumerate(self.operations):
                kind = operation.result_types[number]
                assert isinstance(kind, HloTensorType)
                self._result(name, number, own, operation, kind)

    def _result(
        self, name: str, number: int, own: int, operation: HloOperation, kind: HloTensorType
    ) -> None:
        grid, result = self.grid, operation.results[number]
        values = [op.operands[number] for op in self.operations]
        types = [op.types[number] for op in self.operations]
        match name:
            case "all_gather":
                along = {"dimension": operation.attributes["all_gather_dim"]}
                grid.add("concatenate", values, types, kind, along, result=result)
            case "all_reduce":
                self._combined(operation, values, types, result)
            case "reduce_scatter":
                whole = self._combined(operation, values, types, None)
                along = integers_of(operation.attributes["scatter_dimension"])[0]
                self._part(whole, _wide(types[0], kind), along, own, kind, result)
            case "all_to_all":
                self._exchanged(operation, number, own, kind, result)
            case "collective_broadcast":
                grid.add("reshape", values[:1], types[:1], kind, result=result)
            case _:  # collective_reduce: the first has the sum, the others zeros
                if own == 0:
                    self._combined(operation, values, types, result)
                else:
                    grid._constant(result, kind, 0)  # pyright: ignore[reportPrivateUsage]

    def _combined(
        self,
        operation: HloOperation,
        values: list[str],
        types: list[HloType],
        result: str | None,
    ) -> str:
        """All values combined by the operation's body, element by element, in order."""
        body = operation.regions[0]
        element = body.arguments[0][1]
        assert isinstance(element, HloTensorType)
        kind = _wide(types[0], element)
        made = self.grid.add("convert", values[:1], types[:1], kind)
        dims = {"dimensions": list(range(len(kind.shape)))}
        for value, source in zip(values[1:], types[1:], strict=True):
            other = self.grid.add("convert", [value], [source], kind)
            copy = _renamed(HloOperation("", [], [], {}, [], [], "", [body]), {}, self.grid.fresh())  # fmt: skip
            made = self.grid.add("map", [made, other], [kind, kind], kind, dims, copy.regions)
        if result is not None:
            self.grid.add("reshape", [made], [kind], kind, result=result)
        return made

    def _part(
        self, whole: str, wide: HloTensorType, along: int, own: int, kind: HloTensorType,
        result: str | None,
    ) -> str:  # fmt: skip
        size = kind.shape[along].value
        starts = [own * size if n == along else 0 for n in range(len(kind.shape))]
        limits = [a + s.value for a, s in zip(starts, kind.shape, strict=True)]
        bounds = {
            "start_indices": starts,
            "limit_indices": limits,
            "strides": [1] * len(starts),
        }
        return self.grid.add("slice", [whole], [wide], kind, bounds, result=result)

    def _exchanged(
        self, operation: HloOperation, number: int, own: int, kind: HloTensorType, result: str
    ) -> None:
        a = operation.attributes
        split, join, count = (integers_of(a[n])[0] for n in ("split_dimension", "concat_dimension", "split_count"))  # fmt: skip
        parts: list[str] = []
        small: list[HloType] = []
        for op in self.operations:
            wide = op.types[number]
            assert isinstance(wide, HloTensorType)
            shape = list(wide.shape)
            shape[split] = shape[split] // count
            piece = replace(wide, shape=tuple(shape))
            parts.append(self._part(op.operands[number], wide, split, own, piece, None))
            small.append(piece)
        self.grid.add("concatenate", parts, small, kind, {"dimension": join}, result=result)


def _wide(shaped: HloType, element: HloTensorType) -> HloTensorType:
    assert isinstance(shaped, HloTensorType)
    return HloTensorType(element.dtype, shaped.shape, element.grid)
