"""Row 2 of the CUDA issue: the decoder with its weights packed, beside the plain one."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

import headrace
from headrace.artifact.reader import open_artifact

BUDGETS = ("max", 80, 50, 25, "min")
TOKENS = (1, 128, 2048)


def plain_bytes(path: Path) -> int:
    """What the weights of a `.hrx` take where none is packed."""
    found: dict[int, int] = {}
    for weight in open_artifact(path).module.weights:
        count = int(np.prod(weight.shape, dtype=np.int64)) * weight.dtype.size_bytes
        found[weight.offset_bytes] = count if weight.codes is not None else weight.size_bytes
    return sum(found.values())


def build_packed(source: Path, output: Path) -> None:
    """Compiles the decoder packed; says how long that took."""
    begin = time.perf_counter()
    dims = {"tokens": (1, 2048)}
    headrace.compile(source, output, targets=["cuda:sm_90"], dims=dims, pack="auto")
    print(f"packed and compiled in {time.perf_counter() - begin:.0f} s")


def packed(
    plain: Path,
    path: Path,
    table: Any,
    gathered_bytes: int,
    link: float,
    steps: Callable[[Any, Any, int], tuple[float, bytes]],
) -> dict[str, Any]:
    """Steps of the packed decoder beside what the plain one can reach at the same budget.

    Args:
        table: ids of tokens, `(1, most tokens)`.
        gathered_bytes: of the tables that a step only reads rows of.
        link: bytes per second.
        steps: median seconds of so many calls, and the bits of the output.
    """
    whole = plain_bytes(path)
    resident: dict[int, tuple[float, bytes]] = {}
    rows: list[dict[str, Any]] = []
    with headrace.load(plain, "cuda", weight_budget="max") as module:
        for tokens in TOKENS:
            resident[tokens] = steps(module, table[:, :tokens], 15)
    print(
        "\n| tokens | budget | streamed | step | plain floor | step / floor | "
        "step / plain resident | predicted / step | peak exact | same bits |"
    )
    print("|---|---|---|---|---|---|---|---|---|---|")
    with headrace.load(path, "cuda", weight_budget="max") as module:
        print(f"{module.stored_bytes / whole:.4f} of {whole / 1e9:.2f} GB are stored")
        for tokens in TOKENS:
            ids = table[:, :tokens]
            plain_step, plain_bits = resident[tokens]
            module.weight_budget = "max"
            wanted = steps(module, ids, 3)[1]
            print(f"bits of the plain file: {'yes' if wanted == plain_bits else 'no'}")
            module.calibrate({"tokens": tokens})
            for budget in BUDGETS:
                share = isinstance(budget, int)
                module.weight_budget = whole * budget // 100 if share else budget
                plan = module.plan({"tokens": tokens})
                step, bits = steps(module, ids, 5)
                report = module.report()
                read = whole - gathered_bytes - module.weight_budget
                floor = max(plain_step, read / link)
                print(
                    f"| {tokens} | {budget}{' %' if share else ''} | "
                    f"{report.streamed_bytes / 1e9:.2f} GB | {1e3 * step:.2f} ms | "
                    f"{1e3 * floor:.2f} ms | {step / floor:.3f} | {step / plain_step:.3f} | "
                    f"{plan.prediction.step_ns / 1e9 / step:.3f} | "
                    f"{report.predicted_peak_bytes / report.measured_peak_bytes:.3f} | "
                    f"{'yes' if bits == wanted else 'NO'} |",
                    flush=True,
                )
                rows.append(
                    {
                        "tokens": tokens,
                        "budget": f"{budget} %" if share else budget,
                        "of_floor": step / floor,
                        "of_resident": step / plain_step,
                        "same": bits == wanted,
                    }
                )
    return {"rows": rows}
