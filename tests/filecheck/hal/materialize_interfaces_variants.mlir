// RUN: hal-materialize-interfaces{targets=cpu:x86-64-v3,io,cpu:x86_64_v3,cpu:x86.64.v3,io}

// A variant for each target, in the order asked for, once; symbols that no two share, and no
// interface has.

// CHECK-LABEL: hal.executable private @ex {
// CHECK-NEXT:    hal.interface @io_0 push_constants(0) {
// CHECK-NEXT:    }
// CHECK-NEXT:    hal.executable.variant @cpu_x86_64_v3 target "cpu:x86-64-v3" {
// CHECK:         hal.executable.variant @io target "io" {
// CHECK:         hal.executable.variant @cpu_x86_64_v3_0 target "cpu:x86_64_v3" {
// CHECK:         hal.executable.variant @cpu_x86_64_v3_1 target "cpu:x86.64.v3" {
// CHECK-NOT:     hal.executable.variant
builtin.module {
  stream.executable private @ex {
    stream.executable.export public @entry
    builtin.module {
      func.func @entry() {
        func.return
      }
    }
  }
}
// -----

// An executable may be meant for one variety of a target, or for all of them.

// CHECK-LABEL: hal.executable private @one {
// CHECK:         hal.executable.variant @cpu_x86_64_v3 target "cpu:x86-64-v3" {
// CHECK-NOT:     hal.executable.variant
// CHECK-LABEL: hal.executable private @all {
// CHECK:         hal.executable.variant @cpu_x86_64_v3 target "cpu:x86-64-v3" {
// CHECK:         hal.executable.variant @cpu_x86_64_v3_0 target "cpu:x86_64_v3" {
// CHECK:         hal.executable.variant @cpu_x86_64_v3_1 target "cpu:x86.64.v3" {
// CHECK-NOT:     hal.executable.variant
builtin.module {
  stream.executable private @one attributes {hal.targets = ["cpu:x86-64-v3"]} {
    stream.executable.export public @entry
    builtin.module {
      func.func @entry() {
        func.return
      }
    }
  }
  stream.executable private @all attributes {hal.targets = ["cpu"]} {
    stream.executable.export public @entry
    builtin.module {
      func.func @entry() {
        func.return
      }
    }
  }
}
