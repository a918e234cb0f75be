"""Texts and data about plans, files and models, for `headrace plan` and `inspect`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from headrace.api import Described
from headrace.plan.budget import format_bytes
from headrace.targets.table import compiled_only

if TYPE_CHECKING:
    from headrace.artifact import schema
    from headrace.artifact.reader import Artifact
    from headrace.ir.model import Model
    from headrace.plan.model import Plan, Prediction
    from headrace.runtime.module import Module

CURVE_POINTS = 24


def describe_plan(
    module: Module,
    dims: Mapping[str, int],
    function: str | None = None,
    picture: Path | None = None,
    curve: Path | None = None,
) -> Described:
    """What stays, what streams, predicted step, peak and minimum; pictures where asked."""
    made = module.plan(dims, function=function)
    if picture is not None:
        from headrace.plan.picture import draw_plan

        draw_plan(made, picture)
    if curve is not None:
        from headrace.plan.picture import draw_curve

        draw_curve(curve_points(module, dims, function), curve)
    segments = module.artifact.module.segments
    resident = sum(segments[i].size_bytes for i in made.resident)
    prediction = made.prediction
    data: dict[str, Any] = {
        "function": module.functions[made.function],
        "dims": dict(made.dims),
        "weight_budget_bytes": made.budget_bytes,
        "minimum_budget_bytes": made.minimum_budget_bytes,
        "stored_bytes": made.stored_bytes,
        "resident_bytes": resident,
        "streamed_bytes": prediction.streamed_bytes,
        "ring_bytes": made.ring_bytes,
        "slab_bytes": made.slab_bytes,
        "peak_bytes": prediction.peak_bytes,
        "context_bytes": module.device.context_bytes,
        "code_bytes": module.code.code_bytes,
        "predicted_step_ns": prediction.step_ns,
        "predicted_compute_ns": prediction.compute_ns,
        "predicted_stall_ns": prediction.stall_ns,
        "dispatches": _dispatch_count(made),
        "weights": [
            {
                "name": line.name,
                "stored_bytes": line.stored_bytes,
                "resident_bytes": line.resident_bytes,
                "streamed_bytes": line.streamed_bytes,
            }
            for line in _weight_lines(module, made)
        ],
        "warnings": list(module.warnings(made)),
        "pictures": [str(p) for p in (picture, curve) if p is not None],
    }
    return Described(_plan_text(data), data)


def curve_points(
    module: Module, dims: Mapping[str, int], function: str | None = None
) -> list[tuple[int, Prediction]]:
    """(budget in bytes, what a step should cost), from the minimum to all weights."""
    low = module.plan(dims, function=function, weight_budget="min").minimum_budget_bytes
    high = module.stored_bytes
    count = CURVE_POINTS if high > low else 1
    budgets = [low + (high - low) * n // max(1, count - 1) for n in range(count)]
    return [
        (b, module.plan(dims, function=function, weight_budget=b).prediction) for b in budgets
    ]


def _dispatch_count(plan: Plan) -> int:
    from headrace.plan.model import PlannedDispatch

    return len({c.command for c in plan.commands if isinstance(c, PlannedDispatch)})


def _weight_lines(module: Module, plan: Plan) -> Sequence[Any]:
    from headrace.runtime.report import weight_lines

    return weight_lines(module.artifact.module, plan)


def _plan_text(data: Mapping[str, Any]) -> str:
    dims = ", ".join(f"{k}={v}" for k, v in data["dims"].items())
    lines = [
        f"{data['function']}({dims}): {data['dispatches']} dispatches",
        f"  weights    {format_bytes(data['stored_bytes'])} stored",
        f"  budget     {format_bytes(data['weight_budget_bytes'])}"
        f" (minimum {format_bytes(data['minimum_budget_bytes'])})",
        f"  stays      {format_bytes(data['resident_bytes'])}",
        f"  streams    {format_bytes(data['streamed_bytes'])} a step through a ring of"
        f" {format_bytes(data['ring_bytes'])}",
        f"  slab       {format_bytes(data['slab_bytes'])}",
        f"  peak       {format_bytes(data['peak_bytes'])}",
        *(
            f"  {name:10} {format_bytes(data[f'{name}_bytes'])} of the device beside the peak"
            for name in ("context", "code")
            if data[f"{name}_bytes"]
        ),
        f"  step       {data['predicted_step_ns'] / 1e6:.3f} ms predicted"
        f" ({data['predicted_compute_ns'] / 1e6:.3f} ms computing,"
        f" {data['predicted_stall_ns'] / 1e6:.3f} ms waiting for weights)",
    ]
    streamed = [w for w in data["weights"] if w["streamed_bytes"]]
    if streamed:
        lines.append(f"  {len(streamed)} of {len(data['weights'])} weights stream:")
        lines += [
            f"    {weight['name']}: {format_bytes(weight['streamed_bytes'])}"
            f" of {format_bytes(weight['stored_bytes'])}"
            for weight in streamed[:12]
        ]
        if len(streamed) > 12:
            lines.append(f"    and {len(streamed) - 12} more")
    lines += [f"  picture    {path}" for path in data["pictures"]]
    lines += [f"  warning: {warning}" for warning in data["warnings"]]
    return "\n".join(lines)


# -- files ------------------------------------------------------------------------------


def describe_artifact(
    path: Path, disassemble: bool = False, weights: bool = False, verify: bool = False
) -> Described:
    """What a `.hrx` holds; with `verify` every weight's hash is checked.

    Raises:
        HeadraceError HR3xxx: the file is damaged.
    """
    from headrace.artifact.reader import open_artifact

    artifact = open_artifact(path)
    if verify:
        artifact.verify_weights()
    module = artifact.module
    data: dict[str, Any] = {
        "name": module.name,
        "format_version": module.format_version,
        "producer": module.provenance.producer,
        "source": module.provenance.source,
        "source_sha256": module.provenance.source_digest,
        "targets": list(module.provenance.targets),
        "options": dict(module.provenance.options),
        "dimensions": [
            {"name": d.name, "minimum": d.minimum, "maximum": d.maximum}
            for d in module.dimensions
        ],
        "weights_bytes": artifact.pool_size_bytes,
        "weights": len(module.weights),
        "segments": len(module.segments),
        "verified": verify,
        "programs": [_program_data(artifact, p) for p in module.programs],
    }
    data["stored_again"] = _stored_again(module)
    lines = _artifact_lines(data)
    if weights:
        data["weight_list"] = [
            {
                "name": w.name,
                "dtype": w.dtype.name,
                "shape": list(w.shape),
                "bytes": w.size_bytes,
                "packed": w.codes is not None,
            }
            for w in module.weights
        ]
        lines += [
            f"  {w.name}: {'x'.join(map(str, w.shape)) or 'scalar'} {w.dtype.name}, "
            f"{format_bytes(w.size_bytes)}{' packed' if w.codes else ''} at {w.offset_bytes}"
            for w in module.weights
        ]
    if disassemble:
        listing = _listing(artifact)
        data["listing"] = listing
        lines.append(listing)
    return Described("\n".join(lines), data)


def _stored_again(module: schema.Module) -> list[dict[str, Any]]:
    """Weights that stand in the pool in several layouts: tied ones that a gather and a
    product read each in its own, or one that kernels want packed in two ways."""
    places: dict[str, dict[int, int]] = {}
    for weight in module.weights:
        if weight.size_bytes:
            places.setdefault(weight.name, {})[weight.offset_bytes] = weight.size_bytes
    return [
        {"name": name, "bytes": list(found.values())}
        for name, found in places.items()
        if len(found) > 1
    ]


def _program_data(artifact: Artifact, program: schema.Program) -> dict[str, Any]:
    functions = [
        {
            "name": f.name,
            "inputs": [_tensor_text(t) for t in f.inputs],
            "outputs": [_tensor_text(t) for t in f.outputs],
            "commands": len(f.body.commands),
        }
        for f in program.functions
    ]
    families: Counter[str] = Counter(
        launch.family
        for executable in program.executables
        for variant in executable.variants
        for point in variant.entry_points
        for specialisation in point
        for launch in specialisation.launches
    )
    variants = sorted({v.target for e in program.executables for v in e.variants})
    code = {v.code for e in program.executables for v in e.variants}
    return {
        "device_class": program.device_class,
        "functions": functions,
        "executables": len(program.executables),
        "variants": variants,
        "families": dict(sorted(families.items())),
        "code_bytes": sum(len(artifact.code(n)) for n in code),
    }


def _tensor_text(signature: schema.TensorSignature) -> str:
    shape = "x".join(f"({s})" if not s.is_constant else str(s) for s in signature.shape)
    return f"{signature.name}: {shape or 'scalar'} {signature.dtype.name}"


def _artifact_lines(data: Mapping[str, Any]) -> list[str]:
    lines = [
        f"{data['name']}: .hrx format {data['format_version']}, made by {data['producer']}",
        f"  from {data['source']} (sha256 {data['source_sha256'][:16]})",
        f"  weights: {format_bytes(data['weights_bytes'])} in {data['weights']} tensors,"
        f" {data['segments']} segments" + (", all hashes right" if data["verified"] else ""),
    ]
    for again in data["stored_again"]:
        sizes = " and ".join(format_bytes(size) for size in again["bytes"])
        lines.append(
            f"    '{again['name']}' is stored in {len(again['bytes'])} layouts: {sizes}"
        )
    for d in data["dimensions"]:
        top = d["maximum"] if d["maximum"] is not None else ""
        lines.append(f"  dimension {d['name']}: {d['minimum']}..{top}")
    for program in data["programs"]:
        families = ", ".join(f"{n} {k}" for k, n in program["families"].items())
        unrun = compiled_only(program["variants"])
        variants = [f"{v} (compiled only)" if v in unrun else v for v in program["variants"]]
        lines.append(
            f"  {program['device_class']}: {program['executables']} executables for"
            f" {', '.join(variants)}; {format_bytes(program['code_bytes'])} of code"
            f" ({families})"
        )
        for function in program["functions"]:
            lines.append(f"    function {function['name']}: {function['commands']} commands")
            lines += [f"      in  {text}" for text in function["inputs"]]
            lines += [f"      out {text}" for text in function["outputs"]]
    return lines


def _listing(artifact: Artifact) -> str:
    """The code of every variant; disassembled by the target that made it."""
    from headrace.targets.table import disassemble

    parts: list[str] = []
    for program in artifact.module.programs:
        for executable in program.executables:
            for variant in executable.variants:
                parts.append(f"// {executable.name} for {variant.target}")
                parts.append(disassemble(variant.format, artifact.code(variant.code)))
    return "\n".join(parts)


def describe_model(model: Model) -> Described:
    """What a model file holds once imported: operations, parameters, signature."""
    counts: Counter[str] = Counter(
        op.name.removeprefix("tensor.")
        for op in model.ir.walk()
        if op.name.startswith("tensor.")
    )
    total = sum(_source_bytes(s) for s in model.parameters.values())
    data: dict[str, Any] = {
        "name": model.name,
        "operations": dict(sorted(counts.items())),
        "parameters": len(model.parameters),
        "parameter_bytes": total,
        "dimensions": {k: list(v) for k, v in sorted(model.dimension_ranges.items())},
    }
    lines = [
        f"{model.name}: {sum(counts.values())} operations,"
        f" {len(model.parameters)} parameters of {format_bytes(total)}"
    ]
    lines += [f"  {n:6} {name}" for name, n in counts.most_common()]
    return Described("\n".join(lines), data)


def _source_bytes(source: Any) -> int:
    from headrace.base.parameters import size_bytes

    return size_bytes(source)
