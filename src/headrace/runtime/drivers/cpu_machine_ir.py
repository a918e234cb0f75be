"""The CPU command machine as LLVM IR text: a worker pool and a loop over commands.

A command is eight 64-bit words: the operation and its operands. The plan fills a buffer
of them once; a step only walks it. Nothing here depends on a model, a plan or a budget.

The pool follows one rule: a dispatch is a word `{generation:32, chunks:16, next:16}`.
Whoever raises `next` by compare-and-swap owns that chunk, and the dispatch is over when
as many chunks are *finished* as there are. No worker has to check in, so one that the
kernel has descheduled delays nothing but the chunk it holds.
"""

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
    """

    END = 0
    DISPATCH = 1
    JUMP = 2
    BRANCH = 3
    FETCH = 4
    PATCH = 5


class Context(IntEnum):
    """Word indices of a run's context (16 words of 64 bits).

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
    COLD: how many more times the next range is announced; set when a fetch is slow.
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


CONTEXT_WORDS = 16
COMMAND_BYTES = 64

STATUS_FINISHED = 0
STATUS_INTERRUPTED = 1
STATUS_FAILED_CALL = 2

WORKER_SPINS = 4000
"""About 60 us of pauses before an idle worker sleeps (measured: waking costs 14 us)."""

JOIN_SPINS_BEFORE_YIELD = 20000
SLOW_NS = 250_000
SLOW_BYTES_PER_NS = 2
COLD_FETCHES = 16
"""A fetch slower than this reads the disk; the next so many are announced ahead."""

TILE_BYTES = 1 << 16
"""Bytes one tile of the built-in `fill` and `copy` kernels handles."""

RANGE_TILE_BYTES = 1 << 18
"""Bytes one tile of the built-in `advise` and `touch` kernels handles."""

_SYS_FUTEX = 202
_FUTEX_WAIT_PRIVATE = 128
_FUTEX_WAKE_PRIVATE = 129
_SYS_SCHED_YIELD = 24
_MADV_WILLNEED = 3
_SIGINT, _SIGBUS = 2, 7
_SA_SIGINFO = 4
_EFAULT = 14


_DECLARATIONS = """
declare i64 @syscall(i64, ...)
declare i32 @sigaction(i32, ptr, ptr)
declare i32 @clock_gettime(i32, ptr)
declare i32 @madvise(ptr, i64, i32)
declare ptr @__errno_location()
declare ptr @mmap(ptr, i64, i32, i32, i32, i64)
declare void @llvm.x86.sse2.pause()
declare void @llvm.memcpy.p0.p0.i64(ptr, ptr, i64, i1)

; {generation:32, chunks:16, next:16}; the generation is what sleeping workers watch.
@work = global i64 0, align 64
@done = global i64 0, align 64
; function, arguments, tiles, chunks, scratch, stride, threads, context
@job = global [8 x i64] zeroinitializer, align 64
@sleepers = global i32 0, align 64
@stop = global i32 0, align 64
; threads in the pool, the caller included
@pool = global i64 1, align 64
@active = internal global ptr null, align 64
; struct sigaction of glibc on x86-64: handler, mask (128 bytes), flags, restorer
@previous_interrupt = internal global [19 x i64] zeroinitializer, align 64
@interrupt_action = internal global [19 x i64] zeroinitializer, align 64
@previous_bus = internal global [19 x i64] zeroinitializer, align 64
@bus_action = internal global [19 x i64] zeroinitializer, align 64
"""

