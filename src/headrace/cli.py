"""The command line: parses, calls `api`, prints results and errors.

Exit status: 0 done, 1 `check` found a case that does not pass, or whoever read the output has
gone (click says so), 2 the user's error, 70 a defect of ours, 130 interrupted.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from contextlib import nullcontext
from functools import partial
from pathlib import Path
from typing import Any

import click

from headrace.base import knobs
from headrace.base.errors import HeadraceError, error
from headrace.cli_measure import bench, compare, tune
from headrace.cli_options import (
    BUDGET,
    DEVICE,
    DIMS,
    FUNCTION,
    HOST_LIMIT,
    JSON,
    LEVEL,
    LIMIT,
    NUMERICS,
    PRECISION,
    TARGETS,
    THREADS,
    Progress,
    compiled_path,
    given_models,
    parse_dims,
    sizes,
)


@click.group(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(package_name="headrace")
def cli() -> None:
    """Compiles models ahead of time and runs them inside a memory budget."""


@cli.command("compile")
@click.argument("models", nargs=-1, required=True, metavar="[ENTRY=]MODEL...")
@click.option("-o", "--output", type=click.Path(path_type=Path), help="The .hrx to write.")
@TARGETS
@LEVEL
@NUMERICS
@PRECISION
@click.option(
    "--pack",
    type=click.Choice(["auto", "all", "none"]),
    default="none",
    show_default=True,
    help="Which weights take fewer bytes, without loss (cuda reads them so, others do not).",
)
@DIMS
@click.option(
    "--alias",
    "aliases",
    multiple=True,
    metavar="INPUT=OUTPUT",
    help="An output that takes an input's place, e.g. past_*=present_*: state updated in place.",
)
@click.option("--compile-to", "phase", default=None, help="Stop after a phase and print it.")
@click.option(
    "--print-after", multiple=True, metavar="PASS|all", help="Print the IR after a pass."
)
@click.option(
    "--dump-to", type=click.Path(path_type=Path), help="Write the IR after every pass."
)
@click.option("--jobs", type=click.IntRange(1), default=None, help="Compiling processes.")
@JSON
def compile_command(
    models: tuple[str, ...],
    output: Path | None,
    targets: tuple[str, ...],
    level: int,
    numerics: str,
    precision: str,
    pack: str,
    dims: tuple[str, ...],
    aliases: tuple[str, ...],
    phase: str | None,
    print_after: tuple[str, ...],
    dump_to: Path | None,
    jobs: int | None,
    as_json: bool,
) -> None:
    """Compiles MODEL (.onnx, .keras, .mlir) into one .hrx file.

    Several models become entry functions that share weights and a budget. Each is called by
    its ENTRY, or by its file's name: headrace compile prefill=a.onnx decode=b.onnx -o c.hrx
    """
    from headrace import api
    from headrace.targets.table import compiled_only

    model = given_models(models)
    pairs = {given: output for given, _, output in (a.partition("=") for a in aliases)}
    # JSON has standard output for itself.
    echo = partial(click.echo, err=as_json)
    seen = api.Inspection(frozenset(print_after), dump_to, echo)
    if phase is not None and phase != "executables":
        text = api.compile_to_text(
            model,
            phase,
            targets=targets,
            level=level,
            numerics=numerics,
            precision=precision,
            dims=parse_dims(dims),
            aliases=pairs,
            inspection=seen,
        )
        click.echo(json.dumps({"phase": phase, "text": text}) if as_json else text)
        return
    with Progress("compiling", as_json) as progress:
        made = api.compile(
            model,
            output or Path(models[0].rpartition("=")[2]).with_suffix(".hrx").name,
            targets=targets,
            level=level,
            numerics=numerics,
            precision=precision,
            pack=pack,
            dims=parse_dims(dims),
            aliases=pairs,
            jobs=jobs,
            progress=progress,
            inspection=seen,
        )
    size = made.stat().st_size
    if as_json:
        click.echo(json.dumps({"path": str(made), "size_bytes": size}))
    else:
        click.echo(f"{made}: {_bytes(size)}")
        for name in compiled_only(targets):
            click.echo(f"note: {name} is compiled only: nothing here runs it", err=True)


@cli.command()
@click.argument("model", type=click.Path(path_type=Path))
@click.option(
    "--input",
    "inputs",
    multiple=True,
    metavar="[NAME=]VALUE",
    help="@file.npy, @file.npz, @file.bin:1x3x224x224xf32, a number, or random.",
)
@click.option("--seed", default=0, show_default=True, help="Of random inputs.")
@click.option(
    "-o", "--output", type=click.Path(path_type=Path), help="Save outputs: .npz, .npy."
)
@click.option("--steps", type=click.IntRange(1), default=1, show_default=True)
@click.option("--report", is_flag=True, help="Print predicted beside measured.")
@click.option(
    "--trace", type=click.Path(path_type=Path), help="Write when what ran (JSON for Perfetto)."
)
@DEVICE
@BUDGET
@LIMIT
@HOST_LIMIT
@DIMS
@THREADS
@FUNCTION
@JSON
def run(
    model: Path,
    inputs: tuple[str, ...],
    seed: int,
    output: Path | None,
    steps: int,
    report: bool,
    trace: Path | None,
    device: str,
    weight_budget: str,
    memory_limit: str | None,
    host_limit: str | None,
    dims: tuple[str, ...],
    threads: int | None,
    function: str | None,
    as_json: bool,
) -> None:
    """Runs MODEL: a .hrx, or a model file (compiled into the cache first)."""
    from headrace import api
    from headrace.inputs import read_inputs
    from headrace.runtime.trace import check_trace_file

    # Long steps are not run for files that cannot be written.
    if output is not None:
        api.check_output_file(output)
    if trace is not None:
        check_trace_file(trace)
    path = compiled_path(model, device, as_json)
    with api.load(
        path,
        device=device,
        weight_budget=weight_budget,
        memory_limit=memory_limit,
        host_limit=host_limit,
        threads=threads,
    ) as module:
        signature = module.inputs_of(function)
        arrays = read_inputs(inputs, signature, sizes(dims, module), seed)
        outputs: Any = None
        with nullcontext() if trace is None else module.trace() as traced:
            for _ in range(steps):
                outputs = module(**arrays, function=function)
        if trace is not None and traced is not None:
            traced.save(trace)
        for warning in module.warnings():
            click.echo(f"warning: {warning}", err=True)
        named = dict(outputs.items())
        if output is not None:
            _save(output, named)
        _print_outputs(named, as_json, module.report() if report else None, output)


@cli.command()
@click.argument("model", type=click.Path(path_type=Path))
@click.option("--picture", type=click.Path(path_type=Path), help="Draw memory over time (PNG).")
@click.option(
    "--curve", type=click.Path(path_type=Path), help="Draw step time by budget (PNG)."
)
@click.option("--calibrate", is_flag=True, help="Measure the kernels on this device first.")
@DEVICE
@BUDGET
@LIMIT
@HOST_LIMIT
@DIMS
@THREADS
@FUNCTION
@JSON
def plan(
    model: Path,
    picture: Path | None,
    curve: Path | None,
    calibrate: bool,
    device: str,
    weight_budget: str,
    memory_limit: str | None,
    host_limit: str | None,
    dims: tuple[str, ...],
    threads: int | None,
    function: str | None,
    as_json: bool,
) -> None:
    """Says what stays and what streams, the predicted step, the peak and the minimum."""
    from headrace import api

    path = compiled_path(model, device, as_json)
    with api.load(
        path,
        device=device,
        weight_budget=weight_budget,
        memory_limit=memory_limit,
        host_limit=host_limit,
        threads=threads,
    ) as module:
        if calibrate:
            module.calibrate(sizes(dims, module), function=function)
        made = api.describe_plan(module, sizes(dims, module), function, picture, curve)
    if as_json:
        click.echo(json.dumps(made.data))
    else:
        click.echo(made.text)


@cli.command()
@click.argument("path", type=click.Path(path_type=Path))
@click.option("--disassemble", is_flag=True, help="Print the code of every kernel.")
@click.option("--weights", is_flag=True, help="List every weight.")
@click.option("--verify", is_flag=True, help="Check the hash of every weight.")
@JSON
def inspect(path: Path, disassemble: bool, weights: bool, verify: bool, as_json: bool) -> None:
    """Says what is inside a .hrx or a model file; executes nothing."""
    from headrace import api

    made = api.inspect(path, disassemble=disassemble, weights=weights, verify=verify)
    click.echo(json.dumps(made.data) if as_json else made.text)


@cli.command()
@click.argument("file", required=False, type=click.Path(path_type=Path))
@click.option("-p", "--pass", "passes", multiple=True, help="A pass with its {options}.")
@click.option("--verify-each/--no-verify-each", default=True, show_default=True)
@click.option("--print-locations", is_flag=True, help="Print where each operation came from.")
@click.option("--list", "list_passes", is_flag=True, help="List every pass.")
@JSON
def opt(
    file: Path | None,
    passes: tuple[str, ...],
    verify_each: bool,
    print_locations: bool,
    list_passes: bool,
    as_json: bool,
) -> None:
    """Runs passes on the text of a module and prints what comes out ('-' reads stdin)."""
    from headrace.opt import pass_lines, run_passes

    if list_passes:
        text = "\n".join(f"{name:44} {what}" for name, what in pass_lines())
    elif file is None:
        raise click.UsageError("Missing argument 'FILE'.")
    else:
        source = sys.stdin.read() if str(file) == "-" else _read_text(file)
        text = run_passes(source, str(file), passes, verify_each, print_locations)
    click.echo(json.dumps({"text": text}) if as_json else text)


@cli.command()
@click.argument("model", type=click.Path(path_type=Path))
@DEVICE
@DIMS
@THREADS
@FUNCTION
@JSON
def calibrate(
    model: Path,
    device: str,
    dims: tuple[str, ...],
    threads: int | None,
    function: str | None,
    as_json: bool,
) -> None:
    """Measures a model's kernels and the link on a device; later plans use the profile."""
    from headrace import api

    path = compiled_path(model, device, as_json)
    with api.load(path, device=device, threads=threads) as module:
        profile = module.calibrate(sizes(dims, module), function=function)
    data = {
        "link_bytes_per_s": profile.link_bytes_per_s,
        "kernels": len(profile.kernel_ns),
    }
    text = f"{data['kernels']} kernels measured, link {_bytes(data['link_bytes_per_s'])}/s"
    click.echo(json.dumps(data) if as_json else text)


