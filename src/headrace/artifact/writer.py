"""Writes a `.hrx`: evaluates weights one at a time, streams them, then says where they are.

The file appears whole or not at all: everything goes to a temporary file beside the
target, which takes the target's name at the end. Nothing in it depends on the time, the
folder or the order of sets, so the same module gives the same bytes.
"""

from __future__ import annotations

import hashlib
import os
import tempfile
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, TypeAlias

from headrace.artifact.container import (
    HEADER_BYTES,
    PAGE_BYTES,
    Header,
    Section,
    aligned,
    pack_code,
    pack_header,
    pack_module,
    pool_digest,
)
from headrace.artifact.pool import PoolLayout, Reading, pool_offset_bytes, storage_order
from headrace.artifact.schema import (
    DimensionRange,
    Module,
    Program,
    Provenance,
    Segment,
    Weight,
)
from headrace.artifact.whole_pages import WholePages
from headrace.base.dtypes import DType
from headrace.base.errors import error
from headrace.base.exponent_codes import ExponentCodes
from headrace.base.parameters import Source

_CHUNK_BYTES = 8 << 20
_ZEROS = memoryview(bytes(4096))

Evaluate = Callable[[Source], Any]
Progress = Callable[[int, int], None]


@dataclass(frozen=True)
class WeightSpec:
    """One weight to store.

    Attributes:
        name: the parameter's name in the user's model.
        source: what gives its bytes, in the layout that kernels want.
        size_bytes: bytes that evaluating `source` yields.
        step_bytes: where it may be cut; every slice rule that reads it cuts at a divisor
            of this. 0 where it may not be cut.
        dtype, shape: logical, before layout.
        row_bytes: see `schema.Weight.row_bytes`.
        uses: how many commands read it.
        codes: see `schema.Weight.codes`.
    """

    name: str
    source: Source
    size_bytes: int
    step_bytes: int
    dtype: DType
    shape: tuple[int, ...]
    row_bytes: int = 0
    uses: int = 1
    codes: ExponentCodes | None = None


@dataclass(frozen=True)
class ModuleParts:
    """What a module says beside its weights; `Resource.weight` counts `WeightSpec`s.

    Attributes:
        code: blobs; `Variant.code` counts them.
    """

    name: str
    dimensions: tuple[DimensionRange, ...]
    programs: tuple[Program, ...]
    provenance: Provenance
    code: tuple[bytes, ...]


def write_artifact(
    path: str | os.PathLike[str],
    module_parts: ModuleParts,
    weights: Sequence[WeightSpec],
    evaluate: Evaluate,
    progress: Progress | None = None,
) -> Module:
    """Writes the `.hrx` at `path` and returns the module it holds.

    `weights` stand in order of first use. Each distinct source is evaluated once, in
    the order of storage (`pool.storage_order`); of equal bytes one copy is stored. While a
    weight is written the next is evaluated and hashed by another thread, so two are in
    memory at a time. `progress(done_bytes, total_bytes)` is called as bytes are written.

    Args:
        evaluate: gives a numpy array or a bytes-like object of `size_bytes` bytes.

    Raises:
        HeadraceError HR3101: the target folder cannot be written or the disk is full.
        HeadraceDefect HR9311: a source yields another number of bytes than its spec.
    """
    target = Path(path)
    try:
        handle, temporary = tempfile.mkstemp(
            prefix=f".{target.name}.", suffix=".part", dir=target.parent
        )
    except OSError as problem:
        raise _unwritable(target, problem) from problem
    try:
        with os.fdopen(handle, "w+b") as file:
            module = _write(file, module_parts, weights, evaluate, progress)
        os.chmod(temporary, 0o666 & ~_umask())
        os.replace(temporary, target)
    except BaseException as problem:
        with suppress(OSError):
            os.unlink(temporary)
        if isinstance(problem, OSError) and problem.filename in (None, temporary):
            raise _unwritable(target, problem) from problem
        raise
    return module


def _umask() -> int:
    """The process's file mode mask; it can only be read by setting it."""
    mask = os.umask(0o022)
    os.umask(mask)
    return mask


