// RUN: hal-materialize-interfaces{targets=cpu,cuda}
// ERROR: error[HR2604]: unsupported interface function argument 1 type f32; requires tensors or simple primitive values (i32, etc)
// ERROR: error[HR2604]: unsupported interface function argument 2 type tensor<4xf32>; requires tensors or simple primitive values (i32, etc)
// ERROR: --> @ex::@entry
builtin.module {
  stream.executable private @ex {
    stream.executable.export public @entry
    builtin.module {
      func.func @entry(%0: i32, %1: f32, %2: tensor<4xf32>) {
        %c = arith.constant 0 : index
        func.return
      }
    }
  }
}
