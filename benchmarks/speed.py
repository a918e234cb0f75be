"""A step of every model beside every peer: one process a peer, idle ones stopped.

Blocks of calls alternate between the peers, so that the machine's moods hit all alike, and
the first call of a block is not counted. Results are kept in a JSON file, by model, so that
a long table may be measured in parts.
"""

from __future__ import annotations

import json
import math
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from statistics import median, quantiles
from typing import Any

from models import MODELS
from peer import IN_PLACE

BLOCKS = 8
BLOCK_S = 0.35
"""A block of calls takes about so long, within the bounds of CALLS."""
CALLS = (3, 400)
REFERENCE = "onnxruntime"


class Peer:
    """The parent's end of a peer's process."""

    def __init__(self, name: str, model: str, folder: Path, reuse: bool) -> None:
        self.name = name
        command = [sys.executable, str(Path(__file__).with_name("peer.py"))]
        self.process = subprocess.Popen(
            [*command, name, model, str(folder), *(["--reuse"] if reuse else [])],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        self.first = self._answer()
        self.missing: str | None = self.first.get("missing")
        self.times_s: list[float] = []
        self.peak_bytes = 0
        step_s = max(self.first.get("step_s", 1.0), 1e-6)
        self.calls = min(max(int(BLOCK_S / step_s), CALLS[0]), CALLS[1])
        if not self.missing:
            self.process.send_signal(signal.SIGSTOP)

    def _answer(self) -> dict[str, Any]:
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        return json.loads(line) if line else {"missing": "its process died"}

    def block(self) -> None:
        """Runs one block of calls, then stops the process."""
        assert self.process.stdin is not None
        self.process.send_signal(signal.SIGCONT)
        self.process.stdin.write(f"{self.calls}\n")
        self.process.stdin.flush()
        answer = self._answer()
        if "missing" in answer:
            self.missing = answer["missing"]
            return
        self.process.send_signal(signal.SIGSTOP)
        self.times_s += answer["times_s"]
        self.peak_bytes = answer["peak_bytes"]

    def end(self) -> None:
        self.process.kill()
        self.process.wait()

    def result(self) -> dict[str, Any]:
        if self.missing:
            return {"missing": self.missing}
        low, middle, high = quantiles(self.times_s, n=4)
        return {
            "version": self.first["version"],
            "compile_s": self.first["compile_s"],
            "low_s": low,
            "median_s": middle,
            "high_s": high,
            "calls": len(self.times_s),
            "peak_bytes": self.peak_bytes,
        }


def measure(model: str, names: Sequence[str], folder: Path, reuse: bool) -> dict[str, Any]:
    """Every peer's result for one model, by name."""
    if not MODELS[model].has_caches:
        names = [name for name in names if name != IN_PLACE]
    peers: list[Peer] = []
    try:
        peers.extend(Peer(name, model, folder, reuse) for name in names)
        for _ in range(BLOCKS):
            for peer in peers:
                if not peer.missing:
                    peer.block()
                    time.sleep(0.03)
    finally:
        for peer in peers:
            peer.end()
    return {peer.name: peer.result() for peer in peers}


def speed(
    folder: Path, results: Path, models: Sequence[str], peers: Sequence[str], reuse: bool
) -> None:
    """Measures, adds to the results, prints each model's rows."""
    known = json.loads(results.read_text()) if results.exists() else {}
    print(HEADER, flush=True)
    for model in models or MODELS:
        found = measure(model, peers, folder, reuse)
        kept = known.setdefault(model, {})
        for name, result in found.items():
            # A peer's ratio is to the reference of its own run.
            reference = found.get(REFERENCE, {}).get("median_s")
            if reference and "median_s" in result:
                result["ratio"] = result["median_s"] / reference
            before = kept.get(name, {})
            if result.get("compile_s") is None and before.get("compile_s") is not None:
                result["compile_s"] = before["compile_s"]
            kept[name] = result
        print("\n".join(_rows(model, found)), flush=True)
        results.write_text(json.dumps(known, indent=1))


HEADER = (
    "\n| model | peer | step, median (quartiles) | of onnxruntime's | compile | peak memory |"
    "\n|---|---|---|---|---|---|"
)


def _rows(model: str, found: dict[str, Any]) -> list[str]:
    rows: list[str] = []
    for name, r in found.items():
        title = MODELS[model].title if not rows else ""
        if "missing" in r:
            rows.append(f"| {title} | {name} | missing: {r['missing']} | | | |")
            continue
        digits = 2 if r["median_s"] > 1e-3 else 4
        middle, low, high = (
            f"{r[k] * 1e3:.{digits}f}" for k in ("median_s", "low_s", "high_s")
        )
        ratio = f"{r['ratio']:.2f}" if "ratio" in r else ""
        compiled = "" if r["compile_s"] is None else f"{r['compile_s']:.2f} s"
        rows.append(
            f"| {title} | {name} | {middle} ms ({low} to {high}) | {ratio} | {compiled} "
            f"| {r['peak_bytes'] / 1e6:.0f} MB |"
        )
    return rows


def table(results: Path) -> None:
    """One table of all that was measured, and the geometric means of the ratios."""
    known = json.loads(results.read_text())
    print(HEADER)
    ratios: dict[str, list[float]] = {}
    for model in MODELS:
        if model not in known:
            continue
        print("\n".join(_rows(model, known[model])))
        for name, r in known[model].items():
            if "ratio" in r:
                ratios.setdefault(name, []).append(r["ratio"])
    print("\nGeometric mean of the time, of onnxruntime's:")
    for name, of in ratios.items():
        mean = math.exp(sum(map(math.log, of)) / len(of))
        print(
            f"{name} {mean:.2f} ({len(of)} models, worst {max(of):.2f}, median {median(of):.2f})"
        )
