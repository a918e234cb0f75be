// RUN: hal-materialize-interfaces{targets=cpu}

// The access of a binding is merged over all dispatch sites, in whatever block they stand.
// Names test rw, ro, xw, wo in that order; a binding no site uses stays; discarding counts
// only where every writing site discards.

// CHECK-LABEL: hal.executable private @merged
// CHECK:         hal.interface.binding @s0b0_rw set(0) binding(0) type("StorageBuffer") access("Read|Write")
// CHECK-NEXT:    hal.interface.binding @s0b1_ro set(0) binding(1) type("StorageBuffer") access("Read")
// CHECK-NEXT:    hal.interface.binding @s0b2_xw set(0) binding(2) type("StorageBuffer") access("Write|Discard")
// CHECK-NEXT:    hal.interface.binding @s0b3_wo set(0) binding(3) type("StorageBuffer") access("Write")
// CHECK-NEXT:    hal.interface.binding @s0b4_wo set(0) binding(4) type("StorageBuffer") access("Write")
// CHECK-LABEL: hal.executable public @never_dispatched
// CHECK:         hal.interface @io push_constants(0) {
// CHECK-NEXT:      hal.interface.binding @s0b0 set(0) binding(0) type("StorageBuffer") access("None")
// CHECK-LABEL: func.func @main
// CHECK:         attributes {hal.interface.bindings = [@merged::@io::@s0b0_rw, @merged::@io::@s0b1_ro, @merged::@io::@s0b2_xw, @merged::@io::@s0b3_wo, @merged::@io::@s0b4_wo]}
// CHECK:         stream.cmd.if
// CHECK:         attributes {hal.interface.bindings = [@merged::@io::@s0b0_rw, @merged::@io::@s0b1_ro, @merged::@io::@s0b2_xw, @merged::@io::@s0b3_wo, @merged::@io::@s0b4_wo]}
builtin.module {
  stream.executable private @merged {
    stream.executable.export public @entry
    builtin.module {
      func.func @entry(%0: !stream.binding, %1: !stream.binding, %2: !stream.binding, %3: !stream.binding, %4: !stream.binding) {
        func.return
      }
    }
  }
  stream.executable public @never_dispatched {
    stream.executable.export public @entry
    builtin.module {
      func.func @entry(%0: !stream.binding) {
        func.return
      }
    }
  }
  func.func @main(%a: !stream.resource<external>, %b: !stream.resource<external>, %t: !stream.resource<transient>, %u: !stream.resource<transient>, %v: !stream.resource<transient>) {
    stream.cmd.dispatch @merged::@entry[1, 1, 1] {
      ro %a[0 for 64] : !stream.resource<external>,
      ro %b[0 for 64] : !stream.resource<external>,
      xw %t[0 for 64] : !stream.resource<transient>,
      xw %u[0 for 64] : !stream.resource<transient>,
      wo %v[0 for 64] : !stream.resource<transient>
    }
    stream.cmd.if %v : !stream.resource<transient> {
      stream.cmd.dispatch @merged::@entry[1, 1, 1] {
        wo %a[0 for 64] : !stream.resource<external>,
        ro %b[0 for 64] : !stream.resource<external>,
        xw %t[0 for 64] : !stream.resource<transient>,
        wo %u[0 for 64] : !stream.resource<transient>,
        wo %v[0 for 64] : !stream.resource<transient>
      }
    } else {
    }
    func.return
  }
}
// -----

// Every pair of sites that differ: what one of them does is never lost at another.

// CHECK-LABEL: hal.executable public @ex
// CHECK:         hal.interface.binding @s0b0_rw set(0) binding(0) type("StorageBuffer") access("Read|Write")
// CHECK-NEXT:    hal.interface.binding @s0b1_rw set(0) binding(1) type("StorageBuffer") access("Read|Write|Discard")
// CHECK-NEXT:    hal.interface.binding @s0b2_rw set(0) binding(2) type("StorageBuffer") access("Read|Write|Discard")
// CHECK-NEXT:    hal.interface.binding @s0b3_wo set(0) binding(3) type("StorageBuffer") access("Write")
// CHECK-NEXT:    hal.interface.binding @s0b4_rw set(0) binding(4) type("StorageBuffer") access("Read|Write")
// CHECK-NEXT:    hal.interface.binding @s0b5_rw set(0) binding(5) type("StorageBuffer") access("Read|Write")
builtin.module {
  stream.executable public @ex {
    stream.executable.export public @entry
    builtin.module {
      func.func @entry(%0: !stream.binding, %1: !stream.binding, %2: !stream.binding, %3: !stream.binding, %4: !stream.binding, %5: !stream.binding) {
        func.return
      }
    }
  }
  func.func @one(%t: !stream.resource<transient>) {
    stream.cmd.dispatch @ex::@entry[1, 1, 1] {
      wo %t[0 for 64] : !stream.resource<transient>,
      xw %t[0 for 64] : !stream.resource<transient>,
      ro %t[0 for 64] : !stream.resource<transient>,
      wo %t[0 for 64] : !stream.resource<transient>,
      rw %t[0 for 64] : !stream.resource<transient>,
      rw %t[0 for 64] : !stream.resource<transient>
    }
    func.return
  }
  func.func @other(%t: !stream.resource<transient>) {
    stream.cmd.dispatch @ex::@entry[1, 1, 1] {
      ro %t[0 for 64] : !stream.resource<transient>,
      ro %t[0 for 64] : !stream.resource<transient>,
      xw %t[0 for 64] : !stream.resource<transient>,
      xw %t[0 for 64] : !stream.resource<transient>,
      rw %t[0 for 64] : !stream.resource<transient>,
      xw %t[0 for 64] : !stream.resource<transient>
    }
    func.return
  }
}
