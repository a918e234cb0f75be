"""Entering the command machine, with its signal handlers around the run: LLVM IR text."""

from __future__ import annotations

from headrace.runtime.drivers.cpu_machine_layout import (
    STATUS_FAILED_CALL,
    STATUS_FINISHED,
    STATUS_INTERRUPTED,
    Context,
)

_SIGINT, _SIGBUS = 2, 7
_SA_SIGINFO = 4
_EFAULT = 14

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
"""`@run`: the machine's way in."""
