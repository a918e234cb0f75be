// RUN: stream-carry-in-place

// What a trip adds to is written over; the kernel of the site says rw.
// CHECK-LABEL: stream.executable private @add_in_place {
// CHECK:             rw z : f32[10]

// The sum goes to its place; its first operand waits until the sum has been taken.
// CHECK-LABEL: func.func @sums
// CHECK:         stream.cmd.loop {
// CHECK:         } while
// CHECK-NEXT:      stream.cmd.dispatch @add_in_place_0::@entry_in_place[10, 1, 1] {
// CHECK-NEXT:        ro %a[0 for 40]
// CHECK-NEXT:        rw %sum[0 for 40]
// CHECK-NEXT:      }
// CHECK-NEXT:      stream.cmd.dispatch @add_in_place::@entry_in_place[10, 1, 1] {
// CHECK-NEXT:        rw %a[0 for 40]
// CHECK-NEXT:        ro %x[0 for 40]
// CHECK-NEXT:      }
// CHECK-NEXT:    }

// Values that change places need one more: of four copies three stay.
// CHECK-LABEL: func.func @swap
// CHECK:         } while
// CHECK-NEXT:      stream.cmd.copy %a[0], %next_b[0], 40
// CHECK-NEXT:      stream.cmd.copy %b[0], %a[0], 40
// CHECK-NEXT:      stream.cmd.copy %next_b[0], %b[0], 40
// CHECK-NEXT:    }

// What comes back as it was is not copied at all.
// CHECK-LABEL: func.func @kept
// CHECK:         } while
// CHECK-NEXT:      stream.cmd.dispatch @add::@entry[10, 1, 1] {
// CHECK-NEXT:        ro %a[0 for 40]
// CHECK-NEXT:        ro %x[0 for 40]
// CHECK-NEXT:        wo %s[0 for 40]
// CHECK-NEXT:      }
// CHECK-NEXT:    }

// A later reader of both values lets neither wait nor be written over; nor does a part.
// CHECK-LABEL: func.func @both_are_read
// CHECK:         } while
// CHECK:           wo %next[0 for 40]
// CHECK:           ro %a[0 for 40]
// CHECK-NEXT:      ro %next[0 for 40]
// CHECK:           stream.cmd.copy %next[0], %a[0], 40
// CHECK-LABEL: func.func @part
// CHECK:         } while
// CHECK:           stream.cmd.copy %next[0], %a[0], 8

