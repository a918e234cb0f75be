// RUN: stream-inline-calls
// A private function's commands stand where it was called, in a block of a branch too; the
// function is gone. One that is public is still called.
// CHECK-NOT: @inner
// CHECK-LABEL: func.func @main
// CHECK:       stream.cmd.if %flag : !stream.resource<external> {
// CHECK-NEXT:    [[T:%[a-z0-9_]+]] = stream.resource.alloc : !stream.resource<transient>{64}
// CHECK-NEXT:    stream.cmd.fill [[T]][0 for 4] 0 : i32, !stream.resource<transient>
// CHECK-NEXT:    stream.cmd.copy [[T]][0], %out[0], 4
// CHECK-NEXT:  } else {
// CHECK-NEXT:    stream.cmd.call @entry(%out : !stream.resource<external>)
// CHECK-NEXT:  }
func.func private @innermost(%t: !stream.resource<transient>) {
  stream.cmd.fill %t[0 for 4] 0 : i32, !stream.resource<transient>
  func.return
}
func.func private @inner(%x: !stream.resource<external>) {
  %t = stream.resource.alloc : !stream.resource<transient>{64}
  stream.cmd.call @innermost(%t : !stream.resource<transient>)
  stream.cmd.copy %t[0], %x[0], 4 : !stream.resource<transient> -> !stream.resource<external>
  func.return
}
func.func @entry(%x: !stream.resource<external>) {
  func.return
}
func.func @main(%flag: !stream.resource<external>, %out: !stream.resource<external>) {
  stream.cmd.if %flag : !stream.resource<external> {
    stream.cmd.call @inner(%out : !stream.resource<external>)
  } else {
    stream.cmd.call @entry(%out : !stream.resource<external>)
  }
  func.return
}
// -----
// ERROR: @twice calls itself
func.func private @twice(%x: !stream.resource<external>) {
  stream.cmd.call @twice(%x : !stream.resource<external>)
  func.return
}
func.func @main(%x: !stream.resource<external>) {
  stream.cmd.call @twice(%x : !stream.resource<external>)
  func.return
}
