"""The walk, readable in one sitting: `compile` a model into a `.hrx`, `load` it, call it.

Compiler packages load inside the functions that compile, so that a program that only runs
compiled models never imports them.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias, Union

from headrace.base import knobs
from headrace.base.errors import error
from headrace.base.places import why_unwritable
from headrace.given import Given, Models, PathLike, given
from headrace.inspection import Inspection

if TYPE_CHECKING:
    from headrace.artifact.writer import ModuleParts, WeightSpec
    from headrace.ir.model import Model
    from headrace.kernel.target import Target
    from headrace.runtime.module import Module

DimensionChoice: TypeAlias = Union[int, tuple[int, Union[int, None]]]
Progress = Callable[[int, int], None]


@dataclass(frozen=True)
class Described:
    """A description as text for people and as data for programs."""

    text: str
    data: dict[str, Any]


@dataclass(frozen=True)
class Compiled:
    """A model compiled, not yet written.

    Attributes:
        classes: the modules at the end of the hal phase, by device class.
        parts, weights: what `artifact.writer.write_artifact` writes.
    """

    classes: Mapping[str, Model]
    parts: ModuleParts
    weights: Sequence[WeightSpec]


# -- compiling ------------------------------------------------------------------------


def compile(
    model: Models,
    output: PathLike,
    *,
    targets: Sequence[str] = ("cpu",),
    level: int = 2,
    numerics: str = "fast",
    precision: str = "ieee",
    pack: str = "none",
    dims: Mapping[str, DimensionChoice] | None = None,
    aliases: Mapping[str, str] | None = None,
    jobs: int | None = None,
    progress: Progress | None = None,
    inspection: Inspection | None = None,
) -> Path:
    """Compiles a model, or several, into one `.hrx` file.

    Args:
        model: a path (`.onnx`, `.keras`, `.mlir`), or what `from_keras` returned; or a
            mapping of several, each an entry function of the name it stands under. Entries
            share weights that are equal by content, and one budget.
        output: the file to write; it appears whole or not at all.
        targets: `cpu[:native|x86-64-v3|generic]`, `cuda` (every architecture), `cuda:sm_90`,
            `cuda:native` (the GPU here), `vulkan`; `rocm` is compiled only, nothing here runs it.
        level: 0 as written, 2 everything.
        numerics: `exact` adds in the order that `docs/numerics.md` says, for more time.
        precision: `tf32` multiplies f32 on tensor cores, where of each factor ten bits of the
            mantissa count (cuda, rocm); `docs/numerics.md`.
        pack: which weights are stored without loss in fewer bytes, for targets whose kernels
            read them so (cuda): `auto` the large ones that save a twelfth, `all` any that
            save, `none`.
        dims: by name, what a dimension is fixed to, or its bounds (least, greatest).
        aliases: by the name of an input, the output that takes its place: state that a
            step updates where it stands. `*` in both names stands for the same text.
        jobs: compiling processes; all cores by default.
        progress: called with kernels done and kernels in all.
        inspection: what to print or dump on the way.

    Raises:
        HeadraceError: HR0xxx a wrong argument, HR1xxx the model cannot be imported,
            HR2xxx it cannot be compiled, HR3xxx the file cannot be written.
    """
    path, models = Path(output), given(model, aliases)

    def compile_to(place: Path) -> None:
        asked = (targets, level, numerics, precision, pack, dims, jobs, progress, inspection)
        _compile(models, place, *asked)

    shows = inspection is not None and inspection.shows
    files = models.files
    if shows or files is None or not knobs.MODEL_CACHE.enabled:
        compile_to(path)
        return path
    from headrace.model_cache import compiled_once

    exact = "" if numerics == "fast" else numerics
    asked = {
        "dims": sorted((dims or {}).items()), "aliases": models.aliases, "numerics": exact,
        "pack": "" if pack == "none" else pack,
        "precision": "" if precision == "ieee" else precision,
    }  # fmt: skip
    choices = {name: choice for name, choice in asked.items() if choice}
    return compiled_once(files, path, targets, level, choices, compile_to)


def _compile(
    models: Given,
    path: Path,
    targets: Sequence[str],
    level: int,
    numerics: str,
    precision: str,
    pack: str,
    dims: Mapping[str, DimensionChoice] | None,
    jobs: int | None,
    progress: Progress | None,
    inspection: Inspection | None,
) -> None:
    from headrace.artifact.writer import write_artifact
    from headrace.tensor.interp import evaluate_source

    made = compile_parts(
        models,
        targets=targets,
        level=level,
        numerics=numerics,
        precision=precision,
        pack=pack,
        dims=dims,
        jobs=jobs,
        progress=progress,
        inspection=inspection,
    )
    write_artifact(path, made.parts, made.weights, evaluate_source)


def compile_parts(
    models: Given,
    *,
    targets: Sequence[str],
    level: int,
    dims: Mapping[str, DimensionChoice] | None,
    numerics: str = "fast",
    precision: str = "ieee",
    pack: str = "none",
    jobs: int | None = None,
    progress: Progress | None = None,
    inspection: Inspection | None = None,
) -> Compiled:
    """All of `compile` but the writing; see there."""
    from headrace.artifact.schema import Provenance
    from headrace.assemble import assemble
    from headrace.flow.layouts.packing import check_mode
    from headrace.pipeline import compile_to
    from headrace.targets.table import chosen_targets
    from headrace.translation import tasks_of, translate

    found = chosen_targets(targets, numerics, precision)
    check_mode(pack, found)
    imported, digest = models.load_hashed(dims or {})
    made = compile_to(
        imported, "hal", _options(found, level, numerics, precision, pack, inspection)
    )
    tasks = [t for module in made.classes.values() for t in tasks_of(module.ir, found)]
    codes = translate(tasks, found, jobs, progress)
    provenance = Provenance(
        producer=f"headrace {_version()}",
        source=models.source,
        source_digest=digest,
        targets=tuple(t.name for t in found),
        options=(
            ("level", str(level)),
            ("numerics", numerics),
            ("pack", pack),
            ("precision", precision),
        ),
    )
    parts, weights = assemble(
        made.classes,
        [(t.executable, found[t.target], code) for t, code in zip(tasks, codes, strict=True)],
        imported.name,
        imported.dimension_ranges,
        provenance,
    )
    return Compiled(made.classes, parts, weights)


def compile_to_text(
    model: Models,
    phase: str,
    *,
    targets: Sequence[str] = ("cpu",),
    level: int = 2,
    numerics: str = "fast",
    precision: str = "ieee",
    dims: Mapping[str, DimensionChoice] | None = None,
    aliases: Mapping[str, str] | None = None,
    inspection: Inspection | None = None,
) -> str:
    """The IR at the end of a phase; one module behind the other where classes parted.

    Raises: as `compile`; HR0103: there is no such phase.
    """
    from headrace.ir.text import print_module
    from headrace.pipeline import compile_to
    from headrace.targets.table import chosen_targets

    found = chosen_targets(targets, numerics, precision)
    options = _options(found, level, numerics, precision, "none", inspection)
    made = compile_to(given(model, aliases).load(dims or {}), phase, options)
    texts = [
        (f"// device class: {name}\n" if name else "") + print_module(module.ir)
        for name, module in made.modules().items()
    ]
    return "\n".join(texts)


def compile_cached(model: Path, device: str, progress: Progress | None = None) -> Path:
    """A model file compiled for a device into the cache, once per content and version."""
    if not model.is_file():
        raise error("HR0202", "there is no such model file", at=str(model))
    from headrace.model_cache import compiled_once
    from headrace.targets.table import for_device

    target = for_device(device)

    def compile_to(path: Path) -> None:
        _compile(
            given(model), path, (target,), 2, "fast", "ieee", "none", None, None, progress, None
        )

    return compiled_once((("", model),), None, (target,), 2, {}, compile_to)


def _options(
    targets: Sequence[Target],
    level: int,
    numerics: str,
    precision: str,
    pack: str,
    inspection: Inspection | None,
) -> Any:
    from headrace.pipeline import Options

    if inspection is not None:
        inspection.check_names()
    observer = inspection.observe if inspection is not None else None
    return Options(tuple(targets), level, numerics, pack, precision, observer, observer)


def _version() -> str:
    from headrace import __version__

    return __version__


# -- running --------------------------------------------------------------------------


def load(
    path: PathLike,
    device: str = "cpu",
    weight_budget: int | str = "auto",
    memory_limit: int | str | None = None,
    **options: Any,
) -> Module:
    """Opens a `.hrx` on a device: a module, callable with numpy arrays.

    Args:
        path: the compiled model.
        device: `cpu`.
        weight_budget: bytes, `25MB`, `2GiB`, `40%`, `min`, `max` or `auto`; may be changed
            later by setting `module.weight_budget`.
        memory_limit: caps everything the module allocates on the device.
        options: of the device: `threads` for `cpu`; `host_limit` for `cuda`: the host memory
            that weights are pinned in, beyond which they stream from the disk.

    Raises:
        HeadraceError: HR3xxx the file is damaged, or a cap is too little (the minimum is
            named); HR4xxx the device cannot run it.
    """
    from headrace.runtime.module import load_module

    given = {k: v for k, v in options.items() if v is not None}
    return load_module(path, device, weight_budget, memory_limit, **given)


def check_output_file(path: Path) -> None:
    """Says before any step runs that outputs cannot be saved.

    Raises:
        HeadraceError HR0308: there is no such folder, or it may not be written to.
    """
    why = why_unwritable(path)
    if why:
        cure = "name a file in a folder that is there"
        raise error("HR0308", f"cannot write '{path}'", notes=why, helps=cure)


def save_outputs(path: Path, outputs: Mapping[str, Any]) -> None:
    """Saves outputs as `.npz` (all) or `.npy` (one), whole or not at all.

    Raises:
        HeadraceError HR0307: another suffix, or several outputs for `.npy`.
    """
    import numpy as np

    single = path.suffix == ".npy"
    if path.suffix not in (".npy", ".npz") or (single and len(outputs) != 1):
        raise error(
            "HR0307",
            f"cannot save {len(outputs)} outputs as '{path.name}'",
            helps="write to a .npz file, or a .npy file for a single output",
        )
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        with temporary.open("wb") as file:
            if single:
                np.save(file, next(iter(outputs.values())))
            else:
                np.savez(file, **outputs)
        temporary.replace(path)
    except OSError as wrong:
        raise error("HR0308", f"cannot write '{path}'", notes=str(wrong)) from wrong
    finally:
        with suppress(OSError):
            temporary.unlink()


def describe_plan(
    module: Module,
    dims: Mapping[str, int],
    function: str | None = None,
    picture: Path | None = None,
    curve: Path | None = None,
) -> Described:
    """What a module's plan says at its budget, and its pictures where asked for."""
    from headrace.describe import describe_plan as describe

    return describe(module, dims, function, picture, curve)


