"""Checks every rule that `description.py` states. A kernel that breaks one is our defect."""

from __future__ import annotations

from collections.abc import Sequence

from headrace.base.dtypes import I1, DType
from headrace.base.errors import Diagnostic, Problems
from headrace.base.exponent_codes import PACKED_DTYPES
from headrace.base.symbols import ZERO, Expr, product
from headrace.kernel.description import (
    Axis,
    Combiner,
    Compute,
    Constant,
    IndexValue,
    Kernel,
    Load,
    LoadLocal,
    Operand,
    Phase,
    Reduction,
    Scalar,
    ScalarOperation,
    Store,
)
from headrace.kernel.loops import loop_problems
from headrace.kernel.scalars import MEANINGS

_BINARY = (
    "add", "and", "atan2", "compare", "divide", "maximum", "minimum", "multiply", "or",
    "power", "remainder", "shift_left", "shift_right_arithmetic", "shift_right_logical",
    "complex", "subtract", "xor",
)  # fmt: skip
_ARITY: dict[str, int] = (
    dict.fromkeys(MEANINGS, 1) | dict.fromkeys(_BINARY, 2) | {"clamp": 3, "select": 3}
)
_DIRECTIONS = ("EQ", "NE", "LT", "LE", "GT", "GE")


def verify_kernel(kernel: Kernel, places: Sequence[str] = ()) -> None:
    """Raises where a kernel is not well formed.

    Args:
        places: where in the user's model it came from, for the message.

    Raises:
        HeadraceDefect HR9310: lists every rule it breaks.
    """
    problems = Problems()
    for fact in problems_of(kernel):
        problems.add(Diagnostic("HR9310", fact, tuple(places)))
    problems.raise_if_any()


def problems_of(kernel: Kernel) -> list[str]:
    """Every rule that a kernel breaks, as one fact each."""
    return _Checker(kernel).run()