_POOL = f"""
define internal i64 @now() {{
  %time = alloca [2 x i64], align 16
  %rc = call i32 @clock_gettime(i32 1, ptr %time)
  %seconds = load i64, ptr %time
  %at = getelementptr i64, ptr %time, i64 1
  %ns = load i64, ptr %at
  %scaled = mul i64 %seconds, 1000000000
  %sum = add i64 %scaled, %ns
  ret i64 %sum
}}

; Takes chunks until none is left. Threads beyond the job's limit take none: the limit is
; read between loading the word and swapping it, so it belongs to that generation.
define internal void @drain(i64 %id) noinline {{
entry:
  br label %top
top:
  %loaded = load atomic i64, ptr @work acquire, align 64
  br label %try
try:
  %word = phi i64 [ %loaded, %top ], [ %seen, %claim ]
  %next = and i64 %word, 65535
  %high = lshr i64 %word, 16
  %chunks = and i64 %high, 65535
  %left = icmp ult i64 %next, %chunks
  br i1 %left, label %allowed, label %out
allowed:
  %threads = load atomic i64, ptr getelementptr (i64, ptr @job, i64 6) monotonic, align 8
  %may = icmp ult i64 %id, %threads
  br i1 %may, label %claim, label %out
claim:
  %raised = add i64 %word, 1
  %swap = cmpxchg weak ptr @work, i64 %word, i64 %raised acq_rel acquire
  %seen = extractvalue {{ i64, i1 }} %swap, 0
  %won = extractvalue {{ i64, i1 }} %swap, 1
  br i1 %won, label %check, label %try
check:
  %context = load ptr, ptr getelementptr (i64, ptr @job, i64 7)
  %cancel.at = getelementptr i64, ptr %context, i64 {int(Context.CANCEL)}
  %cancel = load atomic i32, ptr %cancel.at monotonic, align 8
  %cancelled = icmp ne i32 %cancel, 0
  br i1 %cancelled, label %finish, label %run
run:
  %function = load ptr, ptr @job
  %arguments = load ptr, ptr getelementptr (i64, ptr @job, i64 1)
  %tiles = load i64, ptr getelementptr (i64, ptr @job, i64 2)
  %scratch = load ptr, ptr getelementptr (i64, ptr @job, i64 4)
  %stride = load i64, ptr getelementptr (i64, ptr @job, i64 5)
  %begin.scaled = mul i64 %next, %tiles
  %begin = udiv i64 %begin.scaled, %chunks
  %after = add i64 %next, 1
  %end.scaled = mul i64 %after, %tiles
  %end = udiv i64 %end.scaled, %chunks
  %mine = mul i64 %id, %stride
  %own = getelementptr i8, ptr %scratch, i64 %mine
  call void %function(ptr %arguments, i64 %begin, i64 %end, ptr %own)
  br label %finish
finish:
  %before = atomicrmw add ptr @done, i64 1 acq_rel, align 64
  br label %top
out:
  ret void
}}

define ptr @worker(i64 %id) {{
entry:
  br label %loop
loop:
  call void @drain(i64 %id)
  br label %spin
spin:
  %turn = phi i64 [ 0, %loop ], [ %turn.next, %again ], [ 0, %sleep.now ]
  %word = load atomic i64, ptr @work acquire, align 64
  %next = and i64 %word, 65535
  %high = lshr i64 %word, 16
  %chunks = and i64 %high, 65535
  %left = icmp ult i64 %next, %chunks
  %threads = load atomic i64, ptr getelementptr (i64, ptr @job, i64 6) monotonic, align 8
  %may = icmp ult i64 %id, %threads
  %go = and i1 %left, %may
  br i1 %go, label %loop, label %idle
idle:
  call void @llvm.x86.sse2.pause()
  %turn.next = add i64 %turn, 1
  %keep = icmp ult i64 %turn.next, {WORKER_SPINS}
  br i1 %keep, label %again, label %sleep
again:
  br label %spin
sleep:
  %stop = load atomic i32, ptr @stop acquire, align 64
  %stopped = icmp ne i32 %stop, 0
  br i1 %stopped, label %quit, label %sleep.now
sleep.now:
  %s0 = atomicrmw add ptr @sleepers, i32 1 seq_cst, align 64
  %generation.wide = lshr i64 %word, 32
  %generation = trunc i64 %generation.wide to i32
  %rc = call i64 (i64, ...) @syscall(i64 {_SYS_FUTEX}, ptr getelementptr (i8, ptr @work, i64 4), i32 {_FUTEX_WAIT_PRIVATE}, i32 %generation, ptr null, ptr null, i32 0)
  %s1 = atomicrmw sub ptr @sleepers, i32 1 seq_cst, align 64
  br label %spin
quit:
  ret ptr null
}}

; Publishes a new generation with `chunks` chunks and wakes up to `chunks - 1` workers.
define internal void @publish(i64 %chunks) {{
entry:
  store atomic i64 0, ptr @done monotonic, align 64
  %word = load atomic i64, ptr @work monotonic, align 64
  %generation = lshr i64 %word, 32
  %raised = add i64 %generation, 1
  %high = shl i64 %raised, 32
  %middle = shl i64 %chunks, 16
  %fresh = or i64 %high, %middle
  %old = atomicrmw xchg ptr @work, i64 %fresh seq_cst, align 64
  %asleep = load atomic i32, ptr @sleepers seq_cst, align 64
  %any = icmp sgt i32 %asleep, 0
  br i1 %any, label %wake, label %out
wake:
  %others = sub i64 %chunks, 1
  %threads = load atomic i64, ptr getelementptr (i64, ptr @job, i64 6) monotonic, align 8
  %pool = load i64, ptr @pool
  ; Where only some of the pool may work, waking any few could miss those.
  %whole = icmp uge i64 %threads, %pool
  %wanted = select i1 %whole, i64 %others, i64 2147483647
  %count = trunc i64 %wanted to i32
  %rc = call i64 (i64, ...) @syscall(i64 {_SYS_FUTEX}, ptr getelementptr (i8, ptr @work, i64 4), i32 {_FUTEX_WAKE_PRIVATE}, i32 %count, ptr null, ptr null, i32 0)
  br label %out
out:
  ret void
}}

define internal void @dispatch(ptr %context, ptr %function, ptr %arguments, i64 %tiles, i64 %chunks, ptr %scratch, i64 %stride) {{
entry:
  %threads.at = getelementptr i64, ptr %context, i64 {int(Context.THREADS)}
  %threads = load i64, ptr %threads.at
  %one.thread = icmp ule i64 %threads, 1
  %one.chunk = icmp ule i64 %chunks, 1
  %alone = or i1 %one.thread, %one.chunk
  br i1 %alone, label %direct, label %shared
direct:
  ; A range for each chunk all the same, so that a long dispatch can be cancelled.
  %n = call i64 @llvm.umax.i64(i64 %chunks, i64 1)
  br label %direct.loop
direct.loop:
  %i = phi i64 [ 0, %direct ], [ %i.next, %direct.run ]
  %more = icmp ult i64 %i, %n
  br i1 %more, label %direct.check, label %out
direct.check:
  %cancel.at = getelementptr i64, ptr %context, i64 {int(Context.CANCEL)}
  %cancel = load atomic i32, ptr %cancel.at monotonic, align 8
  %cancelled = icmp ne i32 %cancel, 0
  br i1 %cancelled, label %out, label %direct.run
direct.run:
  %begin.scaled = mul i64 %i, %tiles
  %begin = udiv i64 %begin.scaled, %n
  %i.next = add i64 %i, 1
  %end.scaled = mul i64 %i.next, %tiles
  %end = udiv i64 %end.scaled, %n
  call void %function(ptr %arguments, i64 %begin, i64 %end, ptr %scratch)
  br label %direct.loop
shared:
  store ptr %function, ptr @job
  store ptr %arguments, ptr getelementptr (i64, ptr @job, i64 1)
  store i64 %tiles, ptr getelementptr (i64, ptr @job, i64 2)
  store i64 %chunks, ptr getelementptr (i64, ptr @job, i64 3)
  store ptr %scratch, ptr getelementptr (i64, ptr @job, i64 4)
  store i64 %stride, ptr getelementptr (i64, ptr @job, i64 5)
  store atomic i64 %threads, ptr getelementptr (i64, ptr @job, i64 6) monotonic, align 8
  store ptr %context, ptr getelementptr (i64, ptr @job, i64 7)
  call void @publish(i64 %chunks)
  call void @drain(i64 0)
  br label %join
join:
  %turn = phi i64 [ 0, %shared ], [ %turn.next, %pause ], [ 0, %yield ]
  %done = load atomic i64, ptr @done acquire, align 64
  %all = icmp uge i64 %done, %chunks
  br i1 %all, label %out, label %pause.test
pause.test:
  %turn.next = add i64 %turn, 1
  %patient = icmp ult i64 %turn.next, {JOIN_SPINS_BEFORE_YIELD}
  br i1 %patient, label %pause, label %yield
pause:
  call void @llvm.x86.sse2.pause()
  br label %join
yield:
  %rc = call i64 (i64, ...) @syscall(i64 {_SYS_SCHED_YIELD})
  br label %join
out:
  ret void
}}
declare i64 @llvm.umax.i64(i64, i64)
"""

