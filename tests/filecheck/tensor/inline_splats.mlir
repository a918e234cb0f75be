// RUN: tensor-inline-splats tensor-eliminate-dead-code

// Where it meets elements it is a number, and nothing is left to store.
// CHECK-LABEL: @elementwise
// CHECK-NEXT: %[[H:.*]] = tensor.constant dense<5.000000e-01> : tensor<f32>
// CHECK-NEXT: %[[S:.*]] = tensor.broadcast_in_dim %[[H]]
// CHECK-NEXT: %[[M:.*]] = tensor.multiply %x, %[[S]]
// CHECK-NEXT: func.return %[[M]]
func.func @elementwise(%x: tensor<64x32xf32>) -> tensor<64x32xf32> {
  %s = tensor.parameter @splat : tensor<64x32xf32>
  %0 = tensor.multiply %x, %s : (tensor<64x32xf32>, tensor<64x32xf32>) -> tensor<64x32xf32>
  func.return %0 : tensor<64x32xf32>
}

// Elements that differ stay.
// CHECK-LABEL: @weights
// CHECK-NEXT: tensor.parameter @w
// CHECK-NEXT: tensor.multiply
func.func @weights(%x: tensor<64x32xf32>) -> tensor<64x32xf32> {
  %w = tensor.parameter @w : tensor<64x32xf32>
  %0 = tensor.multiply %x, %w : (tensor<64x32xf32>, tensor<64x32xf32>) -> tensor<64x32xf32>
  func.return %0 : tensor<64x32xf32>
}

// A transpose is no such operation: the weight stays one.
// CHECK-LABEL: @moved
// CHECK-NEXT: tensor.parameter @splat
func.func @moved() -> tensor<32x64xf32> {
  %s = tensor.parameter @splat : tensor<64x32xf32>
  %0 = tensor.transpose %s, dims = [1, 0] : (tensor<64x32xf32>) -> tensor<32x64xf32>
  func.return %0 : tensor<32x64xf32>
}
