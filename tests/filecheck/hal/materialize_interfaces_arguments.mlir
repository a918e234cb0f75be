// RUN: hal-materialize-interfaces{targets=cpu}

// Constants are converted before bindings and counted apart from them; alignment and known
// values travel; index arguments are taken; a binding of an argument keeps its alignment;
// what nothing uses is loaded all the same.

// CHECK-LABEL: func.func @entry() {
// CHECK-NEXT:    %a = hal.interface.load.constant offset(0) alignment(16 : index) values([32 : i32, 64 : i32]) : i32
// CHECK-NEXT:    %b = hal.interface.load.constant offset(1) : index
// CHECK-NEXT:    %unused = hal.interface.load.constant offset(2) : i32
// CHECK-NEXT:    %x = hal.interface.binding.subspan @io::@s0b0_ro[%b] alignment(64 : index) : memref<?x4xf32>{%b}
// CHECK-NEXT:    %again = hal.interface.binding.subspan @io::@s0b0_ro[%b] alignment(64 : index) : memref<4xi8>
// CHECK-NEXT:    func.return
builtin.module {
  stream.executable private @ex {
    stream.executable.export public @entry
    builtin.module {
      func.func @entry(%a: i32 {stream.alignment = 16 : index, stream.values = [32 : i32, 64 : i32]}, %in: !stream.binding {stream.alignment = 64 : index}, %b: index, %out: !stream.binding, %unused: i32) {
        %x = stream.binding.subspan %in[%b] : !stream.binding -> memref<?x4xf32>{%b}
        %again = stream.binding.subspan %in[%b] : !stream.binding -> memref<4xi8>
        func.return
      }
    }
  }
  func.func @main(%r: !stream.resource<external>, %s: !stream.resource<external>) {
    %i = arith.constant 32 : i32
    %n = stream.size "batch" : index
    stream.cmd.dispatch @ex::@entry[1, 1, 1](%i, %n, %i : i32, index, i32) {
      ro %r[0 for 64] : !stream.resource<external>,
      wo %s[0 for 64] : !stream.resource<external>
    }
    func.return
  }
}
