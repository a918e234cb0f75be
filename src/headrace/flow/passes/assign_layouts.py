"""Decides how every tensor stands in memory, once per device class.

Targets of the class are asked for wishes, kernel by kernel; `layouts/decide.py` settles
one layout for each value. Then

- every kernel's operands get the layout of the values behind them, and loads that the
  granted halo covers lose their guard (writers of a value with a halo write it);
- a weight becomes a `pack` expression of itself for each layout it is read in;
- a value with a second version is copied by a dispatch of its own, once;
- executables shared by sites that now differ part.

Producers and consumers of a value always carry the same layout: `check_layouts` says so.
At level 0 everything stays row-major.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from xdsl.dialects.builtin import ModuleOp, StringAttr, SymbolRefAttr
from xdsl.dialects.func import FuncOp, ReturnOp
from xdsl.ir import Block, BlockArgument, Region, SSAValue

from headrace.base.dtypes import DType
from headrace.base.errors import Diagnostic, Problems, error
from headrace.base.symbols import Expr, dim, product
from headrace.flow.control import CONTROL
from headrace.flow.dialect import DispatchOp, ExecutableOp, TensorReshapeOp
from headrace.flow.layouts.decide import Decision, decide
from headrace.flow.layouts.halo import with_layouts
from headrace.flow.layouts.packing import with_codes
from headrace.flow.layouts.parameters import PackedParameters, weight_layout
from headrace.flow.layouts.sites import Site, Value, sites_of, values_of
from headrace.flow.layouts.wishes import WISHES
from headrace.ir.locations import places
from headrace.ir.model import Model
from headrace.ir.passes import Pass
from headrace.ir.types import dtype_of, exprs_attr, shape_of, tensor_type
from headrace.kernel.description import (
    Axis,
    Kernel,
    Layout,
    Load,
    Operand,
    Phase,
    Store,
    ordered_layout,
)
from headrace.kernel.dialect import BodyAttr, ExecuteOp
from headrace.kernel.target import Target
from headrace.kernel.text import print_kernel
from headrace.tensor.dialect import ParameterOp


@dataclass(frozen=True)
class AssignLayouts(Pass):
    """`flow-assign-layouts{level=2}`.

    Attributes:
        targets: the targets of one device class.
        level: 0 keeps everything row-major.
        pack: which weights are stored packed: `auto`, `all` or `none`.
    """

    targets: tuple[Target, ...] = ()
    level: int = 2
    pack: str = "none"

    def run(self, model: Model) -> None:
        for target in self.targets:
            if isinstance(target, str):  # from the text of a command line
                raise error(
                    "HR0106",
                    f"flow-assign-layouts needs a Target object, not the name '{target}'",
                    helps="write wishes on the entries: hr.wishes",
                )
        if self.level > 0:
            sites = sites_of(model.ir, self.targets)
            values = values_of(model.ir, sites)
            _Assignment(model, sites, values, decide(values, sites), self.pack).apply()
        check_layouts(model.ir)


class _Assignment:
    """Writes decisions into the module."""

    def __init__(
        self,
        model: Model,
        sites: Sequence[Site],
        values: Mapping[SSAValue, Value],
        decisions: Mapping[SSAValue, Decision],
        pack: str,
    ) -> None:
        self.model = model
        self.sites = sites
        self.values = values
        self.decisions = decisions
        self.parameters = PackedParameters(model)
        self.executables = _Executables(model.ir)
        self.packed = self._packed(pack)

    def _packed(self, mode: str) -> dict[tuple[Site, int], Layout]:
        """Layouts of the weights that are stored packed."""
        if mode == "none":
            return {}
        wished = {
            (site, number): weight_layout(site.kernel.operands[number], wish)
            for site in self.sites
            for number, wish in site.wishes.items()
            if wish.packs and self.values[site.values[number]].parameter is not None
        }
        return with_codes(self.model, mode, self.sites, self.values, wished)

    def apply(self) -> None:
        second = {
            ssa: self._copy(self.values[ssa], decision, decision.other)
            for ssa, decision in self.decisions.items()
            if decision.other is not None
        }
        for site in self.sites:
            self._site(site, second)
        for ssa, decision in self.decisions.items():
            if decision.plain_uses:
                self._redirect_plain_uses(ssa, second[ssa])
        self._drop_unused_parameters()

    def _site(self, site: Site, second: Mapping[SSAValue, SSAValue]) -> None:
        layouts: list[Layout] = []
        rows = zip(site.kernel.operands, site.values, site.places, strict=True)
        for number, (operand, ssa, (is_result, place)) in enumerate(rows):
            value = self.values[ssa]
            if value.parameter is not None:
                layout = self.packed.get((site, number)) or weight_layout(
                    operand, site.wishes.get(number)
                )
                replacement = self.parameters.value(value, layout)
            else:
                decision = self.decisions[ssa]
                layout, replacement = decision.own, ssa
                if decision.other is not None and (site, number) in decision.readers:
                    layout, replacement = decision.other, second[ssa]
            layouts.append(layout)
            if not is_result:
                site.dispatch.operands[place] = replacement
        kernel = with_layouts(site.kernel, layouts)
        site.dispatch.entry_point = self.executables.reference(site, kernel)

    def _copy(self, value: Value, decision: Decision, other: Layout) -> SSAValue:
        """Inserts the dispatch that copies a value into its second layout."""
        ssa = value.ssa
        owner = ssa.owner
        block = owner if isinstance(owner, Block) else owner.parent_block()
        assert block is not None
        kernel = copy_kernel(dtype_of(ssa), shape_of(ssa), decision.own, other)
        function = block.parent_op()
        assert isinstance(function, FuncOp)
        entry = self.executables.copy(function.sym_name.data, kernel)
        workload = exprs_attr([product(shape_of(ssa)), 1, 1])
        made = DispatchOp.make(entry, workload, [ssa], [ssa.type])
        made.results[0].name_hint = ssa.name_hint
        if isinstance(owner, Block):
            first = value.readers[0][0].dispatch
            made.location = first.location
            block.insert_op_before(made, next(iter(block.ops)))
        else:
            made.location = owner.location
            block.insert_op_after(made, owner)
        return made.results[0]

    def _redirect_plain_uses(self, ssa: SSAValue, plain: SSAValue) -> None:
        for use in tuple(ssa.uses):
            if isinstance(use.operation, (TensorReshapeOp, ReturnOp, *CONTROL)):
                use.operation.operands[use.index] = plain

    def _drop_unused_parameters(self) -> None:
        used: set[str] = set()
        for op in reversed(list(self.model.ir.walk())):
            if isinstance(op, (ParameterOp, TensorReshapeOp)) and not op.result.uses:
                op.detach()
                op.erase()
            elif isinstance(op, ParameterOp):
                used.add(op.parameter.root_reference.data)
        for name in list(self.model.parameters):
            if name not in used:
                del self.model.parameters[name]


class _Executables:
    """Entry points for changed kernels: the first keeps the executable, others part."""

    def __init__(self, module: ModuleOp) -> None:
        self._module = module
        self._known: dict[tuple[SymbolRefAttr, str], SymbolRefAttr] = {}
        self._changed: set[SymbolRefAttr] = set()
        self._copies: dict[str, SymbolRefAttr] = {}
        self._names = {
            op.sym_name.data: op for op in module.ops if isinstance(op, ExecutableOp)
        }

    def reference(self, site: Site, kernel: Kernel) -> SymbolRefAttr:
        """The entry point that runs a site's changed kernel."""
        before = site.dispatch.entry_point
        key = (before, print_kernel(kernel))
        if key not in self._known:
            if before in self._changed:
                self._known[key] = self._parted(site, kernel)
            else:
                _set_kernel(site.function, kernel)
                self._known[key] = before
                self._changed.add(before)
        return self._known[key]

    def _parted(self, site: Site, kernel: Kernel) -> SymbolRefAttr:
        owner = self._names[site.dispatch.entry_point.root_reference.data]
        function = site.function.clone()
        number = 1
        while f"{owner.sym_name.data}_{number}" in self._names:
            number += 1
        function.sym_name = StringAttr(f"{site.function.sym_name.data}_{number}")
        _set_kernel(function, kernel)
        return self._insert(f"{owner.sym_name.data}_{number}", function, owner)

    def copy(self, prefix: str, kernel: Kernel) -> SymbolRefAttr:
        """The entry point that copies a value from layout to layout."""
        text = print_kernel(kernel)
        if text not in self._copies:
            number = len(self._copies)
            kinds = [tensor_type(o.dtype, o.shape) for o in kernel.operands]
            block = Block(arg_types=kinds[:1])
            execute = ExecuteOp.build(
                operands=[list(block.args)],
                properties={"body": BodyAttr(kernel)},
                result_types=[kinds[1:]],
            )
            block.add_ops([execute, ReturnOp(*execute.results)])
            name = f"{prefix}_entry_relayout_{number}"
            function = FuncOp(name, (kinds[:1], kinds[1:]), Region(block))
            last = list(self._names.values())[-1]
            self._copies[text] = self._insert(f"{prefix}_ex_relayout_{number}", function, last)
        return self._copies[text]

    def _insert(self, name: str, function: FuncOp, after: ExecutableOp) -> SymbolRefAttr:
        made = ExecutableOp.build(
            properties={
                "sym_name": StringAttr(name),
                "sym_visibility": after.sym_visibility,
            },
            regions=[Region(Block([ModuleOp([function])]))],
        )
        made.location = after.location
        block = after.parent_block()
        assert block is not None
        block.insert_op_after(made, after)
        self._names[name] = made
        return SymbolRefAttr(name, [function.sym_name.data])


