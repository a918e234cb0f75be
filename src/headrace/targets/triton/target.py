"""The targets `cuda` and `rocm`: Triton kernels compiled ahead of time."""

from __future__ import annotations

import keyword
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace

from headrace.base.bundle import join_code
from headrace.base.errors import error
from headrace.kernel import products
from headrace.kernel.description import Kernel
from headrace.kernel.target import (
    PRECISIONS,
    Code,
    Launch,
    LayoutWish,
    LoopPoints,
    Specialisation,
    without_exact_numerics,
)
from headrace.targets.tables import NO_TABLE, Problem, Table, Tables
from headrace.targets.triton.compile import Binary, compile_source
from headrace.targets.triton.naive import TritonSource
from headrace.targets.triton.native import CUDA_ARCHITECTURES, native_architecture
from headrace.targets.triton.schedule import MOST_SHARED_BYTES
from headrace.targets.triton.tuned import How, tables
from headrace.targets.triton.variants import problem, variants

ROCM_ARCHITECTURES = ("gfx942",)
_SHARED_BYTES = {"sm_80": 163 << 10, "sm_90": MOST_SHARED_BYTES, "gfx942": 64 << 10}
"""Of one program."""

_WARP_SIZE = {"cuda": 32, "rocm": 64}


@dataclass(frozen=True)
class TritonTarget:
    """`cuda:sm_80`, `cuda:sm_90` or `rocm:gfx942`; keeps the `Target` protocol.

    `Code.features` names the architecture. The parameters are `naive.py`'s; a workgroup has
    the threads that the code demands (`.reqntid`).
    """

    kind: str
    architecture: str
    table: Table = NO_TABLE

    @property
    def name(self) -> str:
        return f"{self.kind}:{self.architecture}"

    @property
    def device_class(self) -> str:
        """Both share layouts and programs."""
        return "cuda"

    @property
    def packs_weights(self) -> bool:
        """See `Target.packs_weights`."""
        return True

    @property
    def factor_bits(self) -> frozenset[int]:
        """None: products of integers are not told apart."""
        return frozenset()

    @property
    def fuses_narrow_rows(self) -> bool:
        """Nothing is kept of a row (`attention.py`)."""
        return True

    @property
    def joins_siblings(self) -> bool:
        """A small launch takes 2 to 6 us, whatever it computes."""
        return True

    @property
    def precisions(self) -> frozenset[str]:
        """See `Target.precisions`."""
        return frozenset(PRECISIONS)

    @property
    def tables(self) -> Tables:
        """See `TunedTarget.tables`."""
        return tables(self.kind, self.architecture)

    @property
    def _how(self) -> How:
        newest = self.architecture == CUDA_ARCHITECTURES[-1]
        return How(self.table, newest, _SHARED_BYTES[self.architecture])

    def with_table(self, table: Table) -> TritonTarget:
        """See `TunedTarget.with_table`."""
        return replace(self, table=table)

    def problem(self, kernel: Kernel) -> Problem | None:
        """See `TunedTarget.problem`."""
        return problem(kernel, self._how)

    @property
    def emplaces_parts(self) -> bool:
        """Not measured yet."""
        return False

    @property
    def serial_kernels(self) -> int:
        """See `Target.serial_kernels`: Triton takes 1 to 5 s for one."""
        return 3

    @property
    def loop_points(self) -> LoopPoints:
        """See `Target.loop_points`. One lane runs them all: on an H200 a recurrence of 16 (306
        points a trip) takes half of its dispatches' time, one of 64 (4,290) three times it."""
        return LoopPoints(trip=1 << 9, dispatch=1 << 16)

    def with_numerics(self, numerics: str) -> TritonTarget:
        """See `Target`; there is `fast` only."""
        without_exact_numerics(self.name, numerics)
        return self

    def layout_wishes(self, kernel: Kernel) -> Mapping[int, LayoutWish]:
        """Of products and convolutions; all else reads any layout equally well."""
        return {
            number: replace(wish, packs=kernel.operands[number].constant)
            for number, wish in products.layout_wishes(kernel).items()
        }

    def translate(self, name: str, kernel: Kernel) -> Code:
        """See `Target.translate`.

        Raises:
            HeadraceError HR2401: an operation that lanes lack.
            HeadraceError HR2421, HR2422: no Triton, or Triton refuses.
        """
        found = variants(_identifier(name), kernel, self._how)
        binaries = [[self._compile(source) for source in v.sources] for v in found]
        return Code(
            format="cubin" if self.kind == "cuda" else "hsaco",
            data=join_code([binary.data for launches in binaries for binary in launches]),
            specialisations=tuple(
                Specialisation(
                    variant.conditions,
                    tuple(map(_launch, variant.sources, launches)),
                )
                for variant, launches in zip(found, binaries, strict=True)
            ),
            features=(self.architecture,),
            listing="\n".join(
                f"{source.text}\n{binary.assembly}"
                for variant, launches in zip(found, binaries, strict=True)
                for source, binary in zip(variant.sources, launches, strict=True)
            ),
        )

    def _compile(self, source: TritonSource) -> Binary:
        warp = _WARP_SIZE[self.kind]
        cuda = self.kind == "cuda"
        architecture = int(self.architecture[3:]) if cuda else self.architecture
        backend = "cuda" if cuda else "hip"
        return compile_source(source, backend, architecture, warp)


def _launch(source: TritonSource, binary: Binary) -> Launch:
    return Launch(
        symbol=binary.symbol,
        workgroups=source.workgroups,
        scratch_bytes=source.scratch_bytes,
        slice=source.slice,
        family=source.family,
        shared_bytes=binary.shared_bytes,
        overlaps=binary.overlaps,
        cluster=source.cluster,
        tensor_maps=source.tensor_maps,
    )


def _identifier(name: str) -> str:
    """The entry point's name as a Python function's."""
    cleaned = re.sub(r"[^A-Za-z0-9_]", "_", name)
    taken = keyword.iskeyword(cleaned) or cleaned in ("tl", "triton")
    return f"k_{cleaned}" if taken or not cleaned or cleaned[0].isdigit() else cleaned


def make(spelling: str) -> TritonTarget:
    """The target a user spells `cuda`, `cuda:sm_90`, `cuda:native`, `rocm` or `rocm:gfx942`.

    Without an architecture: `sm_90` and `gfx942`.

    Raises:
        HeadraceError HR0112: another name; HR0124, HR0125: `native` without a GPU, or with
            one that is too old or too new.
    """
    kind, _, architecture = spelling.partition(":")
    if spelling == "cuda:native":
        architecture = native_architecture()
    known = {"cuda": CUDA_ARCHITECTURES, "rocm": ROCM_ARCHITECTURES}.get(kind, ())
    if not known or architecture not in ("", *known):
        spellings = [f"cuda:{a}" for a in ("native", *CUDA_ARCHITECTURES)]
        spellings += [f"rocm:{a}" for a in ROCM_ARCHITECTURES]
        raise error(
            "HR0112",
            f"target '{spelling}' is not known",
            helps=f"GPU targets are spelled {', '.join(spellings)}",
        )
    made = TritonTarget(kind, architecture or known[-1])
    return made.with_table(made.tables.all())
