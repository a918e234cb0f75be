// RUN: hal-materialize-interfaces{targets=cpu}
// ERROR: error[HR2502]: dispatch of @ex::@entry passes f32 as constant 1; the function takes index
// ERROR: --> @main
builtin.module {
  stream.executable private @ex {
    stream.executable.export public @entry
    builtin.module {
      func.func @entry(%n: i32, %m: index) {
        func.return
      }
    }
  }
  func.func @main(%n: i32, %x: f32) {
    stream.cmd.dispatch @ex::@entry[1, 1, 1](%n, %x : i32, f32) {
    }
    func.return
  }
}
