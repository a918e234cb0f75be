// RUN: stream-compile-loops

// Values that change places: what the loop read before is written when all is read. The loop
// around the kernel has fewer trips; executables that nothing runs any more are gone.
// CHECK:       stream.executable private @add_loop_1 {
// CHECK-LABEL: stream.executable private @add_loop_0 {
// A tensor that is seen in two shapes is one of one dimension.
// CHECK:           ro in2 : f32[10]
// CHECK-NEXT:      wo out3 : f32[10]
// CHECK-NEXT:      rw state4 : i32[]
// CHECK-NEXT:      local local0 : f32[2, 5]
// CHECK-NEXT:      while state0 at_most 59074 likely 10 {
// CHECK:             reduce(%d0 = 2, %d1 = 5, %r0 = 5) {
// CHECK-NEXT:          %v0 = load out3[5*%d0 + %r0]
// CHECK:             map(%d0 = 2, %d1 = 5) {
// CHECK-NEXT:          %v0 = read local0[%d0, %d1]
// CHECK:               store %v2 to state1[5*%d0 + %d1]
// CHECK-LABEL: stream.executable private @add_loop {
// CHECK:           while state0 at_most 135300 likely 135300 {
// CHECK:               store %v2 to out3[%d0]
// CHECK:               %v0 = load state2[%d0]
// CHECK-NEXT:          store %v0 to state1[%d0]
// CHECK:               %v0 = load out3[%d0]
// CHECK-NEXT:          store %v0 to state2[%d0]
// CHECK:               store %v4 to state0[]
// A loop within is part of the kernel.
// CHECK-LABEL: stream.executable private @count_loop {
// CHECK:           while state0 at_most 21845 likely 10 {
// CHECK:             while out3 likely 9 {

// CHECK-LABEL: func.func @swap
// CHECK:           wo %flag[0 for 1]
// CHECK-NEXT:      }
// CHECK-NEXT:    } while %flag : !stream.resource<transient> trip_count 15 {
// CHECK-NEXT:      stream.cmd.dispatch @add_loop::@entry_loop[1, 1, 1] {
// CHECK-NEXT:        rw %flag[0 for 1] : !stream.resource<transient>,
// CHECK-NEXT:        rw %a[0 for 40] : !stream.resource<transient>,
// CHECK-NEXT:        rw %b[0 for 40] : !stream.resource<transient>,
// CHECK-NEXT:        wo %s[0 for 40] : !stream.resource<transient>,
// CHECK-NEXT:        rw %i[0 for 4] : !stream.resource<transient>
// CHECK-NEXT:      }
// CHECK-NEXT:    }
// CHECK-NEXT:    stream.cmd.copy %a[0], %out[0]
// CHECK-LABEL: func.func @shapes
// CHECK:         } while %flag : !stream.resource<transient> {
// CHECK-NEXT:      %s = stream.resource.alloc
// CHECK-NEXT:      stream.cmd.dispatch @add_loop_0::@entry_loop[1, 1, 1] {
// CHECK-LABEL: func.func @nested
// CHECK:         } while %flag : !stream.resource<transient> {
// CHECK-NEXT:      stream.cmd.dispatch @count_loop::@entry_loop[1, 1, 1] {
// CHECK:             wo %s[0 for 40]
// CHECK-NOT:       stream.cmd.dispatch

// Where nobody knows how often it runs at most, it alone is a kernel.
// CHECK-LABEL: func.func @unknown
// CHECK:         } while %flag : !stream.resource<transient> {
// CHECK-NEXT:      stream.cmd.loop {
// CHECK:           } while %again : !stream.resource<transient> {
// CHECK-NEXT:        stream.cmd.dispatch @add_loop_1::@entry_loop[1, 1, 1] {
// CHECK:           stream.cmd.dispatch @count::@entry[1, 1, 1] {

