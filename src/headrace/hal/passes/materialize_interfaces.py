"""Materialises `hal.executable` operations from `stream.executable` operations.

Seed 2, rule for rule. For each `stream.executable` with exports (those without are left
as they are) one `hal.executable` stands behind it, under the same name and visibility,
and the source is erased:

- a variant for each requested target that takes the executable;
- for each export an interface from the analysis of *all* its dispatch sites, an entry
  point with an ordinal in every variant, and the function without arguments: scalars are
  loaded as push constants (first, so that bindings may use them), bindings are subspans
  of the interface;
- workgroup id, count and size become `hal.interface.workgroup.*`; a size that the export
  fixes is folded to a constant;
- every dispatch site is annotated with the interface bindings of its resources.

Beyond the seed: a binding used by anything but `stream.binding.subspan` is a located
error, several exports have distinct interface names (`io`, `io_0`, ..., none that something
else has), functions that are not exported come along, and everything wrong is listed at once.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from itertools import count
from typing import Protocol, runtime_checkable

from xdsl.dialects.arith import ConstantOp
from xdsl.dialects.builtin import (
    ArrayAttr,
    DenseArrayBase,
    IndexType,
    IntegerAttr,
    IntegerType,
    ModuleOp,
    StringAttr,
    SymbolRefAttr,
)
from xdsl.dialects.func import FuncOp
from xdsl.ir import Attribute, Block, BlockArgument, Operation, Region
from xdsl.rewriter import Rewriter

from headrace.base.errors import Diagnostic, Problems
from headrace.hal import dialect as hal
from headrace.hal.interfaces import ACCESS_BITS
from headrace.ir.model import Model
from headrace.ir.passes import Pass
from headrace.kernel.description import Kernel
from headrace.kernel.dialect import ExecuteOp
from headrace.kernel.target import Target
from headrace.stream import dialect as stream
from headrace.stream.analysis.binding_layout import (
    BindingLayoutAnalysis,
    ExportLayout,
    exported_function,
)
from headrace.stream.places import place_of
from headrace.stream.types import BindingType

RESTRICTION = "hal.targets"
"""An executable with this array of names is meant for these targets only."""


@runtime_checkable
class ChoosyTarget(Protocol):
    """A target that may decline an executable before it is asked to translate it."""

    @property
    def name(self) -> str:
        """As the user spells it."""
        ...

    def accepts(self, kernel: Kernel) -> bool:
        """Whether `translate` has a chance."""
        ...


@dataclass(frozen=True)
class MaterializeInterfaces(Pass):
    """`hal-materialize-interfaces{targets=cpu:native,vulkan}`.

    Attributes:
        targets: names, or Target objects (only the name is needed; one with a method
            `accepts(kernel)` may decline an executable).

    Raises:
        HeadraceError HR2601 to HR2606: as the seed words them.
    """

    targets: tuple[str | Target, ...] = ()

    def run(self, model: Model) -> None:
        layouts = BindingLayoutAnalysis(model.ir)
        sources = [
            op for op in model.ir.ops if isinstance(op, stream.ExecutableOp) and exports_of(op)
        ]
        problems = Problems()
        takers = {source: self._takers(source, problems) for source in sources}
        for source in sources:
            for export in exports_of(source):
                _check_function(export, problems)
        problems.raise_if_any()
        for source in sources:
            _materialize(source, takers[source], layouts)

    def _takers(self, source: stream.ExecutableOp, problems: Problems) -> list[str]:
        """Names of the targets that take an executable, in the order requested."""
        names = [_target_name(t) for t in self.targets]
        if not names:
            problems.add(
                Diagnostic(
                    "HR2601",
                    "no executable targets specified for translation",
                    place_of(source),
                    helps=("name one with --target, e.g. --target cpu",),
                )
            )
            return []
        takers = [_target_name(t) for t in self.targets if _accepts(t, source)]
        if not takers:
            problems.add(
                Diagnostic(
                    "HR2602",
                    "no target backend was able to handle this executable; tried = [ "
                    + "".join(f"{name} " for name in names)
                    + "]",
                    place_of(source),
                )
            )
        return list(dict.fromkeys(takers))


def exports_of(source: stream.ExecutableOp) -> list[stream.ExecutableExportOp]:
    """The exports of an executable, in order: their ordinals."""
    return [op for op in source.body.ops if isinstance(op, stream.ExecutableExportOp)]


def _target_name(target: str | Target) -> str:
    return target if isinstance(target, str) else target.name


def _accepts(target: str | Target, source: stream.ExecutableOp) -> bool:
    restriction = source.attributes.get(RESTRICTION)
    if isinstance(restriction, ArrayAttr):
        meant = [a.data for a in restriction.data if isinstance(a, StringAttr)]
        name = _target_name(target)
        if name not in meant and name.partition(":")[0] not in meant:
            return False
    if isinstance(target, ChoosyTarget):
        return all(
            target.accepts(op.kernel) for op in source.walk() if isinstance(op, ExecuteOp)
        )
    return True


# -- what is refused ----------------------------------------------------------------


def _check_function(export: stream.ExecutableExportOp, problems: Problems) -> None:
    function = exported_function(export)
    if function is None or len(function.body.blocks) != 1:
        problems.add(
            Diagnostic(
                "HR2606",
                f"export @{export.sym_name.data} names no function of one block in the inner module",
                place_of(export),
            )
        )
        return
    for number, kind in enumerate(function.function_type.inputs.data):
        problem = _type_problem(number, kind)
        if problem is not None:
            problems.add(Diagnostic(*problem, place_of(function)))
    for argument in function.body.block.args:
        if not isinstance(argument.type, BindingType):
            continue
        for use in argument.uses:
            if not isinstance(use.operation, stream.BindingSubspanOp):
                problems.add(
                    Diagnostic(
                        "HR2605",
                        "bindings are only usable by stream.binding.subspan, "
                        f"not by {use.operation.name}",
                        place_of(use.operation),
                        (f"argument {argument.index} of @{function.sym_name.data}",),
                    )
                )


def _type_problem(number: int, kind: Attribute) -> tuple[str, str] | None:
    """Code and fact where an argument of a kernel has no place in an interface."""
    if isinstance(kind, (BindingType, IndexType)):
        return None
    if isinstance(kind, IntegerType):
        if kind.bitwidth == 32:
            return None
        return (
            "HR2603",
            f"unsupported argument {number} bit depth {kind.bitwidth} ({kind}); "
            "only 32-bit values are supported right now",
        )
    return (
        "HR2604",
        f"unsupported interface function argument {number} type {kind}; "
        "requires tensors or simple primitive values (i32, etc)",
    )


# -- what is made -------------------------------------------------------------------


def _materialize(
    source: stream.ExecutableOp, targets: list[str], layouts: BindingLayoutAnalysis
) -> None:
    executable = hal.ExecutableOp(source.sym_name, Region(Block()), source.sym_visibility)
    executable.location = source.location
    for key, value in source.attributes.items():
        if key != RESTRICTION:
            executable.attributes[key] = value
    variants = [_variant(name, source) for name in _distinct(targets)]
    exports = exports_of(source)
    names = _interface_names(source, {v.op.sym_name.data for v in variants})
    interfaces = [
        _interface(name, export, layouts.of(source, export))
        for name, export in zip(names, exports, strict=True)
    ]
    executable.body.block.add_ops([*interfaces, *(v.op for v in variants)])
    for ordinal, (export, interface) in enumerate(zip(exports, interfaces, strict=True)):
        function = exported_function(export)
        assert function is not None
        base = _without_arguments(function, interface)
        for variant in variants:
            variant.entries.add_op(_entry_point(export, ordinal, interface))
            clone = base.clone()
            _convert_workgroup_info(clone, export.workgroup_size)
            variant.inner.body.block.add_op(clone)
            private = interface.clone()
            private.sym_visibility = StringAttr("private")
            variant.inner.body.block.add_op(private)
        _annotate(layouts.of(source, export), executable, interface)
    for variant in variants:
        variant.close()
    parent = source.parent_block()
    assert parent is not None
    parent.insert_op_after(executable, source)
    Rewriter.erase_op(source, safe_erase=False)


def _distinct(targets: list[str]) -> list[tuple[str, str]]:
    """(symbol, target) with symbols no two variants share: `cpu:x86-64-v3` is `cpu_x86_64_v3`."""
    taken: dict[str, str] = {}
    for target in targets:
        stem = re.sub(r"\W", "_", target) or "target"
        symbol, n = stem, 0
        while symbol in taken:
            symbol, n = f"{stem}_{n}", n + 1
        taken[symbol] = target
    return list(taken.items())


class _Variant:
    """A variant while it is filled: entry points first, then the inner module."""

    def __init__(self, symbol: str, target: str, source: stream.ExecutableOp) -> None:
        self.entries = Block()
        self.inner = ModuleOp(Region(Block()))
        self.inner.location = source.location
        self.op = hal.ExecutableVariantOp(symbol, target, Region(self.entries))
        self.op.location = source.location
        exported = {export.sym_name.data for export in exports_of(source)}
        for module in source.body.ops:
            if not isinstance(module, ModuleOp):
                continue
            self.inner.attributes.update(module.attributes)
            for op in module.ops:
                if _symbol_of(op) not in exported:
                    clone = op.clone()
                    _convert_workgroup_info(clone, None)
                    self.inner.body.block.add_op(clone)

    def close(self) -> None:
        self.entries.add_op(self.inner)


def _variant(names: tuple[str, str], source: stream.ExecutableOp) -> _Variant:
    return _Variant(names[0], names[1], source)


def _symbol_of(op: Operation) -> str:
    """The name an operation defines; empty for one that defines none."""
    name = op.get_attr_or_prop("sym_name")
    return name.data if isinstance(name, StringAttr) else ""


def _interface_names(source: stream.ExecutableOp, taken: set[str]) -> list[str]:
    """`io`, `io_0`, ... for the exports: none that stands in `taken` or in the module of
    the functions, where a copy of each interface goes."""
    for module in source.body.ops:
        if isinstance(module, ModuleOp):
            taken = taken | {_symbol_of(op) for op in module.ops}
    names = (f"io_{n - 1}" if n else "io" for n in count())
    free = (name for name in names if name not in taken)
    return [name for name, _ in zip(free, exports_of(source), strict=False)]


def _interface(
    name: str, export: stream.ExecutableExportOp, layout: ExportLayout
) -> hal.InterfaceOp:
    bindings: list[Operation] = []
    for binding in layout.bindings:
        access = binding.access
        bits = [
            bit
            for bit, there in zip(
                ACCESS_BITS, (access.read, access.write, access.discard), strict=True
            )
            if there
        ]
        bindings.append(
            hal.InterfaceBindingOp(
                binding.name, binding.set, binding.ordinal, "|".join(bits) or "None"
            )
        )
    made = hal.InterfaceOp(name, layout.push_constants, Region(Block(bindings)))
    made.location = export.location
    for op in bindings:
        op.location = export.location
    return made


def _entry_point(
    export: stream.ExecutableExportOp, ordinal: int, interface: hal.InterfaceOp
) -> hal.ExecutableEntryPointOp:
    made = hal.ExecutableEntryPointOp(
        export.sym_name,
        ordinal,
        interface.sym_name,
        export.workgroup_size,
        export.workgroup_count,
        export.sym_visibility,
    )
    made.attributes.update(export.attributes)
    made.location = export.location
    return made


def _without_arguments(function: FuncOp, interface: hal.InterfaceOp) -> FuncOp:
    """A copy of a kernel that takes all it needs through the interface."""
    clone = function.clone()
    block = clone.body.block
    given = function.arg_attrs.data if function.arg_attrs is not None else ()
    attributes = [
        given[n].data if n < len(given) else {} for n in range(len(function.body.block.args))
    ]
    scalars = [a for a in block.args if not isinstance(a.type, BindingType)]
    loads: list[Operation] = []
    for number, argument in enumerate(scalars):
        known = attributes[argument.index]
        load = hal.InterfaceLoadConstantOp(
            number,
            argument.type,
            known.get("stream.alignment"),
            known.get("stream.values"),
        )
        load.location = function.location
        argument.replace_all_uses_with(load.result)
        loads.append(load)
    if block.first_op is None:
        block.add_ops(loads)
    else:
        block.insert_ops_before(loads, block.first_op)
    bindings = [a for a in block.args if isinstance(a.type, BindingType)]
    for argument, binding in zip(bindings, interface.bindings, strict=True):
        _convert_binding(
            argument, interface, binding, attributes[argument.index].get("stream.alignment")
        )
    for argument in reversed(block.args):
        block.erase_arg(argument)
    clone.update_function_type()
    clone.properties.pop("arg_attrs", None)
    return clone


def _convert_binding(
    argument: BlockArgument,
    interface: hal.InterfaceOp,
    binding: hal.InterfaceBindingOp,
    alignment: Attribute | None,
) -> None:
    reference = SymbolRefAttr(interface.sym_name, [binding.sym_name])
    for use in tuple(argument.uses):
        old = use.operation
        assert isinstance(old, stream.BindingSubspanOp)
        new = hal.InterfaceBindingSubspanOp(
            reference, old.byte_offset, old.result.type, tuple(old.dynamic_dims), alignment
        )
        new.attributes.update(old.attributes)
        new.location = old.location
        Rewriter.replace_op(old, new)


_WORKGROUP = {
    stream.DispatchWorkgroupIdOp: hal.InterfaceWorkgroupIdOp,
    stream.DispatchWorkgroupCountOp: hal.InterfaceWorkgroupCountOp,
    stream.DispatchWorkgroupSizeOp: hal.InterfaceWorkgroupSizeOp,
}


def _convert_workgroup_info(
    function: Operation, size: DenseArrayBase[IntegerType] | None
) -> None:
    """Workgroup questions to the interface; a size that the export fixes to a constant. What
    several exports may call knows no size: None."""
    for old in list(function.walk()):
        kind = _WORKGROUP.get(type(old))  # pyright: ignore[reportArgumentType]
        if kind is None or not isinstance(old, stream.WorkgroupInfoOp):
            continue
        new: Operation = kind(old.axis)
        if kind is hal.InterfaceWorkgroupSizeOp and size is not None:
            value = int(size.get_values()[old.axis])
            new = ConstantOp(IntegerAttr(value, IndexType()))
        new.location = old.location
        Rewriter.replace_op(old, new)


def _annotate(
    layout: ExportLayout, executable: hal.ExecutableOp, interface: hal.InterfaceOp
) -> None:
    """Tells every dispatch site which interface bindings its resources are."""
    bindings = ArrayAttr(
        [
            SymbolRefAttr(executable.sym_name, [interface.sym_name, binding.sym_name])
            for binding in interface.bindings
        ]
    )
    for site in layout.sites:
        site.attributes["hal.interface.bindings"] = bindings
