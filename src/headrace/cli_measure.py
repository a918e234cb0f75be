"""The commands that measure and compare: `headrace bench`, `compare` and `tune`."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import click

from headrace.cli_options import (
    DEVICE,
    DIMS,
    FUNCTION,
    JSON,
    LEVEL,
    THREADS,
    Progress,
    compiled_path,
    parse_dims,
    sizes,
)

_INPUTS = click.option(
    "--input",
    "inputs",
    multiple=True,
    metavar="[NAME=]VALUE",
    help="As for `run`; all random by default.",
)
_SEED = click.option("--seed", default=0, show_default=True, help="Of random inputs.")
DIFFERENT = 1
"""The exit status of `compare` where something differs."""


@click.command()
@click.argument("model", type=click.Path(path_type=Path))
@click.option(
    "--weight-budget",
    "budgets",
    multiple=True,
    default=("max",),
    show_default=True,
    metavar="SIZE",
    help="Bytes that weights may take: 25MB, 40%, min, max; may be repeated.",
)
@click.option("--runs", type=click.IntRange(1), default=50, show_default=True)
@click.option(
    "--warm", type=click.IntRange(0), default=3, show_default=True, help="Runs before."
)
@click.option("--calibrate", is_flag=True, help="Measure the kernels first, for predictions.")
@_INPUTS
@_SEED
@DEVICE
@DIMS
@THREADS
@FUNCTION
@JSON
def bench(
    model: Path,
    budgets: tuple[str, ...],
    runs: int,
    warm: int,
    calibrate: bool,
    inputs: tuple[str, ...],
    seed: int,
    device: str,
    dims: tuple[str, ...],
    threads: int | None,
    function: str | None,
    as_json: bool,
) -> None:
    """Times MODEL (.hrx or model file) at each budget, beside what the plan predicts."""
    from headrace import api

    path = compiled_path(model, device, as_json)
    made = api.bench(
        path,
        device=device,
        budgets=budgets,
        runs=runs,
        warm=warm,
        calibrate=calibrate,
        inputs=inputs or ("random",),
        seed=seed,
        dims=sizes(dims),
        threads=threads,
        function=function,
    )
    click.echo(json.dumps(made.data) if as_json else made.text)


@click.command()
@click.argument("model", type=click.Path(path_type=Path))
@click.option("--target", default="cpu", show_default=True, help="What to compile for.")
@click.option(
    "--against",
    type=click.Choice(("interp", "onnxruntime")),
    default="interp",
    show_default=True,
    help="What is taken to be right.",
)
@click.option(
    "--tolerance",
    type=click.FloatRange(0),
    default=None,
    help="Allowed error, as a part of the largest value; by element type if not given.",
)
@_INPUTS
@_SEED
@LEVEL
@DIMS
@THREADS
@FUNCTION
@JSON
def compare(
    model: Path,
    target: str,
    against: str,
    tolerance: float | None,
    inputs: tuple[str, ...],
    seed: int,
    level: int,
    dims: tuple[str, ...],
    threads: int | None,
    function: str | None,
    as_json: bool,
) -> None:
    """Finds the first dispatch of a model file that a device computes wrongly.

    Exit status 1 where something differs.
    """
    from headrace import api

    with Progress("comparing", as_json) as progress:
        made = api.compare(
            model,
            target,
            against=against,
            tolerance=tolerance,
            inputs=inputs or ("random",),
            seed=seed,
            level=level,
            dims=parse_dims(dims),
            threads=threads,
            function=function,
            progress=progress,
        )
    click.echo(json.dumps(made.data) if as_json else made.text)
    if not made.data["agrees"]:
        sys.exit(DIFFERENT)


@click.command()
@click.argument("model", type=click.Path(path_type=Path))
@click.option(
    "--target",
    default="cpu",
    show_default=True,
    help="cpu[:native|x86-64-v3|generic] or cuda[:native|sm_80|sm_90], whose device is opened.",
)
@DIMS
@THREADS
@click.option(
    "--steps", type=click.IntRange(1), default=12, show_default=True, help="Timed a round."
)
@click.option(
    "--table", type=click.Path(path_type=Path), help="Where to keep it; else in the cache."
)
@click.option(
    "--seconds",
    type=click.FloatRange(0),
    help="No round begins later, but for the last one; all rounds by default.",
)
@JSON
def tune(
    model: Path,
    target: str,
    dims: tuple[str, ...],
    threads: int | None,
    steps: int,
    table: Path | None,
    seconds: float | None,
    as_json: bool,
) -> None:
    """Measures schedules of MODEL's kernels here; later compiles use the fastest.

    What is kept serves every model with products, convolutions or windows of these sizes.
    Nothing else should run meanwhile.
    """
    from headrace.tuning import Request, tune_model, tuning_text

    request = Request(model, target, sizes(dims), threads, steps, table, seconds)
    with Progress("tuning", as_json) as progress:
        data = tune_model(request, progress)
    click.echo(json.dumps(data) if as_json else tuning_text(data))