def _set_kernel(function: FuncOp, kernel: Kernel) -> None:
    function.attributes.pop(WISHES, None)
    for op in function.body.block.ops:
        if isinstance(op, ExecuteOp):
            op.body = BodyAttr(kernel)


def copy_kernel(
    dtype: DType, shape: tuple[Expr, ...], source: Layout, target: Layout
) -> Kernel:
    """A map kernel that copies a tensor from one layout to another; halos are written."""
    axes = tuple(Axis(f"%d{n}", size) for n, size in enumerate(shape))
    index = tuple(dim(a.name) for a in axes)
    dims = sorted({name for size in shape for name in size.names})
    return Kernel(
        axes,
        (
            Operand("x", dtype, shape, "ro", source),
            Operand("y", dtype, shape, "wo", target),
        ),
        (),
        (Phase((), (), (Load("%v0", 0, index),), None, (Store("%v0", 1, index),)),),
        tuple(dims),
    )


def check_layouts(module: ModuleOp) -> None:
    """Checks that all users of a value agree on how it stands.

    Raises:
        HeadraceDefect HR9402: a producer and a reader, or two readers, disagree; or an
            input, output or reshaped value is not row-major.
    """
    problems = Problems()
    sites = sites_of(module, ())
    for ssa, value in values_of(module, sites).items():
        uses = [*([value.producer] if value.producer else []), *value.readers]
        layouts = [site.kernel.operands[number].layout for site, number in uses]
        if not layouts:
            continue
        plain = value.plain and value.parameter is None
        wanted = ordered_layout(shape_of(ssa)) if plain else layouts[0]
        if any(layout != wanted for layout in layouts):
            where = ssa.owner if not isinstance(ssa, BlockArgument) else uses[0][0].dispatch
            problems.add(
                Diagnostic(
                    "HR9402",
                    "the users of a value disagree on its layout",
                    places(where),  # pyright: ignore[reportArgumentType]
                )
            )
    problems.raise_if_any()
