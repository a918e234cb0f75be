"""Correctness, speed, start, streaming and memory on the CPU, beside peers in the same run.

    python benchmarks/models.py FOLDER                    # once: builds the models
    python benchmarks/cpu.py --folder FOLDER correct speed compiling start
    python benchmarks/cpu.py --folder FOLDER shapes streaming memory chain

`speed` runs each peer in a process of its own and stops the idle ones; a peer that is not
installed is named in the table. `--models` and `--peers` take a part; `--reuse` takes what the
folder already holds compiled; `table` prints all that the folder's results hold. Two threads
each. Prints tables in Markdown for `docs/measured/cpu.md`.
"""

from __future__ import annotations

import os

# Numpy and onnxruntime are measured as they come: see the note on OPENBLAS_CORETYPE.
os.environ.pop("OPENBLAS_CORETYPE", None)
os.environ.pop("OPENBLAS_L2_SIZE", None)
# Modules are kept compiled between processes, as they are for users.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)

import argparse
import platform
import subprocess
from collections.abc import Callable
from datetime import date
from pathlib import Path

import correct
import headrace
import limits
import speed
import startup
from models import MODELS
from peer import PEERS

ROOT = Path(__file__).resolve().parent.parent
FOLDER = ROOT / "build" / "benchmarks"

Part = Callable[[argparse.Namespace], object]

PARTS: dict[str, Part] = {
    "correct": lambda o: correct.correct(o.folder, o.models),
    "speed": lambda o: speed.speed(
        o.folder, o.folder / "speed.json", o.models, o.peers, o.reuse
    ),
    "table": lambda o: speed.table(o.folder / "speed.json"),
    "compiling": lambda o: startup.compiling(o.folder, o.models),
    "start": lambda o: startup.start(o.folder),
    "streaming": lambda o: limits.streaming(o.folder, o.models),
    "shapes": lambda o: limits.shapes(o.folder),
    "memory": lambda o: limits.memory(o.folder),
    "chain": lambda o: limits.chain(o.folder),
}
NEED_MODELS = {"correct", "speed", "compiling", "start", "streaming", "memory"}


def processor() -> str:
    """The processor's name and what it has for vectors."""
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    fields = dict(line.split(":", 1) for line in lines if ":" in line)
    fields = {key.strip(): value.strip() for key, value in fields.items()}
    wide = "AVX-512" if "avx512f" in fields.get("flags", "") else "AVX2"
    return f"{fields.get('model name', platform.machine())} ({wide}), {os.cpu_count()} cores"


def commit() -> str:
    command = ["git", "-C", str(ROOT), "describe", "--always", "--dirty"]
    found = subprocess.run(command, capture_output=True, text=True, check=False)
    return found.stdout.strip() or "no commit"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("parts", nargs="+", choices=list(PARTS))
    parser.add_argument("--folder", type=Path, default=FOLDER, help="where the models are")
    parser.add_argument("--models", nargs="+", choices=list(MODELS), default=[])
    parser.add_argument("--peers", nargs="+", choices=list(PEERS), default=list(PEERS))
    parser.add_argument("--reuse", action="store_true", help="what is compiled stays so")
    options = parser.parse_args()
    options.folder.mkdir(parents=True, exist_ok=True)
    wanted = options.models or list(MODELS)
    missing = [n for n in wanted if not (options.folder / f"{n}.onnx").exists()]
    if missing and NEED_MODELS & set(options.parts):
        parser.error(
            f"{options.folder} lacks {', '.join(missing)}: python benchmarks/models.py "
            f"{options.folder} builds them (needs torch, onnxscript and jax)"
        )
    print(
        f"{date.today()}, {processor()}, Linux {platform.release()}, "
        f"Python {platform.python_version()}, headrace {headrace.__version__} at {commit()}",
        flush=True,
    )
    for part in options.parts:
        PARTS[part](options)


if __name__ == "__main__":
    main()
