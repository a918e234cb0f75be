// RUN: hal-materialize-interfaces{targets=cpu,cuda}

// A target may decline an executable: then it has no variant for it.

// CHECK-LABEL: hal.executable private @ex {
// CHECK-NOT:     @cpu
// CHECK:         hal.executable.variant @cuda target "cuda" {
builtin.module {
  stream.executable private @ex attributes {hal.targets = ["cuda"]} {
    stream.executable.export public @entry
    builtin.module {
      func.func @entry() {
        func.return
      }
    }
  }
}
