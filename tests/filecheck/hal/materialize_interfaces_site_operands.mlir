// RUN: hal-materialize-interfaces{targets=cpu}
// ERROR: error[HR2502]: dispatch of @ex::@entry with 0 constants; the function takes 1
// ERROR: error[HR2502]: dispatch of @ex::@entry with 1 resources; the function takes 0
// ERROR: --> @main
builtin.module {
  stream.executable private @ex {
    stream.executable.export public @entry
    builtin.module {
      func.func @entry(%n: i32) {
        func.return
      }
    }
  }
  func.func @main(%r: !stream.resource<external>) {
    stream.cmd.dispatch @ex::@entry[1, 1, 1] {
      ro %r[0 for 64] : !stream.resource<external>
    }
    func.return
  }
}
