// RUN: hal-materialize-interfaces{targets=cpu,cuda}
// ERROR: error[HR2603]: unsupported argument 1 bit depth 64 (i64); only 32-bit values are supported right now
// ERROR: error[HR2603]: unsupported argument 2 bit depth 16 (i16); only 32-bit values are supported right now
// ERROR: error[HR2603]: unsupported argument 3 bit depth 1 (i1); only 32-bit values are supported right now
// ERROR: --> @ex::@entry
builtin.module {
  stream.executable private @ex {
    stream.executable.export public @entry
    builtin.module {
      func.func @entry(%0: !stream.binding, %1: i64, %2: i16, %3: i1) {
        %c = arith.constant 0 : index
        func.return
      }
    }
  }
}