cli.add_command(bench)
cli.add_command(compare)
cli.add_command(tune)


@cli.command()
@click.argument("files", nargs=-1, required=True, type=click.Path(path_type=Path))
@click.option(
    "--target", default="cpu", show_default=True, help="What to compile for and run on."
)
@LEVEL
@THREADS
@JSON
def check(
    files: tuple[Path, ...], target: str, level: int, threads: int | None, as_json: bool
) -> None:
    """Runs the check.* tests in FILES (.mlir, .mlirbc, folders), case by case.

    With --json one object a case. Exit status 1 where a case does not pass.
    """
    from headrace.checking import check as check_files

    counts: dict[str, int] = {}
    for result in check_files(files, target, level, threads):
        counts[result.status] = counts.get(result.status, 0) + 1
        if as_json:
            click.echo(json.dumps(vars(result)))
        elif result.status != "pass":
            click.echo(f"{result.status}: {result.file} case {result.case}: {result.message}")
    if not as_json:
        click.echo(", ".join(f"{n} {status}" for status, n in counts.items()) or "no cases")
    if set(counts) - {"pass"}:
        sys.exit(1)


# -- helpers ------------------------------------------------------------------------


def _read_text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as wrong:
        raise error("HR0202", f"cannot read '{path}'", notes=str(wrong)) from wrong


