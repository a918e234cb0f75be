// RUN: stream-emplace-parts

// The producers of a concatenation's parts write them where it wants them, halo and all;
// who reads a part reads it there. Of `both` nothing is left of the copying dispatch. An
// input cannot move: in `one` the dispatch copies it into a buffer that holds the other.
// CHECK-LABEL: stream.executable private @negate_part_2 {
// CHECK:             ro x : f32[2, 3]
// CHECK-NEXT:        wo y : f32[2, 3] layout [6, 1] offset 9 size 24 halo [1, 0] [1, 0] value 0.0
// CHECK-LABEL: stream.executable private @join_part {
// CHECK:             ro a : f32[2, 3]
// CHECK-NEXT:        rw c : f32[2, 6] layout [6, 1] offset 6 size 24 halo [1, 0] [1, 0] value 0.0
// CHECK:             store %v0 to c[%d0, %d1]
// CHECK-NEXT:          }
// CHECK-NEXT:        }>(%a, %c)

// CHECK-LABEL: func.func @both
// CHECK:         %c = stream.resource.alloc
// CHECK-NEXT:    stream.cmd.dispatch @negate_part
// CHECK-NEXT:      ro %x[0 for 24]
// CHECK-NEXT:      wo %c[0 for 96]
// CHECK-NEXT:    }
// CHECK-NEXT:    stream.cmd.dispatch @negate_part
// CHECK-NEXT:      ro %c[0 for 96]
// CHECK-NEXT:      wo %c[0 for 96]
// CHECK-NEXT:    }
// CHECK-NEXT:    stream.cmd.dispatch @use::@entry
// CHECK-LABEL: func.func @one
// CHECK:         stream.cmd.dispatch @negate_part_2::@entry_part
// CHECK-NEXT:      ro %x[0 for 24]
// CHECK-NEXT:      wo %c[0 for 96]
// CHECK:         stream.cmd.dispatch @join_part::@entry_part
// CHECK-NEXT:      ro %x[0 for 24]
// CHECK-NEXT:      rw %c[0 for 96]

