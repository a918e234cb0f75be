"""What the parts of `gpu.py` found, kept in the folder, and the one table of the issue's rows."""

from __future__ import annotations

import datetime
import json
import statistics
import subprocess
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

Found = Mapping[str, Any]
"""By the name of a part, what it returned."""

_TIGHT_BUDGETS = ("max", "75%", "50%", "25%")
_OTHER_CELLS = 1.05


class Results:
    """`results.json` of a folder; a part that was run stands there and is not run again."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / "results.json"
        kept = json.loads(self._path.read_text()) if self._path.exists() else {}
        self.found: dict[str, Any] = kept

    def put(self, part: str, data: Any) -> None:
        """Keeps what a part returned, with the time and the commit."""
        now = datetime.datetime.now(datetime.UTC).isoformat(timespec="minutes")
        self.found[part] = {"at": now, "commit": _commit(), **data}
        self._path.write_text(json.dumps(self.found, indent=1))


def _commit() -> str:
    command = ["git", "-C", str(Path(__file__).parent), "rev-parse", "--short", "HEAD"]
    done = subprocess.run(command, capture_output=True, text=True)
    return done.stdout.strip() or "unknown"


def table(found: Found) -> str:
    """Every row of the CUDA issue: its bar, what was measured, whether it holds."""
    lines = ["| # | what | bar | measured | holds |", "|---|---|---|---|---|"]
    for part, rows in _ROWS.items():
        data = found.get(part)
        if part == "models":
            # Torch's modes come bit by bit; the later run knows the most.
            timed = [found[p] for p in ("models", "autotune") if p in found]
            data = max(timed, key=lambda d: d["at"], default=None)
        lines += rows(data) if data else [f"| | {part} | | not run | |"]
    at = sorted({f"{d['at']} {d['commit']}" for d in found.values()})
    return "\n".join([*lines, "", f"Run: {', '.join(at)}"])


def _row(number: int, what: str, bar: str, measured: str, holds: bool) -> str:
    return f"| {number} | {what} | {bar} | {measured} | {'yes' if holds else '**no**'} |"


def _most(number: int, what: str, bar: float, measured: float, text: str = "") -> str:
    return _row(number, what, f"at most {bar:g}", text or f"{measured:.3f}", measured <= bar)


def _decoder(data: Any) -> Iterator[str]:
    rows = data["rows"]
    tight = [r for r in rows if r["tokens"] < 2048 and r["budget"] in _TIGHT_BUDGETS]
    others = [r for r in rows if r not in tight]
    for bar, cells in ((1.03, tight), (_OTHER_CELLS, others)):
        worst = max(cells, key=lambda r: r["of_floor"])
        where = f"{worst['of_floor']:.3f} ({worst['tokens']} tokens, {worst['budget']})"
        which = "1 and 128 tokens down to 25 %" if cells is tight else "other cells"
        yield _most(1, f"step / floor, {which}", bar, worst["of_floor"], where)
    over = max(r["streamed_bytes"] - r["allowed_bytes"] for r in rows)
    text = f"{over / 1e6:.1f} MB over" if over > 0 else "in every cell"
    yield _row(1, "streamed bytes", "W - budget + min", text, over <= 0)
    same = all(r["same"] for r in rows)
    yield _row(1, "bits of the resident run", "in every cell", "yes" if same else "NO", same)
    step = next(r["step_s"] for r in rows if r["tokens"] == 1 and r["budget"] == "max")
    once = data["read_a_step"] / data["read"]
    yield _most(3, "resident, 1 token, / weights read once", 1.2, step / once)
    off = max(abs(r["predicted"] - 1) for r in rows)
    yield _most(7, "predicted step off by", 0.05, off)
    yield _most(7, "predicted peak off by", 0.01, max(abs(r["peak"] - 1) for r in rows))
    changed = data["changes_s"]
    text = f"{1e3 * changed:.0f} ms"
    yield _row(
        8,
        "10 changes of budget, beside bytes",
        "100 ms, same bits",
        text,
        changed <= 0.1 and data["changes_same"],
    )


def _packed(data: Any) -> Iterator[str]:
    rows = [r for r in data["rows"] if r["tokens"] == 1]
    for budget in ("min", "25 %", "50 %"):
        of_floor = next(r["of_floor"] for r in rows if r["budget"] == budget)
        yield _most(2, f"packed, 1 token, {budget}, / plain floor", 0.78, of_floor)
    kept = next(r["of_resident"] for r in rows if r["budget"] == "80 %")
    yield _most(2, "packed, 1 token, 80 %, / plain resident", 1.3, kept)
    same = all(r["same"] for r in data["rows"])
    yield _row(2, "bits of the resident run", "in every cell", "yes" if same else "NO", same)


def _disk(data: Any) -> Iterator[str]:
    yield _most(4, "from the disk: step / (streamed / rate)", 1.10, data["of_floor"])
    same = data["same"]
    yield _row(4, "bits of the resident run", "the same", "yes" if same else "NO", same)


def _models(data: Any) -> Iterator[str]:
    ratios = {k: v for k, v in data["ratios"].items() if v}
    if not ratios:
        return
    modes = ", ".join(f"{k} {n}" for k, n in data["modes"].items())
    mean = statistics.geometric_mean(ratios.values())
    yield _most(5, f"models / best torch.compile ({modes} of 6)", 1.0, mean)
    worst = max(ratios, key=lambda k: ratios[k])
    yield _most(5, "the worst of them", 1.15, ratios[worst], f"{ratios[worst]:.3f} ({worst})")


def _products(data: Any) -> Iterator[str]:
    for what, bar, key in (("4096^3", 0.92, "square"), ("20 drawn", 0.85, "drawn")):
        text = f"{data[key]:.3f}"
        yield _row(6, f"{what}, cuBLAS / ours", f"at least {bar}", text, data[key] >= bar)


def _nodes(data: Any) -> Iterator[str]:
    share = data["passed"] / data["count"]
    text = f"{data['passed']} of {data['count']}, {data['interpreted']} interpreted"
    yield _row(9, "ONNX node tests", "at least 85 %", text, share >= 0.85)


def _memory(data: Any) -> Iterator[str]:
    left = data["left_bytes"]
    yield _row(10, "left by 100 modules", "0 bytes", f"{left} bytes", left == 0)
    told = data["beside"]
    text = "; ".join(f"{row['free_bytes'] / 1e9:.2f} GB free: {row['told']}" for row in told)
    held = all(row["right"] for row in told)
    yield _row(10, "beside another process", "right, or refused with the minimum", text, held)


def _compiling(data: Any) -> Iterator[str]:
    for model, warm in (("ResNet-50", 3), ("decoder", 10)):
        cold_s, warm_s = data[model]
        text = f"{cold_s:.1f} / {warm_s:.1f} s"
        held = cold_s <= 60 and warm_s <= warm
        yield _row(11, f"compile {model} on 2 cores", f"60 / {warm} s", text, held)


def _peers(data: Any) -> Iterator[str]:
    for row in data["rows"]:
        where = f"{row['peer']}, {row['budget']}, {row['tokens']} tokens"
        yield f"| | {where} | | {1e3 * row['step_s']:.2f} ms | |"


_ROWS: dict[str, Callable[[Any], Iterator[str]]] = {
    "decoder": _decoder,
    "packed": _packed,
    "disk": _disk,
    "models": _models,
    "products": _products,
    "nodes": _nodes,
    "memory": _memory,
    "compiling": _compiling,
    "peers": _peers,
}
