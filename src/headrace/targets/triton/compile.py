"""Triton source to a cubin or an hsaco, ahead of time, on a machine without a GPU.

The source text goes into `linecache` under a name of its content, so that Triton's
`inspect` finds it and no path gets into the code; line information is off. Triton's own cache is a
temporary folder: the same source gives the same bytes whatever ran before.
"""

from __future__ import annotations

import hashlib
import importlib
import linecache
import tempfile
from dataclasses import dataclass
from typing import Any

from headrace.base.errors import error
from headrace.targets.triton.naive import TritonSource
from headrace.targets.triton.source import OVERLAPS


@dataclass(frozen=True)
class Binary:
    """What Triton made.

    Attributes:
        data: the cubin or hsaco.
        symbol: the function in it.
        assembly: PTX or AMD GCN text, for listings.
        shared_bytes: dynamic shared memory that a launch must ask for.
        overlaps: see `kernel.target.Launch`.
    """

    data: bytes
    symbol: str
    assembly: str
    shared_bytes: int
    overlaps: bool


_OVERLAPPING_ARCHITECTURE = 90
"""From sm_90 on a kernel can wait for the launches before it."""


def load_triton() -> Any:
    """The module `triton`.

    Raises:
        HeadraceError HR2421: it is not installed.
    """
    try:
        return importlib.import_module("triton")
    except ImportError as failure:
        raise error(
            "HR2421",
            "targets cuda and rocm need Triton, which is not installed",
            notes=str(failure),
            helps="pip install headrace[cuda]",
        ) from None


def jit_function(source: TritonSource, *, overlaps: bool = False) -> Any:
    """Triton's function object for generated source.

    Args:
        overlaps: a launch may begin while the one before it ends, and waits where the text
            says so.
    """
    triton = load_triton()
    digest = hashlib.sha256(source.text.encode()).hexdigest()[:16]
    file_name = f"<headrace kernel {digest}>"
    lines = source.text.splitlines(keepends=True)
    linecache.cache[file_name] = (len(source.text), None, lines, file_name)
    namespace: dict[str, Any] = {
        "__name__": "headrace_kernel",
        OVERLAPS: triton.language.constexpr(overlaps),
    }
    if overlaps:
        cuda: Any = importlib.import_module("triton.language.extra.cuda")
        namespace["gdc_wait"] = cuda.gdc_wait
        namespace["gdc_launch_dependents"] = cuda.gdc_launch_dependents
    exec(compile(source.text, file_name, "exec"), namespace)
    return namespace[source.name]


def compile_source(
    source: TritonSource, backend: str, architecture: int | str, warp_size: int
) -> Binary:
    """Compiles for one architecture.

    Args:
        backend: `cuda` or `hip`.
        architecture: 90 for sm_90, or `gfx942`.
        warp_size: lanes of a warp (or wavefront).

    Raises:
        HeadraceError HR2421: Triton is not installed.
        HeadraceError HR2422: Triton refuses the source; the message has its words.
    """
    triton = load_triton()
    backends: Any = importlib.import_module("triton.backends.compiler")
    compiler: Any = importlib.import_module("triton.compiler")
    overlaps = backend == "cuda" and int(architecture) >= _OVERLAPPING_ARCHITECTURE
    function = jit_function(source, overlaps=overlaps)
    pointers = {
        (i,): [["tt.divisibility", 16]]
        for i, (_, kind) in enumerate(source.signature)
        if kind.startswith("*")
    }
    ast = compiler.ASTSource(fn=function, signature=dict(source.signature), attrs=pointers)
    target = backends.GPUTarget(backend, architecture, warp_size)
    options = {
        "num_warps": max(source.warps * 32 // warp_size, 1),
        "num_stages": source.stages,
        "enable_fp_fusion": False,
        "debug": False,
    }
    knobs = triton.knobs
    with tempfile.TemporaryDirectory(prefix="headrace-triton-") as folder:
        before = knobs.cache.dir, knobs.compilation.disable_line_info
        knobs.cache.dir, knobs.compilation.disable_line_info = folder, True
        try:
            compiled = triton.compile(ast, target=target, options=options)
        except Exception as failure:
            raise error(
                "HR2422",
                f"Triton does not compile '{source.name}' for {backend}:{architecture}",
                notes=str(failure).strip().splitlines()[:6],
            ) from failure
        finally:
            knobs.cache.dir, knobs.compilation.disable_line_info = before
        assembly = compiled.asm
        metadata = compiled.metadata
        described = tuple(
            (tuple(m["block_size"]), m["swizzle"])
            for m in getattr(metadata, "tensordesc_meta", None) or ()
        )
        assert described == tuple((m.box, m.swizzle) for m in source.tensor_maps)
        assert not getattr(metadata, "global_scratch_size", 0)
        binary, listing = ("cubin", "ptx") if backend == "cuda" else ("hsaco", "amdgcn")
        return Binary(
            data=bytes(assembly[binary]),
            symbol=str(metadata.name),
            assembly=str(assembly[listing]),
            shared_bytes=int(metadata.shared),
            overlaps=overlaps,
        )
