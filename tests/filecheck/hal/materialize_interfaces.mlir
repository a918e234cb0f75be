// RUN: hal-materialize-interfaces{targets=cpu:native,vulkan:1.3}

// One hal.executable behind each stream.executable with exports, same name and
// visibility; a variant a target; kernels without arguments; sites annotated.

// CHECK-LABEL: hal.executable private @ex {
// CHECK-NEXT:    hal.interface @io push_constants(1) {
// CHECK-NEXT:      hal.interface.binding @s0b0_ro set(0) binding(0) type("StorageBuffer") access("Read")
// CHECK-NEXT:      hal.interface.binding @s0b1_wo set(0) binding(1) type("StorageBuffer") access("Write")
// CHECK-NEXT:    }
// CHECK-NEXT:    hal.executable.variant @cpu_native target "cpu:native" {
// CHECK-NEXT:      hal.executable.entry_point public @entry ordinal(0) interface(@io)
// CHECK-NEXT:      builtin.module {
// CHECK-NEXT:        func.func @entry() {
// CHECK-NEXT:          %n = hal.interface.load.constant offset(0) : i32
// CHECK:               %x = hal.interface.binding.subspan @io::@s0b0_ro[%zero] : memref<?xf32>{%dim}
// CHECK-NEXT:          %y = hal.interface.binding.subspan @io::@s0b1_wo[%zero] : memref<64xf32>
// CHECK:             hal.interface private @io push_constants(1) {
// CHECK-NEXT:          hal.interface.binding @s0b0_ro
// CHECK-NEXT:          hal.interface.binding @s0b1_wo
// CHECK:         hal.executable.variant @vulkan_1_3 target "vulkan:1.3" {
// CHECK-NEXT:      hal.executable.entry_point public @entry ordinal(0) interface(@io)
// CHECK-NEXT:      builtin.module {
// CHECK-NEXT:        func.func @entry() {
// CHECK:             hal.interface private @io push_constants(1) {
// CHECK-NOT:     stream.executable private
// CHECK-LABEL: func.func @main
// CHECK:         stream.cmd.dispatch @ex::@entry[64, 1, 1](%n : i32) {
// CHECK:         } attributes {hal.interface.bindings = [@ex::@io::@s0b0_ro, @ex::@io::@s0b1_wo]}
builtin.module {
  stream.executable private @ex {
    stream.executable.export public @entry
    builtin.module {
      func.func @entry(%in: !stream.binding, %out: !stream.binding, %n: i32) {
        %zero = arith.constant 0 : index
        %dim = arith.index_cast %n : i32 to index
        %x = stream.binding.subspan %in[%zero] : !stream.binding -> memref<?xf32>{%dim}
        %y = stream.binding.subspan %out[%zero] : !stream.binding -> memref<64xf32>
        func.return
      }
    }
  }
  func.func @main(%a: !stream.resource<external>, %b: !stream.resource<external>) {
    %n = arith.constant 64 : i32
    stream.cmd.dispatch @ex::@entry[64, 1, 1](%n : i32) {
      ro %a[0 for 256] : !stream.resource<external>,
      wo %b[0 for 256] : !stream.resource<external>
    }
    func.return
  }
}
// -----

// No visibility said, none made up; attributes of the executable, its export and its
// module travel.

// CHECK-LABEL: hal.executable @quiet attributes {note = "a"} {
// CHECK:           hal.executable.entry_point @entry ordinal(0) interface(@io) {note = "b"}
// CHECK-NEXT:      builtin.module attributes {note = "c"} {
builtin.module {
  stream.executable @quiet attributes {note = "a"} {
    stream.executable.export @entry {note = "b"}
    builtin.module attributes {note = "c"} {
      func.func @entry() {
        func.return
      }
    }
  }
}
