"""The outer form of a `.hrx`: one page of header, then pool, code and module.

The pool stands first, at 4 KiB, because the writer streams it before it knows what the
module will say about it (digests, shared weights); the other sections follow::

    0       header: magic, version, flags, three sections, digest of all this
    4096    pool: weights, cut in segments
    ...     code: count, then offset and size of each blob, then the blobs
    ...     module: canonical JSON of `schema.Module`

A section is `offset u64, size u64, sha256`, little-endian. The pool's digest is the
sha256 of its segments' digests, so that opening never reads the weights.
"""

from __future__ import annotations

import hashlib
import json
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from headrace.artifact.codec import encode
from headrace.artifact.schema import FORMAT_VERSION, Module, Segment

MAGIC = b"\x89HRX\r\n\x1a\n"
PAGE_BYTES = 4096
ALIGNMENT_BYTES = 64
MAXIMUM_MODULE_BYTES = 256 << 20
MAXIMUM_CODE_BYTES = 2 << 30

_PREFIX = struct.Struct("<8sII")
_SECTION = struct.Struct("<QQ32s")
_BLOB = struct.Struct("<QQ")
_COUNT = struct.Struct("<Q")
HEADER_BYTES = _PREFIX.size + 3 * _SECTION.size + 32


@dataclass(frozen=True)
class Section:
    """A part of the file and the sha256 of what stands there."""

    offset_bytes: int
    size_bytes: int
    digest: bytes


@dataclass(frozen=True)
class Header:
    """The first bytes of the file."""

    pool: Section
    code: Section
    module: Section
    version: int = FORMAT_VERSION
    flags: int = 0


def aligned(value: int, alignment: int = PAGE_BYTES) -> int:
    """`value` rounded up to a multiple of `alignment`."""
    return -(-value // alignment) * alignment


def pack_header(header: Header) -> bytes:
    """The header's bytes, `HEADER_BYTES` long."""
    data = _PREFIX.pack(MAGIC, header.version, header.flags)
    for section in (header.pool, header.code, header.module):
        data += _SECTION.pack(section.offset_bytes, section.size_bytes, section.digest)
    return data + hashlib.sha256(data).digest()


def unpack_prefix(data: bytes) -> tuple[bytes, int, int]:
    """Magic, version and flags; these keep their place in every version."""
    magic, version, flags = _PREFIX.unpack_from(data)
    return magic, version, flags


def unpack_header(data: bytes) -> Header | None:
    """The header, or None where its own digest does not fit."""
    body, digest = data[: HEADER_BYTES - 32], data[HEADER_BYTES - 32 : HEADER_BYTES]
    if hashlib.sha256(body).digest() != digest:
        return None
    _, version, flags = _PREFIX.unpack_from(body)
    sections = [
        Section(*_SECTION.unpack_from(body, _PREFIX.size + i * _SECTION.size)) for i in range(3)
    ]
    return Header(sections[0], sections[1], sections[2], version, flags)


def pool_digest(segments: Sequence[Segment]) -> bytes:
    """The digest of a pool: of its segments' digests in order."""
    return hashlib.sha256("\n".join(s.digest for s in segments).encode()).digest()


def pack_code(blobs: Sequence[bytes]) -> bytes:
    """The code section: a table of blobs, then the blobs, each aligned 64."""
    table = _COUNT.size + len(blobs) * _BLOB.size
    places: list[bytes] = []
    body = bytearray()
    start = aligned(table, ALIGNMENT_BYTES)
    for blob in blobs:
        body.extend(bytes(-len(body) % ALIGNMENT_BYTES))
        places.append(_BLOB.pack(start + len(body), len(blob)))
        body.extend(blob)
    head = _COUNT.pack(len(blobs)) + b"".join(places)
    return head + bytes(start - len(head)) + bytes(body)


def unpack_code(data: bytes) -> list[tuple[int, int]] | None:
    """Offset and size of each blob in the code section; None where they do not fit it."""
    if len(data) < _COUNT.size:
        return None
    (count,) = _COUNT.unpack_from(data)
    if count > (len(data) - _COUNT.size) // _BLOB.size:
        return None
    places: list[tuple[int, int]] = []
    end = _COUNT.size + count * _BLOB.size
    for index in range(count):
        offset, size = _BLOB.unpack_from(data, _COUNT.size + index * _BLOB.size)
        if offset < end or offset + size > len(data):
            return None
        places.append((offset, size))
        end = offset + size
    return places


def pack_module(module: Module) -> bytes:
    """Canonical JSON: fields in the order of the schema, no blanks, ASCII."""
    return json.dumps(encode(module, Module), separators=(",", ":"), ensure_ascii=True).encode()


def parse_module(data: bytes) -> Any:
    """The JSON value of a module section. Raises ValueError where it is no JSON."""
    try:
        return json.loads(data, parse_constant=_refuse_constant)
    except RecursionError as problem:
        raise ValueError("it is nested too deeply") from problem


def _refuse_constant(name: str) -> Any:
    raise ValueError(f"{name} is no number")
