// RUN: tensor-multiply-quantised tensor-eliminate-dead-code

// One scale for the activation, one a column for the weight.
// CHECK-LABEL: @product
// CHECK: %[[X:.*]] = tensor.convert %x : (tensor<4x8xui8>) -> tensor<4x8xi16>
// CHECK: %[[D:.*]] = tensor.subtract %[[X]]
// CHECK: %[[S:.*]] = tensor.dot_general %[[D]], %{{.*}} batch [] x [] contract [1] x [0] : (tensor<4x8xi16>, tensor<8x3xi8>) -> tensor<4x3xi32>
// CHECK: %[[T:.*]] = tensor.multiply %{{.*}} : (tensor<3xf32>, tensor<3xf32>) -> tensor<3xf32>
// CHECK: %[[B:.*]] = tensor.broadcast_in_dim %[[T]], dims = [1] : (tensor<3xf32>) -> tensor<4x3xf32>
// CHECK: %[[F:.*]] = tensor.convert %[[S]] : (tensor<4x3xi32>) -> tensor<4x3xf32>
// CHECK: %[[R:.*]] = tensor.multiply %[[F]], %[[B]]
// CHECK-NEXT: func.return %[[R]]
func.func @product(%x: tensor<4x8xui8>, %s: tensor<f32>, %z: tensor<ui8>) -> tensor<4x3xf32> {
  %0 = tensor.convert %x : (tensor<4x8xui8>) -> tensor<4x8xi32>
  %1 = tensor.convert %z : (tensor<ui8>) -> tensor<i32>
  %2 = tensor.broadcast_in_dim %1, dims = [] : (tensor<i32>) -> tensor<4x8xi32>
  %3 = tensor.subtract %0, %2 : (tensor<4x8xi32>, tensor<4x8xi32>) -> tensor<4x8xi32>
  %4 = tensor.convert %3 : (tensor<4x8xi32>) -> tensor<4x8xf32>
  %5 = tensor.broadcast_in_dim %s, dims = [] : (tensor<f32>) -> tensor<4x8xf32>
  %6 = tensor.multiply %4, %5 : (tensor<4x8xf32>, tensor<4x8xf32>) -> tensor<4x8xf32>
  %w = tensor.parameter @w : tensor<8x3xi8>
  %7 = tensor.convert %w : (tensor<8x3xi8>) -> tensor<8x3xf32>
  %t = tensor.parameter @scales : tensor<3xf32>
  %8 = tensor.broadcast_in_dim %t, dims = [1] : (tensor<3xf32>) -> tensor<8x3xf32>
  %9 = tensor.multiply %7, %8 : (tensor<8x3xf32>, tensor<8x3xf32>) -> tensor<8x3xf32>
  %10 = tensor.dot_general %6, %9 batch [] x [] contract [1] x [0] : (tensor<4x8xf32>, tensor<8x3xf32>) -> tensor<4x3xf32>
  func.return %10 : tensor<4x3xf32>
}

// -----

// A scale for each term of the sum cannot be taken out of it.
// CHECK-LABEL: @by_rows
// CHECK: tensor.dot_general {{.*}} : (tensor<4x8xf32>, tensor<8x3xf32>) -> tensor<4x3xf32>
func.func @by_rows(%x: tensor<4x8xui8>, %s: tensor<f32>) -> tensor<4x3xf32> {
  %4 = tensor.convert %x : (tensor<4x8xui8>) -> tensor<4x8xf32>
  %5 = tensor.broadcast_in_dim %s, dims = [] : (tensor<f32>) -> tensor<4x8xf32>
  %6 = tensor.multiply %4, %5 : (tensor<4x8xf32>, tensor<4x8xf32>) -> tensor<4x8xf32>
  %w = tensor.parameter @w : tensor<8x3xi8>
  %7 = tensor.convert %w : (tensor<8x3xi8>) -> tensor<8x3xf32>
  %t = tensor.parameter @scales : tensor<8xf32>
  %8 = tensor.broadcast_in_dim %t, dims = [0] : (tensor<8xf32>) -> tensor<8x3xf32>
  %9 = tensor.multiply %7, %8 : (tensor<8x3xf32>, tensor<8x3xf32>) -> tensor<8x3xf32>
  %10 = tensor.dot_general %6, %9 batch [] x [] contract [1] x [0] : (tensor<4x8xf32>, tensor<8x3xf32>) -> tensor<4x3xf32>
  func.return %10 : tensor<4x3xf32>
}

// -----

// More terms than 31 bits are sure to hold.
// CHECK-LABEL: @long
// CHECK: tensor.dot_general {{.*}} -> tensor<4x3xf32>
func.func @long(%x: tensor<4x32769xui8>, %s: tensor<f32>) -> tensor<4x3xf32> {
  %4 = tensor.convert %x : (tensor<4x32769xui8>) -> tensor<4x32769xf32>
  %5 = tensor.broadcast_in_dim %s, dims = [] : (tensor<f32>) -> tensor<4x32769xf32>
  %6 = tensor.multiply %4, %5 : (tensor<4x32769xf32>, tensor<4x32769xf32>) -> tensor<4x32769xf32>
  %w = tensor.parameter @w : tensor<32769x3xi8>
  %7 = tensor.convert %w : (tensor<32769x3xi8>) -> tensor<32769x3xf32>
  %t = tensor.parameter @scale : tensor<f32>
  %8 = tensor.broadcast_in_dim %t, dims = [] : (tensor<f32>) -> tensor<32769x3xf32>
  %9 = tensor.multiply %7, %8 : (tensor<32769x3xf32>, tensor<32769x3xf32>) -> tensor<32769x3xf32>
  %10 = tensor.dot_general %6, %9 batch [] x [] contract [1] x [0] : (tensor<4x32769xf32>, tensor<32769x3xf32>) -> tensor<4x3xf32>
  func.return %10 : tensor<4x3xf32>
}
