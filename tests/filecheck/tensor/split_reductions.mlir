// RUN: tensor-split-reductions

// All of a picture: its rows first, then the rows' sums, which start at 0.5.
// CHECK-LABEL: @picture
// CHECK: %[[P:.*]] = "tensor.reduce"(%x, %{{.*}}) <{dimensions = array<i64: 2, 3>
// CHECK: -> tensor<1x64xf32>
// CHECK: %[[R:.*]] = "tensor.reduce"(%[[P]], %half) <{dimensions = array<i64: 0, 1>
// CHECK: -> tensor<f32>
// CHECK: func.return %[[R]]
func.func @picture(%x: tensor<1x64x32x32xf32>) -> tensor<f32> {
  %half = tensor.constant dense<0.5> : tensor<f32> : tensor<f32>
  %0 = "tensor.reduce"(%x, %half) <{dimensions = array<i64: 0, 1, 2, 3>, operandSegmentSizes = array<i32: 1, 1>}> ({
  ^bb0(%a: tensor<f32>, %b: tensor<f32>):
    %s = tensor.add %a, %b : (tensor<f32>, tensor<f32>) -> tensor<f32>
    tensor.return %s : tensor<f32>
  }) : (tensor<1x64x32x32xf32>, tensor<f32>) -> tensor<f32>
  func.return %0 : tensor<f32>
}

// -----

// One long dimension: 250 runs of 400.
// CHECK-LABEL: @line
// CHECK: %[[C:.*]] = tensor.reshape %x : (tensor<2x100000xf32>) -> tensor<2x250x400xf32>
// CHECK: %[[P:.*]] = "tensor.reduce"(%[[C]], %{{.*}}) <{dimensions = array<i64: 2>
// CHECK: -> tensor<2x250xf32>
// CHECK: "tensor.reduce"(%[[P]], %low) <{dimensions = array<i64: 1>
// CHECK: -> tensor<2xf32>
func.func @line(%x: tensor<2x100000xf32>) -> tensor<2xf32> {
  %low = tensor.constant dense<-1.0> : tensor<f32> : tensor<f32>
  %0 = "tensor.reduce"(%x, %low) <{dimensions = array<i64: 1>, operandSegmentSizes = array<i32: 1, 1>}> ({
  ^bb0(%a: tensor<f32>, %b: tensor<f32>):
    %s = tensor.maximum %a, %b : (tensor<f32>, tensor<f32>) -> tensor<f32>
    tensor.return %s : tensor<f32>
  }) : (tensor<2x100000xf32>, tensor<f32>) -> tensor<2xf32>
  func.return %0 : tensor<2xf32>
}

// -----

// Left alone: narrow floats, and a sum that is spread over its input again.
// CHECK-LABEL: @alone
// CHECK: "tensor.reduce"
// CHECK: "tensor.reduce"
// CHECK-NOT: "tensor.reduce"
func.func @alone(%x: tensor<100000xf32>, %y: tensor<100000xf16>) -> (tensor<100000xf32>, tensor<f16>) {
  %zero = tensor.constant dense<0.0> : tensor<f32> : tensor<f32>
  %none = tensor.constant dense<0.0> : tensor<f16> : tensor<f16>
  %0 = "tensor.reduce"(%x, %zero) <{dimensions = array<i64: 0>, operandSegmentSizes = array<i32: 1, 1>}> ({
  ^bb0(%a: tensor<f32>, %b: tensor<f32>):
    %s = tensor.add %a, %b : (tensor<f32>, tensor<f32>) -> tensor<f32>
    tensor.return %s : tensor<f32>
  }) : (tensor<100000xf32>, tensor<f32>) -> tensor<f32>
  %1 = tensor.sqrt %0 : (tensor<f32>) -> tensor<f32>
  %2 = tensor.broadcast_in_dim %1, dims = [] : (tensor<f32>) -> tensor<100000xf32>
  %3 = tensor.divide %x, %2 : (tensor<100000xf32>, tensor<100000xf32>) -> tensor<100000xf32>
  %4 = "tensor.reduce"(%y, %none) <{dimensions = array<i64: 0>, operandSegmentSizes = array<i32: 1, 1>}> ({
  ^bb0(%a: tensor<f16>, %b: tensor<f16>):
    %s = tensor.add %a, %b : (tensor<f16>, tensor<f16>) -> tensor<f16>
    tensor.return %s : tensor<f16>
  }) : (tensor<100000xf16>, tensor<f16>) -> tensor<f16>
  func.return %3, %4 : tensor<100000xf32>, tensor<f16>
}