_RECORDS = """
define internal void @add_record(ptr %context, i64 %table.word, i64 %index, i64 %ns) {
entry:
  %table.at = getelementptr i64, ptr %context, i64 %table.word
  %table = load ptr, ptr %table.at
  %none = icmp eq ptr %table, null
  br i1 %none, label %out, label %add
add:
  %pair = mul i64 %index, 2
  %slot = getelementptr i64, ptr %table, i64 %pair
  %old = load i64, ptr %slot
  %sum = add i64 %old, %ns
  store i64 %sum, ptr %slot
  %count.at = getelementptr i64, ptr %slot, i64 1
  %count = load i64, ptr %count.at
  %more = add i64 %count, 1
  store i64 %more, ptr %count.at
  br label %out
out:
  ret void
}
"""

_KERNELS = f"""
; Built-in kernels with the interface of every kernel; a tile is {TILE_BYTES} bytes.
; fill: target, bytes, pattern of eight bytes.
define void @fill(ptr %arguments, i64 %begin, i64 %end, ptr %scratch) {{
entry:
  %target = load ptr, ptr %arguments
  %bytes.at = getelementptr i64, ptr %arguments, i64 1
  %bytes = load i64, ptr %bytes.at
  %pattern.at = getelementptr i64, ptr %arguments, i64 2
  %first = mul i64 %begin, {TILE_BYTES}
  %last.tile = mul i64 %end, {TILE_BYTES}
  %last = call i64 @llvm.umin.i64(i64 %last.tile, i64 %bytes)
  %pattern = load i64, ptr %pattern.at
  br label %words
words:
  %at = phi i64 [ %first, %entry ], [ %at.next, %store ]
  %at.next = add i64 %at, 8
  %fits = icmp ule i64 %at.next, %last
  br i1 %fits, label %store, label %tail
store:
  %place = getelementptr i8, ptr %target, i64 %at
  store i64 %pattern, ptr %place, align 1
  br label %words
tail:
  %rest = phi i64 [ %at, %words ], [ %rest.next, %byte ]
  %more = icmp ult i64 %rest, %last
  br i1 %more, label %byte, label %out
byte:
  %which = and i64 %rest, 7
  %source = getelementptr i8, ptr %pattern.at, i64 %which
  %value = load i8, ptr %source
  %byte.place = getelementptr i8, ptr %target, i64 %rest
  store i8 %value, ptr %byte.place
  %rest.next = add i64 %rest, 1
  br label %tail
out:
  ret void
}}
declare i64 @llvm.umin.i64(i64, i64)

; copy: target, source, bytes.
define void @copy(ptr %arguments, i64 %begin, i64 %end, ptr %scratch) {{
entry:
  %target = load ptr, ptr %arguments
  %source.at = getelementptr i64, ptr %arguments, i64 1
  %source = load ptr, ptr %source.at
  %bytes.at = getelementptr i64, ptr %arguments, i64 2
  %bytes = load i64, ptr %bytes.at
  %first = mul i64 %begin, {TILE_BYTES}
  %last.tile = mul i64 %end, {TILE_BYTES}
  %last = call i64 @llvm.umin.i64(i64 %last.tile, i64 %bytes)
  %count = sub i64 %last, %first
  %to = getelementptr i8, ptr %target, i64 %first
  %from = getelementptr i8, ptr %source, i64 %first
  call void @llvm.memcpy.p0.p0.i64(ptr %to, ptr %from, i64 %count, i1 false)
  ret void
}}

; Kernels over a range of the pool; a tile is {RANGE_TILE_BYTES} bytes. A failure cancels
; the run. advise: address, bytes, advice, context.
define void @advise(ptr %arguments, i64 %begin, i64 %end, ptr %scratch) {{
entry:
  %address = load ptr, ptr %arguments
  %bytes.at = getelementptr i64, ptr %arguments, i64 1
  %bytes = load i64, ptr %bytes.at
  %advice.at = getelementptr i64, ptr %arguments, i64 2
  %advice.wide = load i64, ptr %advice.at
  %advice = trunc i64 %advice.wide to i32
  %context.at = getelementptr i64, ptr %arguments, i64 3
  %context = load ptr, ptr %context.at
  %cancel.at = getelementptr i64, ptr %context, i64 {int(Context.CANCEL)}
  %first = mul i64 %begin, {RANGE_TILE_BYTES}
  %last.tile = mul i64 %end, {RANGE_TILE_BYTES}
  %last = call i64 @llvm.umin.i64(i64 %last.tile, i64 %bytes)
  %count = sub i64 %last, %first
  %place = getelementptr i8, ptr %address, i64 %first
  br label %try
try:
  %rc = call i32 @madvise(ptr %place, i64 %count, i32 %advice)
  %bad = icmp ne i32 %rc, 0
  br i1 %bad, label %failed, label %out
failed:
  %errno.at = call ptr @__errno_location()
  %errno = load i32, ptr %errno.at
  %interrupted = icmp eq i32 %errno, 4
  %busy = icmp eq i32 %errno, 11
  %again = or i1 %interrupted, %busy
  br i1 %again, label %retry, label %give.up
retry:
  %cancel = load atomic i32, ptr %cancel.at monotonic, align 8
  %cancelled = icmp ne i32 %cancel, 0
  br i1 %cancelled, label %out, label %try
give.up:
  %error.at = getelementptr i64, ptr %context, i64 {int(Context.ERROR_NUMBER)}
  %errno.wide = zext i32 %errno to i64
  store i64 %errno.wide, ptr %error.at
  %failed.at = getelementptr i64, ptr %context, i64 {int(Context.FAILED_ADDRESS)}
  store ptr %place, ptr %failed.at
  store atomic i32 {STATUS_FAILED_CALL}, ptr %cancel.at seq_cst, align 8
  br label %out
out:
  ret void
}}

; touch: address, bytes: reads a byte of each page.
define void @touch(ptr %arguments, i64 %begin, i64 %end, ptr %scratch) {{
entry:
  %address = load ptr, ptr %arguments
  %bytes.at = getelementptr i64, ptr %arguments, i64 1
  %bytes = load i64, ptr %bytes.at
  %first = mul i64 %begin, {RANGE_TILE_BYTES}
  %last.tile = mul i64 %end, {RANGE_TILE_BYTES}
  %last = call i64 @llvm.umin.i64(i64 %last.tile, i64 %bytes)
  br label %loop
loop:
  %at = phi i64 [ %first, %entry ], [ %at.next, %page ]
  %more = icmp ult i64 %at, %last
  br i1 %more, label %page, label %out
page:
  %place = getelementptr i8, ptr %address, i64 %at
  %read = load volatile i8, ptr %place
  %at.next = add i64 %at, 4096
  br label %loop
out:
  ret void
}}
"""