// A reader in a branch counts where the branch stands: the writer waits behind it.
// CHECK-LABEL: func.func @branch
// CHECK:         } while
// CHECK-NEXT:      stream.cmd.if %flag
// CHECK:             stream.cmd.copy %a[0], %s[0], 40
// CHECK:           } else {
// CHECK:           stream.cmd.fill %a[0 for 40]
// CHECK-NEXT:    }
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
  func.func @sums() {
    %flag = stream.resource.alloc "flag" : !stream.resource<transient>{64}
    %x = stream.resource.alloc "x" : !stream.resource<transient>{64}
    %a = stream.resource.alloc "a" : !stream.resource<transient>{64}
    %sum = stream.resource.alloc "sum" : !stream.resource<transient>{64}
    %next_a = stream.resource.alloc "next_a" : !stream.resource<transient>{64}
    %next_sum = stream.resource.alloc "next_sum" : !stream.resource<transient>{64}
    stream.cmd.loop {
    } while %flag : !stream.resource<transient> {
      stream.cmd.dispatch @add::@entry[10, 1, 1] {
        ro %a[0 for 40] : !stream.resource<transient>,
        ro %x[0 for 40] : !stream.resource<transient>,
        wo %next_a[0 for 40] : !stream.resource<transient>
      }
      stream.cmd.dispatch @add::@entry[10, 1, 1] {
        ro %a[0 for 40] : !stream.resource<transient>,
        ro %sum[0 for 40] : !stream.resource<transient>,
        wo %next_sum[0 for 40] : !stream.resource<transient>
      }
      stream.cmd.copy %next_a[0], %a[0], 40 : !stream.resource<transient> -> !stream.resource<transient>
      stream.cmd.copy %next_sum[0], %sum[0], 40 : !stream.resource<transient> -> !stream.resource<transient>
    }
    func.return
  }
  func.func @swap() {
    %flag = stream.resource.alloc "flag" : !stream.resource<transient>{64}
    %a = stream.resource.alloc "a" : !stream.resource<transient>{64}
    %b = stream.resource.alloc "b" : !stream.resource<transient>{64}
    %next_a = stream.resource.alloc "next_a" : !stream.resource<transient>{64}
    %next_b = stream.resource.alloc "next_b" : !stream.resource<transient>{64}
    stream.cmd.loop {
    } while %flag : !stream.resource<transient> {
      stream.cmd.copy %b[0], %next_a[0], 40 : !stream.resource<transient> -> !stream.resource<transient>
      stream.cmd.copy %a[0], %next_b[0], 40 : !stream.resource<transient> -> !stream.resource<transient>
      stream.cmd.copy %next_a[0], %a[0], 40 : !stream.resource<transient> -> !stream.resource<transient>
      stream.cmd.copy %next_b[0], %b[0], 40 : !stream.resource<transient> -> !stream.resource<transient>
    }
    func.return
  }
  func.func @kept() {
    %flag = stream.resource.alloc "flag" : !stream.resource<transient>{64}
    %a = stream.resource.alloc "a" : !stream.resource<transient>{64}
    %x = stream.resource.alloc "x" : !stream.resource<transient>{64}
    %s = stream.resource.alloc "s" : !stream.resource<transient>{64}
    %next_a = stream.resource.alloc "next_a" : !stream.resource<transient>{64}
    stream.cmd.loop {
    } while %flag : !stream.resource<transient> {
      stream.cmd.copy %a[0], %next_a[0], 40 : !stream.resource<transient> -> !stream.resource<transient>
      stream.cmd.dispatch @add::@entry[10, 1, 1] {
        ro %next_a[0 for 40] : !stream.resource<transient>,
        ro %x[0 for 40] : !stream.resource<transient>,
        wo %s[0 for 40] : !stream.resource<transient>
      }
      stream.cmd.copy %next_a[0], %a[0], 40 : !stream.resource<transient> -> !stream.resource<transient>
    }
    func.return
  }
  func.func @both_are_read() {
    %flag = stream.resource.alloc "flag" : !stream.resource<transient>{64}
    %a = stream.resource.alloc "a" : !stream.resource<transient>{64}
    %x = stream.resource.alloc "x" : !stream.resource<transient>{64}
    %s = stream.resource.alloc "s" : !stream.resource<transient>{64}
    %next = stream.resource.alloc "next" : !stream.resource<transient>{64}
    stream.cmd.loop {
    } while %flag : !stream.resource<transient> {
      stream.cmd.dispatch @add::@entry[10, 1, 1] {
        ro %x[0 for 40] : !stream.resource<transient>,
        ro %x[0 for 40] : !stream.resource<transient>,
        wo %next[0 for 40] : !stream.resource<transient>
      }
      stream.cmd.dispatch @add::@entry[10, 1, 1] {
        ro %a[0 for 40] : !stream.resource<transient>,
        ro %next[0 for 40] : !stream.resource<transient>,
        wo %s[0 for 40] : !stream.resource<transient>
      }
      stream.cmd.copy %next[0], %a[0], 40 : !stream.resource<transient> -> !stream.resource<transient>
    }
    func.return
  }
  func.func @part() {
    %flag = stream.resource.alloc "flag" : !stream.resource<transient>{64}
    %a = stream.resource.alloc "a" : !stream.resource<transient>{128}
    %x = stream.resource.alloc "x" : !stream.resource<transient>{64}
    %next = stream.resource.alloc "next" : !stream.resource<transient>{128}
    stream.cmd.loop {
    } while %flag : !stream.resource<transient> {
      stream.cmd.dispatch @add::@entry[10, 1, 1] {
        ro %x[0 for 40] : !stream.resource<transient>,
        ro %x[0 for 40] : !stream.resource<transient>,
        wo %next[0 for 40] : !stream.resource<transient>
      }
      stream.cmd.copy %next[0], %a[0], 8 : !stream.resource<transient> -> !stream.resource<transient>
    }
    func.return
  }
  func.func @branch() {
    %flag = stream.resource.alloc "flag" : !stream.resource<transient>{64}
    %a = stream.resource.alloc "a" : !stream.resource<transient>{64}
    %s = stream.resource.alloc "s" : !stream.resource<transient>{64}
    %next = stream.resource.alloc "next" : !stream.resource<transient>{64}
    stream.cmd.loop {
    } while %flag : !stream.resource<transient> {
      stream.cmd.fill %next[0 for 40] 0 : i32, !stream.resource<transient>
      stream.cmd.if %flag : !stream.resource<transient> {
        stream.cmd.copy %a[0], %s[0], 40 : !stream.resource<transient> -> !stream.resource<transient>
      } else {
      }
      stream.cmd.copy %next[0], %a[0], 40 : !stream.resource<transient> -> !stream.resource<transient>
    }
    func.return
  }
}
