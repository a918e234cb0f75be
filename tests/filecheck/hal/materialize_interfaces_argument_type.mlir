// RUN: hal-materialize-interfaces{targets=cpu,cuda}
// ERROR: error[HR2604]: unsupported interface function argument 1 type f32; requires tensors or simple primitive values (i32, etc)
builtin.module {
  stream.executable private @ex {
    stream.executable.export public @entry
    builtin.module {
      func.func @entry(%0: i32, %1: f32) {
        %c = arith.constant 0 : index
        func.return
      }
    }
  }
}