_LOADS = "\n".join(
    f"  %w{i}.at = getelementptr i64, ptr %at, i64 {i}\n  %w{i} = load i64, ptr %w{i}.at\n"
    f"  %p{i} = inttoptr i64 %w{i} to ptr"
    for i in range(1, 8)
)

_LOOP = f"""
define i64 @machine(ptr %commands, ptr %context) {{
entry:
  %cancel.at = getelementptr i64, ptr %context, i64 {int(Context.CANCEL)}
  %records.at = getelementptr i64, ptr %context, i64 {int(Context.RECORDS)}
  %externals.at = getelementptr i64, ptr %context, i64 {int(Context.EXTERNALS)}
  %cold.at = getelementptr i64, ptr %context, i64 {int(Context.COLD)}
  br label %top
top:
  %at = phi ptr [ %commands, %entry ], [ %following, %step ], [ %target, %go ]
  %cancel = load atomic i32, ptr %cancel.at monotonic, align 8
  %cancelled = icmp ne i32 %cancel, 0
  br i1 %cancelled, label %stopped, label %decode
stopped:
  %status = zext i32 %cancel to i64
  ret i64 %status
decode:
  %operation = load i64, ptr %at
{_LOADS}
  switch i64 %operation, label %finished [
    i64 {int(Operation.DISPATCH)}, label %do.dispatch
    i64 {int(Operation.JUMP)}, label %do.jump
    i64 {int(Operation.BRANCH)}, label %do.branch
    i64 {int(Operation.FETCH)}, label %do.fetch
    i64 {int(Operation.PATCH)}, label %do.patch
  ]
step:
  %following = getelementptr i8, ptr %at, i64 {COMMAND_BYTES}
  br label %top
go:
  %bytes = phi i64 [ %w1, %do.jump ], [ %branch.bytes, %do.branch ]
  %target = getelementptr i8, ptr %at, i64 %bytes
  br label %top
finished:
  ret i64 {STATUS_FINISHED}

do.dispatch:
  %records = load ptr, ptr %records.at
  %record = icmp ne ptr %records, null
  br i1 %record, label %timed, label %plain
plain:
  call void @dispatch(ptr %context, ptr %p1, ptr %p2, i64 %w3, i64 %w4, ptr %p5, i64 %w6)
  br label %step
timed:
  %start = call i64 @now()
  call void @dispatch(ptr %context, ptr %p1, ptr %p2, i64 %w3, i64 %w4, ptr %p5, i64 %w6)
  %stop = call i64 @now()
  %elapsed = sub i64 %stop, %start
  call void @add_record(ptr %context, i64 {int(Context.RECORDS)}, i64 %w7, i64 %elapsed)
  br label %step

do.jump:
  br label %go

do.branch:
  %scalar = load i8, ptr %p1
  %zero = icmp eq i8 %scalar, 0
  %branch.bytes = select i1 %zero, i64 %w2, i64 {COMMAND_BYTES}
  br label %go

do.fetch:
  %cold = load i64, ptr %cold.at
  %is.cold = icmp ne i64 %cold, 0
  %has.next = icmp ne i64 %w6, 0
  %announce = and i1 %is.cold, %has.next
  %fetch.start = call i64 @now()
  br i1 %announce, label %willneed, label %fetch
willneed:
  %ignored = call i32 @madvise(ptr %p5, i64 %w6, i32 {_MADV_WILLNEED})
  %cooler = sub i64 %cold, 1
  store i64 %cooler, ptr %cold.at
  br label %fetch
fetch:
  call void @dispatch(ptr %context, ptr %p1, ptr %p2, i64 %w3, i64 %w4, ptr null, i64 0)
  %fetch.stop = call i64 @now()
  %fetch.ns = sub i64 %fetch.stop, %fetch.start
  call void @add_record(ptr %context, i64 {int(Context.FETCH_RECORDS)}, i64 %w7, i64 %fetch.ns)
  %fetched.at = getelementptr i64, ptr %p2, i64 1
  %fetched = load i64, ptr %fetched.at
  %expected = udiv i64 %fetched, {SLOW_BYTES_PER_NS}
  %relaxed = add i64 %expected, {SLOW_NS}
  %is.slow = icmp ugt i64 %fetch.ns, %relaxed
  %disk = and i1 %is.slow, %has.next
  br i1 %disk, label %chill, label %step
chill:
  store i64 {COLD_FETCHES}, ptr %cold.at
  br label %step

do.patch:
  %externals = load ptr, ptr %externals.at
  br label %patch.loop
patch.loop:
  %entry.index = phi i64 [ 0, %do.patch ], [ %entry.next, %patch.one ]
  %entry.more = icmp ult i64 %entry.index, %w2
  br i1 %entry.more, label %patch.one, label %step
patch.one:
  %first.word = mul i64 %entry.index, 3
  %slot.at = getelementptr i64, ptr %p1, i64 %first.word
  %slot = load ptr, ptr %slot.at
  %buffer.at = getelementptr i64, ptr %slot.at, i64 1
  %buffer = load i64, ptr %buffer.at
  %offset.at = getelementptr i64, ptr %slot.at, i64 2
  %offset = load i64, ptr %offset.at
  %base.at = getelementptr i64, ptr %externals, i64 %buffer
  %base = load i64, ptr %base.at
  %address = add i64 %base, %offset
  store i64 %address, ptr %slot
  %entry.next = add i64 %entry.index, 1
  br label %patch.loop
}}

; SIGINT while a step runs on the main thread: stop the step, then let Python's own
; handler note the signal, so that KeyboardInterrupt rises as soon as the step returns.
define internal void @on_interrupt(i32 %signal, ptr %info, ptr %user) {{
  %context = load atomic ptr, ptr @active seq_cst, align 64
  %cancel.at = getelementptr i64, ptr %context, i64 {int(Context.CANCEL)}
  store atomic i32 {STATUS_INTERRUPTED}, ptr %cancel.at seq_cst, align 8
  %previous = load ptr, ptr @previous_interrupt
  call void %previous(i32 %signal, ptr %info, ptr %user)
  ret void
}}

; SIGBUS: a page of the pool that the file no longer has. A page of zeros takes its place,
; so that the kernel can finish, and the run stops with a failure. Elsewhere the action
; before ours is put back, and the access that is then tried again finds it.
define internal void @on_bus(i32 %signal, ptr %info, ptr %user) {{
entry:
  %context = load atomic ptr, ptr @active seq_cst, align 64
  %at.at = getelementptr i64, ptr %info, i64 2
  %at = load i64, ptr %at.at
  %begin.at = getelementptr i64, ptr %context, i64 {int(Context.POOL_BEGIN)}
  %begin = load i64, ptr %begin.at
  %end.at = getelementptr i64, ptr %context, i64 {int(Context.POOL_END)}
  %end = load i64, ptr %end.at
  %above = icmp uge i64 %at, %begin
  %below = icmp ult i64 %at, %end
  %ours = and i1 %above, %below
  br i1 %ours, label %mend, label %other
mend:
  %page = and i64 %at, -4096
  %place = inttoptr i64 %page to ptr
  ; readable, private + fixed + anonymous
  %mapped = call ptr @mmap(ptr %place, i64 4096, i32 1, i32 50, i32 -1, i64 0)
  %error.at = getelementptr i64, ptr %context, i64 {int(Context.ERROR_NUMBER)}
  store i64 {_EFAULT}, ptr %error.at
  %failed.at = getelementptr i64, ptr %context, i64 {int(Context.FAILED_ADDRESS)}
  store i64 %at, ptr %failed.at
  %cancel.at = getelementptr i64, ptr %context, i64 {int(Context.CANCEL)}
  store atomic i32 {STATUS_FAILED_CALL}, ptr %cancel.at seq_cst, align 8
  ret void
other:
  %rc = call i32 @sigaction(i32 {_SIGBUS}, ptr @previous_bus, ptr null)
  ret void
}}

define i64 @run(ptr %commands, ptr %context) {{
entry:
  store atomic ptr %context, ptr @active seq_cst, align 64
  %end.at = getelementptr i64, ptr %context, i64 {int(Context.POOL_END)}
  %end = load i64, ptr %end.at
  %guarded = icmp ne i64 %end, 0
  br i1 %guarded, label %guard, label %look
guard:
  store ptr @on_bus, ptr @bus_action
  store i32 {_SA_SIGINFO}, ptr getelementptr (i8, ptr @bus_action, i64 136)
  %rc0 = call i32 @sigaction(i32 {_SIGBUS}, ptr @bus_action, ptr @previous_bus)
  br label %look
look:
  %catch.at = getelementptr i64, ptr %context, i64 {int(Context.CATCH)}
  %catch = load i64, ptr %catch.at
  %wanted = icmp ne i64 %catch, 0
  br i1 %wanted, label %handler, label %start
handler:
  %rc1 = call i32 @sigaction(i32 {_SIGINT}, ptr null, ptr @previous_interrupt)
  %previous = load i64, ptr @previous_interrupt
  ; 0 is the default action (the process dies), 1 is to ignore it.
  %real = icmp ugt i64 %previous, 1
  br i1 %real, label %catch.it, label %start
catch.it:
  call void @llvm.memcpy.p0.p0.i64(ptr @interrupt_action, ptr @previous_interrupt, i64 152, i1 false)
  store ptr @on_interrupt, ptr @interrupt_action
  %rc2 = call i32 @sigaction(i32 {_SIGINT}, ptr @interrupt_action, ptr null)
  br label %start
start:
  %caught = phi i1 [ false, %look ], [ false, %handler ], [ true, %catch.it ]
  %status = call i64 @machine(ptr %commands, ptr %context)
  br i1 %caught, label %give.back, label %unguard.test
give.back:
  %rc3 = call i32 @sigaction(i32 {_SIGINT}, ptr @previous_interrupt, ptr null)
  br label %unguard.test
unguard.test:
  br i1 %guarded, label %unguard, label %out
unguard:
  %rc4 = call i32 @sigaction(i32 {_SIGBUS}, ptr @previous_bus, ptr null)
  br label %out
out:
  ; A failure inside the last command shows only here.
  %cancel.at = getelementptr i64, ptr %context, i64 {int(Context.CANCEL)}
  %cancel = load atomic i32, ptr %cancel.at seq_cst, align 8
  %late = zext i32 %cancel to i64
  %fine = icmp eq i64 %status, {STATUS_FINISHED}
  %result = select i1 %fine, i64 %late, i64 %status
  ret i64 %result
}}
"""

TEXT = _DECLARATIONS + _POOL + _RECORDS + _KERNELS + _LOOP
"""The whole module; compiled once per machine and kept in the cache."""
