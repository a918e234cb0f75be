// RUN: hal-materialize-interfaces{targets=cpu,cuda}

// Workgroup id, count and size become the interface's; a size the export fixes is a constant.

// CHECK-LABEL: func.func @sized() {
// CHECK-NEXT:    %id = hal.interface.workgroup.id[0] : index
// CHECK-NEXT:    %count = hal.interface.workgroup.count[1] : index
// CHECK-NEXT:    %size = arith.constant 32 : index
// CHECK-NEXT:    %size_y = arith.constant 4 : index
// CHECK-LABEL: func.func @free() {
// CHECK-NEXT:    %size = hal.interface.workgroup.size[2] : index
// CHECK:       hal.executable.variant @cuda
// CHECK-LABEL: func.func @sized() {
// CHECK-NEXT:    %id = hal.interface.workgroup.id[0] : index
// CHECK-NEXT:    %count = hal.interface.workgroup.count[1] : index
// CHECK-NEXT:    %size = arith.constant 32 : index
builtin.module {
  stream.executable private @ex {
    stream.executable.export public @sized workgroup_size [32, 4, 1]
    stream.executable.export public @free
    builtin.module {
      func.func @sized() {
        %id = stream.dispatch.workgroup.id[0] : index
        %count = stream.dispatch.workgroup.count[1] : index
        %size = stream.dispatch.workgroup.size[0] : index
        %size_y = stream.dispatch.workgroup.size[1] : index
        func.return
      }
      func.func @free() {
        %size = stream.dispatch.workgroup.size[2] : index
        func.return
      }
    }
  }
}
// -----

// A function that exports call asks the interface too, but no export fixes its size.

// CHECK-LABEL: func.func private @helper() -> index {
// CHECK-NEXT:    %id = hal.interface.workgroup.id[2] : index
// CHECK-NEXT:    %count = hal.interface.workgroup.count[1] : index
// CHECK-NEXT:    %size = hal.interface.workgroup.size[0] : index
// CHECK:       hal.executable.variant @cuda
// CHECK-LABEL: func.func private @helper() -> index {
// CHECK-NEXT:    %id = hal.interface.workgroup.id[2] : index
builtin.module {
  stream.executable private @ex {
    stream.executable.export public @entry workgroup_size [32, 4, 1]
    builtin.module {
      func.func private @helper() -> index {
        %id = stream.dispatch.workgroup.id[2] : index
        %count = stream.dispatch.workgroup.count[1] : index
        %size = stream.dispatch.workgroup.size[0] : index
        func.return %size : index
      }
      func.func @entry() {
        %n = func.call @helper() : () -> index
        func.return
      }
    }
  }
}