def _unwritable(target: Path, problem: OSError) -> Exception:
    return error(
        "HR3101",
        "the compiled model cannot be written",
        at=str(target),
        notes=problem.strerror or str(problem),
    )


def _write(
    file: IO[bytes],
    parts: ModuleParts,
    specs: Sequence[WeightSpec],
    evaluate: Evaluate,
    progress: Progress | None,
) -> Module:
    classes = {p.device_class for p in parts.programs}
    reading: Reading = "both"
    if "cpu" not in classes:
        reading = "brought"
    elif classes == {"cpu"}:
        reading = "in place"
    pool = _PoolWriter(file, specs, evaluate, progress, reading)
    weights = pool.write_all()
    segments = pool.segments()
    module = Module(
        parts.name, parts.dimensions, parts.programs, weights, segments, parts.provenance
    )
    pool_bytes = segments[-1].offset_bytes + segments[-1].size_bytes if segments else 0
    code_at = pool.file_offset_bytes + pool_bytes
    code = _append(file, code_at, pack_code(parts.code))
    text = _append(file, aligned(code_at + code.size_bytes), pack_module(module))
    header = Header(
        Section(pool.file_offset_bytes, pool_bytes, pool_digest(segments)), code, text
    )
    file.seek(0)
    file.write(pack_header(header).ljust(max(PAGE_BYTES, HEADER_BYTES), b"\0"))
    return module


def _append(file: IO[bytes], offset: int, data: bytes) -> Section:
    file.seek(offset)
    file.write(data)
    return Section(offset, len(data), hashlib.sha256(data).digest())


_Key: TypeAlias = tuple[str, int, int]
"""Source or bytes, `step_bytes`, `row_bytes`."""


class _Ahead:
    """The data of weights in order, each made while the one before is written."""

    def __init__(
        self,
        thread: ThreadPoolExecutor,
        make: Callable[[WeightSpec], tuple[memoryview, str]],
        specs: Iterable[WeightSpec],
    ) -> None:
        self._thread = thread
        self._make = make
        self._specs = iter(specs)
        self._coming = self._start()

    def _start(self) -> Future[tuple[memoryview, str]] | None:
        spec = next(self._specs, None)
        return None if spec is None else self._thread.submit(self._make, spec)

    def next(self) -> tuple[memoryview, str]:
        """The bytes and digest of the next weight. Raises what making them raised."""
        assert self._coming is not None
        found = self._coming.result()
        self._coming = self._start()
        return found


