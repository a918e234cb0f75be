// RUN: hal-materialize-interfaces{targets=cpu}
// ERROR: error[HR2606]: export @entry names no function of the inner module
builtin.module {
  stream.executable private @ex {
    stream.executable.export public @entry
    builtin.module {
    }
  }
}
