// RUN: tensor-fold-constants

// Small constants are computed now.
// CHECK-LABEL: @constants
// CHECK-NEXT: tensor.constant dense<[4.000000e+00, 6.000000e+00]> : tensor<2xf32>
// CHECK-NEXT: func.return
func.func @constants() -> tensor<2xf32> {
  %0 = tensor.constant dense<[1.0, 2.0]> : tensor<2xf32> : tensor<2xf32>
  %1 = tensor.constant dense<[3.0, 4.0]> : tensor<2xf32> : tensor<2xf32>
  %2 = tensor.add %0, %1 : (tensor<2xf32>, tensor<2xf32>) -> tensor<2xf32>
  func.return %2 : tensor<2xf32>
}

// -----

// An expression over parameters is a parameter, also through a broadcast.
// CHECK-LABEL: @parameters
// CHECK-NEXT: %[[W:.*]] = tensor.parameter @w.transpose.multiply : tensor<64x32xf32>
// CHECK-NEXT: tensor.dot_general %x, %[[W]]
func.func @parameters(%x: tensor<4x64xf32>) -> tensor<4x32xf32> {
  %w = tensor.parameter @w : tensor<32x64xf32>
  %s = tensor.parameter @s : tensor<32xf32>
  %0 = tensor.transpose %w, dims = [1, 0] : (tensor<32x64xf32>) -> tensor<64x32xf32>
  %1 = tensor.broadcast_in_dim %s, dims = [1] : (tensor<32xf32>) -> tensor<64x32xf32>
  %2 = tensor.multiply %0, %1 : (tensor<64x32xf32>, tensor<64x32xf32>) -> tensor<64x32xf32>
  %3 = tensor.dot_general %x, %2 batch [] x [] contract [1] x [0] : (tensor<4x64xf32>, tensor<64x32xf32>) -> tensor<4x32xf32>
  func.return %3 : tensor<4x32xf32>
}

// -----

// What would be stored more than 64 KiB larger than its sources stays an operation: the
// weight of 256 KiB stays 8-bit, and a table of cosines is computed, not stored.
// CHECK-LABEL: @growth
// CHECK: tensor.convert %{{.*}} : (tensor<512x512xi8>) -> tensor<512x512xf32>
// CHECK: tensor.iota
// CHECK: tensor.cosine
func.func @growth() -> (tensor<512x512xf32>, tensor<512x512xf32>) {
  %w = tensor.parameter @w : tensor<512x512xi8>
  %0 = tensor.convert %w : (tensor<512x512xi8>) -> tensor<512x512xf32>
  %1 = tensor.iota dim = [0] : tensor<512x512xf32>
  %2 = tensor.cosine %1 : (tensor<512x512xf32>) -> tensor<512x512xf32>
  func.return %0, %2 : tensor<512x512xf32>, tensor<512x512xf32>
}

// -----

// Splats stay a scalar and a broadcast, and sizes that are not known stay operations.
// CHECK-LABEL: @stay
// CHECK-NEXT: tensor.constant dense<1.000000e+00> : tensor<f32>
// CHECK-NEXT: tensor.broadcast_in_dim
// CHECK-NEXT: tensor.dimension <["b"]>
// CHECK-NEXT: tensor.constant dense<12> : tensor<i64>
func.func @stay() -> (tensor<64x64xf32>, tensor<i64>, tensor<i64>) {
  %c = tensor.constant dense<1.0> : tensor<f32> : tensor<f32>
  %0 = tensor.broadcast_in_dim %c, dims = [] : (tensor<f32>) -> tensor<64x64xf32>
  %1 = tensor.dimension <["b"]> : tensor<i64>
  %2 = tensor.dimension <["12"]> : tensor<i64>
  func.return %0, %1, %2 : tensor<64x64xf32>, tensor<i64>, tensor<i64>
}