// What is written over is no part: `b` is copied whole and a part of it replaced.
// CHECK-LABEL: func.func @written_over
// CHECK:         stream.cmd.dispatch @update::@entry
// CHECK-NEXT:      ro %a[0 for 24]
// CHECK-NEXT:      ro %e[0 for 48]
// CHECK-NEXT:      wo %f[0 for 48]
builtin.module {
  stream.executable private @negate {
    stream.executable.export public @entry
    builtin.module {
      func.func @entry(%x_b: !stream.binding, %y_b: !stream.binding) {
        %zero = arith.constant 0 : index
        %x = stream.binding.subspan %x_b[%zero] : !stream.binding -> tensor<2x3xf32>
        %y = stream.binding.subspan %y_b[%zero] : !stream.binding -> tensor<2x3xf32>
        kernel.execute <kernel(%d0 = 2, %d1 = 3) {
          ro x : f32[2, 3]
          wo y : f32[2, 3]
          map() {
            %v0 = load x[%d0, %d1]
            %v1 = negate(%v0) : f32
            store %v1 to y[%d0, %d1]
          }
        }>(%x, %y) : (tensor<2x3xf32>, tensor<2x3xf32>) -> ()
        func.return
      }
    }
  }
  stream.executable private @join {
    stream.executable.export public @entry
    builtin.module {
      func.func @entry(%a_b: !stream.binding, %b_b: !stream.binding, %c_b: !stream.binding) {
        %zero = arith.constant 0 : index
        %a = stream.binding.subspan %a_b[%zero] : !stream.binding -> tensor<2x3xf32>
        %b = stream.binding.subspan %b_b[%zero] : !stream.binding -> tensor<2x3xf32>
        %c = stream.binding.subspan %c_b[%zero] : !stream.binding -> tensor<2x6xf32>
        kernel.execute <kernel(%d0 = 2) {
          ro a : f32[2, 3]
          ro b : f32[2, 3]
          wo c : f32[2, 6] layout [6, 1] offset 6 size 24 halo [1, 0] [1, 0] value 0.0
          map(%d1 = 3) {
            %v0 = load a[%d0, %d1]
            store %v0 to c[%d0, %d1]
          }
          map(%d1 = 3) {
            %v0 = load b[%d0, %d1]
            store %v0 to c[%d0, %d1 + 3]
          }
        }>(%a, %b, %c) : (tensor<2x3xf32>, tensor<2x3xf32>, tensor<2x6xf32>) -> ()
        func.return
      }
    }
  }
  stream.executable private @use {
    stream.executable.export public @entry
    builtin.module {
      func.func @entry(%c_b: !stream.binding, %d_b: !stream.binding) {
        %zero = arith.constant 0 : index
        %c = stream.binding.subspan %c_b[%zero] : !stream.binding -> tensor<2x6xf32>
        %d = stream.binding.subspan %d_b[%zero] : !stream.binding -> tensor<2x6xf32>
        kernel.execute <kernel(%d0 = 2, %d1 = 6) {
          ro c : f32[2, 6] layout [6, 1] offset 6 size 24 halo [1, 0] [1, 0] value 0.0
          wo d : f32[2, 6]
          map() {
            %v0 = load c[%d0, %d1]
            store %v0 to d[%d0, %d1]
          }
        }>(%c, %d) : (tensor<2x6xf32>, tensor<2x6xf32>) -> ()
        func.return
      }
    }
  }
  stream.executable private @update {
    stream.executable.export public @entry
    builtin.module {
      func.func @entry(%a_b: !stream.binding, %b_b: !stream.binding, %c_b: !stream.binding) {
        %zero = arith.constant 0 : index
        %a = stream.binding.subspan %a_b[%zero] : !stream.binding -> tensor<2x3xf32>
        %b = stream.binding.subspan %b_b[%zero] : !stream.binding -> tensor<2x6xf32>
        %c = stream.binding.subspan %c_b[%zero] : !stream.binding -> tensor<2x6xf32>
        kernel.execute <kernel(%d0 = 2) {
          ro a : f32[2, 3]
          ro b : f32[2, 6]
          wo c : f32[2, 6]
          map(%d1 = 6) {
            %v0 = load b[%d0, %d1]
            store %v0 to c[%d0, %d1]
          }
          map(%d1 = 3) {
            %v0 = load a[%d0, %d1]
            store %v0 to c[%d0, %d1 + 3]
          }
        }>(%a, %b, %c) : (tensor<2x3xf32>, tensor<2x6xf32>, tensor<2x6xf32>) -> ()
        func.return
      }
    }
  }
  func.func @both(%x: !stream.resource<external> {hr.name = "x", hr.type = tensor<2x3xf32>, stream.io = "input", stream.size = #hr.exprs<["24"]>}, %out: !stream.resource<external> {hr.name = "out", hr.type = tensor<2x6xf32>, stream.io = "output", stream.size = #hr.exprs<["48"]>}) {
    %a = stream.resource.alloc : !stream.resource<transient>{64}
    stream.cmd.dispatch @negate::@entry[2, 3, 1] {
      ro %x[0 for 24] : !stream.resource<external>,
      wo %a[0 for 24] : !stream.resource<transient>
    }
    %b = stream.resource.alloc : !stream.resource<transient>{64}
    stream.cmd.dispatch @negate::@entry[2, 3, 1] {
      ro %a[0 for 24] : !stream.resource<transient>,
      wo %b[0 for 24] : !stream.resource<transient>
    }
    %c = stream.resource.alloc : !stream.resource<transient>{128}
    stream.cmd.dispatch @join::@entry[2, 3, 1] {
      ro %a[0 for 24] : !stream.resource<transient>,
      ro %b[0 for 24] : !stream.resource<transient>,
      wo %c[0 for 96] : !stream.resource<transient>
    }
    stream.cmd.dispatch @use::@entry[2, 3, 1] {
      ro %c[0 for 96] : !stream.resource<transient>,
      wo %out[0 for 48] : !stream.resource<external>
    }
    func.return
  }
  func.func @one(%x: !stream.resource<external> {hr.name = "x", hr.type = tensor<2x3xf32>, stream.io = "input", stream.size = #hr.exprs<["24"]>}, %out: !stream.resource<external> {hr.name = "out", hr.type = tensor<2x6xf32>, stream.io = "output", stream.size = #hr.exprs<["48"]>}) {
    %b = stream.resource.alloc : !stream.resource<transient>{64}
    stream.cmd.dispatch @negate::@entry[2, 3, 1] {
      ro %x[0 for 24] : !stream.resource<external>,
      wo %b[0 for 24] : !stream.resource<transient>
    }
    %c = stream.resource.alloc : !stream.resource<transient>{128}
    stream.cmd.dispatch @join::@entry[2, 3, 1] {
      ro %x[0 for 24] : !stream.resource<external>,
      ro %b[0 for 24] : !stream.resource<transient>,
      wo %c[0 for 96] : !stream.resource<transient>
    }
    stream.cmd.dispatch @use::@entry[2, 3, 1] {
      ro %c[0 for 96] : !stream.resource<transient>,
      wo %out[0 for 48] : !stream.resource<external>
    }
    func.return
  }
  func.func @written_over(%x: !stream.resource<external> {hr.name = "x", hr.type = tensor<2x3xf32>, stream.io = "input", stream.size = #hr.exprs<["24"]>}, %out: !stream.resource<external> {hr.name = "out", hr.type = tensor<2x6xf32>, stream.io = "output", stream.size = #hr.exprs<["48"]>}) {
    %a = stream.resource.alloc : !stream.resource<transient>{64}
    stream.cmd.dispatch @negate::@entry[2, 3, 1] {
      ro %x[0 for 24] : !stream.resource<external>,
      wo %a[0 for 24] : !stream.resource<transient>
    }
    %c = stream.resource.alloc : !stream.resource<transient>{128}
    stream.cmd.dispatch @join::@entry[2, 3, 1] {
      ro %x[0 for 24] : !stream.resource<external>,
      ro %x[0 for 24] : !stream.resource<external>,
      wo %c[0 for 96] : !stream.resource<transient>
    }
    %e = stream.resource.alloc : !stream.resource<transient>{64}
    stream.cmd.dispatch @use::@entry[2, 3, 1] {
      ro %c[0 for 96] : !stream.resource<transient>,
      wo %e[0 for 48] : !stream.resource<transient>
    }
    %f = stream.resource.alloc : !stream.resource<transient>{64}
    stream.cmd.dispatch @update::@entry[2, 3, 1] {
      ro %a[0 for 24] : !stream.resource<transient>,
      ro %e[0 for 48] : !stream.resource<transient>,
      wo %f[0 for 48] : !stream.resource<transient>
    }
    stream.cmd.copy %f[0], %out[0], 48 : !stream.resource<transient> -> !stream.resource<external>
    func.return
  }
}
