// RUN: stream-pack-dispatch-operands

// Everything becomes 32-bit words at the site, low word first, and is put together again
// in the kernel; alignment and known values stay with an index and an i32.

// CHECK-LABEL: func.func @entry(%n_i32: i32 {stream.alignment = 16 : index}, %b: !stream.binding, %i: i32 {stream.values = [1 : i32]}, %l_i32: i32, %l_i32_1: i32, %h_i32: i32, %f_i32: i32, %d_i32: i32, %d_i32_1: i32, %p_i32: i32, %s_i32: i32, %c: complex<f32>) {
// CHECK-NEXT:    %n = arith.index_cast %n_i32 : i32 to index
// CHECK-NEXT:    [[LOW:%.*]] = arith.extui %l_i32 : i32 to i64
// CHECK-NEXT:    [[HIGH:%.*]] = arith.extui %l_i32_1 : i32 to i64
// CHECK-NEXT:    [[BITS:%.*]] = arith.constant 32 : i64
// CHECK-NEXT:    [[UP:%.*]] = arith.shli [[HIGH]], [[BITS]] : i64
// CHECK-NEXT:    %l = arith.ori [[LOW]], [[UP]] : i64
// CHECK-NEXT:    [[HALF:%.*]] = arith.trunci %h_i32 : i32 to i16
// CHECK-NEXT:    %h = arith.bitcast [[HALF]] : i16 to f16
// CHECK-NEXT:    %f = arith.bitcast %f_i32 : i32 to f32
// CHECK:         %d = arith.bitcast {{.*}} : i64 to f64
// CHECK-NEXT:    %p = arith.trunci %p_i32 : i32 to i1
// CHECK-NEXT:    %s = arith.trunci %s_i32 : i32 to i8
// CHECK-NEXT:    func.return

// CHECK-LABEL: func.func @main
// CHECK:         [[N:%.*]] = arith.index_cast %n : index to i32
// CHECK-NEXT:    [[W:%.*]] = arith.constant 32 : i64
// CHECK-NEXT:    [[S:%.*]] = arith.shrui %l, [[W]] : i64
// CHECK-NEXT:    [[L0:%.*]] = arith.trunci %l : i64 to i32
// CHECK-NEXT:    [[L1:%.*]] = arith.trunci [[S]] : i64 to i32
// CHECK-NEXT:    [[H:%.*]] = arith.bitcast %h : f16 to i16
// CHECK-NEXT:    [[HX:%.*]] = arith.extui [[H]] : i16 to i32
// CHECK-NEXT:    [[F:%.*]] = arith.bitcast %f : f32 to i32
// CHECK-NEXT:    [[D:%.*]] = arith.bitcast %d : f64 to i64
// CHECK:         [[P:%.*]] = arith.extui %p : i1 to i32
// CHECK-NEXT:    [[Q:%.*]] = arith.extui %s : i8 to i32
// CHECK-NEXT:    stream.cmd.dispatch @ex::@entry[1, 1, 1]([[N]], %i, [[L0]], [[L1]], [[HX]], [[F]], {{.*}}, {{.*}}, [[P]], [[Q]], %c : i32, i32, i32, i32, i32, i32, i32, i32, i32, i32, complex<f32>) {
// CHECK-NEXT:      ro %a[0 for 64]
builtin.module {
  stream.executable private @ex {
    stream.executable.export public @entry
    builtin.module {
      func.func @entry(%n: index {stream.alignment = 16 : index}, %b: !stream.binding, %i: i32 {stream.values = [1 : i32]}, %l: i64 {stream.alignment = 8 : index}, %h: f16, %f: f32, %d: f64, %p: i1, %s: i8, %c: complex<f32>) {
        func.return
      }
    }
  }
  func.func @main(%a: !stream.resource<external>, %c: complex<f32>) {
    %n = stream.size "batch" : index
    %i = arith.constant 1 : i32
    %l = stream.size "elements" : i64
    %h = arith.constant 1.000000e+00 : f16
    %f = arith.constant 1.000000e+00 : f32
    %d = arith.constant 1.000000e+00 : f64
    %p = arith.constant true
    %s = arith.constant 3 : i8
    stream.cmd.dispatch @ex::@entry[1, 1, 1](%n, %i, %l, %h, %f, %d, %p, %s, %c : index, i32, i64, f16, f32, f64, i1, i8, complex<f32>) {
      ro %a[0 for 64] : !stream.resource<external>
    }
    func.return
  }
}
