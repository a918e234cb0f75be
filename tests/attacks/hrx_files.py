"""Makes `.hrx` files that say something else than the writer would."""

from __future__ import annotations

import hashlib
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1] / "unit" / "artifact"))

import numpy as np
from artifact_parts import evaluate, module_parts, spec

from headrace.artifact import container
from headrace.artifact.container import Header, Section
from headrace.artifact.writer import write_artifact


def sound(path: Path) -> Path:
    """A sound file with three weights."""
    weights = [np.arange(n, dtype=np.float32) for n in (200_000, 64, 90_000)]
    specs = [spec(f"w{i}", w, step_bytes=4000 if i == 0 else 0) for i, w in enumerate(weights)]
    write_artifact(path, module_parts([w.nbytes for w in weights]), specs, evaluate)
    return path


def header_of(path: Path) -> Header:
    header = container.unpack_header(path.read_bytes()[: container.HEADER_BYTES])
    assert header is not None
    return header


def put_header(path: Path, header: Header) -> None:
    data = bytearray(path.read_bytes())
    data[: container.HEADER_BYTES] = container.pack_header(header)
    path.write_bytes(bytes(data))


def section(offset: int, data: bytes) -> Section:
    return Section(offset, len(data), hashlib.sha256(data).digest())


def change_module(path: Path, change: Callable[[Any], Any]) -> None:
    """Rewrites the module's JSON with all digests right."""
    header, data = header_of(path), path.read_bytes()
    at = header.module.offset_bytes
    value = json.loads(data[at : at + header.module.size_bytes])
    replaced = change(value)
    put_module(path, json.dumps(value if replaced is None else replaced).encode())


def put_module(path: Path, text: bytes) -> None:
    """Puts any bytes where the module stands."""
    header, data = header_of(path), path.read_bytes()
    at = header.module.offset_bytes
    path.write_bytes(data[:at] + text)
    put_header(path, Header(header.pool, header.code, section(at, text)))


def put_code(path: Path, code: bytes) -> None:
    """Puts any bytes where the code stands, the module after it."""
    header, data = header_of(path), path.read_bytes()
    at = header.module.offset_bytes
    text = data[at : at + header.module.size_bytes]
    start = header.code.offset_bytes
    after = container.aligned(start + len(code))
    path.write_bytes(data[:start] + code.ljust(after - start, b"\0") + text)
    put_header(path, Header(header.pool, section(start, code), section(after, text)))
