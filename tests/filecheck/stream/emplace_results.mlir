// RUN: stream-emplace-results

// A residual add writes over the operand that dies; its kernel says rw. The site whose
// operands live on, and the one whose result is the output, keep the shared executable.
// CHECK-LABEL: stream.executable private @add {
// CHECK-LABEL: stream.executable private @add_in_place {
// CHECK:           func.func @entry_in_place(%x_binding: !stream.binding, %z_binding: !stream.binding) {
// CHECK:             ro x : f32[10]
// CHECK-NEXT:        rw z : f32[10]
// CHECK:             %v1 = load z[%d0]
// CHECK:             store %v2 to z[%d0]

// A row kernel may overwrite its own row; then nobody runs the original any more.
// CHECK-NOT:   stream.executable private @rows {
// CHECK-LABEL: stream.executable private @rows_in_place {
// CHECK:             rw z : f32[4, 4]

// Reading at another index, or what another point overwrites, forbids it.
// CHECK-LABEL: stream.executable private @reversed {
// CHECK-NOT:   @reversed_in_place
// CHECK-LABEL: stream.executable private @columns {
// CHECK-NOT:   @columns_in_place

// CHECK-LABEL: func.func @main
// CHECK:         stream.cmd.dispatch @add::@entry[10, 1, 1] {
// CHECK-NEXT:      ro %x[0 for 40]
// CHECK-NEXT:      ro %x[0 for 40]
// CHECK-NEXT:      wo %a[0 for 40]
// CHECK:         stream.cmd.dispatch @add::@entry[10, 1, 1] {
// CHECK-NEXT:      ro %a[0 for 40]
// CHECK-NEXT:      ro %x[0 for 40]
// CHECK-NEXT:      wo %b[0 for 40]
// CHECK:         stream.cmd.dispatch @add_in_place::@entry_in_place[10, 1, 1] {
// CHECK-NEXT:      ro %a[0 for 40]
// CHECK-NEXT:      rw %b[0 for 40]
// CHECK-NEXT:    }
// CHECK:         stream.cmd.dispatch @add::@entry[10, 1, 1] {
// CHECK-NEXT:      ro %a[0 for 40]
// CHECK-NEXT:      ro %b[0 for 40]
// CHECK-NEXT:      wo %out[0 for 40]
// CHECK-LABEL: func.func @rows_and_others
// CHECK:         stream.cmd.dispatch @rows_in_place::@entry_in_place[10, 1, 1] {
// CHECK-NEXT:      rw %a[0 for 64]
// CHECK:         stream.cmd.dispatch @reversed::@entry[10, 1, 1] {
// CHECK-NEXT:      ro %a[0 for 40]
// CHECK-NEXT:      wo %c[0 for 40]
// CHECK:         stream.cmd.dispatch @columns::@entry[10, 1, 1] {
// CHECK-NEXT:      ro %c[0 for 64]
// CHECK-NEXT:      wo %d[0 for 64]
// CHECK-LABEL: func.func @branch
// CHECK:           stream.cmd.dispatch @add::@entry[10, 1, 1] {
builtin.module {
  stream.executable private @add {
    stream.executable.export public @entry
    builtin.module {
      func.func @entry(%x_b: !stream.binding, %y_b: !stream.binding, %z_b: !stream.binding) {
        %zero = arith.constant 0 : index
        %x = stream.binding.subspan %x_b[%zero] : !stream.binding -> tensor<10xf32>
        %y = stream.binding.subspan %y_b[%zero] : !stream.binding -> tensor<10xf32>
        %z = stream.binding.subspan %z_b[%zero] : !stream.binding -> tensor<10xf32>
        kernel.execute <kernel(%d0 = 10) {
          ro x : f32[10]
          ro y : f32[10]
          wo z : f32[10]
          map() {
            %v0 = load x[%d0]
            %v1 = load y[%d0]
            %v2 = add(%v0, %v1) : f32
            store %v2 to z[%d0]
          }
        }>(%x, %y, %z) : (tensor<10xf32>, tensor<10xf32>, tensor<10xf32>) -> ()
        func.return
      }
    }
  }
  stream.executable private @rows {
    stream.executable.export public @entry
    builtin.module {
      func.func @entry(%x_b: !stream.binding, %z_b: !stream.binding) {
        %zero = arith.constant 0 : index
        %x = stream.binding.subspan %x_b[%zero] : !stream.binding -> tensor<4x4xf32>
        %z = stream.binding.subspan %z_b[%zero] : !stream.binding -> tensor<4x4xf32>
        kernel.execute <kernel(%d0 = 4) {
          ro x : f32[4, 4]
          wo z : f32[4, 4]
          local m : f32
          reduce(%r0 = 4) {
            %v0 = load x[%d0, %r0]
            fold %v0 from -inf with maximum into m
          }
          map(%d1 = 4) {
            %v0 = load x[%d0, %d1]
            %v1 = read m[]
            %v2 = subtract(%v0, %v1) : f32
            store %v2 to z[%d0, %d1]
          }
        }>(%x, %z) : (tensor<4x4xf32>, tensor<4x4xf32>) -> ()
        func.return
      }
    }
  }
  stream.executable private @reversed {
    stream.executable.export public @entry
    builtin.module {
      func.func @entry(%x_b: !stream.binding, %z_b: !stream.binding) {
        %zero = arith.constant 0 : index
        %x = stream.binding.subspan %x_b[%zero] : !stream.binding -> tensor<10xf32>
        %z = stream.binding.subspan %z_b[%zero] : !stream.binding -> tensor<10xf32>
        kernel.execute <kernel(%d0 = 10) {
          ro x : f32[10]
          wo z : f32[10]
          map() {
            %v0 = load x[9 - %d0]
            store %v0 to z[%d0]
          }
        }>(%x, %z) : (tensor<10xf32>, tensor<10xf32>) -> ()
        func.return
      }
    }
  }
  stream.executable private @columns {
    stream.executable.export public @entry
    builtin.module {
      func.func @entry(%x_b: !stream.binding, %z_b: !stream.binding) {
        %zero = arith.constant 0 : index
        %x = stream.binding.subspan %x_b[%zero] : !stream.binding -> tensor<4x4xf32>
        %z = stream.binding.subspan %z_b[%zero] : !stream.binding -> tensor<4x4xf32>
        kernel.execute <kernel(%d0 = 4, %d1 = 4) {
          ro x : f32[4, 4]
          wo z : f32[4, 4]
          local m : f32
          reduce(%r0 = 4) {
            %v0 = load x[%r0, %d1]
            fold %v0 from 0.0 with add into m
          }
          map() {
            %v0 = read m[]
            store %v0 to z[%d0, %d1]
          }
        }>(%x, %z) : (tensor<4x4xf32>, tensor<4x4xf32>) -> ()
        func.return
      }
    }
  }
  func.func @main(%x: !stream.resource<external> {stream.io = "input", stream.size = #hr.exprs<["40"]>}, %out: !stream.resource<external> {stream.io = "output", stream.size = #hr.exprs<["40"]>}) {
    %a = stream.resource.alloc "a" : !stream.resource<transient>{64}
    %b = stream.resource.alloc "b" : !stream.resource<transient>{64}
    %c = stream.resource.alloc "c" : !stream.resource<transient>{64}
    stream.cmd.dispatch @add::@entry[10, 1, 1] {
      ro %x[0 for 40] : !stream.resource<external>,
      ro %x[0 for 40] : !stream.resource<external>,
      wo %a[0 for 40] : !stream.resource<transient>
    }
    stream.cmd.dispatch @add::@entry[10, 1, 1] {
      ro %a[0 for 40] : !stream.resource<transient>,
      ro %x[0 for 40] : !stream.resource<external>,
      wo %b[0 for 40] : !stream.resource<transient>
    }
    stream.cmd.dispatch @add::@entry[10, 1, 1] {
      ro %a[0 for 40] : !stream.resource<transient>,
      ro %b[0 for 40] : !stream.resource<transient>,
      wo %c[0 for 40] : !stream.resource<transient>
    }
    stream.cmd.dispatch @add::@entry[10, 1, 1] {
      ro %a[0 for 40] : !stream.resource<transient>,
      ro %c[0 for 40] : !stream.resource<transient>,
      wo %out[0 for 40] : !stream.resource<external>
    }
    func.return
  }
  func.func @rows_and_others(%x: !stream.resource<external> {stream.io = "input", stream.size = #hr.exprs<["40"]>}, %out: !stream.resource<external> {stream.io = "output", stream.size = #hr.exprs<["40"]>}) {
    %a = stream.resource.alloc "a" : !stream.resource<transient>{64}
    %b = stream.resource.alloc "b" : !stream.resource<transient>{64}
    %c = stream.resource.alloc "c" : !stream.resource<transient>{64}
    %d = stream.resource.alloc "d" : !stream.resource<transient>{64}
    stream.cmd.fill %a[0 for 64] 0 : i32, !stream.resource<transient>
    stream.cmd.dispatch @rows::@entry[10, 1, 1] {
      ro %a[0 for 64] : !stream.resource<transient>,
      wo %b[0 for 64] : !stream.resource<transient>
    }
    stream.cmd.dispatch @reversed::@entry[10, 1, 1] {
      ro %b[0 for 40] : !stream.resource<transient>,
      wo %c[0 for 40] : !stream.resource<transient>
    }
    stream.cmd.dispatch @columns::@entry[10, 1, 1] {
      ro %c[0 for 64] : !stream.resource<transient>,
      wo %d[0 for 64] : !stream.resource<transient>
    }
    stream.cmd.copy %d[0], %out[0], 40 : !stream.resource<transient> -> !stream.resource<external>
    func.return
  }
  func.func @branch(%x: !stream.resource<external> {stream.io = "input", stream.size = #hr.exprs<["40"]>}, %out: !stream.resource<external> {stream.io = "output", stream.size = #hr.exprs<["40"]>}) {
    %a = stream.resource.alloc "a" : !stream.resource<transient>{64}
    %b = stream.resource.alloc "b" : !stream.resource<transient>{64}
    stream.cmd.fill %a[0 for 64] 0 : i32, !stream.resource<transient>
    stream.cmd.if %a : !stream.resource<transient> {
      stream.cmd.dispatch @add::@entry[10, 1, 1] {
        ro %a[0 for 40] : !stream.resource<transient>,
        ro %x[0 for 40] : !stream.resource<external>,
        wo %b[0 for 40] : !stream.resource<transient>
      }
    } else {
    }
    func.return
  }
}
