// RUN: tensor-fold-batch-norm tensor-fold-constants tensor-canonicalize

// (conv - mean) * scale + shift: one convolution and one bias.
// CHECK-LABEL: @convolution
// CHECK-NEXT: %[[B:.*]] = tensor.parameter @mean.negate.multiply.add : tensor<8xf32>
// CHECK-NEXT: %[[W:.*]] = tensor.parameter @w.multiply : tensor<8x3x3x3xf32>
// CHECK-NEXT: %[[C:.*]] = "tensor.convolution"(%x, %[[W]])
// CHECK-NEXT: %[[S:.*]] = tensor.broadcast_in_dim %[[B]], dims = [1]
// CHECK-NEXT: %[[R:.*]] = tensor.add %[[C]], %[[S]]
// CHECK-NEXT: func.return %[[R]]
func.func @convolution(%x: tensor<1x3x8x8xf32>) -> tensor<1x8x6x6xf32> {
  %w = tensor.parameter @w : tensor<8x3x3x3xf32>
  %mean = tensor.parameter @mean : tensor<8xf32>
  %scale = tensor.parameter @scale : tensor<8xf32>
  %shift = tensor.parameter @shift : tensor<8xf32>
  %m = tensor.broadcast_in_dim %mean, dims = [1] : (tensor<8xf32>) -> tensor<1x8x6x6xf32>
  %s = tensor.broadcast_in_dim %scale, dims = [1] : (tensor<8xf32>) -> tensor<1x8x6x6xf32>
  %t = tensor.broadcast_in_dim %shift, dims = [1] : (tensor<8xf32>) -> tensor<1x8x6x6xf32>
  %0 = "tensor.convolution"(%x, %w) <{window_strides = array<i64: 1, 1>, padding_low = #hr.exprs<["0", "0"]>, padding_high = #hr.exprs<["0", "0"]>, lhs_dilation = array<i64: 1, 1>, rhs_dilation = array<i64: 1, 1>, feature_group_count = array<i64: 1>}> : (tensor<1x3x8x8xf32>, tensor<8x3x3x3xf32>) -> tensor<1x8x6x6xf32>
  %1 = tensor.subtract %0, %m : (tensor<1x8x6x6xf32>, tensor<1x8x6x6xf32>) -> tensor<1x8x6x6xf32>
  %2 = tensor.multiply %1, %s : (tensor<1x8x6x6xf32>, tensor<1x8x6x6xf32>) -> tensor<1x8x6x6xf32>
  %3 = tensor.add %2, %t : (tensor<1x8x6x6xf32>, tensor<1x8x6x6xf32>) -> tensor<1x8x6x6xf32>
  func.return %3 : tensor<1x8x6x6xf32>
}

// -----

// A product, scaled along its columns.
// CHECK-LABEL: @dot
// CHECK-NEXT: %[[W:.*]] = tensor.parameter @w.multiply : tensor<4x8xf32>
// CHECK-NEXT: %[[R:.*]] = tensor.dot_general %x, %[[W]]
// CHECK-NEXT: func.return %[[R]]
func.func @dot(%x: tensor<2x4xf32>) -> tensor<2x8xf32> {
  %w = tensor.parameter @w : tensor<4x8xf32>
  %scale = tensor.parameter @scale : tensor<8xf32>
  %s = tensor.broadcast_in_dim %scale, dims = [1] : (tensor<8xf32>) -> tensor<2x8xf32>
  %0 = tensor.dot_general %x, %w batch [] x [] contract [1] x [0] : (tensor<2x4xf32>, tensor<4x8xf32>) -> tensor<2x8xf32>
  %1 = tensor.divide %0, %s : (tensor<2x8xf32>, tensor<2x8xf32>) -> tensor<2x8xf32>
  func.return %1 : tensor<2x8xf32>
}

// -----

// Not along the rows, not by what is only known when it runs, not past another user.
// CHECK-LABEL: @kept
// CHECK: tensor.parameter @w : tensor<4x2xf32>
// CHECK: tensor.multiply
// CHECK: tensor.multiply
// CHECK: tensor.multiply
func.func @kept(%x: tensor<2x4xf32>, %y: tensor<2xf32>) -> (tensor<2x2xf32>, tensor<2x2xf32>, tensor<2x2xf32>, tensor<2x2xf32>) {
  %w = tensor.parameter @w : tensor<4x2xf32>
  %scale = tensor.parameter @scale : tensor<2xf32>
  %rows = tensor.broadcast_in_dim %scale, dims = [0] : (tensor<2xf32>) -> tensor<2x2xf32>
  %columns = tensor.broadcast_in_dim %scale, dims = [1] : (tensor<2xf32>) -> tensor<2x2xf32>
  %late = tensor.broadcast_in_dim %y, dims = [1] : (tensor<2xf32>) -> tensor<2x2xf32>
  %0 = tensor.dot_general %x, %w batch [] x [] contract [1] x [0] : (tensor<2x4xf32>, tensor<4x2xf32>) -> tensor<2x2xf32>
  %1 = tensor.multiply %0, %rows : (tensor<2x2xf32>, tensor<2x2xf32>) -> tensor<2x2xf32>
  %2 = tensor.dot_general %x, %w batch [] x [] contract [1] x [0] : (tensor<2x4xf32>, tensor<4x2xf32>) -> tensor<2x2xf32>
  %3 = tensor.multiply %2, %late : (tensor<2x2xf32>, tensor<2x2xf32>) -> tensor<2x2xf32>
  %4 = tensor.dot_general %x, %w batch [] x [] contract [1] x [0] : (tensor<2x4xf32>, tensor<4x2xf32>) -> tensor<2x2xf32>
  %5 = tensor.multiply %4, %columns : (tensor<2x2xf32>, tensor<2x2xf32>) -> tensor<2x2xf32>
  func.return %1, %3, %4, %5 : tensor<2x2xf32>, tensor<2x2xf32>, tensor<2x2xf32>, tensor<2x2xf32>
}

// -----

// A scale that is everywhere equal goes into the weights from behind the parting of heads.
// CHECK-LABEL: @heads
// CHECK-NEXT: %[[B:.*]] = tensor.parameter @b.multiply : tensor<6xf32>
// CHECK-NEXT: %[[W:.*]] = tensor.parameter @w.multiply : tensor<4x6xf32>
// CHECK-NEXT: %[[D:.*]] = tensor.dot_general %x, %[[W]]
// CHECK-NEXT: %[[S:.*]] = tensor.broadcast_in_dim %[[B]], dims = [1]
// CHECK-NEXT: %[[A:.*]] = tensor.add %[[D]], %[[S]]
// CHECK-NEXT: %[[R:.*]] = tensor.reshape %[[A]]
// CHECK-NEXT: %[[T:.*]] = tensor.transpose %[[R]], dims = [1, 0, 2]
// CHECK-NEXT: func.return %[[T]]
func.func @heads(%x: tensor<5x4xf32>) -> tensor<2x5x3xf32> {
  %w = tensor.parameter @w : tensor<4x6xf32>
  %b = tensor.parameter @b : tensor<6xf32>
  %c = tensor.constant dense<0.25> : tensor<f32> : tensor<f32>
  %s = tensor.broadcast_in_dim %c, dims = [] : (tensor<f32>) -> tensor<2x5x3xf32>
  %0 = tensor.dot_general %x, %w batch [] x [] contract [1] x [0] : (tensor<5x4xf32>, tensor<4x6xf32>) -> tensor<5x6xf32>
  %1 = tensor.broadcast_in_dim %b, dims = [1] : (tensor<6xf32>) -> tensor<5x6xf32>
  %2 = tensor.add %0, %1 : (tensor<5x6xf32>, tensor<5x6xf32>) -> tensor<5x6xf32>
  %3 = tensor.reshape %2 : (tensor<5x6xf32>) -> tensor<5x2x3xf32>
  %4 = tensor.transpose %3, dims = [1, 0, 2] : (tensor<5x2x3xf32>) -> tensor<2x5x3xf32>
  %5 = tensor.multiply %4, %s : (tensor<2x5x3xf32>, tensor<2x5x3xf32>) -> tensor<2x5x3xf32>
  func.return %5 : tensor<2x5x3xf32>
}

// -----

// One along a dimension stays where dimensions have moved.
// CHECK-LABEL: @moved
// CHECK: tensor.parameter @w : tensor<4x6xf32>
// CHECK: tensor.transpose
// CHECK: tensor.multiply
func.func @moved(%x: tensor<5x4xf32>) -> tensor<6x5xf32> {
  %w = tensor.parameter @w : tensor<4x6xf32>
  %v = tensor.parameter @v : tensor<6xf32>
  %s = tensor.broadcast_in_dim %v, dims = [0] : (tensor<6xf32>) -> tensor<6x5xf32>
  %0 = tensor.dot_general %x, %w batch [] x [] contract [1] x [0] : (tensor<5x4xf32>, tensor<4x6xf32>) -> tensor<5x6xf32>
  %1 = tensor.transpose %0, dims = [1, 0] : (tensor<5x6xf32>) -> tensor<6x5xf32>
  %2 = tensor.multiply %1, %s : (tensor<6x5xf32>, tensor<6x5xf32>) -> tensor<6x5xf32>
  func.return %2 : tensor<6x5xf32>
}
