// RUN: flow-form-dispatches{level=0} flow-outline-dispatches
// Reductions alone, elementwise operations by runs, small constants inside, large ones bound.
// CHECK: flow.executable @main_ex_dispatch_0
// CHECK: @main_entry_dispatch_0(%{{.*}}: tensor<1x7x4xf32>) -> tensor<1x28xf32> attributes {hr.ordinal = 0 : i32, hr.workload = #hr.exprs<["28", "1", "1"]>}
// CHECK-NEXT: tensor.copy
// CHECK-NEXT: tensor.reshape
// CHECK-NEXT: func.return
// CHECK: flow.executable @main_ex_dispatch_1
// CHECK: @main_entry_dispatch_1(%{{.*}}: tensor<1x28xf32>, %{{.*}}: tensor<28x12xf32> {hr.constant}) -> tensor<1x12xf32> attributes {hr.ordinal = 0 : i32, hr.workload = #hr.exprs<["12", "1", "1"]>}
// CHECK-NEXT: tensor.dot_general
// CHECK-NEXT: func.return
// CHECK: flow.executable @main_ex_dispatch_2
// CHECK: tensor.constant dense<5.000000e-01> : tensor<12xf32>
// CHECK-NEXT: tensor.broadcast_in_dim
// CHECK-NEXT: tensor.add
// CHECK-NEXT: func.return
// CHECK: flow.executable @main_ex_dispatch_3
// CHECK: hr.workload = #hr.exprs<["1", "1", "1"]>
// CHECK: flow.executable @main_ex_dispatch_4
// CHECK: tensor.subtract
// CHECK-NEXT: tensor.exponential
// CHECK-NEXT: func.return
// CHECK: func.func public @main
// CHECK: flow.dispatch @main_ex_dispatch_0::@main_entry_dispatch_0[<["28", "1", "1"]>]
// CHECK: flow.dispatch @main_ex_dispatch_4::@main_entry_dispatch_4
func.func public @main(%x: tensor<1x7x4xf32>) -> tensor<1x12xf32> {
  %half = tensor.constant dense<0.5> : tensor<f32> : tensor<f32>
  %copy = tensor.copy %x : (tensor<1x7x4xf32>) -> tensor<1x7x4xf32>
  %flat = tensor.reshape %copy : (tensor<1x7x4xf32>) -> tensor<1x28xf32>
  %w = tensor.broadcast_in_dim %half, dims = [] : (tensor<f32>) -> tensor<28x12xf32>
  %dot = tensor.dot_general %flat, %w batch [] x [] contract [1] x [0] : (tensor<1x28xf32>, tensor<28x12xf32>) -> tensor<1x12xf32>
  %b = tensor.constant dense<0.5> : tensor<12xf32> : tensor<12xf32>
  %bias = tensor.broadcast_in_dim %b, dims = [1] : (tensor<12xf32>) -> tensor<1x12xf32>
  %sum = tensor.add %dot, %bias : (tensor<1x12xf32>, tensor<1x12xf32>) -> tensor<1x12xf32>
  %low = tensor.constant dense<0xFF800000> : tensor<f32> : tensor<f32>
  %m = "tensor.reduce"(%sum, %low) <{dimensions = array<i64: 1>, operandSegmentSizes = array<i32: 1, 1>}> ({
  ^bb0(%a: tensor<f32>, %c: tensor<f32>):
    %r = tensor.maximum %a, %c : (tensor<f32>, tensor<f32>) -> tensor<f32>
    tensor.return %r : tensor<f32>
  }) : (tensor<1x12xf32>, tensor<f32>) -> tensor<1xf32>
  %ms = tensor.broadcast_in_dim %m, dims = [0] : (tensor<1xf32>) -> tensor<1x12xf32>
  %d = tensor.subtract %sum, %ms : (tensor<1x12xf32>, tensor<1x12xf32>) -> tensor<1x12xf32>
  %e = tensor.exponential %d : (tensor<1x12xf32>) -> tensor<1x12xf32>
  func.return %e : tensor<1x12xf32>
}
