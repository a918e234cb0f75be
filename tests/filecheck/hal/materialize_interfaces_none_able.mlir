// RUN: hal-materialize-interfaces{targets=cpu,cuda}
// ERROR: error[HR2602]: no target backend was able to handle this executable; tried = [ cpu cuda ]
// ERROR: --> @ex
builtin.module {
  stream.executable private @ex attributes {hal.targets = ["vulkan"]} {
    stream.executable.export public @entry
    builtin.module {
      func.func @entry() {
        %c = arith.constant 0 : index
        func.return
      }
    }
  }
}