def bench(
    path: PathLike,
    *,
    device: str = "cpu",
    budgets: Sequence[int | str] = ("max",),
    runs: int = 50,
    warm: int = 3,
    calibrate: bool = False,
    inputs: Sequence[str] = ("random",),
    seed: int = 0,
    dims: Mapping[str, int] | None = None,
    threads: int | None = None,
    function: str | None = None,
) -> Described:
    """Times calls of a `.hrx` at each weight budget, predicted beside measured.

    `inputs` are as for `headrace run --input`; `runs` calls are timed after `warm` others.

    Raises: as `load`; HR03xx: the inputs do not fit.
    """
    from headrace import measure

    data = measure.bench(
        path,
        device,
        budgets,
        runs,
        warm,
        calibrate,
        inputs,
        seed,
        dims or {},
        threads,
        function,
    )
    return Described(measure.bench_text(data), data)


def compare(
    model: PathLike,
    target: str = "cpu",
    *,
    against: str = "interp",
    tolerance: float | None = None,
    inputs: Sequence[str] = ("random",),
    seed: int = 0,
    level: int = 2,
    dims: Mapping[str, DimensionChoice] | None = None,
    threads: int | None = None,
    function: str | None = None,
    progress: Progress | None = None,
) -> Described:
    """Finds the first dispatch of a model that a device computes otherwise than it should.

    Args:
        against: `interp`: every dispatch on the device beside the kernel interpreter on the
            same inputs; `onnxruntime`: the outputs of an ONNX file first, the dispatches
            only where these differ.
        tolerance: allowed error as a part of the largest value; by element type for None.

    Raises: as `compile` and `load`; HR0120: it is no model file; HR0121:
        onnxruntime cannot be the judge.
    """
    from headrace.compare import Request, compare_model, comparison_text

    request = Request(
        Path(model), target, against, tolerance, tuple(inputs), seed, level, dict(dims or {}),
        threads, function,
    )  # fmt: skip
    data = compare_model(request, progress)
    return Described(comparison_text(data), data)


def inspect(
    path: Path,
    *,
    disassemble: bool = False,
    weights: bool = False,
    verify: bool = False,
) -> Described:
    """What is inside a `.hrx` or a model file; nothing in it is executed.

    Raises:
        HeadraceError HR3xxx: the file is damaged; HR1xxx: the model cannot be imported.
    """
    from headrace import describe

    if path.suffix == ".hrx":
        return describe.describe_artifact(path, disassemble, weights, verify)
    return describe.describe_model(given(path).load({}))
