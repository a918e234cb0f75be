// RUN: stream-materialize-copies

// Outputs become arguments. A result that one command writes and nothing else knows is the
// output itself. Copied are: a value that is read as well, one returned twice, an input, a
// weight, and a longer resource than the output.

// CHECK-LABEL: func.func @alone(%x: !stream.resource<external>, %y: !stream.resource<external>
// CHECK-SAME:    stream.io = "output"
// CHECK-SAME:    stream.size = #hr.exprs<["40"]>
// CHECK-NEXT:    stream.cmd.dispatch @ex::@entry[10, 1, 1] {
// CHECK-NEXT:      ro %x[0 for 40]
// CHECK-NEXT:      wo %y[0 for 40] : !stream.resource<external>
// CHECK-NEXT:    }
// CHECK-NEXT:    func.return
// CHECK-LABEL: func.func @copied
// CHECK:         stream.cmd.copy %t[0], %0[0], 40 : !stream.resource<transient> -> !stream.resource<external>
// CHECK-NEXT:    stream.cmd.copy %u[0], %1[0], 40 : !stream.resource<transient> -> !stream.resource<external>
// CHECK-NEXT:    stream.cmd.copy %u[0], %2[0], 40 : !stream.resource<transient> -> !stream.resource<external>
// CHECK-NEXT:    stream.cmd.copy %x[0], %3[0], 40 : !stream.resource<external> -> !stream.resource<external>
// CHECK-NEXT:    stream.cmd.copy %w[0], %4[0], 40 : !stream.resource<constant> -> !stream.resource<external>
// CHECK-NEXT:    stream.cmd.copy %v[0], %5[0], 40 : !stream.resource<transient> -> !stream.resource<external>
// CHECK-NEXT:    func.return
builtin.module {
  func.func @alone(%x: !stream.resource<external>) -> (!stream.resource<transient> {hr.name = "y", hr.type = tensor<10xf32>}) {
    %t = stream.resource.alloc "t" : !stream.resource<transient>{64}
    stream.cmd.dispatch @ex::@entry[10, 1, 1] {
      ro %x[0 for 40] : !stream.resource<external>,
      wo %t[0 for 40] : !stream.resource<transient>
    }
    func.return %t : !stream.resource<transient>
  }
  func.func @copied(%x: !stream.resource<external>) -> (!stream.resource<transient> {hr.type = tensor<10xf32>}, !stream.resource<transient> {hr.type = tensor<10xf32>}, !stream.resource<transient> {hr.type = tensor<10xf32>}, !stream.resource<external> {hr.type = tensor<10xf32>}, !stream.resource<constant> {hr.type = tensor<10xf32>}, !stream.resource<transient> {hr.type = tensor<10xf32>}) {
    %w = stream.resource.constant @w : !stream.resource<constant>{40}
    %t = stream.resource.alloc "t" : !stream.resource<transient>{64}
    %u = stream.resource.alloc "u" : !stream.resource<transient>{64}
    %v = stream.resource.alloc "v" : !stream.resource<transient>{128}
    stream.cmd.dispatch @ex::@entry[10, 1, 1] {
      ro %x[0 for 40] : !stream.resource<external>,
      wo %t[0 for 40] : !stream.resource<transient>
    }
    stream.cmd.dispatch @ex::@entry[10, 1, 1] {
      ro %t[0 for 40] : !stream.resource<transient>,
      wo %u[0 for 40] : !stream.resource<transient>
    }
    stream.cmd.dispatch @ex::@entry[10, 1, 1] {
      ro %x[0 for 40] : !stream.resource<external>,
      wo %v[0 for 40] : !stream.resource<transient>
    }
    func.return %t, %u, %u, %x, %w, %v : !stream.resource<transient>, !stream.resource<transient>, !stream.resource<transient>, !stream.resource<external>, !stream.resource<constant>, !stream.resource<transient>
  }
}