// A branch, and a trip of 100,000 points, stay dispatches.
// CHECK-LABEL: func.func @branch
// CHECK:           stream.cmd.if %flag
// CHECK-LABEL: func.func @large_body
// CHECK:           stream.cmd.dispatch @large::@entry[100, 1000, 1] {
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
  stream.executable private @sums {
    stream.executable.export public @entry
    builtin.module {
      func.func @entry(%x_b: !stream.binding, %y_b: !stream.binding) {
        %zero = arith.constant 0 : index
        %x = stream.binding.subspan %x_b[%zero] : !stream.binding -> tensor<2x5xf32>
        %y = stream.binding.subspan %y_b[%zero] : !stream.binding -> tensor<2x5xf32>
        kernel.execute <kernel(%d0 = 2, %d1 = 5) {
          ro x : f32[2, 5]
          rw y : f32[2, 5]
          local fold : f32
          reduce(%r0 = 5) {
            %v0 = load x[%d0, %r0]
            fold %v0 from 0.0 with add into fold
          }
          map() {
            %v0 = read fold[]
            %v1 = load y[%d0, %d1]
            %v2 = add(%v0, %v1) : f32
            store %v2 to y[%d0, %d1]
          }
        }>(%x, %y) : (tensor<2x5xf32>, tensor<2x5xf32>) -> ()
        func.return
      }
    }
  }
  stream.executable private @count {
    stream.executable.export public @entry
    builtin.module {
      func.func @entry(%n_b: !stream.binding, %flag_b: !stream.binding) {
        %zero = arith.constant 0 : index
        %n = stream.binding.subspan %n_b[%zero] : !stream.binding -> tensor<i32>
        %flag = stream.binding.subspan %flag_b[%zero] : !stream.binding -> tensor<i1>
        kernel.execute <kernel() {
          rw n : i32[]
          wo flag : i1[]
          map() {
            %v0 = load n[]
            %v1 = constant 1 : i32
            %v2 = subtract(%v0, %v1) : i32
            %v3 = constant 0 : i32
            %v4 = compare GT(%v2, %v3) : i1
            store %v2 to n[]
            store %v4 to flag[]
          }
        }>(%n, %flag) : (tensor<i32>, tensor<i1>) -> ()
        func.return
      }
    }
  }
  stream.executable private @large {
    stream.executable.export public @entry
    builtin.module {
      func.func @entry(%x_b: !stream.binding) {
        %zero = arith.constant 0 : index
        %x = stream.binding.subspan %x_b[%zero] : !stream.binding -> tensor<1000x100xf32>
        kernel.execute <kernel(%d0 = 1000, %d1 = 100) {
          rw x : f32[1000, 100]
          map() {
            %v0 = load x[%d0, %d1]
            %v1 = exponential(%v0) : f32
            store %v1 to x[%d0, %d1]
          }
        }>(%x) : (tensor<1000x100xf32>) -> ()
        func.return
      }
    }
  }
  func.func @swap(%x: !stream.resource<external> {hr.name = "x", stream.io = "input", hr.type = tensor<10xf32>, stream.size = #hr.exprs<["40"]>}, %y: !stream.resource<external> {hr.name = "y", stream.io = "input", hr.type = tensor<10xf32>, stream.size = #hr.exprs<["40"]>}, %n: !stream.resource<external> {hr.name = "n", stream.io = "input", hr.type = tensor<i32>, stream.size = #hr.exprs<["4"]>}, %out: !stream.resource<external> {hr.name = "out", stream.io = "output", hr.type = tensor<10xf32>, stream.size = #hr.exprs<["40"]>}) {
    %i = stream.resource.alloc "i" : !stream.resource<transient>{64}
    %flag = stream.resource.alloc "flag" : !stream.resource<transient>{64}
    %a = stream.resource.alloc "a" : !stream.resource<transient>{64}
    %b = stream.resource.alloc "b" : !stream.resource<transient>{64}
    %s = stream.resource.alloc "s" : !stream.resource<transient>{64}
    stream.cmd.loop {
      stream.cmd.copy %n[0], %i[0], 4 : !stream.resource<external> -> !stream.resource<transient>
      stream.cmd.copy %x[0], %a[0], 40 : !stream.resource<external> -> !stream.resource<transient>
      stream.cmd.copy %y[0], %b[0], 40 : !stream.resource<external> -> !stream.resource<transient>
      stream.cmd.dispatch @count::@entry[1, 1, 1] {
        rw %i[0 for 4] : !stream.resource<transient>,
        wo %flag[0 for 1] : !stream.resource<transient>
      }
    } while %flag : !stream.resource<transient> trip_count 2000000 {
      stream.cmd.dispatch @add::@entry[10, 1, 1] {
        ro %a[0 for 40] : !stream.resource<transient>,
        ro %b[0 for 40] : !stream.resource<transient>,
        wo %s[0 for 40] : !stream.resource<transient>
      }
      stream.cmd.copy %b[0], %a[0], 40 : !stream.resource<transient> -> !stream.resource<transient>
      stream.cmd.copy %s[0], %b[0], 40 : !stream.resource<transient> -> !stream.resource<transient>
      stream.cmd.dispatch @count::@entry[1, 1, 1] {
        rw %i[0 for 4] : !stream.resource<transient>,
        wo %flag[0 for 1] : !stream.resource<transient>
      }
    }
    stream.cmd.copy %a[0], %out[0], 40 : !stream.resource<transient> -> !stream.resource<external>
    func.return
  }
  func.func @shapes(%x: !stream.resource<external> {hr.name = "x", stream.io = "input", hr.type = tensor<10xf32>, stream.size = #hr.exprs<["40"]>}, %y: !stream.resource<external> {hr.name = "y", stream.io = "input", hr.type = tensor<10xf32>, stream.size = #hr.exprs<["40"]>}, %n: !stream.resource<external> {hr.name = "n", stream.io = "input", hr.type = tensor<i32>, stream.size = #hr.exprs<["4"]>}, %out: !stream.resource<external> {hr.name = "out", stream.io = "output", hr.type = tensor<10xf32>, stream.size = #hr.exprs<["40"]>}) {
    %i = stream.resource.alloc "i" : !stream.resource<transient>{64}
    %flag = stream.resource.alloc "flag" : !stream.resource<transient>{64}
    %a = stream.resource.alloc "a" : !stream.resource<transient>{64}
    %b = stream.resource.alloc "b" : !stream.resource<transient>{64}
    stream.cmd.loop {
      stream.cmd.copy %n[0], %i[0], 4 : !stream.resource<external> -> !stream.resource<transient>
      stream.cmd.copy %x[0], %a[0], 40 : !stream.resource<external> -> !stream.resource<transient>
      stream.cmd.copy %y[0], %b[0], 40 : !stream.resource<external> -> !stream.resource<transient>
      stream.cmd.dispatch @count::@entry[1, 1, 1] {
        rw %i[0 for 4] : !stream.resource<transient>,
        wo %flag[0 for 1] : !stream.resource<transient>
      }
    } while %flag : !stream.resource<transient> {
      %s = stream.resource.alloc "s" : !stream.resource<transient>{64}
      stream.cmd.dispatch @add::@entry[10, 1, 1] {
        ro %a[0 for 40] : !stream.resource<transient>,
        ro %b[0 for 40] : !stream.resource<transient>,
        wo %s[0 for 40] : !stream.resource<transient>
      }
      stream.cmd.dispatch @sums::@entry[10, 1, 1] {
        ro %s[0 for 40] : !stream.resource<transient>,
        rw %a[0 for 40] : !stream.resource<transient>
      }
      stream.cmd.dispatch @count::@entry[1, 1, 1] {
        rw %i[0 for 4] : !stream.resource<transient>,
        wo %flag[0 for 1] : !stream.resource<transient>
      }
    }
    stream.cmd.copy %a[0], %out[0], 40 : !stream.resource<transient> -> !stream.resource<external>
    func.return
  }
  func.func @nested(%x: !stream.resource<external> {hr.name = "x", stream.io = "input", hr.type = tensor<10xf32>, stream.size = #hr.exprs<["40"]>}, %y: !stream.resource<external> {hr.name = "y", stream.io = "input", hr.type = tensor<10xf32>, stream.size = #hr.exprs<["40"]>}, %n: !stream.resource<external> {hr.name = "n", stream.io = "input", hr.type = tensor<i32>, stream.size = #hr.exprs<["4"]>}, %out: !stream.resource<external> {hr.name = "out", stream.io = "output", hr.type = tensor<10xf32>, stream.size = #hr.exprs<["40"]>}) {
    %i = stream.resource.alloc "i" : !stream.resource<transient>{64}
    %j = stream.resource.alloc "j" : !stream.resource<transient>{64}
    %flag = stream.resource.alloc "flag" : !stream.resource<transient>{64}
    %again = stream.resource.alloc "again" : !stream.resource<transient>{64}
    %a = stream.resource.alloc "a" : !stream.resource<transient>{64}
    %b = stream.resource.alloc "b" : !stream.resource<transient>{64}
    %s = stream.resource.alloc "s" : !stream.resource<transient>{64}
    stream.cmd.loop {
      stream.cmd.copy %n[0], %i[0], 4 : !stream.resource<external> -> !stream.resource<transient>
      stream.cmd.copy %x[0], %a[0], 40 : !stream.resource<external> -> !stream.resource<transient>
      stream.cmd.copy %y[0], %b[0], 40 : !stream.resource<external> -> !stream.resource<transient>
      stream.cmd.dispatch @count::@entry[1, 1, 1] {
        rw %i[0 for 4] : !stream.resource<transient>,
        wo %flag[0 for 1] : !stream.resource<transient>
      }
    } while %flag : !stream.resource<transient> {
      stream.cmd.loop {
        stream.cmd.copy %i[0], %j[0], 4 : !stream.resource<transient> -> !stream.resource<transient>
        stream.cmd.dispatch @count::@entry[1, 1, 1] {
          rw %j[0 for 4] : !stream.resource<transient>,
          wo %again[0 for 1] : !stream.resource<transient>
        }
      } while %again : !stream.resource<transient> trip_count 9 {
        stream.cmd.dispatch @add::@entry[10, 1, 1] {
          ro %a[0 for 40] : !stream.resource<transient>,
          ro %b[0 for 40] : !stream.resource<transient>,
          wo %s[0 for 40] : !stream.resource<transient>
        }
        stream.cmd.copy %s[0], %a[0], 40 : !stream.resource<transient> -> !stream.resource<transient>
        stream.cmd.dispatch @count::@entry[1, 1, 1] {
          rw %j[0 for 4] : !stream.resource<transient>,
          wo %again[0 for 1] : !stream.resource<transient>
        }
      }
      stream.cmd.dispatch @count::@entry[1, 1, 1] {
        rw %i[0 for 4] : !stream.resource<transient>,
        wo %flag[0 for 1] : !stream.resource<transient>
      }
    }
    stream.cmd.copy %a[0], %out[0], 40 : !stream.resource<transient> -> !stream.resource<external>
    func.return
  }
  func.func @unknown(%x: !stream.resource<external> {hr.name = "x", stream.io = "input", hr.type = tensor<10xf32>, stream.size = #hr.exprs<["40"]>}, %y: !stream.resource<external> {hr.name = "y", stream.io = "input", hr.type = tensor<10xf32>, stream.size = #hr.exprs<["40"]>}, %n: !stream.resource<external> {hr.name = "n", stream.io = "input", hr.type = tensor<i32>, stream.size = #hr.exprs<["4"]>}, %out: !stream.resource<external> {hr.name = "out", stream.io = "output", hr.type = tensor<10xf32>, stream.size = #hr.exprs<["40"]>}) {
    %i = stream.resource.alloc "i" : !stream.resource<transient>{64}
    %j = stream.resource.alloc "j" : !stream.resource<transient>{64}
    %flag = stream.resource.alloc "flag" : !stream.resource<transient>{64}
    %again = stream.resource.alloc "again" : !stream.resource<transient>{64}
    %a = stream.resource.alloc "a" : !stream.resource<transient>{64}
    %b = stream.resource.alloc "b" : !stream.resource<transient>{64}
    %s = stream.resource.alloc "s" : !stream.resource<transient>{64}
    stream.cmd.loop {
      stream.cmd.copy %n[0], %i[0], 4 : !stream.resource<external> -> !stream.resource<transient>
      stream.cmd.copy %x[0], %a[0], 40 : !stream.resource<external> -> !stream.resource<transient>
      stream.cmd.copy %y[0], %b[0], 40 : !stream.resource<external> -> !stream.resource<transient>
      stream.cmd.dispatch @count::@entry[1, 1, 1] {
        rw %i[0 for 4] : !stream.resource<transient>,
        wo %flag[0 for 1] : !stream.resource<transient>
      }
    } while %flag : !stream.resource<transient> {
      stream.cmd.loop {
        stream.cmd.copy %i[0], %j[0], 4 : !stream.resource<transient> -> !stream.resource<transient>
        stream.cmd.dispatch @count::@entry[1, 1, 1] {
          rw %j[0 for 4] : !stream.resource<transient>,
          wo %again[0 for 1] : !stream.resource<transient>
        }
      } while %again : !stream.resource<transient> {
        stream.cmd.dispatch @add::@entry[10, 1, 1] {
          ro %a[0 for 40] : !stream.resource<transient>,
          ro %b[0 for 40] : !stream.resource<transient>,
          wo %s[0 for 40] : !stream.resource<transient>
        }
        stream.cmd.copy %s[0], %a[0], 40 : !stream.resource<transient> -> !stream.resource<transient>
        stream.cmd.dispatch @count::@entry[1, 1, 1] {
          rw %j[0 for 4] : !stream.resource<transient>,
          wo %again[0 for 1] : !stream.resource<transient>
        }
      }
      stream.cmd.dispatch @count::@entry[1, 1, 1] {
        rw %i[0 for 4] : !stream.resource<transient>,
        wo %flag[0 for 1] : !stream.resource<transient>
      }
    }
    stream.cmd.copy %a[0], %out[0], 40 : !stream.resource<transient> -> !stream.resource<external>
    func.return
  }
  func.func @branch(%x: !stream.resource<external> {hr.name = "x", stream.io = "input", hr.type = tensor<10xf32>, stream.size = #hr.exprs<["40"]>}, %y: !stream.resource<external> {hr.name = "y", stream.io = "input", hr.type = tensor<10xf32>, stream.size = #hr.exprs<["40"]>}, %n: !stream.resource<external> {hr.name = "n", stream.io = "input", hr.type = tensor<i32>, stream.size = #hr.exprs<["4"]>}, %out: !stream.resource<external> {hr.name = "out", stream.io = "output", hr.type = tensor<10xf32>, stream.size = #hr.exprs<["40"]>}) {
    %i = stream.resource.alloc "i" : !stream.resource<transient>{64}
    %flag = stream.resource.alloc "flag" : !stream.resource<transient>{64}
    %a = stream.resource.alloc "a" : !stream.resource<transient>{64}
    %b = stream.resource.alloc "b" : !stream.resource<transient>{64}
    stream.cmd.loop {
      stream.cmd.copy %n[0], %i[0], 4 : !stream.resource<external> -> !stream.resource<transient>
      stream.cmd.copy %x[0], %a[0], 40 : !stream.resource<external> -> !stream.resource<transient>
      stream.cmd.copy %y[0], %b[0], 40 : !stream.resource<external> -> !stream.resource<transient>
      stream.cmd.dispatch @count::@entry[1, 1, 1] {
        rw %i[0 for 4] : !stream.resource<transient>,
        wo %flag[0 for 1] : !stream.resource<transient>
      }
    } while %flag : !stream.resource<transient> {
      stream.cmd.if %flag : !stream.resource<transient> {
        stream.cmd.copy %b[0], %a[0], 40 : !stream.resource<transient> -> !stream.resource<transient>
      } else {
      }
      stream.cmd.dispatch @count::@entry[1, 1, 1] {
        rw %i[0 for 4] : !stream.resource<transient>,
        wo %flag[0 for 1] : !stream.resource<transient>
      }
    }
    stream.cmd.copy %a[0], %out[0], 40 : !stream.resource<transient> -> !stream.resource<external>
    func.return
  }
  func.func @large_body(%x: !stream.resource<external> {hr.name = "x", stream.io = "input", hr.type = tensor<10xf32>, stream.size = #hr.exprs<["40"]>}, %y: !stream.resource<external> {hr.name = "y", stream.io = "input", hr.type = tensor<10xf32>, stream.size = #hr.exprs<["40"]>}, %n: !stream.resource<external> {hr.name = "n", stream.io = "input", hr.type = tensor<i32>, stream.size = #hr.exprs<["4"]>}, %out: !stream.resource<external> {hr.name = "out", stream.io = "output", hr.type = tensor<10xf32>, stream.size = #hr.exprs<["40"]>}) {
    %i = stream.resource.alloc "i" : !stream.resource<transient>{64}
    %flag = stream.resource.alloc "flag" : !stream.resource<transient>{64}
    %a = stream.resource.alloc "a" : !stream.resource<transient>{64}
    %b = stream.resource.alloc "b" : !stream.resource<transient>{64}
    %w = stream.resource.alloc "w" : !stream.resource<transient>{400000}
    stream.cmd.loop {
      stream.cmd.copy %n[0], %i[0], 4 : !stream.resource<external> -> !stream.resource<transient>
      stream.cmd.copy %x[0], %a[0], 40 : !stream.resource<external> -> !stream.resource<transient>
      stream.cmd.copy %y[0], %b[0], 40 : !stream.resource<external> -> !stream.resource<transient>
      stream.cmd.dispatch @count::@entry[1, 1, 1] {
        rw %i[0 for 4] : !stream.resource<transient>,
        wo %flag[0 for 1] : !stream.resource<transient>
      }
      stream.cmd.fill %w[0 for 400000] 0 : i32, !stream.resource<transient>
    } while %flag : !stream.resource<transient> {
      stream.cmd.dispatch @large::@entry[100, 1000, 1] {
        rw %w[0 for 400000] : !stream.resource<transient>
      }
      stream.cmd.dispatch @count::@entry[1, 1, 1] {
        rw %i[0 for 4] : !stream.resource<transient>,
        wo %flag[0 for 1] : !stream.resource<transient>
      }
    }
    stream.cmd.copy %a[0], %out[0], 40 : !stream.resource<transient> -> !stream.resource<external>
    func.return
  }
}
