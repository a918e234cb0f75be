"""The command machine's built-in kernels as LLVM IR text; they run like any kernel."""

from __future__ import annotations

from headrace.runtime.drivers.cpu_machine_layout import (
    CHAIN_HEADER_WORDS,
    CHAIN_ITEM_WORDS,
    JOIN_SPINS_BEFORE_YIELD,
    STATUS_FAILED_CALL,
    SYS_SCHED_YIELD,
    TILE_BYTES,
    TRACE_ENTRY_WORDS,
    TRACE_HEADER_WORDS,
    Context,
    TraceKind,
)

KERNELS = f"""
; The beginning of what may go into the trace: the time, or 0 where nothing is traced.
define internal i64 @trace_begin(ptr %context) {{
entry:
  %table.at = getelementptr i64, ptr %context, i64 {int(Context.TRACE)}
  %table = load ptr, ptr %table.at
  %none = icmp eq ptr %table, null
  br i1 %none, label %out, label %some
some:
  %time = call i64 @now()
  ret i64 %time
out:
  ret i64 0
}}

; The end of the work on a range of the pool, by its arguments.
define internal void @trace_range(ptr %context, ptr %arguments, i64 %begin) {{
entry:
  %kind.at = getelementptr i64, ptr %arguments, i64 5
  %kind = load i64, ptr %kind.at
  %record.at = getelementptr i64, ptr %arguments, i64 6
  %record = load i64, ptr %record.at
  call void @trace_end(ptr %context, i64 %kind, i64 %record, i64 %begin)
  ret void
}}

; Its end: takes an entry where there is room; the count goes on where there is not.
define internal void @trace_end(ptr %context, i64 %kind, i64 %record, i64 %begin) {{
entry:
  %none = icmp eq i64 %begin, 0
  br i1 %none, label %out, label %take
take:
  %stop = call i64 @now()
  %table.at = getelementptr i64, ptr %context, i64 {int(Context.TRACE)}
  %table = load ptr, ptr %table.at
  %index = atomicrmw add ptr %table, i64 1 monotonic
  %room.at = getelementptr i64, ptr %table, i64 1
  %room = load i64, ptr %room.at
  %fits = icmp ult i64 %index, %room
  br i1 %fits, label %keep, label %out
keep:
  %words = mul i64 %index, {TRACE_ENTRY_WORDS}
  %word = add i64 %words, {TRACE_HEADER_WORDS}
  %entry.at = getelementptr i64, ptr %table, i64 %word
  store i64 %kind, ptr %entry.at
  %record.at = getelementptr i64, ptr %entry.at, i64 1
  store i64 %record, ptr %record.at
  %begin.at = getelementptr i64, ptr %entry.at, i64 2
  store i64 %begin, ptr %begin.at
  %stop.at = getelementptr i64, ptr %entry.at, i64 3
  store i64 %stop, ptr %stop.at
  br label %out
out:
  ret void
}}

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

; Kernels over a range of the pool. A failure cancels the run. advise: address, bytes,
; advice, context, bytes of a tile, kind and record for the trace.
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
  %begun = call i64 @trace_begin(ptr %context)
  %cancel.at = getelementptr i64, ptr %context, i64 {int(Context.CANCEL)}
  %tile.at = getelementptr i64, ptr %arguments, i64 4
  %tile = load i64, ptr %tile.at
  %first = mul i64 %begin, %tile
  %last.tile = mul i64 %end, %tile
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
  call void @trace_range(ptr %context, ptr %arguments, i64 %begun)
  ret void
}}

; touch: address, bytes, bytes of a window, context, bytes of a tile, kind and record for the
; trace: reads a byte in each window.
define void @touch(ptr %arguments, i64 %begin, i64 %end, ptr %scratch) {{
entry:
  %address = load ptr, ptr %arguments
  %bytes.at = getelementptr i64, ptr %arguments, i64 1
  %bytes = load i64, ptr %bytes.at
  %window.at = getelementptr i64, ptr %arguments, i64 2
  %window = load i64, ptr %window.at
  %context.at = getelementptr i64, ptr %arguments, i64 3
  %context = load ptr, ptr %context.at
  %begun = call i64 @trace_begin(ptr %context)
  %tile.at = getelementptr i64, ptr %arguments, i64 4
  %tile = load i64, ptr %tile.at
  %base = ptrtoint ptr %address to i64
  %first = mul i64 %begin, %tile
  %last.tile = mul i64 %end, %tile
  %last = call i64 @llvm.umin.i64(i64 %last.tile, i64 %bytes)
  %from = add i64 %base, %first
  %stop = add i64 %base, %last
  %mask = sub i64 0, %window
  br label %loop
loop:
  %at = phi i64 [ %from, %entry ], [ %at.next, %page ]
  %more = icmp ult i64 %at, %stop
  br i1 %more, label %page, label %out
page:
  %place = inttoptr i64 %at to ptr
  %read = load volatile i8, ptr %place
  %behind = add i64 %at, %window
  %at.next = and i64 %behind, %mask
  br label %loop
out:
  call void @trace_range(ptr %context, ptr %arguments, i64 %begun)
  ret void
}}

; several: context, record, count, then pairs of a kernel over a range of the pool and its
; arguments; each is run whole, one after another. A trace is told when it begins.
define void @several(ptr %arguments, i64 %begin, i64 %end, ptr %scratch) {{
entry:
  %context = load ptr, ptr %arguments
  %record.at = getelementptr i64, ptr %arguments, i64 1
  %record = load i64, ptr %record.at
  %count.at = getelementptr i64, ptr %arguments, i64 2
  %count = load i64, ptr %count.at
  %begun = call i64 @trace_begin(ptr %context)
  call void @trace_end(ptr %context, i64 {int(TraceKind.SLICE)}, i64 %record, i64 %begun)
  br label %loop
loop:
  %i = phi i64 [ 0, %entry ], [ %i.next, %side ]
  %more = icmp ult i64 %i, %count
  br i1 %more, label %side, label %out
side:
  %twice = mul i64 %i, 2
  %word = add i64 %twice, 3
  %kernel.at = getelementptr i64, ptr %arguments, i64 %word
  %kernel = load ptr, ptr %kernel.at
  %block.at = getelementptr i64, ptr %kernel.at, i64 1
  %block = load ptr, ptr %block.at
  call void %kernel(ptr %block, i64 0, i64 1, ptr null)
  %i.next = add i64 %i, 1
  br label %loop
out:
  ret void
}}

; chain: context, then from word {CHAIN_HEADER_WORDS} on items of {CHAIN_ITEM_WORDS} words: function, arguments, first
; tile, tile behind the last, counter to wait for or 0, what it must have come to, counter
; that grows when this is done, and by how much. A tile is an item.
define void @chain(ptr %arguments, i64 %begin, i64 %end, ptr %scratch) {{
entry:
  %context = load ptr, ptr %arguments
  %cancel.at = getelementptr i64, ptr %context, i64 {int(Context.CANCEL)}
  br label %loop
loop:
  %i = phi i64 [ %begin, %entry ], [ %i.next, %run ]
  %more = icmp ult i64 %i, %end
  br i1 %more, label %item, label %out
item:
  %words = mul i64 %i, {CHAIN_ITEM_WORDS}
  %word = add i64 %words, {CHAIN_HEADER_WORDS}
  %function.at = getelementptr i64, ptr %arguments, i64 %word
  %block.at = getelementptr i64, ptr %function.at, i64 1
  %from.at = getelementptr i64, ptr %function.at, i64 2
  %to.at = getelementptr i64, ptr %function.at, i64 3
  %gate.at = getelementptr i64, ptr %function.at, i64 4
  %least.at = getelementptr i64, ptr %function.at, i64 5
  %counter.at = getelementptr i64, ptr %function.at, i64 6
  %amount.at = getelementptr i64, ptr %function.at, i64 7
  %gate = load ptr, ptr %gate.at
  %least = load i64, ptr %least.at
  %free = icmp eq ptr %gate, null
  br i1 %free, label %run, label %wait
wait:
  %turn = phi i64 [ 0, %item ], [ %turn.next, %pause ], [ 0, %yield ]
  %come = load atomic i64, ptr %gate acquire, align 8
  %there = icmp uge i64 %come, %least
  br i1 %there, label %run, label %check
check:
  ; Items of a run that is cancelled are left out: nobody would ever count them.
  %cancel = load atomic i32, ptr %cancel.at monotonic, align 8
  %cancelled = icmp ne i32 %cancel, 0
  br i1 %cancelled, label %out, label %patience
patience:
  %turn.next = add i64 %turn, 1
  %patient = icmp ult i64 %turn.next, {JOIN_SPINS_BEFORE_YIELD}
  br i1 %patient, label %pause, label %yield
pause:
  call void @llvm.x86.sse2.pause()
  br label %wait
yield:
  %rc = call i64 (i64, ...) @syscall(i64 {SYS_SCHED_YIELD})
  br label %wait
run:
  %function = load ptr, ptr %function.at
  %block = load ptr, ptr %block.at
  %from = load i64, ptr %from.at
  %to = load i64, ptr %to.at
  call void %function(ptr %block, i64 %from, i64 %to, ptr %scratch)
  %counter = load ptr, ptr %counter.at
  %amount = load i64, ptr %amount.at
  %before = atomicrmw add ptr %counter, i64 %amount acq_rel, align 8
  %i.next = add i64 %i, 1
  br label %loop
out:
  ret void
}}
"""
"""`fill`, `copy`, `advise`, `touch`, `several` and `chain`."""
