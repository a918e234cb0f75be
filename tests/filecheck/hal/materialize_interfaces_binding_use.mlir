// RUN: hal-materialize-interfaces{targets=cpu,cuda}
// ERROR: error[HR2605]: bindings are only usable by stream.binding.subspan, not by func.call
// ERROR: --> @ex::@entry
// ERROR: note: argument 0 of @entry
builtin.module {
  stream.executable private @ex {
    stream.executable.export public @entry
    builtin.module {
      func.func private @elsewhere(!stream.binding) -> ()
      func.func @entry(%0: !stream.binding) {
        func.call @elsewhere(%0) : (!stream.binding) -> ()
        func.return
      }
    }
  }
}
