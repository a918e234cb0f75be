"""The CPU command machine as LLVM IR text: a worker pool and a loop over commands.

A command is eight 64-bit words: the operation and its operands. The plan fills a buffer
of them once; a step only walks it. Nothing here depends on a model, a plan or a budget.
"""

from __future__ import annotations

from headrace.runtime.drivers.cpu_machine_kernels import KERNELS
from headrace.runtime.drivers.cpu_machine_layout import (
    COLD_FETCHES,
    COMMAND_BYTES,
    SLOW_BYTES_PER_NS,
    SLOW_NS,
    STATUS_FINISHED,
    Context,
    Operation,
    TraceKind,
)
from headrace.runtime.drivers.cpu_machine_pool import POOL
from headrace.runtime.drivers.cpu_machine_signals import SIGNALS

_MADV_WILLNEED = 3

_DECLARATIONS = """
declare i64 @syscall(i64, ...)
declare i32 @sigaction(i32, ptr, ptr)
declare i32 @clock_gettime(i32, ptr)
declare i32 @madvise(ptr, i64, i32)
declare ptr @__errno_location()
declare ptr @mmap(ptr, i64, i32, i32, i32, i64)
declare void @llvm.x86.sse2.pause()
declare void @llvm.memcpy.p0.p0.i64(ptr, ptr, i64, i1)
declare void @llvm.memset.p0.i64(ptr, i8, i64, i1)

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
  %trace.at = getelementptr i64, ptr %context, i64 {int(Context.TRACE)}
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
    i64 {int(Operation.CLEAR)}, label %do.clear
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
  %trace = load ptr, ptr %trace.at
  %record = icmp ne ptr %records, null
  %traced = icmp ne ptr %trace, null
  %watched = or i1 %record, %traced
  br i1 %watched, label %timed, label %plain
plain:
  call void @dispatch(ptr %context, ptr %p1, ptr %p2, i64 %w3, i64 %w4, ptr %p5, i64 %w6)
  br label %step
timed:
  %start = call i64 @now()
  call void @dispatch(ptr %context, ptr %p1, ptr %p2, i64 %w3, i64 %w4, ptr %p5, i64 %w6)
  %stop = call i64 @now()
  %elapsed = sub i64 %stop, %start
  call void @add_record(ptr %context, i64 {int(Context.RECORDS)}, i64 %w7, i64 %elapsed)
  %begun = select i1 %traced, i64 %start, i64 0
  call void @trace_end(ptr %context, i64 {int(TraceKind.DISPATCH)}, i64 %w7, i64 %begun)
  br label %step

do.clear:
  call void @llvm.memset.p0.i64(ptr %p2, i8 0, i64 %w1, i1 false)
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
"""

TEXT = _DECLARATIONS + POOL + _RECORDS + KERNELS + _LOOP + SIGNALS
"""The whole module; compiled once per machine and kept in the cache."""
