// RUN: tensor-fold-batch-norm{stored=true} tensor-join-products tensor-fold-constants tensor-canonicalize

// Queries are scaled where heads are parted: the scale is in the weights before they are joined.
// CHECK-LABEL: @scaled
// CHECK: tensor.dot_general %x, %{{.*}} : (tensor<4x8xf32>, tensor<8x10xf32>)
// CHECK-NOT: tensor.multiply
func.func @scaled(%x: tensor<4x8xf32>) -> (tensor<4x3x2xf32>, tensor<4x2x2xf32>) {
  %wq = tensor.parameter @wq : tensor<8x6xf32>
  %0 = tensor.dot_general %x, %wq batch [] x [] contract [1] x [0] : (tensor<4x8xf32>, tensor<8x6xf32>) -> tensor<4x6xf32>
  %1 = tensor.reshape %0 : (tensor<4x6xf32>) -> tensor<4x3x2xf32>
  %c = tensor.constant dense<0.25> : tensor<f32> : tensor<f32>
  %s = tensor.broadcast_in_dim %c, dims = [] : (tensor<f32>) -> tensor<4x3x2xf32>
  %2 = tensor.multiply %1, %s : (tensor<4x3x2xf32>, tensor<4x3x2xf32>) -> tensor<4x3x2xf32>
  %wk = tensor.parameter @wk : tensor<8x4xf32>
  %3 = tensor.dot_general %x, %wk batch [] x [] contract [1] x [0] : (tensor<4x8xf32>, tensor<8x4xf32>) -> tensor<4x4xf32>
  %4 = tensor.reshape %3 : (tensor<4x4xf32>) -> tensor<4x2x2xf32>
  func.return %2, %4 : tensor<4x3x2xf32>, tensor<4x2x2xf32>
}

// -----

// Weights that are computed wait until quantised ones are known.
// CHECK-LABEL: @computed
// CHECK: tensor.dot_general
// CHECK: tensor.multiply
func.func @computed(%x: tensor<4x8xf32>) -> tensor<4x6xf32> {
  %i = tensor.parameter @i : tensor<8x6xi8>
  %f = tensor.convert %i : (tensor<8x6xi8>) -> tensor<8x6xf32>
  %t = tensor.parameter @t : tensor<8x6xf32>
  %w = tensor.multiply %f, %t : (tensor<8x6xf32>, tensor<8x6xf32>) -> tensor<8x6xf32>
  %0 = tensor.dot_general %x, %w batch [] x [] contract [1] x [0] : (tensor<4x8xf32>, tensor<8x6xf32>) -> tensor<4x6xf32>
  %c = tensor.constant dense<0.25> : tensor<f32> : tensor<f32>
  %s = tensor.broadcast_in_dim %c, dims = [] : (tensor<f32>) -> tensor<4x6xf32>
  %1 = tensor.multiply %0, %s : (tensor<4x6xf32>, tensor<4x6xf32>) -> tensor<4x6xf32>
  func.return %1 : tensor<4x6xf32>
}
