// RUN: stream-materialize-copies stream-elide-copies stream-emplace-results stream-elide-copies{state=true}

// The next cache is written over the cache, whose last reader writes it: of the copy of all
// of it nothing is left, and the output is the input.
// CHECK-LABEL: func.func @updated(%cache: !stream.resource<external>
// CHECK-NOT:     stream.resource.alloc
// CHECK:         stream.cmd.dispatch @row_in_place::@entry_in_place[10, 1, 1] {
// CHECK-NEXT:      rw %cache[0 for 40]
// CHECK-NEXT:      ro %row[0 for 4]
// CHECK-NEXT:    }
// CHECK-NEXT:    func.return

// A later reader needs the cache as it was.
// CHECK-LABEL: func.func @read_later
// CHECK:         stream.cmd.dispatch @row::@entry[10, 1, 1] {
// CHECK:         stream.cmd.dispatch @row::@entry[10, 1, 1] {
// CHECK:         stream.cmd.copy %{{[a-z0-9]+}}[0], %cache[0], 40
// CHECK-NEXT:    func.return
builtin.module {
  stream.executable private @row {
    stream.executable.export public @entry
    builtin.module {
      func.func @entry(%x_b: !stream.binding, %y_b: !stream.binding, %z_b: !stream.binding) {
        %zero = arith.constant 0 : index
        %x = stream.binding.subspan %x_b[%zero] : !stream.binding -> tensor<10xf32>
        %y = stream.binding.subspan %y_b[%zero] : !stream.binding -> tensor<1xf32>
        %z = stream.binding.subspan %z_b[%zero] : !stream.binding -> tensor<10xf32>
        kernel.execute <kernel() {
          ro x : f32[10]
          ro y : f32[1]
          wo z : f32[10]
          map(%d0 = 10) {
            %v0 = load x[%d0]
            store %v0 to z[%d0]
          }
          map(%d0 = 1) {
            %v0 = load y[%d0]
            store %v0 to z[%d0 + 3]
          }
        }>(%x, %y, %z) : (tensor<10xf32>, tensor<1xf32>, tensor<10xf32>) -> ()
        func.return
      }
    }
  }
  func.func @updated(%cache: !stream.resource<external> {hr.name = "cache", stream.io = "input", hr.type = tensor<10xf32>, stream.size = #hr.exprs<["40"]>}, %row: !stream.resource<external> {hr.name = "row", stream.io = "input", hr.type = tensor<1xf32>, stream.size = #hr.exprs<["4"]>}) -> (!stream.resource<transient> {hr.name = "next", hr.alias = "cache", hr.type = tensor<10xf32>}) {
    %t = stream.resource.alloc : !stream.resource<transient>{64}
    stream.cmd.dispatch @row::@entry[10, 1, 1] {
      ro %cache[0 for 40] : !stream.resource<external>,
      ro %row[0 for 4] : !stream.resource<external>,
      wo %t[0 for 40] : !stream.resource<transient>
    }
    func.return %t : !stream.resource<transient>
  }
  func.func @read_later(%cache: !stream.resource<external> {hr.name = "cache", stream.io = "input", hr.type = tensor<10xf32>, stream.size = #hr.exprs<["40"]>}, %row: !stream.resource<external> {hr.name = "row", stream.io = "input", hr.type = tensor<1xf32>, stream.size = #hr.exprs<["4"]>}) -> (!stream.resource<transient> {hr.name = "next", hr.alias = "cache", hr.type = tensor<10xf32>}, !stream.resource<transient> {hr.name = "other", hr.type = tensor<10xf32>}) {
    %t = stream.resource.alloc : !stream.resource<transient>{64}
    %u = stream.resource.alloc : !stream.resource<transient>{64}
    stream.cmd.dispatch @row::@entry[10, 1, 1] {
      ro %cache[0 for 40] : !stream.resource<external>,
      ro %row[0 for 4] : !stream.resource<external>,
      wo %t[0 for 40] : !stream.resource<transient>
    }
    stream.cmd.dispatch @row::@entry[10, 1, 1] {
      ro %cache[0 for 40] : !stream.resource<external>,
      ro %row[0 for 4] : !stream.resource<external>,
      wo %u[0 for 40] : !stream.resource<transient>
    }
    func.return %t, %u : !stream.resource<transient>, !stream.resource<transient>
  }
}
