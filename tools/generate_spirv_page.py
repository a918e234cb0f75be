"""Writes `docs/spirv.md`: the SPIR-V of seed 1's listing, the end that the seed left to do.

    python tools/generate_spirv_page.py listing.mlir

`tests/models/test_vulkan_models.py` compares the page with what is compiled now.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

import headrace
from headrace.artifact.reader import Artifact, open_artifact
from headrace.targets.table import disassemble

PAGE = Path(__file__).parent.parent / "docs" / "spirv.md"
SHOWN = "main_ex_dispatch_1"

_TEXT = """# The module with SPIR-V

The first of the documents that headrace began with ends in a heading, *Final IREE Module with
SPIR-V*, and the word TODO, "once reductions are done". This page is that end: the same listing,
an MNIST classifier of 2019 as XLA HLO, compiled and run.

```
headrace compile listing.mlir --target cpu --target cuda --target vulkan -o mnist.hrx
headrace run mnist.hrx --device vulkan --input image=@image.npy
headrace inspect mnist.hrx --disassemble
```

Its nine dispatches are three. Each has a variant for every kind of device that its kernel
tells apart; the driver takes the first whose features the device has:

| dispatch | family | needs | bytes |
|---|---|---|---|
{rows}
`gpu` is a device whose shared memory is faster than its caches. Where one lane works alone
(`naive`, and `contract` in registers) a module runs on any device of Vulkan 1.3.

The second dispatch in its variant for GPUs: the product of 128 hidden values and a 128 x 10 matrix,
and its bias. Of a workgroup's lanes each multiplies and adds some of the 128, then they add in
a tree through shared memory; `OpControlBarrier` stands between the levels. Push constants are the
number of the first workgroup, which a slice of a streamed weight counts from.

```
{listing}```
"""


def make_page(listing: Path) -> str:
    """The page's text for the listing as it is compiled now."""
    with tempfile.TemporaryDirectory() as folder:
        made = headrace.compile(listing, Path(folder) / "m.hrx", targets=["vulkan"])
        artifact = open_artifact(made)
        return _TEXT.format(rows=_rows(artifact), listing=_listing(artifact))


def _rows(artifact: Artifact) -> str:
    lines: list[str] = []
    for executable in artifact.module.programs[0].executables:
        for variant in executable.variants:
            family = variant.entry_points[0][0].launches[0].family
            needs = ", ".join(variant.features) or "nothing"
            size = len(artifact.code(variant.code))
            lines.append(f"| `{executable.name}` | {family} | {needs} | {size:,} |\n")
    return "".join(lines)


def _listing(artifact: Artifact) -> str:
    executables = artifact.module.programs[0].executables
    variant = next(e for e in executables if e.name == SHOWN).variants[0]
    return disassemble(variant.format, artifact.code(variant.code))


if __name__ == "__main__":
    PAGE.write_text(make_page(Path(sys.argv[1])))
