"""From materialised modules and compiled kernels to what a `.hrx` says.

`assemble` reads each device class's module at the end of the hal stage and gives plain
data: programs, and the weights in order of first use with the steps at which they may be
cut. Weights are not evaluated here: `artifact/writer` does that, one at a time.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from headrace.artifact import schema
from headrace.artifact.writer import ModuleParts, WeightSpec
from headrace.assemble.pools import Blobs, Weights
from headrace.assemble.program import Compiled, Program
from headrace.ir.model import Model


def assemble(
    classes: Mapping[str, Model],
    codes: Sequence[Compiled],
    name: str,
    dimension_ranges: Mapping[str, tuple[int, int | None]],
    provenance: schema.Provenance,
) -> tuple[ModuleParts, list[WeightSpec]]:
    """What to write for modules whose kernels are compiled.

    Args:
        classes: a model at the end of the hal stage by device class.
        codes: one for each kernel of each variant, in the order of the modules.
        name: of the module.
        dimension_ranges: bounds of named dimensions; others have none.
        provenance: where it came from.

    Raises:
        HeadraceDefect HR9701: a variant's code is missing.
    """
    weights = Weights()
    blobs = Blobs()
    programs: list[schema.Program] = []
    for device_class, model in classes.items():
        mine = [c for c in codes if c[1].device_class == device_class]
        programs.append(Program(device_class, model, mine, weights, blobs).build())
    parts = ModuleParts(
        name,
        _dimensions(dimension_ranges, programs),
        tuple(programs),
        provenance,
        tuple(blobs.data),
    )
    return parts, weights.specs()


def _dimensions(
    ranges: Mapping[str, tuple[int, int | None]], programs: Sequence[schema.Program]
) -> tuple[schema.DimensionRange, ...]:
    """The dimensions of the inputs, those with bounds first."""
    used = {
        name
        for program in programs
        for function in program.functions
        for signature in (*function.inputs, *function.outputs)
        for extent in signature.shape
        for name in extent.names
    }
    order = [*ranges, *sorted(used - ranges.keys())]
    return tuple(schema.DimensionRange(n, *ranges.get(n, (1, None))) for n in order)
