"""Reads a drawn line of text with a published model, inside half of its weights.

The recogniser of PaddleOCR v4 comes inside the PyPI package rapidocr-onnxruntime. It is
compiled once, a random line is drawn into a picture, and the model reads it while fewer
than half of its weights are allowed in memory; the rest streams from the file.

    make demo            # or: python examples/read_text.py --seed 7
"""

from __future__ import annotations

import argparse
import random
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import onnx
from PIL import Image, ImageDraw, ImageFont

import headrace
from headrace.describe import describe_plan
from headrace.plan.budget import format_bytes

# fmt: off
WORDS = [
    "river", "wheel", "water", "channel", "mill", "stream", "weight", "budget", "memory",
    "stone", "bridge", "valley", "turbine", "gate", "sluice", "current", "spring", "delta",
    "ferry", "harbour",
]
# fmt: on
HEIGHT = 48
"""The recogniser reads pictures of this height, in pixels."""


def model_path() -> Path:
    """The recogniser inside the installed package; nothing of the package is imported."""
    found = find_spec("rapidocr_onnxruntime")
    if found is None or found.origin is None:
        raise SystemExit("pip install --no-deps rapidocr-onnxruntime==1.4.4")
    return Path(found.origin).parent / "models" / "ch_PP-OCRv4_rec_infer.onnx"


def alphabet(path: Path) -> list[str]:
    """Characters by class: 0 is the blank; the model's metadata holds the rest."""
    metadata = {p.key: p.value for p in onnx.load(path).metadata_props}
    return ["", *metadata["character"].splitlines(), " "]


def draw(text: str) -> Image.Image:
    """The line in black on white, as high as the model reads."""
    font = ImageFont.load_default(size=34)
    left, top, right, bottom = font.getbbox(text)
    picture = Image.new("RGB", (int(right - left) + 24, HEIGHT), "white")
    place = (12 - left, (HEIGHT - (bottom - top)) / 2 - top)
    ImageDraw.Draw(picture).text(place, text, fill="black", font=font)
    return picture


def to_input(picture: Image.Image) -> np.ndarray:
    """NCHW f32 in [-1, 1], blue first, as the model was trained."""
    pixels = np.asarray(picture, dtype=np.float32)[:, :, ::-1]
    return np.ascontiguousarray((pixels / 255 - 0.5).transpose(2, 0, 1)[None] / 0.5)


def read(probabilities: np.ndarray, characters: list[str]) -> str:
    """Greedy CTC: the best class a step, repeats joined, blanks and outer spaces left out."""
    best = probabilities[0].argmax(axis=1)
    kept = [c for n, c in enumerate(best) if c != 0 and (n == 0 or c != best[n - 1])]
    return "".join(characters[c] for c in kept).strip()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seed", type=int, default=None, help="of the words drawn")
    parser.add_argument("--weight-budget", default="45%", help="below half by default")
    parser.add_argument(
        "--out", type=Path, default=Path("demo-out"), help="folder for pictures"
    )
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)

    model = model_path()
    compiled = headrace.compile(model, options.out / "recogniser.hrx")
    print(f"compiled {model.name} to {compiled}, {format_bytes(compiled.stat().st_size)}")

    text = " ".join(random.Random(options.seed).sample(WORDS, 3))
    picture = draw(text)
    picture.save(options.out / "line.png")

    with headrace.load(compiled, weight_budget=options.weight_budget) as module:
        pixels = to_input(picture)
        (probabilities,) = module(x=pixels)
        answer = read(np.asarray(probabilities), alphabet(model))
        dims = dict(module.report().dims)
        plan = describe_plan(module, dims, picture=options.out / "plan.png")
        report = module.report()

    print(f"\n  drawn  {text}\n  read   {answer}\n")
    print(plan.text)
    print(f"\n{report}")
    print(f"\nthe line: {options.out / 'line.png'}\nthe plan: {options.out / 'plan.png'}")
    if answer != text:
        raise SystemExit("the text read differs from the text drawn")


if __name__ == "__main__":
    main()
