"""Opens a `.hrx`: checks every size, offset, index and reference; executes nothing.

The pool is not read: `verify_weights` compares it with its digests on demand.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import IO

from headrace.artifact import container
from headrace.artifact.check import check_module
from headrace.artifact.codec import CodecError, decode
from headrace.artifact.container import Header, Section
from headrace.artifact.schema import FORMAT_VERSION, Module
from headrace.base.errors import Diagnostic, HeadraceError, Problems, error

_CHUNK_BYTES = 8 << 20


@dataclass(frozen=True)
class FileIdentity:
    """Tells whether a path still names the file that was opened."""

    device: int
    inode: int
    size_bytes: int
    modified_ns: int


@dataclass(frozen=True)
class Artifact:
    """An opened, checked `.hrx`; holds no open file.

    Attributes:
        module: what the file says.
        path: absolute.
        pool_offset_bytes: where the pool starts in the file, aligned 4 KiB.
        pool_size_bytes: all segments.
        file_identity: of the file that was checked.
        digest: sha256 of the header: names module, code and weights together.
    """

    module: Module
    path: str
    pool_offset_bytes: int
    pool_size_bytes: int
    file_identity: FileIdentity
    digest: str
    _code: bytes = field(repr=False)
    _blobs: tuple[tuple[int, int], ...] = field(repr=False)

    def code(self, index: int) -> bytes:
        """The bytes of code blob `index` (`Variant.code`)."""
        offset, size = self._blobs[index]
        return self._code[offset : offset + size]

    def verify_weights(self) -> None:
        """Reads every segment and compares it with its digest.

        Raises:
            HeadraceError HR3106: segments differ; all are listed.
            HeadraceError HR3105: the file is another one than was opened.
        """
        problems = Problems()
        with open(self.path, "rb") as file:
            if _identity(file) != self.file_identity:
                raise error("HR3105", "the file has changed since it was opened", at=self.path)
            for index, segment in enumerate(self.module.segments):
                file.seek(self.pool_offset_bytes + segment.offset_bytes)
                if _digest_of(_chunks(file, segment.size_bytes)) == segment.digest:
                    continue
                problems.add(
                    Diagnostic(
                        "HR3106",
                        "weights are damaged",
                        (f"{self.path}: segment {index} at {segment.offset_bytes}",),
                    )
                )
        problems.raise_if_any()


def open_artifact(path: str | os.PathLike[str]) -> Artifact:
    """Opens and checks the `.hrx` at `path`.

    Raises:
        HeadraceError HR3102: no such file, or it cannot be read.
        HeadraceError HR3103: not a `.hrx`, or one of another format version.
        HeadraceError HR3104: it is damaged or inconsistent; every problem is listed.
    """
    name = os.path.abspath(os.fspath(path))
    try:
        with open(name, "rb") as file:
            return _open(file, name)
    except OSError as problem:
        raise error(
            "HR3102",
            "the compiled model cannot be read",
            at=name,
            notes=problem.strerror or str(problem),
            helps="give the path of a file that `headrace compile` wrote",
        ) from problem


def _open(file: IO[bytes], path: str) -> Artifact:
    identity = _identity(file)
    header = _read_header(file, path)
    _check_sections(header, identity.size_bytes, path)
    code = _read_section(file, header.code, "code", path)
    text = _read_section(file, header.module, "module", path)
    blobs = container.unpack_code(code)
    if blobs is None:
        raise _damaged(path, "the table of code does not fit its section")
    try:
        module: Module = decode(container.parse_module(text), Module)
    except RecursionError as problem:
        raise _damaged(path, "the module is nested too deeply") from problem
    except (CodecError, ValueError) as problem:
        raise _damaged(path, "the module cannot be understood", str(problem)) from problem
    facts = check_module(module, header.pool.size_bytes, len(blobs))
    if container.pool_digest(module.segments) != header.pool.digest:
        facts.append("the segments are not those the header names")
    if facts:
        raise HeadraceError([Diagnostic("HR3104", fact, (path,)) for fact in facts[:20]])
    return Artifact(
        module,
        path,
        header.pool.offset_bytes,
        header.pool.size_bytes,
        identity,
        hashlib.sha256(container.pack_header(header)).hexdigest(),
        code,
        tuple(blobs),
    )


def _identity(file: IO[bytes]) -> FileIdentity:
    status = os.fstat(file.fileno())
    return FileIdentity(status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns)


def _damaged(path: str, fact: str, *notes: str) -> HeadraceError:
    return error("HR3104", fact, at=path, notes=notes, helps="compile the model again")


def _read_header(file: IO[bytes], path: str) -> Header:
    data = file.read(container.HEADER_BYTES)
    if data[: len(container.MAGIC)] != container.MAGIC:
        raise error(
            "HR3103",
            "the file is empty" if not data else "this is no .hrx file",
            at=path,
            helps="give a file that `headrace compile` wrote",
        )
    if len(data) < container.HEADER_BYTES:
        raise _damaged(path, "the file ends inside its header")
    _, version, flags = container.unpack_prefix(data)
    if version != FORMAT_VERSION:
        age = "newer" if version > FORMAT_VERSION else "older"
        cure = "update headrace" if version > FORMAT_VERSION else "compile the model again"
        raise error(
            "HR3103",
            f"the file has format version {version}, {age} than this headrace reads",
            at=path,
            notes=f"this headrace reads version {FORMAT_VERSION}",
            helps=cure,
        )
    header = container.unpack_header(data)
    if header is None:
        raise _damaged(path, "the header is damaged")
    if flags:
        raise error("HR3103", f"the file has unknown flags {flags:#x}", at=path)
    return header


def _check_sections(header: Header, file_bytes: int, path: str) -> None:
    facts: list[str] = []
    pool, code, module = header.pool, header.code, header.module
    if pool.offset_bytes % container.PAGE_BYTES or pool.size_bytes % container.PAGE_BYTES:
        facts.append("the pool is not aligned to pages")
    if module.size_bytes > container.MAXIMUM_MODULE_BYTES:
        facts.append(f"the module takes {module.size_bytes} bytes, more than is allowed")
    if code.size_bytes > container.MAXIMUM_CODE_BYTES:
        facts.append(f"the code takes {code.size_bytes} bytes, more than is allowed")
    end = container.HEADER_BYTES
    for name, section in (("pool", pool), ("code", code), ("module", module)):
        if section.offset_bytes < end:
            facts.append(f"section {name} overlaps what stands before it")
        end = section.offset_bytes + section.size_bytes
        if end > file_bytes:
            facts.append(f"section {name} ends at {end}, after the file's {file_bytes} bytes")
    if facts:
        raise HeadraceError([Diagnostic("HR3104", fact, (path,)) for fact in facts])


def _read_section(file: IO[bytes], section: Section, name: str, path: str) -> bytes:
    file.seek(section.offset_bytes)
    data = file.read(section.size_bytes)
    if hashlib.sha256(data).digest() != section.digest:
        raise _damaged(path, f"section {name} does not have its digest")
    return data


def _chunks(file: IO[bytes], size_bytes: int) -> Iterator[bytes]:
    while size_bytes:
        chunk = file.read(min(size_bytes, _CHUNK_BYTES))
        if not chunk:
            return
        size_bytes -= len(chunk)
        yield chunk


def _digest_of(chunks: Iterator[bytes]) -> str:
    hashed = hashlib.sha256()
    for chunk in chunks:
        hashed.update(chunk)
    return hashed.hexdigest()
