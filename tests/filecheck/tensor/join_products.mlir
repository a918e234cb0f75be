// RUN: tensor-join-products tensor-canonicalize tensor-fold-constants

// Queries and keys of one operand, each with a bias, parted into heads: one product.
// CHECK-LABEL: @heads
// CHECK-NEXT: %[[W:.*]] = tensor.parameter @wq.concatenate : tensor<8x10xf32>
// CHECK-NEXT: %[[P:.*]] = tensor.dot_general %x, %[[W]] batch [] x [] contract [1] x [0]
// CHECK-NEXT: %[[B:.*]] = tensor.parameter @bq.concatenate : tensor<10xf32>
// CHECK-NEXT: %[[S:.*]] = tensor.broadcast_in_dim %[[B]], dims = [1]
// CHECK-NEXT: %[[A:.*]] = tensor.add %[[P]], %[[S]]
// CHECK-NEXT: %[[H:.*]] = tensor.reshape %[[A]] : (tensor<4x10xf32>) -> tensor<4x5x2xf32>
// CHECK-NEXT: %[[Q:.*]] = tensor.slice %[[H]], <["0", "0", "0"]> to <["4", "3", "2"]>
// CHECK: %[[K:.*]] = tensor.slice %[[H2:.*]], <["0", "3", "0"]> to <["4", "5", "2"]>
// CHECK: func.return %[[Q]], %[[K]]
func.func @heads(%x: tensor<4x8xf32>) -> (tensor<4x3x2xf32>, tensor<4x2x2xf32>) {
  %wq = tensor.parameter @wq : tensor<8x6xf32>
  %bq = tensor.parameter @bq : tensor<6xf32>
  %0 = tensor.dot_general %x, %wq batch [] x [] contract [1] x [0] : (tensor<4x8xf32>, tensor<8x6xf32>) -> tensor<4x6xf32>
  %1 = tensor.broadcast_in_dim %bq, dims = [1] : (tensor<6xf32>) -> tensor<4x6xf32>
  %2 = tensor.add %0, %1 : (tensor<4x6xf32>, tensor<4x6xf32>) -> tensor<4x6xf32>
  %3 = tensor.reshape %2 : (tensor<4x6xf32>) -> tensor<4x3x2xf32>
  %wk = tensor.parameter @wk : tensor<8x4xf32>
  %bk = tensor.parameter @bk : tensor<4xf32>
  %4 = tensor.dot_general %x, %wk batch [] x [] contract [1] x [0] : (tensor<4x8xf32>, tensor<8x4xf32>) -> tensor<4x4xf32>
  %5 = tensor.broadcast_in_dim %bk, dims = [1] : (tensor<4xf32>) -> tensor<4x4xf32>
  %6 = tensor.add %4, %5 : (tensor<4x4xf32>, tensor<4x4xf32>) -> tensor<4x4xf32>
  %7 = tensor.reshape %6 : (tensor<4x4xf32>) -> tensor<4x2x2xf32>
  func.return %3, %7 : tensor<4x3x2xf32>, tensor<4x2x2xf32>
}

// -----

// A gate and what it lets through stay apart: the activation belongs to its product.
// CHECK-LABEL: @gated
// CHECK: tensor.dot_general %x, %{{.*}} : (tensor<4x8xf32>, tensor<8x6xf32>)
// CHECK: tensor.dot_general %x, %{{.*}} : (tensor<4x8xf32>, tensor<8x6xf32>)
func.func @gated(%x: tensor<4x8xf32>) -> tensor<4x6xf32> {
  %w = tensor.parameter @w : tensor<8x6xf32>
  %v = tensor.parameter @v : tensor<8x6xf32>
  %0 = tensor.dot_general %x, %w batch [] x [] contract [1] x [0] : (tensor<4x8xf32>, tensor<8x6xf32>) -> tensor<4x6xf32>
  %1 = tensor.logistic %0 : (tensor<4x6xf32>) -> tensor<4x6xf32>
  %2 = tensor.dot_general %x, %v batch [] x [] contract [1] x [0] : (tensor<4x8xf32>, tensor<8x6xf32>) -> tensor<4x6xf32>
  %3 = tensor.multiply %1, %2 : (tensor<4x6xf32>, tensor<4x6xf32>) -> tensor<4x6xf32>
  func.return %3 : tensor<4x6xf32>
}

// -----

// A weight that something else reads would be stored twice: nothing is joined.
// CHECK-LABEL: @shared
// CHECK: tensor.dot_general %x, %{{.*}} : (tensor<4x8xf32>, tensor<8x6xf32>)
// CHECK: tensor.dot_general %x, %{{.*}} : (tensor<4x8xf32>, tensor<8x4xf32>)
func.func @shared(%x: tensor<4x8xf32>) -> (tensor<4x3x2xf32>, tensor<4x2x2xf32>, tensor<8x6xf32>) {
  %w = tensor.parameter @w : tensor<8x6xf32>
  %v = tensor.parameter @v : tensor<8x4xf32>
  %0 = tensor.dot_general %x, %w batch [] x [] contract [1] x [0] : (tensor<4x8xf32>, tensor<8x6xf32>) -> tensor<4x6xf32>
  %1 = tensor.reshape %0 : (tensor<4x6xf32>) -> tensor<4x3x2xf32>
  %2 = tensor.dot_general %x, %v batch [] x [] contract [1] x [0] : (tensor<4x8xf32>, tensor<8x4xf32>) -> tensor<4x4xf32>
  %3 = tensor.reshape %2 : (tensor<4x4xf32>) -> tensor<4x2x2xf32>
  func.return %1, %3, %w : tensor<4x3x2xf32>, tensor<4x2x2xf32>, tensor<8x6xf32>
}
