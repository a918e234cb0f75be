"""The command machine's worker pool as LLVM IR text.

The pool follows one rule: a dispatch is a word `{generation:32, chunks:16, next:16}`.
Whoever raises `next` by compare-and-swap owns that chunk, and the dispatch is over when
as many chunks are *finished* as there are. No worker has to check in, so one that the
kernel has descheduled delays nothing but the chunk it holds.
"""

from __future__ import annotations

from headrace.runtime.drivers.cpu_machine_layout import (
    JOIN_SPINS_BEFORE_YIELD,
    SYS_SCHED_YIELD,
    WORKER_SPINS,
    Context,
)

_SYS_FUTEX = 202
_FUTEX_WAIT_PRIVATE = 128
_FUTEX_WAKE_PRIVATE = 129

POOL = f"""
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
  %rc = call i64 (i64, ...) @syscall(i64 {SYS_SCHED_YIELD})
  br label %join
out:
  ret void
}}
declare i64 @llvm.umax.i64(i64, i64)
"""
"""`@worker`, which a thread runs, and `@dispatch`, which the loop calls."""
