// RUN: hal-materialize-interfaces{targets=cpu,cuda}
// ERROR: error[HR2603]: unsupported argument 1 bit depth 64 (i64); only 32-bit values are supported right now
builtin.module {
  stream.executable private @ex {
    stream.executable.export public @entry
    builtin.module {
      func.func @entry(%0: !stream.binding, %1: i64) {
        %c = arith.constant 0 : index
        func.return
      }
    }
  }
}
