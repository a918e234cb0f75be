// RUN: flow-outline-control
// Regions become private functions; what they use from around them becomes arguments, while
// constants and what only spreads them are made anew inside.
// CHECK-LABEL: func.func private @main_then_0
// CHECK-SAME: (%0: tensor<4xf32>) -> tensor<4xf32> {
// CHECK-NEXT:   %two = tensor.constant dense<2.000000e+00> : tensor<f32>
// CHECK-NEXT:   %twos = tensor.broadcast_in_dim %two
// CHECK-NEXT:   %d = tensor.multiply %0, %twos
// CHECK-NEXT:   func.return %d : tensor<4xf32>
// CHECK-LABEL: func.func private @main_else_0
// CHECK-NEXT:   func.return %0 : tensor<4xf32>
// CHECK-LABEL: func.func private @main_condition_1
// CHECK-SAME: (%go: tensor<i1>, %a: tensor<4xf32>, %0: tensor<4xf32>) -> tensor<i1> {
// CHECK-NEXT:   func.return %go : tensor<i1>
// CHECK-LABEL: func.func private @main_body_1
// CHECK-SAME: (%go: tensor<i1>, %a: tensor<4xf32>, %0: tensor<4xf32>) -> (tensor<i1>, tensor<4xf32>) {
// CHECK:        %{{.*}} = flow.if %go then @main_then_0 else @main_else_0(%a) : (tensor<i1>, tensor<4xf32>) -> tensor<4xf32>
// CHECK:        %{{.*}} = tensor.add %{{.*}}, %0
// CHECK-LABEL: func.func @main
// CHECK:        "flow.while"(%c, %x, %y) <{condition = @main_condition_1, body = @main_body_1, trip_count = #hr.exprs<["n"]>, operandSegmentSizes = array<i32: 2, 1>}>
func.func @main(%c: tensor<i1>, %x: tensor<4xf32>, %y: tensor<4xf32>) -> tensor<4xf32> {
  %two = tensor.constant dense<2.0> : tensor<f32> : tensor<f32>
  %twos = tensor.broadcast_in_dim %two, dims = [] : (tensor<f32>) -> tensor<4xf32>
  %flag, %r = "tensor.while"(%c, %x) <{trip_count = #hr.exprs<["n"]>}> ({
  ^bb0(%go: tensor<i1>, %a: tensor<4xf32>):
    tensor.return %go : tensor<i1>
  }, {
  ^bb0(%go: tensor<i1>, %a: tensor<4xf32>):
    %b = "tensor.if"(%go) ({
      %d = tensor.multiply %a, %twos : (tensor<4xf32>, tensor<4xf32>) -> tensor<4xf32>
      tensor.return %d : tensor<4xf32>
    }, {
      tensor.return %a : tensor<4xf32>
    }) : (tensor<i1>) -> tensor<4xf32>
    %no = tensor.constant dense<false> : tensor<i1> : tensor<i1>
    %e = tensor.add %b, %y : (tensor<4xf32>, tensor<4xf32>) -> tensor<4xf32>
    tensor.return %no, %e : tensor<i1>, tensor<4xf32>
  }) : (tensor<i1>, tensor<4xf32>) -> (tensor<i1>, tensor<4xf32>)
  func.return %r : tensor<4xf32>
}
