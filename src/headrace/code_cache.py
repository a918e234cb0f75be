"""Code of kernels kept on disk by content: a kernel that was translated once is read back.

An entry is `code/<sha256>` in the cache folder. The name digests everything the code hangs
on: the kernel's text, its symbol, the target with all its options, the source files that
turn kernels into code, and the versions of headrace and of the libraries that compile.
So a changed emitter never meets old code, and nothing has to be invalidated.

A file is the magic, the sha256 of the rest, the size of a JSON description, that, and the
bytes of the code and of its further variants. It is checked when read; a damaged one counts as absent and is written anew.
"""

from __future__ import annotations

import hashlib
import inspect
import json
import struct
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

import headrace
from headrace.artifact.codec import CodecError, decode, encode
from headrace.kernel.description import Kernel
from headrace.kernel.target import Code, Specialisation, Target
from headrace.kernel.text import print_kernel
from headrace.runtime.cache import read_cached, write_cached

_MAGIC = b"HRCODE2\n"
_DIGEST_BYTES = 32
_SIZE = struct.Struct("<I")
_SYMBOL_DIGITS = 16
_COMPILING = ("kernel", "base")
"""Packages beside the target's own whose sources decide what it emits."""

_LIBRARIES = ("llvmlite", "triton")
"""What turns the emitted text into machine code."""


@dataclass(frozen=True)
class _Description:
    """All of a `Code` but its bytes and further variants."""

    format: str
    specialisations: tuple[Specialisation, ...]
    features: tuple[str, ...]
    listing: str
    size_bytes: int


@dataclass(frozen=True)
class _Entry:
    """A kernel's variants, the first before the others."""

    variants: tuple[_Description, ...]


def kernel_symbol(kernel: Kernel) -> str:
    """The name that prefixes a kernel's code symbols: the same for equal kernels."""
    digest = hashlib.sha256(print_kernel(kernel).encode()).hexdigest()
    return f"k_{digest[:_SYMBOL_DIGITS]}"


def code_key(kernel: Kernel, target: Target) -> str:
    """What the code of a kernel is kept under: 64 hexadecimal digits."""
    parts = (
        print_kernel(kernel),
        kernel_symbol(kernel),
        repr(target),
        _emitter_digest(type(target)),
        headrace.__version__,
        *_library_versions(),
    )
    hashed = hashlib.sha256()
    for part in parts:
        data = part.encode()
        hashed.update(_SIZE.pack(len(data)) + data)
    return hashed.hexdigest()


def read_code(key: str) -> Code | None:
    """The code kept under a key; None where there is none, or it is damaged."""
    data = read_cached(f"code/{key}")
    start = len(_MAGIC) + _DIGEST_BYTES
    if data is None or len(data) < start + _SIZE.size or data[: len(_MAGIC)] != _MAGIC:
        return None
    body = data[start:]
    if hashlib.sha256(body).digest() != data[len(_MAGIC) : start]:
        return None
    (size,) = _SIZE.unpack_from(body)
    try:
        text = json.loads(body[_SIZE.size : _SIZE.size + size])
        entry: _Entry = decode(text, _Entry)
    except (CodecError, ValueError, RecursionError):
        return None
    if not entry.variants:
        return None
    codes: list[Code] = []
    at = _SIZE.size + size
    for found in entry.variants:
        data = body[at : at + found.size_bytes]
        at += found.size_bytes
        codes.append(
            Code(found.format, data, found.specialisations, found.features, found.listing)
        )
    return replace(codes[0], others=tuple(codes[1:]))


def write_code(key: str, code: Code) -> None:
    """Keeps code under a key; where the folder cannot be written nothing happens."""
    codes = (code, *code.others)
    entry = _Entry(
        tuple(
            _Description(c.format, c.specialisations, c.features, c.listing, len(c.data))
            for c in codes
        )
    )
    text = json.dumps(encode(entry, _Entry), separators=(",", ":")).encode()
    body = _SIZE.pack(len(text)) + text + b"".join(c.data for c in codes)
    write_cached(f"code/{key}", _MAGIC + hashlib.sha256(body).digest() + body)


@cache
def _emitter_digest(kind: type) -> str:
    """Digests the sources of the target's package and of all that emitters share."""
    root = Path(headrace.__file__).parent
    folders = [Path(inspect.getfile(kind)).parent, *(root / name for name in _COMPILING)]
    hashed = hashlib.sha256()
    for folder in folders:
        for path in sorted(folder.rglob("*.py")):
            data = path.read_bytes()
            hashed.update(f"{path.relative_to(folder)} {len(data)}\n".encode() + data)
    return hashed.hexdigest()


@cache
def _library_versions() -> tuple[str, ...]:
    from importlib.metadata import PackageNotFoundError, version

    found: list[str] = []
    for name in _LIBRARIES:
        try:
            found.append(f"{name} {version(name)}")
        except PackageNotFoundError:
            found.append(f"{name} absent")
    return tuple(found)
