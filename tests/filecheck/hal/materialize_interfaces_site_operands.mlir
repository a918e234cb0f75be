// RUN: hal-materialize-interfaces{targets=cpu}
// ERROR: error[HR2502]: dispatch of @ex::@entry with 0 constants; the function takes 1
builtin.module {
  stream.executable private @ex {
    stream.executable.export public @entry
    builtin.module {
      func.func @entry(%n: i32) {
        func.return
      }
    }
  }
  func.func @main() {
    stream.cmd.dispatch @ex::@entry[1, 1, 1] {
    }
    func.return
  }
}
