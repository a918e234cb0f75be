// RUN: stream-elide-copies

// A value that is also read is produced in the output; of two copies of one value the
// second stays.
// CHECK-LABEL: func.func @read_and_twice
// CHECK-NEXT:    stream.cmd.dispatch @ex::@entry[10, 1, 1] {
// CHECK-NEXT:      wo %a[0 for 40] : !stream.resource<external>
// CHECK-NEXT:    }
// CHECK-NEXT:    stream.cmd.dispatch @ex::@entry[10, 1, 1] {
// CHECK-NEXT:      ro %a[0 for 40] : !stream.resource<external>,
// CHECK-NEXT:      wo %b[0 for 40] : !stream.resource<external>
// CHECK-NEXT:    }
// CHECK-NEXT:    stream.cmd.copy %b[0], %c[0], 40
// CHECK-NEXT:    func.return

// A copy between transients goes; what follows reads the first.
// CHECK-LABEL: func.func @between_transients
// CHECK-NEXT:    %t = stream.resource.alloc
// CHECK-NEXT:    stream.cmd.dispatch @ex::@entry[10, 1, 1] {
// CHECK-NEXT:      wo %t[0 for 40]
// CHECK-NEXT:    }
// CHECK-NEXT:    stream.cmd.dispatch @ex::@entry[10, 1, 1] {
// CHECK-NEXT:      ro %t[0 for 40]

// These stay: the source is an input; the source is written again behind the copy; only a
// part is copied; the copy stands in a branch; the target was written before.
// CHECK-LABEL: func.func @kept
// CHECK:         stream.cmd.copy %x[0], %a[0], 40
// CHECK:         stream.cmd.copy %t[0], %b[0], 40
// CHECK:         stream.cmd.copy %u[0], %c[0], 20
// CHECK:         stream.cmd.copy %v[0], %d[0], 40
// CHECK:         stream.cmd.copy %z[0], %e[0], 40
builtin.module {
  func.func @read_and_twice(%a: !stream.resource<external> {stream.io = "output", stream.size = #hr.exprs<["40"]>}, %b: !stream.resource<external> {stream.io = "output", stream.size = #hr.exprs<["40"]>}, %c: !stream.resource<external> {stream.io = "output", stream.size = #hr.exprs<["40"]>}) {
    %t = stream.resource.alloc : !stream.resource<transient>{64}
    %u = stream.resource.alloc : !stream.resource<transient>{64}
    stream.cmd.dispatch @ex::@entry[10, 1, 1] {
      wo %t[0 for 40] : !stream.resource<transient>
    }
    stream.cmd.dispatch @ex::@entry[10, 1, 1] {
      ro %t[0 for 40] : !stream.resource<transient>,
      wo %u[0 for 40] : !stream.resource<transient>
    }
    stream.cmd.copy %t[0], %a[0], 40 : !stream.resource<transient> -> !stream.resource<external>
    stream.cmd.copy %u[0], %b[0], 40 : !stream.resource<transient> -> !stream.resource<external>
    stream.cmd.copy %u[0], %c[0], 40 : !stream.resource<transient> -> !stream.resource<external>
    func.return
  }
  func.func @between_transients(%a: !stream.resource<external> {stream.io = "output", stream.size = #hr.exprs<["40"]>}) {
    %t = stream.resource.alloc : !stream.resource<transient>{64}
    %u = stream.resource.alloc : !stream.resource<transient>{64}
    stream.cmd.dispatch @ex::@entry[10, 1, 1] {
      wo %t[0 for 40] : !stream.resource<transient>
    }
    stream.cmd.copy %t[0], %u[0], 40 : !stream.resource<transient> -> !stream.resource<transient>
    stream.cmd.dispatch @ex::@entry[10, 1, 1] {
      ro %u[0 for 40] : !stream.resource<transient>,
      wo %a[0 for 40] : !stream.resource<external>
    }
    func.return
  }
  func.func @kept(%x: !stream.resource<external> {stream.io = "input", stream.size = #hr.exprs<["40"]>}, %a: !stream.resource<external> {stream.io = "output", stream.size = #hr.exprs<["40"]>}, %b: !stream.resource<external> {stream.io = "output", stream.size = #hr.exprs<["40"]>}, %c: !stream.resource<external> {stream.io = "output", stream.size = #hr.exprs<["40"]>}, %d: !stream.resource<external> {stream.io = "output", stream.size = #hr.exprs<["40"]>}, %e: !stream.resource<external> {stream.io = "output", stream.size = #hr.exprs<["40"]>}) {
    %t = stream.resource.alloc : !stream.resource<transient>{64}
    %u = stream.resource.alloc : !stream.resource<transient>{64}
    %v = stream.resource.alloc : !stream.resource<transient>{64}
    %z = stream.resource.alloc : !stream.resource<transient>{64}
    stream.cmd.copy %x[0], %a[0], 40 : !stream.resource<external> -> !stream.resource<external>
    stream.cmd.dispatch @ex::@entry[10, 1, 1] {
      wo %t[0 for 40] : !stream.resource<transient>,
      wo %u[0 for 40] : !stream.resource<transient>,
      wo %v[0 for 40] : !stream.resource<transient>,
      wo %z[0 for 40] : !stream.resource<transient>
    }
    stream.cmd.copy %t[0], %b[0], 40 : !stream.resource<transient> -> !stream.resource<external>
    stream.cmd.fill %t[0 for 40] 0 : i32, !stream.resource<transient>
    stream.cmd.copy %u[0], %c[0], 20 : !stream.resource<transient> -> !stream.resource<external>
    stream.cmd.if %v : !stream.resource<transient> {
      stream.cmd.copy %v[0], %d[0], 40 : !stream.resource<transient> -> !stream.resource<external>
    } else {
    }
    stream.cmd.fill %e[0 for 40] 0 : i32, !stream.resource<external>
    stream.cmd.copy %z[0], %e[0], 40 : !stream.resource<transient> -> !stream.resource<external>
    func.return
  }
}
