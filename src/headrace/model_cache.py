"""Compiled models kept on disk by content: the same model is not compiled twice.

An entry is `models/<stem>-<key>.hrx` in the cache folder, an ordinary `.hrx`. Its key
digests all that a compilation hangs on: the model file with the names, sizes and times of
the files its weights are in, targets, level and dimensions, the processor (for
`cpu:native`), tables of tuned schedules, all sources of headrace and the versions of the libraries it compiles with.
An entry is checked whole, weights included, before it is used; a damaged one is compiled
again. Large models are not kept, and the oldest entries make room for new ones.
"""

from __future__ import annotations

import hashlib
import mmap
import os
import shutil
import tempfile
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import cache
from pathlib import Path

import headrace
from headrace.artifact.pool import HUGE_PAGE_BYTES
from headrace.artifact.reader import open_artifact
from headrace.base.errors import HeadraceError, error
from headrace.base.knobs import TUNED, cache_directory

MAXIMUM_BYTES = 1 << 30
"""A larger `.hrx` is not kept."""

TOTAL_BYTES = 4 << 30
"""What all entries together may take."""

COPIED_BYTES = 4 * HUGE_PAGE_BYTES
"""Written at once. A file written in whole pages of 2 MiB stands so in the page cache, and
mappings of it take them whole (`artifact/pool.py`); the kernel's own copies (`sendfile`)
come in pieces of 64 KiB, from which weights streamed at 22 GB/s instead of over 700."""

_LIBRARIES = ("llvmlite", "triton", "onnx", "xdsl", "numpy", "jaxlib", "keras")
_LOCATION = b"\x0a\x08location\x12"
"""How a protobuf entry with the key `location` begins: ONNX's external weights."""

_KEY_DIGITS = 32


Files = Sequence[tuple[str, Path]]
"""(entry function, model file); the entry is empty where functions keep their names."""


def model_key(
    models: Files,
    targets: Sequence[str],
    level: int,
    choices: Mapping[str, object],
) -> str:
    """What a compilation is kept under.

    Raises:
        OSError: a model cannot be read.
    """
    hashed = hashlib.sha256()
    for part in (
        *([(entry, model.name) for entry, model in models], *targets, level),
        *(
            sorted(choices.items()),
            _package_digest(),
            _tuned_digest(),
            _processor(),
            *_versions(),
        ),
    ):
        text = repr(part).encode()
        hashed.update(f"{len(text)} ".encode() + text)
    for _, model in models:
        hashed.update(_file_digest(model))
    return hashed.hexdigest()[:_KEY_DIGITS]


def _file_digest(model: Path) -> bytes:
    """The digest of a model file and of what tells the files of its weights apart."""
    hashed = hashlib.sha256()
    with model.open("rb") as file:
        if os.fstat(file.fileno()).st_size:
            with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
                for name in _external_names(data):
                    hashed.update(repr(_identity(model.parent / name)).encode())
                hashed.update(data)
    return hashed.digest()


def _external_names(data: mmap.mmap) -> list[str]:
    """Names of files that an ONNX model keeps weights in; each once, in order."""
    found: dict[str, None] = {}
    at = data.find(_LOCATION)
    while at >= 0:
        at += len(_LOCATION)
        # A length of one or two bytes: file names are short.
        size, start = data[at], at + 1
        if size > 127:
            size, start = size - 128 + 128 * data[at + 1], at + 2
        found[data[start : start + size].decode("utf-8", "replace")] = None
        at = data.find(_LOCATION, at)
    return list(found)


def _identity(path: Path) -> tuple[str, int, int, int]:
    try:
        status = path.stat()
    except (OSError, ValueError):
        return (path.name, 0, 0, 0)
    return (path.name, status.st_size, status.st_mtime_ns, status.st_ino)


@cache
def _package_digest() -> str:
    root = Path(headrace.__file__).parent
    hashed = hashlib.sha256()
    for path in sorted(p for p in root.rglob("*") if p.suffix in (".py", ".json")):
        data = path.read_bytes()
        hashed.update(f"{path.relative_to(root)} {len(data)}\n".encode() + data)
    return hashed.hexdigest()