def _save(path: Path, outputs: Mapping[str, Any]) -> None:
    from headrace import api

    api.save_outputs(path, outputs)


def _print_outputs(
    outputs: Mapping[str, Any], as_json: bool, report: Any, saved: Path | None
) -> None:
    import numpy as np

    if as_json:
        data: dict[str, Any] = {"outputs": {}}
        for name, array in outputs.items():
            entry: dict[str, Any] = {"shape": list(array.shape), "dtype": str(array.dtype)}
            if saved is None:
                entry["values"] = np.asarray(array).astype(object).tolist()
            data["outputs"][name] = entry
        if saved is not None:
            data["path"] = str(saved)
        if report is not None:
            from dataclasses import asdict

            data["report"] = asdict(report)
        click.echo(json.dumps(data, default=_plain))
        return
    for name, array in outputs.items():
        shape = "x".join(str(s) for s in array.shape) or "scalar"
        click.echo(f"{name}: {shape} {array.dtype}")
        if saved is None:
            click.echo(np.array2string(array, threshold=24, precision=6))
    if saved is not None:
        click.echo(f"saved to {saved}")
    if report is not None:
        click.echo(str(report))


def _plain(value: Any) -> float | str:
    """What JSON has no form for: narrow floats as numbers, all else as text."""
    try:
        return float(value)
    except (TypeError, ValueError):
        return str(value)


def _bytes(count: float) -> str:
    for unit, factor in (("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)):
        if count >= factor:
            return f"{count / factor:.2f} {unit}"
    return f"{count:.0f} B"


def main() -> None:
    """The entry point: runs a command and turns errors into messages and a status."""
    try:
        status = cli.main(standalone_mode=False)
        sys.exit(status if isinstance(status, int) else 0)
    except HeadraceError as failed:
        if knobs.DEBUG.enabled:
            raise
        click.echo(str(failed), err=True)
        sys.exit(failed.exit_status)
    except click.ClickException as wrong:
        wrong.show()
        sys.exit(2)
    except (click.Abort, KeyboardInterrupt):
        click.echo("interrupted", err=True)
        sys.exit(130)
    except MemoryError as full:
        if knobs.DEBUG.enabled:
            raise
        failed = error(
            "HR0131", "there is not enough memory for this call", helps="make its sizes smaller"
        )
        click.echo(f"{failed}\n  note: {full}", err=True)
        sys.exit(failed.exit_status)
    except Exception as crash:
        if knobs.DEBUG.enabled:
            raise
        click.echo(
            f"defect[HR9001]: {type(crash).__name__}: {crash}\n"
            "  note: this is a bug in headrace, not in your model\n"
            "  help: HEADRACE_DEBUG=1 prints the traceback",
            err=True,
        )
        sys.exit(70)


if __name__ == "__main__":
    main()
