// RUN: hal-materialize-interfaces
// ERROR: error[HR2601]: no executable targets specified for translation
// ERROR: --> @ex
// ERROR: help: name one with --target
builtin.module {
  stream.executable private @ex {
    stream.executable.export public @entry
    builtin.module {
      func.func @entry() {
        %c = arith.constant 0 : index
        func.return
      }
    }
  }
}
