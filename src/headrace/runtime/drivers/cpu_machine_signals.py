"""Entering the command machine, with its signal handlers around the run: LLVM IR text.

What every run needs stands here and not in Python, because a small model's step takes 3 us:
asking for the file's status takes 0.4 us here and 1 us there, an array's address 0.2 us there.
"""

from __future__ import annotations

from headrace.runtime.drivers.cpu_machine_layout import (
    STATUS_FAILED_CALL,
    STATUS_FILE_CHANGED,
    STATUS_FINISHED,
    STATUS_INTERRUPTED,
    STATUS_UNALIGNED,
    Context,
)

_SIGINT, _SIGBUS = 2, 7
_SA_SIGINFO = 4
_EFAULT = 14
_SYS_FSTAT = 5
_INODE, _SIZE, _SECONDS, _NANOSECONDS = 1, 6, 11, 12
"""Words of `struct stat` on x86-64, 144 bytes: st_ino, st_size, st_mtim."""
_DATA_AT = object.__basicsize__
"""Where `PyArrayObject` holds its address: behind the object's head (numpy's C interface)."""

SIGNALS = f"""
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

; Whether the mapped file is what it was.
define internal i1 @is_unchanged(ptr %context) {{
entry:
  %status = alloca [18 x i64], align 16
  %descriptor.at = getelementptr i64, ptr %context, i64 {int(Context.DESCRIPTOR)}
  %descriptor = load i64, ptr %descriptor.at
  %identity.at = getelementptr i64, ptr %context, i64 {int(Context.IDENTITY)}
  %identity = load ptr, ptr %identity.at
  %none = icmp eq ptr %identity, null
  br i1 %none, label %same, label %ask
ask:
  %rc = call i64 (i64, ...) @syscall(i64 {_SYS_FSTAT}, i64 %descriptor, ptr %status)
  %answered = icmp eq i64 %rc, 0
  br i1 %answered, label %compare, label %changed
compare:
  %inode.at = getelementptr i64, ptr %status, i64 {_INODE}
  %inode = load i64, ptr %inode.at
  %inode.was = load i64, ptr %identity
  %inode.moved = xor i64 %inode, %inode.was
  %size.at = getelementptr i64, ptr %status, i64 {_SIZE}
  %size = load i64, ptr %size.at
  %size.was.at = getelementptr i64, ptr %identity, i64 1
  %size.was = load i64, ptr %size.was.at
  %size.moved = xor i64 %size, %size.was
  %seconds.at = getelementptr i64, ptr %status, i64 {_SECONDS}
  %seconds = load i64, ptr %seconds.at
  %scaled = mul i64 %seconds, 1000000000
  %nanoseconds.at = getelementptr i64, ptr %status, i64 {_NANOSECONDS}
  %nanoseconds = load i64, ptr %nanoseconds.at
  %modified = add i64 %scaled, %nanoseconds
  %modified.was.at = getelementptr i64, ptr %identity, i64 2
  %modified.was = load i64, ptr %modified.was.at
  %modified.moved = xor i64 %modified, %modified.was
  %two = or i64 %inode.moved, %size.moved
  %any = or i64 %two, %modified.moved
  %still = icmp eq i64 %any, 0
  br i1 %still, label %same, label %changed
same:
  ret i1 true
changed:
  ret i1 false
}}

; `@run` on the arrays of a call: the objects, whose data must stand aligned.
define i64 @call(ptr %commands, ptr %context) {{
entry:
  %arrays.at = getelementptr i64, ptr %context, i64 {int(Context.ARRAYS)}
  %arrays = load ptr, ptr %arrays.at
  %count.at = getelementptr i64, ptr %context, i64 {int(Context.ARRAY_COUNT)}
  %count = load i64, ptr %count.at
  %externals.at = getelementptr i64, ptr %context, i64 {int(Context.EXTERNALS)}
  %externals = load ptr, ptr %externals.at
  br label %top
top:
  %i = phi i64 [ 0, %entry ], [ %i.next, %one ]
  %bits = phi i64 [ 0, %entry ], [ %bits.next, %one ]
  %more = icmp ult i64 %i, %count
  br i1 %more, label %one, label %check
one:
  %array.at = getelementptr ptr, ptr %arrays, i64 %i
  %array = load ptr, ptr %array.at
  %data.at = getelementptr i8, ptr %array, i64 {_DATA_AT}
  %data = load i64, ptr %data.at
  %external.at = getelementptr i64, ptr %externals, i64 %i
  store i64 %data, ptr %external.at
  %bits.next = or i64 %bits, %data
  %i.next = add i64 %i, 1
  br label %top
check:
  %mask.at = getelementptr i64, ptr %context, i64 {int(Context.UNALIGNED)}
  %mask = load i64, ptr %mask.at
  %odd = and i64 %bits, %mask
  %aligned = icmp eq i64 %odd, 0
  br i1 %aligned, label %go, label %refuse
go:
  %status = call i64 @run(ptr %commands, ptr %context)
  ret i64 %status
refuse:
  ret i64 {STATUS_UNALIGNED}
}}

define i64 @run(ptr %commands, ptr %context) {{
entry:
  %cancelled.at = getelementptr i64, ptr %context, i64 {int(Context.CANCEL)}
  store atomic i32 0, ptr %cancelled.at seq_cst, align 8
  %unchanged = call i1 @is_unchanged(ptr %context)
  br i1 %unchanged, label %enter, label %refuse
refuse:
  ret i64 {STATUS_FILE_CHANGED}
enter:
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
"""`@run` and `@call`: the machine's ways in."""
