// RUN: tensor-eliminate-common-subexpressions

// CHECK-LABEL: @twice
// CHECK-NEXT: %[[T:.*]] = tensor.tanh %x
// CHECK-NEXT: %[[R:.*]] = tensor.add %[[T]], %[[T]]
// CHECK-NEXT: func.return %[[R]]
func.func @twice(%x: tensor<4xf32>) -> tensor<4xf32> {
  %0 = tensor.tanh %x : (tensor<4xf32>) -> tensor<4xf32>
  %1 = tensor.tanh %x : (tensor<4xf32>) -> tensor<4xf32>
  %2 = tensor.add %0, %1 : (tensor<4xf32>, tensor<4xf32>) -> tensor<4xf32>
  func.return %2 : tensor<4xf32>
}

// -----

// Properties count, by bits: 0 is not -0, and LT is not GT.
// CHECK-LABEL: @different
// CHECK: tensor.constant dense<0.000000e+00>
// CHECK: tensor.constant dense<-0.000000e+00>
// CHECK: tensor.compare "LT"
// CHECK: tensor.compare "GT"
func.func @different(%x: tensor<f32>) -> (tensor<f32>, tensor<f32>, tensor<i1>, tensor<i1>) {
  %0 = tensor.constant dense<0.0> : tensor<f32> : tensor<f32>
  %1 = tensor.constant dense<-0.0> : tensor<f32> : tensor<f32>
  %2 = tensor.compare "LT", %x, %0 : (tensor<f32>, tensor<f32>) -> tensor<i1>
  %3 = tensor.compare "GT", %x, %0 : (tensor<f32>, tensor<f32>) -> tensor<i1>
  func.return %0, %1, %2, %3 : tensor<f32>, tensor<f32>, tensor<i1>, tensor<i1>
}

// -----

// Reductions with the same named reducer, and not with another.
// CHECK-LABEL: @reductions
// CHECK: %[[A:.*]] = "tensor.reduce"
// CHECK: tensor.add
// CHECK: %[[B:.*]] = "tensor.reduce"
// CHECK: tensor.maximum
// CHECK: func.return %[[A]], %[[A]], %[[B]]
func.func @reductions(%x: tensor<4xf32>) -> (tensor<f32>, tensor<f32>, tensor<f32>) {
  %c = tensor.constant dense<0.0> : tensor<f32> : tensor<f32>
  %0 = "tensor.reduce"(%x, %c) <{dimensions = array<i64: 0>, operandSegmentSizes = array<i32: 1, 1>}> ({
  ^bb0(%a: tensor<f32>, %b: tensor<f32>):
    %s = tensor.add %a, %b : (tensor<f32>, tensor<f32>) -> tensor<f32>
    tensor.return %s : tensor<f32>
  }) : (tensor<4xf32>, tensor<f32>) -> tensor<f32>
  %1 = "tensor.reduce"(%x, %c) <{dimensions = array<i64: 0>, operandSegmentSizes = array<i32: 1, 1>}> ({
  ^bb0(%a: tensor<f32>, %b: tensor<f32>):
    %s = tensor.add %b, %a : (tensor<f32>, tensor<f32>) -> tensor<f32>
    tensor.return %s : tensor<f32>
  }) : (tensor<4xf32>, tensor<f32>) -> tensor<f32>
  %2 = "tensor.reduce"(%x, %c) <{dimensions = array<i64: 0>, operandSegmentSizes = array<i32: 1, 1>}> ({
  ^bb0(%a: tensor<f32>, %b: tensor<f32>):
    %s = tensor.maximum %a, %b : (tensor<f32>, tensor<f32>) -> tensor<f32>
    tensor.return %s : tensor<f32>
  }) : (tensor<4xf32>, tensor<f32>) -> tensor<f32>
  func.return %0, %1, %2 : tensor<f32>, tensor<f32>, tensor<f32>
}
