// RUN: tensor-propagate-transposes

// Two transposes cancel through what stands between them; the bias follows.
// CHECK-LABEL: @cancel
// CHECK-NOT: tensor.transpose
// CHECK: tensor.broadcast_in_dim %b, dims = [1] : (tensor<3xf32>) -> tensor<1x3x4x4xf32>
// CHECK: tensor.add
// CHECK: tensor.pad %{{.*}}, %{{.*}} low <["0", "0", "1", "2"]>
// CHECK-NOT: tensor.transpose
func.func @cancel(%x: tensor<1x3x4x4xf32>, %b: tensor<3xf32>) -> tensor<1x3x5x6xf32> {
  %c = tensor.constant dense<0.0> : tensor<f32> : tensor<f32>
  %0 = tensor.transpose %x, dims = [0, 2, 3, 1] : (tensor<1x3x4x4xf32>) -> tensor<1x4x4x3xf32>
  %1 = tensor.broadcast_in_dim %b, dims = [3] : (tensor<3xf32>) -> tensor<1x4x4x3xf32>
  %2 = tensor.add %0, %1 : (tensor<1x4x4x3xf32>, tensor<1x4x4x3xf32>) -> tensor<1x4x4x3xf32>
  %3 = tensor.pad %2, %c low <["0", "1", "2", "0"]> high <["0", "0", "0", "0"]> interior [0, 0, 0, 0] : (tensor<1x4x4x3xf32>, tensor<f32>) -> tensor<1x5x6x3xf32>
  %4 = tensor.transpose %3, dims = [0, 3, 1, 2] : (tensor<1x5x6x3xf32>) -> tensor<1x3x5x6xf32>
  func.return %4 : tensor<1x3x5x6xf32>
}

// -----

// A reduction takes a transpose in: its dimensions are named in the other order.
// CHECK-LABEL: @reduce
// CHECK-NOT: tensor.transpose
// CHECK: "tensor.reduce"(%x, %{{.*}}) <{dimensions = array<i64: 2, 3>
func.func @reduce(%x: tensor<2x3x4x5xf32>) -> tensor<2x3xf32> {
  %c = tensor.constant dense<0.0> : tensor<f32> : tensor<f32>
  %0 = tensor.transpose %x, dims = [0, 2, 3, 1] : (tensor<2x3x4x5xf32>) -> tensor<2x4x5x3xf32>
  %1 = "tensor.reduce"(%0, %c) <{dimensions = array<i64: 1, 2>, operandSegmentSizes = array<i32: 1, 1>}> ({
  ^bb0(%a: tensor<f32>, %b: tensor<f32>):
    %s = tensor.add %a, %b : (tensor<f32>, tensor<f32>) -> tensor<f32>
    tensor.return %s : tensor<f32>
  }) : (tensor<2x4x5x3xf32>, tensor<f32>) -> tensor<2x3xf32>
  func.return %1 : tensor<2x3xf32>
}

// -----

// A product too: the keys of attention, transposed twice and scaled between.
// CHECK-LABEL: @product
// CHECK-NOT: tensor.transpose
// CHECK: tensor.dot_general %q, %{{.*}} batch [0, 2] x [0, 2] contract [3] x [3]
// CHECK-NOT: tensor.transpose
func.func @product(%q: tensor<1x7x2x4xf32>, %k: tensor<1x7x2x4xf32>) -> tensor<1x2x7x7xf32> {
  %c = tensor.constant dense<0.3> : tensor<f32> : tensor<f32>
  %0 = tensor.transpose %q, dims = [0, 2, 1, 3] : (tensor<1x7x2x4xf32>) -> tensor<1x2x7x4xf32>
  %1 = tensor.transpose %k, dims = [0, 2, 1, 3] : (tensor<1x7x2x4xf32>) -> tensor<1x2x7x4xf32>
  %2 = tensor.broadcast_in_dim %c, dims = [] : (tensor<f32>) -> tensor<1x2x7x4xf32>
  %3 = tensor.multiply %1, %2 : (tensor<1x2x7x4xf32>, tensor<1x2x7x4xf32>) -> tensor<1x2x7x4xf32>
  %4 = tensor.transpose %3, dims = [0, 1, 3, 2] : (tensor<1x2x7x4xf32>) -> tensor<1x2x4x7xf32>
  %5 = tensor.dot_general %0, %4 batch [0, 1] x [0, 1] contract [3] x [2] : (tensor<1x2x7x4xf32>, tensor<1x2x4x7xf32>) -> tensor<1x2x7x7xf32>
  func.return %5 : tensor<1x2x7x7xf32>
}

// -----

// One transposed operand of two: turning the sum would move the other instead. It stays.
// CHECK-LABEL: @kept
// CHECK-NEXT: %[[T:.*]] = tensor.transpose %x, dims = [1, 0]
// CHECK-NEXT: %[[S:.*]] = tensor.add %[[T]], %y
// CHECK-NEXT: func.return %[[S]]
func.func @kept(%x: tensor<3x4xf32>, %y: tensor<4x3xf32>) -> tensor<4x3xf32> {
  %0 = tensor.transpose %x, dims = [1, 0] : (tensor<3x4xf32>) -> tensor<4x3xf32>
  %1 = tensor.add %0, %y : (tensor<4x3xf32>, tensor<4x3xf32>) -> tensor<4x3xf32>
  func.return %1 : tensor<4x3xf32>
}

// -----

// Moving dimensions of size 1 only is a reshape.
// CHECK-LABEL: @ones
// CHECK-NEXT: tensor.reshape %x : (tensor<1x5x1xf32>) -> tensor<5x1x1xf32>
func.func @ones(%x: tensor<1x5x1xf32>) -> tensor<5x1x1xf32> {
  %0 = tensor.transpose %x, dims = [1, 0, 2] : (tensor<1x5x1xf32>) -> tensor<5x1x1xf32>
  func.return %0 : tensor<5x1x1xf32>
}
