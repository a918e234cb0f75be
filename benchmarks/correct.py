"""Whether every model gives onnxruntime's answers, from its ONNX and its StableHLO file."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

import headrace
from models import CACHES, MODELS, Arrays, Model
from networks.plans import PROMPT

TOLERANCE = 1e-4
"""Largest error allowed, of the largest value of an output."""
SENSITIVITY = 100 * TOLERANCE
"""Two inputs' answers must lie so far apart: else a constant would pass."""


@dataclass(frozen=True)
class Agreement:
    """How an output compares: parts of its largest value.

    Attributes:
        output: its name.
        error: between ours and the peer's, for the worse of two inputs.
        difference: between the peer's answers to the two inputs.
    """

    output: str
    error: float
    difference: float

    @property
    def holds(self) -> bool:
        return self.error <= TOLERANCE and self.difference >= SENSITIVITY


def answers(model: Model, compiled: Path, suffix: str, inputs: list[Arrays]) -> list[list[Any]]:
    """Ours, of each input, in the form that the ONNX file gives."""
    found: list[list[Any]] = []
    with headrace.load(compiled, weight_budget="max", threads=2) as module:
        for given in inputs:
            stablehlo = suffix == ".mlir"
            arrays = model.stablehlo_inputs(given) if stablehlo else given
            outputs = [np.array(output) for output in module(*arrays.values())]
            found.append([model.from_stablehlo(o) if stablehlo else o for o in outputs])
    return found


def agreements(
    name: str, outputs: Sequence[str], ours: list[list[Any]], theirs: list[list[Any]]
) -> list[Agreement]:
    """How each output compares, over all inputs."""
    found: list[Agreement] = []
    for number, output in enumerate(outputs):
        mine = [np.float64(answer[number]) for answer in ours]
        peers = [np.float64(answer[number]) for answer in theirs]
        largest = max(float(np.abs(p).max()) for p in peers)
        for m, p in zip(mine, peers, strict=True):
            if m.shape != p.shape:
                raise SystemExit(f"{name}: {output} is {m.shape}, should be {p.shape}")
        errors = [np.abs(m - p).max() / largest for m, p in zip(mine, peers, strict=True)]
        worst = float("inf") if any(np.isnan(e) for e in errors) else float(max(errors))
        found.append(
            Agreement(output, worst, float(np.abs(peers[0] - peers[1]).max() / largest))
        )
    return found


STEPS = 4
"""Tokens decoded after the prompt."""


def conversation(folder: Path) -> list[Agreement]:
    """GPT-2 as one file of two entries, its caches updated in place, against onnxruntime
    given the same tokens: the prompt, then a few steps, for two prompts."""
    import onnxruntime

    prefill, decode = MODELS["gpt2_prefill"], MODELS["gpt2_decode"]
    sources = {"prefill": folder / "gpt2_prefill.onnx", "decode": folder / "gpt2_decode.onnx"}
    compiled = headrace.compile(sources, folder / "gpt2.hrx", aliases=CACHES)
    sessions = {name: onnxruntime.InferenceSession(path) for name, path in sources.items()}
    prompts = [prefill.inputs(seed) for seed in (0, 1)]
    ours: list[list[Any]] = [[], []]
    theirs: list[list[Any]] = [[], []]
    with headrace.load(compiled, weight_budget="max", threads=2) as module:
        first, next_ = module.entry("prefill"), module.entry("decode")
        for number, prompt in enumerate(prompts):
            tokens, *caches = prompt.values()
            logits, *mine = first(tokens, *(c.copy() for c in caches), donate=True)
            other, *peers = sessions["prefill"].run(None, prompt)
            ours[number].append(np.array(logits))
            theirs[number].append(other)
            for step in range(STEPS):
                token = np.argmax(other, -1).reshape(1, 1)
                position = np.array(PROMPT + step, np.int64)
                logits, *mine = next_(token, position, *mine, donate=True)
                given = dict(zip(decode.inputs(0), (token, position, *peers), strict=True))
                other, *peers = sessions["decode"].run(None, given)
                ours[number].append(np.array(logits))
                theirs[number].append(other)
    steps = [f"logits {n}" for n in range(STEPS + 1)]
    return agreements("gpt2.hrx", steps, ours, theirs)


def correct(folder: Path, names: Sequence[str]) -> None:
    """Prints a row for each file; ends with an error if one does not hold."""
    import onnxruntime

    print(
        f"\nBars: error at most {TOLERANCE:g}, two inputs at least {SENSITIVITY:g} apart, both of the "
        "largest value of an output; the worst of all outputs.\n"
        "\n| file | outputs | error | two inputs' difference | holds |\n|---|---|---|---|---|"
    )
    failed = 0
    for name in names or MODELS:
        model = MODELS[name]
        inputs = [model.inputs(0), model.inputs(1)]
        session = onnxruntime.InferenceSession(folder / f"{name}.onnx")
        theirs = [session.run(None, given) for given in inputs]
        del session
        for suffix in (".onnx", ".mlir"):
            source = folder / f"{name}{suffix}"
            compiled = folder / f"{source.name}.hrx"
            try:
                headrace.compile(source, compiled)
                mine = answers(model, compiled, suffix, inputs)
                found = agreements(name, model.outputs, mine, theirs)
            except headrace.HeadraceError as refused:
                failed += 1
                print(
                    f"| {source.name} | {str(refused).splitlines()[0]} | | | no |", flush=True
                )
                continue
            failed += not _print_row(source.name, found)
    if not names or "gpt2_decode" in names:
        title = f"gpt2.hrx: prompt, {STEPS} tokens, caches in place"
        failed += not _print_row(title, conversation(folder))
    if failed:
        raise SystemExit(f"{failed} files do not hold")


def _print_row(title: str, found: Sequence[Agreement]) -> bool:
    holds = all(agreement.holds for agreement in found)
    print(
        f"| {title} | {len(found)} | {max(a.error for a in found):.1e} "
        f"| {min(a.difference for a in found):.2f} | {'yes' if holds else 'no'} |",
        flush=True,
    )
    return holds