def _tuned_digest() -> str:
    """Of the tables of schedules that `headrace tune` made here."""
    hashed = hashlib.sha256()
    if TUNED.enabled:
        for path in sorted((cache_directory() / "tuned").glob("*.json")):
            hashed.update(path.read_bytes())
    return hashed.hexdigest()


@cache
def _processor() -> str:
    """The flags of this processor, which `cpu:native` compiles for."""
    with suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("flags"):
                return line
    return ""


@cache
def _versions() -> tuple[str, ...]:
    from importlib.metadata import PackageNotFoundError, version

    found: list[str] = []
    for name in _LIBRARIES:
        with suppress(PackageNotFoundError):
            found.append(f"{name} {version(name)}")
    return tuple(found)


def kept_path(models: Files, key: str) -> Path:
    """Where what was made of models stands, or would."""
    return cache_directory() / "models" / f"{models[0][1].stem}-{key}.hrx"


def is_sound(path: Path) -> bool:
    """Whether an entry is there and whole: code and weights have their digests."""
    if not path.is_file():
        return False
    try:
        open_artifact(path).verify_weights()
    except (HeadraceError, OSError):
        return False
    return True


def copy_kept(path: Path, output: Path) -> bool:
    """Copies a sound entry to where the user wants it, whole or not at all."""
    return is_sound(path) and _copy(path, output)


def keep(output: Path, path: Path) -> None:
    """Keeps a copy of a compiled model, unless it is large or there is no room."""
    try:
        size = output.stat().st_size
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    except OSError:
        return
    if size <= MAXIMUM_BYTES and _copy(output, path):
        make_room(path)


def make_room(newest: Path) -> None:
    """Deletes the oldest entries until all fit into `TOTAL_BYTES`; never `newest`."""
    entries: list[tuple[int, int, Path]] = []
    for path in newest.parent.glob("*.hrx"):
        with suppress(OSError):
            status = path.stat()
            entries.append((status.st_mtime_ns, status.st_size, path))
    total = sum(size for _, size, _ in entries)
    for _, size, path in sorted(entries):
        if total <= TOTAL_BYTES:
            return
        if path != newest:
            with suppress(OSError):
                path.unlink()
                total -= size


def _copy(source: Path, target: Path) -> bool:
    try:
        handle, name = tempfile.mkstemp(prefix=f".{target.name}.", dir=target.parent)
    except OSError:
        return False
    try:
        with source.open("rb", buffering=0) as old, os.fdopen(handle, "wb") as new:
            shutil.copyfileobj(old, new, COPIED_BYTES)
        os.chmod(name, source.stat().st_mode & 0o777)
        os.replace(name, target)
    except OSError:
        with suppress(OSError):
            os.unlink(name)
        return False
    except BaseException:
        with suppress(OSError):
            os.unlink(name)
        raise
    return True


Compile = Callable[[Path], None]


def _make_folder(folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    except OSError as wrong:
        raise error(
            "HR0130",
            "the cache cannot be written, where a model file is compiled before it runs",
            at=str(folder),
            notes=wrong.strerror or str(wrong),
            helps=(
                "compile it first: headrace compile MODEL -o model.hrx",
                "or set HEADRACE_CACHE_DIR to a folder that can be written",
            ),
        ) from wrong


def compiled_once(
    models: Files,
    output: Path | None,
    targets: Sequence[str],
    level: int,
    choices: Mapping[str, object],
    compile_to: Compile,
) -> Path:
    """Models compiled by `compile_to(path)`, unless that was done before.

    Args:
        output: the file to write; None for the entry in the cache itself.
        choices: all else that was asked for, by name.

    Returns:
        `output`, or the entry.
    """
    try:
        entry = kept_path(models, model_key(models, targets, level, choices))
    except OSError:
        if output is None:
            raise
        compile_to(output)  # which says better what is wrong
        return output
    if output is None:
        if not is_sound(entry):
            _make_folder(entry.parent)
            compile_to(entry)
            make_room(entry)
        return entry
    if not copy_kept(entry, output):
        compile_to(output)
        keep(output, entry)
    return output
