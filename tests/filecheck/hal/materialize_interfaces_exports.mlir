// RUN: hal-materialize-interfaces{targets=cpu}

// Executables without exports are left. Several exports: ordinals in order, distinct
// interface names, each site annotated with its own; functions not exported come along.
// A fixed workgroup size goes to the entry point.

// CHECK-LABEL: hal.executable public @several
// CHECK-NEXT:    hal.interface @io push_constants(0) {
// CHECK-NEXT:      hal.interface.binding @s0b0_ro
// CHECK:         hal.interface @io_0 push_constants(1) {
// CHECK-NEXT:    }
// CHECK-NEXT:    hal.interface @io_1 push_constants(0) {
// CHECK-NEXT:      hal.interface.binding @s0b0_wo
// CHECK:         hal.executable.variant @cpu target "cpu" {
// CHECK-NEXT:      hal.executable.entry_point public @second ordinal(0) interface(@io)
// CHECK-NEXT:      hal.executable.entry_point private @first ordinal(1) interface(@io_0) workgroup_size [32, 4, 1] workgroup_count ["ceil", 1, 1]
// CHECK-NEXT:      hal.executable.entry_point @third ordinal(2) interface(@io_1)
// CHECK-NEXT:      builtin.module {
// CHECK-NEXT:        func.func private @helper(%x: f32) -> f32
// CHECK:             func.func @second() {
// CHECK:             hal.interface private @io push_constants(0) {
// CHECK:             func.func @first() {
// CHECK:             hal.interface private @io_0 push_constants(1) {
// CHECK:             func.func @third() {
// CHECK-NEXT:          %zero = arith.constant 0 : index
// CHECK-NEXT:          %x = hal.interface.binding.subspan @io_1::@s0b0_wo[%zero] : memref<16xf32>
// CHECK:             hal.interface private @io_1 push_constants(0) {
// CHECK-LABEL: stream.executable private @no_exports
// CHECK-LABEL: func.func @main
// CHECK:         stream.cmd.dispatch @several::@third
// CHECK:         attributes {hal.interface.bindings = [@several::@io_1::@s0b0_wo]}
// CHECK:         stream.cmd.dispatch @several::@second
// CHECK:         attributes {hal.interface.bindings = [@several::@io::@s0b0_ro]}
// CHECK:         stream.cmd.dispatch @several::@first
// CHECK:         attributes {hal.interface.bindings = []}
builtin.module {
  stream.executable public @several {
    stream.executable.export public @second
    stream.executable.export private @first workgroup_size [32, 4, 1] workgroup_count ["ceil", 1, 1]
    stream.executable.export @third
    builtin.module {
      func.func @first(%n: i32) {
        func.return
      }
      func.func private @helper(%x: f32) -> f32 {
        func.return %x : f32
      }
      func.func @second(%0: !stream.binding) {
        func.return
      }
      func.func @third(%0: !stream.binding) {
        %zero = arith.constant 0 : index
        %x = stream.binding.subspan %0[%zero] : !stream.binding -> memref<16xf32>
        func.return
      }
    }
  }
  stream.executable private @no_exports {
    builtin.module {
    }
  }
  func.func @main(%a: !stream.resource<external>) {
    %n = arith.constant 1 : i32
    stream.cmd.dispatch @several::@third[1, 1, 1] {
      wo %a[0 for 64] : !stream.resource<external>
    }
    stream.cmd.dispatch @several::@second[1, 1, 1] {
      ro %a[0 for 64] : !stream.resource<external>
    }
    stream.cmd.dispatch @several::@first[1, 1, 1](%n : i32) {
    }
    func.return
  }
}
// -----

// Names that functions have are no names for interfaces.

// CHECK-LABEL: hal.executable private @taken
// CHECK-NEXT:    hal.interface @io_0 push_constants(0) {
// CHECK:         hal.interface @io_2 push_constants(0) {
// CHECK:           hal.executable.entry_point public @io ordinal(0) interface(@io_0)
// CHECK-NEXT:      hal.executable.entry_point public @other ordinal(1) interface(@io_2)
// CHECK:             func.func private @io_1() {
// CHECK:             func.func @io() {
// CHECK:             hal.interface private @io_0 push_constants(0) {
// CHECK:             func.func @other() {
// CHECK:             hal.interface private @io_2 push_constants(0) {
builtin.module {
  stream.executable private @taken {
    stream.executable.export public @io
    stream.executable.export public @other
    builtin.module {
      func.func @io() {
        func.return
      }
      func.func private @io_1() {
        func.return
      }
      func.func @other() {
        func.return
      }
    }
  }
}
