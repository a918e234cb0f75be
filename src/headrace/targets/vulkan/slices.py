"""What all products share: weights bound from a slice on, the sum that maps read, the launch."""

from __future__ import annotations

from collections.abc import Sequence

from headrace.base.symbols import ONE, ceildiv
from headrace.kernel.description import Kernel, Load, Phase
from headrace.kernel.lanes import scalar as scalars
from headrace.kernel.lanes.lower import Lowering
from headrace.kernel.lanes.machine import Value
from headrace.kernel.lanes.scalar import Scalar, element_dtype
from headrace.kernel.products import Product, flat_size, slice_rule, unconverted
from headrace.kernel.target import Code, Launch, SliceRule, Specialisation
from headrace.targets.vulkan.builder import Buffer, ShaderBuilder

_BINDING_BYTES = 256
"""A binding may begin at multiples of this on every device."""


def column_slices(
    kernel: Kernel, found: Product, columns: int, axis: int = 1
) -> SliceRule | None:
    """The cut of a launch whose workgroups count `columns` of a weight along an axis.

    The driver binds the weight from a slice's first byte on.
    """
    values = {o.result: o for o in kernel.phases[0].body}
    load = unconverted(values, found.right)
    if not isinstance(load, Load) or any(a.size != ONE for a in found.batch):
        return None
    rule = slice_rule(kernel, load, found.columns, columns, axis)
    aligned = rule is not None and rule.step_bytes.value % _BINDING_BYTES == 0
    return rule if aligned else None


class SlicedShader(ShaderBuilder):
    """A shader that reads a sliced weight from its slice's first element on."""

    def __init__(
        self,
        name: str,
        kernel: Kernel,
        lanes: int,
        rule: SliceRule | None,
        halves: Sequence[int] = (),
        coherent: Sequence[int] = (),
        fours: Sequence[int] = (),
    ) -> None:
        """
        Args:
            halves: operands whose elements are halves to the shader.
            fours: operands that are read in fours.
            coherent: operands that lanes read after others wrote them.
        """
        buffers = [
            Buffer(
                element_dtype(o.dtype), o.access != "ro", n in coherent, n in halves, n in fours
            )
            for n, o in enumerate(kernel.operands)
        ]
        super().__init__(name, buffers, kernel.dims, lanes)
        self.branchless_loads = True
        self._sliced: tuple[int, Value] | None = None
        if rule is not None:
            size = kernel.operands[rule.binding].dtype.size_bytes
            skipped = self.first_workgroup[rule.axis] * (rule.step_bytes.value // size)
            self._sliced = rule.binding, skipped

    def load(self, binding: int, offset: Value, mask: Value | None, otherwise: Value) -> Value:
        return super().load(binding, self.from_slice(binding, offset), mask, otherwise)

    def load_four(self, binding: int, offset: Value, mask: Value | None) -> list[Value]:
        return super().load_four(binding, self.from_slice(binding, offset), mask)

    def from_slice(self, binding: int, offset: Value) -> Value:
        """An element's offset, counted from the first of the slice that is bound."""
        if self._sliced is None or self._sliced[0] != binding:
            return offset
        return offset - self._sliced[1]


def keep_sum(lowering: Lowering, phase: Phase, total: Value) -> None:
    """The sum as the local that the maps after read."""
    reduction = phase.reduction
    assert reduction is not None
    name = reduction.results[0]
    dtype = lowering.locals[name].dtype
    initial = reduction.initial[0]
    if str(initial) not in ("0", "0.0", "-0.0"):
        total = total + scalars.literal(lowering.machine, dtype, initial).parts[0]
    if scalars.is_narrow_float(dtype):
        total = scalars.formats.rounded(dtype, total)
    lowering.keep(name, Scalar(dtype, (total,)))


def product_code(
    name: str,
    shader: SlicedShader,
    found: Product,
    tile: tuple[int, int],
    rule: SliceRule | None,
    family: str = "contract",
    features: Sequence[str] = (),
) -> Code:
    """The shader, finished, and its launch: a workgroup for each tile of the product.

    Args:
        tile: rows and columns that a workgroup computes.
        features: of the device, beyond those of the shader.
    """
    rows, columns = tile
    launch = Launch(
        symbol=name,
        workgroups=(
            ceildiv(flat_size(found.rows), rows),
            ceildiv(flat_size(found.columns), columns),
            flat_size(found.batch),
        ),
        slice=rule,
        family=family,
    )
    return Code(
        format="spirv",
        data=shader.finish(),
        specialisations=(Specialisation((), (launch,)),),
        features=tuple(sorted({*shader.features, *features})),
    )
