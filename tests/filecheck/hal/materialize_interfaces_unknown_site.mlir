// RUN: hal-materialize-interfaces{targets=cpu}
// ERROR: error[HR2501]: dispatch of @ex::@entry, which no executable exports
// ERROR: --> @main
builtin.module {
  func.func @main() {
    stream.cmd.dispatch @ex::@entry[1, 1, 1] {
    }
    func.return
  }
}