class _Checker:
    def __init__(self, kernel: Kernel) -> None:
        self.kernel = kernel
        self.found: list[str] = []
        self.locals = {local.name: local for local in kernel.locals}
        self.locals_set: set[str] = set()
        self.stored: dict[int, list[Expr]] = {}
        self.varies: dict[str, frozenset[str]] = {}

    def wrong(self, fact: str) -> None:
        self.found.append(fact)

    def run(self) -> list[str]:
        kernel = self.kernel
        dims = set(kernel.dims)
        if len(dims) != len(kernel.dims) or any(d.startswith("%") for d in dims):
            self.wrong(f"named dimensions {list(kernel.dims)} repeat or are kernel-local")
        names = [o.name for o in kernel.operands] + [local.name for local in kernel.locals]
        for name in sorted({n for n in names if names.count(n) > 1}):
            self.wrong(f"two operands or locals are named '{name}'")
        for operand in kernel.operands:
            self._operand(operand)
        for local in kernel.locals:
            self._sizes(f"local '{local.name}'", local.shape)
        self._axes(kernel.outer, "%d", "the outer domain")
        for n, phase in enumerate(kernel.phases):
            self._phase(phase, f"phase {n}")
        for n in kernel.outputs:
            self._coverage(n)
        return self.found + loop_problems(kernel)

    # -- declarations -----------------------------------------------------------------

    def _sizes(self, where: str, sizes: Sequence[Expr]) -> None:
        unknown = sorted({n for s in sizes for n in s.names} - set(self.kernel.dims))
        if unknown:
            self.wrong(f"{where} mentions {', '.join(unknown)}, which is no named dimension")

    def _operand(self, operand: Operand) -> None:
        where, layout, rank = f"operand '{operand.name}'", operand.layout, len(operand.shape)
        ranks = {len(layout.dimensions), len(layout.halo_low), len(layout.halo_high)}
        if ranks != {rank}:
            self.wrong(f"{where} has rank {rank}, its layout ranks {sorted(ranks)}")
        if operand.constant and operand.access != "ro":
            self.wrong(f"{where} is constant and written")
        if layout.transform and not operand.constant:
            self.wrong(f"{where} is transformed and no constant")
        if layout.codes is not None and (problem := _codes_problem(operand)):
            self.wrong(f"{where} is packed, but {problem}")
        sizes = [*operand.shape, layout.offset, layout.size]
        for dimension in layout.dimensions:
            sizes += [dimension.stride, dimension.tile_stride]
            if dimension.tile < 1:
                self.wrong(f"{where} has a tile of {dimension.tile}")
        self._sizes(where, sizes)
        if layout.halo_value is not None:
            self._scalar(f"the halo of {where}", layout.halo_value, operand.dtype)

    def _axes(self, axes: Sequence[Axis], prefix: str, where: str) -> None:
        for axis in axes:
            if not (axis.name.startswith(prefix) and axis.name[len(prefix) :].isdigit()):
                self.wrong(f"{where} has an axis '{axis.name}', not named {prefix}N")
        self._sizes(where, [a.size for a in axes])

    def _scalar(self, where: str, value: Scalar, dtype: DType) -> None:
        kinds = {"float": float, "complex": complex, "bool": bool}
        wanted = kinds.get(dtype.kind, int)
        if type(value) is not wanted:
            self.wrong(f"{where} is {value!r}, no {dtype}")

    # -- phases -----------------------------------------------------------------------

    def _phase(self, phase: Phase, where: str) -> None:
        self._axes(phase.parallel, "%d", where)
        self._axes(phase.reduction_axes, "%r", where)
        axes = (*self.kernel.outer, *phase.parallel, *phase.reduction_axes)
        axis_names = [a.name for a in axes]
        for name in sorted({n for n in axis_names if axis_names.count(n) > 1}):
            self.wrong(f"{where} has two axes named '{name}'")
        if (phase.reduction is None) != (not phase.reduction_axes):
            self.wrong(f"{where} must have reduction axes exactly where it folds")
        if phase.reduction is not None and phase.stores:
            self.wrong(f"{where} folds and stores")
        if phase.reduction is None and not phase.stores:
            self.wrong(f"{where} stores nothing")
        if phase.serial and phase.reduction is not None:
            self.wrong(f"{where} folds one point after the other")
        known = set(axis_names) | set(self.kernel.dims)
        values: dict[str, DType] = {}
        self.varies = {name: frozenset({name}) for name in axis_names}
        for operation in phase.body:
            self._operation(operation, values, known, where)
            if operation.result in values:
                self.wrong(f"{where} sets {operation.result} twice")
            values[operation.result] = self._dtype(operation)
            self.varies[operation.result] = self._axes_of(operation)
            if values[operation.result].is_integer:
                known.add(operation.result)
        if phase.reduction is not None:
            self._reduction(phase.reduction, phase, values, where)
        for store in phase.stores:
            self._store(store, phase, values, known, where)

    def _axes_of(self, operation: ScalarOperation) -> frozenset[str]:
        """The axes that a value differs along."""
        match operation:
            case Load(_, _, index) | LoadLocal(_, _, index):
                names = [n for i in index for n in i.names]
            case IndexValue(_, _, value):
                names = list(value.names)
            case Compute(_, _, operands):
                names = list(operands)
            case _:
                names = []
        return frozenset().union(*(self.varies.get(n, frozenset()) for n in names))

    def _dtype(self, operation: Load | LoadLocal | Constant | IndexValue | Compute) -> DType:
        if isinstance(operation, Load):
            valid = 0 <= operation.operand < len(self.kernel.operands)
            return self.kernel.operands[operation.operand].dtype if valid else I1
        if isinstance(operation, LoadLocal):
            local = self.locals.get(operation.local)
            return local.dtype if local else I1
        return operation.dtype

    def _operation(
        self,
        operation: Load | LoadLocal | Constant | IndexValue | Compute,
        values: dict[str, DType],
        known: set[str],
        where: str,
    ) -> None:
        result = operation.result
        if not (result.startswith("%v") and result[2:].isdigit()):
            self.wrong(f"{where} names a value '{result}', not %vN")
        match operation:
            case Load():
                self._load(operation, known, where)
            case LoadLocal(_, name, index):
                local = self.locals.get(name)
                if local is None or name not in self.locals_set:
                    self.wrong(f"{where} reads local '{name}' before a phase has set it")
                if local is not None and len(index) != len(local.shape):
                    self.wrong(f"{where} reads local '{name}' with {len(index)} indices")
                self._index(index, known, where)
            case Constant(_, dtype, value):
                self._scalar(f"constant {result} of {where}", value, dtype)
            case IndexValue(_, dtype, value):
                self._index((value,), known, where)
                if not (dtype.is_integer or dtype.is_float):
                    self.wrong(f"{where} takes an index as {dtype}")
            case Compute():
                self._compute(operation, values, where)

    def _index(self, index: Sequence[Expr], known: set[str], where: str) -> None:
        unknown = sorted({n for i in index for n in i.names} - known)
        if unknown:
            self.wrong(f"{where} has an index with {', '.join(unknown)}, unknown there")

    def _load(self, load: Load, known: set[str], where: str) -> None:
        if not 0 <= load.operand < len(self.kernel.operands):
            self.wrong(f"{where} loads operand {load.operand}, which there is not")
            return
        operand = self.kernel.operands[load.operand]
        if operand.access == "wo" and load.operand not in self.stored:
            self.wrong(f"{where} reads operand '{operand.name}' before a phase has written it")
        if len(load.index) != len(operand.shape):
            self.wrong(f"{where} loads '{operand.name}' with {len(load.index)} indices")
        self._index(load.index, known, where)
        if any(not 0 <= d < len(operand.shape) for d in load.bounded):
            self.wrong(f"{where} bounds a dimension that '{operand.name}' has not")
        if bool(load.bounded) != (load.otherwise is not None):
            self.wrong(f"{where} must say what it loads outside '{operand.name}'")
        if load.otherwise is not None:
            self._scalar(f"what {where} loads outside", load.otherwise, operand.dtype)

    def _compute(self, op: Compute, values: dict[str, DType], where: str) -> None:
        name, text = op.operation, f"{op.result} = {op.operation} of {where}"
        if name not in _ARITY:
            self.wrong(f"{text}: there is no such operation")
            return
        missing = [o for o in op.operands if o not in values]
        if missing:
            self.wrong(f"{text} uses {', '.join(missing)}, not yet set")
            return
        if len(op.operands) != _ARITY[name]:
            self.wrong(f"{text} has {len(op.operands)} operands, not {_ARITY[name]}")
            return
        if (name == "compare") != (op.attribute in _DIRECTIONS) or (
            name != "compare" and op.attribute
        ):
            self.wrong(f"{text} has attribute '{op.attribute}'")
        self._compute_dtypes(op, [values[o] for o in op.operands], text)

    def _compute_dtypes(self, op: Compute, given: list[DType], text: str) -> None:
        name, result = op.operation, op.dtype
        if name == "convert":
            return
        if name == "bitcast_convert":
            if given[0].size_bytes != result.size_bytes:
                self.wrong(f"{text} changes the width from {given[0]} to {result}")
            return
        if name == "select":
            if given[0] != I1:
                self.wrong(f"{text} selects by {given[0]}, not i1")
            given = given[1:]
        if name in ("compare", "is_finite"):
            if result != I1:
                self.wrong(f"{text} gives {result}, not i1")
            result = given[0]
        if name in ("abs", "real", "imag") and given[0].kind == "complex":
            return
        if name == "complex" and result.kind == "complex":
            if any(2 * g.bits != result.bits for g in given):
                self.wrong(f"{text} makes {result} of other parts")
            return
        if any(g != result for g in given):
            types = ", ".join(str(g) for g in given)
            self.wrong(f"{text} takes {types} and gives {op.dtype}")

    # -- results ----------------------------------------------------------------------

    def _reduction(
        self, reduction: Reduction, phase: Phase, values: dict[str, DType], where: str
    ) -> None:
        combiner = reduction.combiner
        lengths = {
            len(reduction.values), len(reduction.initial), len(reduction.results),
            len(combiner.left), len(combiner.right), len(combiner.results),
        }  # fmt: skip
        if len(lengths) != 1 or 0 in lengths:
            self.wrong(f"{where} folds unequal numbers of values")
            return
        shape = tuple(a.size for a in phase.parallel)
        dtypes: list[DType] = []
        for value, initial, result in zip(
            reduction.values, reduction.initial, reduction.results, strict=True
        ):
            if value not in values:
                self.wrong(f"{where} folds {value}, which is not set")
                return
            dtypes.append(values[value])
            self._scalar(f"the start of {where}", initial, values[value])
            local = self.locals.get(result)
            if local is None:
                self.wrong(f"{where} folds into '{result}', which is no local")
                return
            if local.dtype != values[value] or local.shape != shape:
                self.wrong(
                    f"{where} folds {values[value]} into local '{result}' of another type"
                )
            self.locals_set.add(result)
        self._combiner(combiner, dtypes, where)

    def _combiner(self, combiner: Combiner, dtypes: list[DType], where: str) -> None:
        values = dict(zip(combiner.left, dtypes, strict=True))
        values |= dict(zip(combiner.right, dtypes, strict=True))
        if len(values) != 2 * len(dtypes):
            self.wrong(f"the combiner of {where} names an argument twice")
        for operation in combiner.body:
            if isinstance(operation, Compute):
                self._compute(operation, values, f"the combiner of {where}")
            else:
                self._scalar(f"a constant of {where}", operation.value, operation.dtype)
            values[operation.result] = operation.dtype
        for result, dtype in zip(combiner.results, dtypes, strict=True):
            if values.get(result) != dtype:
                self.wrong(f"the combiner of {where} gives {result}, no {dtype}")

    def _store(
        self, store: Store, phase: Phase, values: dict[str, DType], known: set[str], where: str
    ) -> None:
        value = values.get(store.value)
        if value is None:
            self.wrong(f"{where} stores {store.value}, which is not set")
            return
        self._index(store.index, known, where)
        if isinstance(store.operand, str):
            local = self.locals.get(store.operand)
            if local is None:
                self.wrong(f"{where} sets '{store.operand}', which is no local")
                return
            if local.dtype != value or len(store.index) != len(local.shape):
                self.wrong(f"{where} sets local '{store.operand}' as another type")
            self._distinct(store.index, phase.parallel, where, f"local '{local.name}'")
            self.locals_set.add(local.name)
            return
        if not 0 <= store.operand < len(self.kernel.operands):
            self.wrong(f"{where} stores to operand {store.operand}, which there is not")
            return
        operand = self.kernel.operands[store.operand]
        if operand.access == "ro":
            self.wrong(f"{where} writes operand '{operand.name}', which is read-only")
        if operand.dtype != value or len(store.index) != len(operand.shape):
            self.wrong(f"{where} stores {value} to '{operand.name}' as another type")
        if any(not 0 <= d < len(operand.shape) for d in store.bounded):
            self.wrong(f"{where} bounds a dimension that '{operand.name}' has not")
        axes = (*self.kernel.outer, *(() if phase.serial else phase.parallel))
        self._distinct(store.index, axes, where, f"operand '{operand.name}'")
        if phase.serial or store.bounded:
            self.stored.setdefault(store.operand, [])
            return
        points = product(a.size for a in axes)
        self.stored.setdefault(store.operand, []).append(points)

    def _distinct(
        self, index: Sequence[Expr], axes: Sequence[Axis], where: str, target: str
    ) -> None:
        """Every axis longer than 1 must tell elements apart."""
        used = {a for i in index for n in i.names for a in self.varies.get(n, ())}
        for axis in axes:
            one = axis.size.is_constant and axis.size.value <= 1
            if axis.name not in used and not one:
                self.wrong(f"{where} writes {target} once for each {axis.name}")

    def _coverage(self, n: int) -> None:
        operand = self.kernel.operands[n]
        counts = self.stored.get(n)
        if counts is None:
            self.wrong(f"operand '{operand.name}' is never written")
            return
        total = sum(counts, ZERO)
        wanted = product(operand.shape)
        known = total.is_constant and wanted.is_constant
        # A phase that writes all of it may have a part written over by another.
        whole = total == wanted or wanted in counts
        if operand.access == "wo" and known and not whole:
            self.wrong(f"{total} of the {wanted} elements of '{operand.name}' are written")


def _codes_problem(operand: Operand) -> str:
    """Why a packed operand cannot be; empty for a sound one."""
    layout, codes = operand.layout, operand.layout.codes
    assert codes is not None
    if not operand.constant:
        return "no constant"
    if operand.dtype.name not in PACKED_DTYPES:
        return f"its elements are {operand.dtype}"
    if layout.transform or layout.has_halo:
        return "it is transformed or has a halo"
    if not codes.is_sound:
        return f"there are no codes {codes.block} {codes.base} {codes.escapes}"
    if not layout.size.is_constant or layout.size.value % codes.block:
        return "its elements are no whole blocks"
    return ""