class _PoolWriter:
    """Streams weights into the file and hashes segments as they fill."""

    def __init__(
        self,
        file: IO[bytes],
        specs: Sequence[WeightSpec],
        evaluate: Evaluate,
        progress: Progress | None,
        reading: Reading,
    ) -> None:
        self._specs = specs
        self._evaluate = evaluate
        self._progress = progress
        self._by_source: dict[_Key, tuple[int, str]] = {}
        self._by_content: dict[_Key, int] = {}
        # Equal sources are stored once, so they count once in what segments aim at.
        distinct = {self._key(s): s.size_bytes for s in specs}
        self._total = sum(distinct.values())
        self._done = 0
        self._layout = PoolLayout(self._total, reading)
        self.file_offset_bytes = pool_offset_bytes(self._total)
        self._segments = _SegmentHasher(self._layout)
        self._pages = WholePages(file, self.file_offset_bytes)

    @staticmethod
    def _key(spec: WeightSpec) -> _Key:
        """Equal bytes are shared only where they may be cut alike."""
        return spec.source.digest, spec.step_bytes, spec.row_bytes

    def write_all(self) -> tuple[Weight, ...]:
        groups = storage_order(self._specs)
        first = {
            self._key(s): s for group in groups for s in map(self._specs.__getitem__, group)
        }
        with ThreadPoolExecutor(1) as thread:
            ahead = _Ahead(thread, self._data, first.values())
            return self._write_groups(groups, ahead)

    def _write_groups(
        self, groups: Sequence[Sequence[int]], ahead: _Ahead
    ) -> tuple[Weight, ...]:
        found: dict[int, Weight] = {}
        for group in groups:
            for index in group:
                spec = self._specs[index]
                offset, digest = self._store(spec, ahead)
                found[index] = Weight(
                    spec.name,
                    offset,
                    spec.size_bytes,
                    digest,
                    spec.dtype,
                    spec.shape,
                    spec.step_bytes,
                    spec.row_bytes,
                    spec.codes,
                )
            self._layout.close()
        return tuple(found[i] for i in range(len(self._specs)))

    def _data(self, spec: WeightSpec) -> tuple[memoryview, str]:
        """A weight's bytes and their digest."""
        data = _as_bytes(self._evaluate(spec.source))
        if data.nbytes != spec.size_bytes:
            raise error(
                "HR9311",
                f"weight '{spec.name}' has {data.nbytes} bytes, not {spec.size_bytes}",
            )
        return data, hashlib.sha256(data).hexdigest()

    def _store(self, spec: WeightSpec, ahead: _Ahead) -> tuple[int, str]:
        known = self._by_source.get(self._key(spec))
        if known is not None:
            return known
        data, digest = ahead.next()
        content = (digest, spec.step_bytes, spec.row_bytes)
        offset = self._by_content.get(content)
        if offset is None:
            offset = self._layout.place(spec.size_bytes, spec.step_bytes, spec.row_bytes)
            self._by_content[content] = offset
            self._segments.skip_to(offset)
            self._pages.skip_to(self.file_offset_bytes + offset)
            for start in range(0, data.nbytes, _CHUNK_BYTES):
                chunk = data[start : start + _CHUNK_BYTES]
                self._pages.write(chunk)
                self._segments.feed(chunk)
                self._advance(len(chunk))
        else:
            self._advance(spec.size_bytes)
        self._by_source[self._key(spec)] = (offset, digest)
        return offset, digest

    def _advance(self, size_bytes: int) -> None:
        self._done += size_bytes
        if self._progress is not None:
            self._progress(self._done, self._total)

    def segments(self) -> tuple[Segment, ...]:
        """The segments, once all weights are written."""
        self._pages.flush()
        return self._segments.finish()


class _SegmentHasher:
    """Hashes segments as the pool is written, so that nothing is read back.

    The layout has always closed a segment before bytes after it come.
    """

    def __init__(self, layout: PoolLayout) -> None:
        self._layout = layout
        self._position = 0
        self._hash = hashlib.sha256()
        self._found: list[Segment] = []

    def feed(self, data: memoryview) -> None:
        """Takes the next bytes of the pool."""
        while data:
            count = len(data)
            if len(self._found) < len(self._layout.spans):
                span = self._layout.spans[len(self._found)]
                count = min(count, span.offset_bytes + span.size_bytes - self._position)
            self._hash.update(data[:count])
            self._position += count
            data = data[count:]
            self._close_full()

    def _close_full(self) -> None:
        if len(self._found) == len(self._layout.spans):
            return
        span = self._layout.spans[len(self._found)]
        if self._position == span.offset_bytes + span.size_bytes:
            digest = self._hash.hexdigest()
            self._found.append(Segment(span.offset_bytes, span.size_bytes, digest))
            self._hash = hashlib.sha256()

    def skip_to(self, offset_bytes: int) -> None:
        """Takes the zeros between weights."""
        self._close_full()
        gap = offset_bytes - self._position
        while gap:
            count = min(gap, len(_ZEROS))
            self.feed(_ZEROS[:count])
            gap -= count

    def finish(self) -> tuple[Segment, ...]:
        """All segments; the last is filled with zeros."""
        if self._layout.spans:
            last = self._layout.spans[-1]
            self.skip_to(last.offset_bytes + last.size_bytes)
        return tuple(self._found)


def _as_bytes(value: Any) -> memoryview:
    """The bytes of a numpy array or bytes-like object, without a copy where dense."""
    if isinstance(value, (bytes, bytearray, memoryview)):
        return memoryview(value).cast("B")
    import numpy as np

    dense = np.ascontiguousarray(value)
    if not dense.size:
        return memoryview(b"")
    flat: Any = dense.reshape(-1).view(np.uint8)
    return memoryview(flat)
