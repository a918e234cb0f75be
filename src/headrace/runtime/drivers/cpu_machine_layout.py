"""The command machine's layout: operations, contexts and constants shared with its text."""

from __future__ import annotations

from enum import IntEnum


class Operation(IntEnum):
    """What a command does; the operands are its words 1 to 7.

    END: stops with status 0.
    DISPATCH: function, arguments, tiles, chunks, scratch of worker 0, scratch stride,
        record: runs all tiles, in parallel where `chunks` > 1.
    JUMP: bytes: relative to this command.
    BRANCH: scalar, bytes: jumps where the byte at `scalar` is zero.
    FETCH: as the first four of DISPATCH with a kernel that works on a range of the pool;
        next address, next bytes, record. Where this kind of call has turned out slow
        (the file is not cached), the next range is announced to the page cache first.
    PATCH: table, entries: each entry `{slot address, buffer index, offset}` gets the
        address of an external buffer.
    CLEAR: bytes, address: sets them to 0.
    """

    END = 0
    DISPATCH = 1
    JUMP = 2
    BRANCH = 3
    FETCH = 4
    PATCH = 5
    CLEAR = 6


class Context(IntEnum):
    """Word indices of a run's context (24 words of 64 bits).

    CANCEL: low 32 bits: not zero stops the run; the status is its value.
    RECORDS: address of pairs (nanoseconds added up, how often) per record of a dispatch;
        0 for none.
    FETCH_RECORDS: address of pairs like these per record of a FETCH; 0 for none.
    CATCH: not zero: SIGINT cancels the run (only for the main thread).
    EXTERNALS: address of the external buffers' addresses.
    THREADS: how many threads may work, the caller included.
    ERROR_NUMBER: errno of the system call that failed.
    FAILED_ADDRESS: what that call was about.
    POOL_BEGIN, POOL_END: the mapped file; 0 for none. A page of it that is gone (the file
        was cut) stops the run instead of the process.
    TRACE: address of a table of what ran when; 0 for none. Its words: entries taken, room for
        entries, then for each a kind (`TraceKind`), a record, begin and end in ns.
    COLD: how many more times the next range is announced; set when a fetch is slow.
    ARRAYS, ARRAY_COUNT: address of the numpy arrays of a call (the objects) and how many
        they are; `@call` reads where their data stand.
    UNALIGNED: mask of address bits that no array may have.
    DESCRIPTOR, IDENTITY: of the mapped file, and the address of its inode, bytes and
        nanoseconds of modification, which must still be so before a run; 0 for none.
    """

    CANCEL = 0
    RECORDS = 1
    FETCH_RECORDS = 2
    CATCH = 3
    EXTERNALS = 4
    THREADS = 5
    ERROR_NUMBER = 6
    FAILED_ADDRESS = 7
    COLD = 8
    POOL_BEGIN = 9
    POOL_END = 10
    ARRAYS = 11
    ARRAY_COUNT = 12
    UNALIGNED = 13
    DESCRIPTOR = 14
    IDENTITY = 15
    TRACE = 16


class TraceKind(IntEnum):
    """What an entry of a trace is of: a dispatch, or a range of the pool brought or dropped.

    SLICE is the moment inside a dispatch at which it goes on with a slice (its record).
    """

    DISPATCH = 0
    BRING = 1
    DROP = 2
    SLICE = 3


CONTEXT_WORDS = 24
TRACE_HEADER_WORDS = 2
TRACE_ENTRY_WORDS = 4
COMMAND_BYTES = 64
CHAIN_HEADER_WORDS = 2
CHAIN_ITEM_WORDS = 8
MAXIMUM_CHUNKS = 65535
"""A dispatch counts its chunks in 16 bits."""

STATUS_FINISHED = 0
STATUS_INTERRUPTED = 1
STATUS_FAILED_CALL = 2
STATUS_FILE_CHANGED = 3
STATUS_UNALIGNED = 4

WORKER_SPINS = 4000
"""About 60 us of pauses before an idle worker sleeps (measured: waking costs 14 us)."""

JOIN_SPINS_BEFORE_YIELD = 20000
SYS_SCHED_YIELD = 24
SLOW_NS = 250_000
SLOW_BYTES_PER_NS = 2
COLD_FETCHES = 16
"""A fetch slower than this reads the disk; the next so many are announced ahead."""

TILE_BYTES = 1 << 16
"""Bytes one tile of the built-in `fill` and `copy` kernels handles."""

WINDOW_BYTES = 1 << 16
"""What Linux maps around a page that is touched (`fault_around_bytes`, unless tuned)."""
