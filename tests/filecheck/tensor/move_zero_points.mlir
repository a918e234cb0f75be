// RUN: tensor-move-zero-points tensor-eliminate-dead-code

// The zero point is data's; the weight's own is 0.
// CHECK-LABEL: @product
// CHECK: %w = tensor.parameter @w
// CHECK: %[[S:.*]] = tensor.dot_general %x, %w batch [] x [] contract [1] x [0] : (tensor<4x8xui8>, tensor<8x3xi8>) -> tensor<4x3xi32>
// CHECK: %[[C:.*]] = tensor.dot_general %w, %{{.*}} batch [] x [] contract [0] x [0] : (tensor<8x3xi8>, tensor<8xi8>) -> tensor<3xi32>
// CHECK: %[[Z:.*]] = tensor.convert
// CHECK: %[[B:.*]] = tensor.broadcast_in_dim %[[Z]], dims = [] : (tensor<i32>) -> tensor<3xi32>
// CHECK: %[[O:.*]] = tensor.multiply %[[C]], %[[B]]
// CHECK: %[[A:.*]] = tensor.broadcast_in_dim %[[O]], dims = [1] : (tensor<3xi32>) -> tensor<4x3xi32>
// CHECK: tensor.subtract %[[S]], %[[A]]
func.func @product(%x: tensor<4x8xui8>, %z: tensor<ui8>) -> tensor<4x3xi32> {
  %0 = tensor.convert %x : (tensor<4x8xui8>) -> tensor<4x8xi16>
  %1 = tensor.convert %z : (tensor<ui8>) -> tensor<i16>
  %2 = tensor.broadcast_in_dim %1, dims = [] : (tensor<i16>) -> tensor<4x8xi16>
  %3 = tensor.subtract %0, %2 : (tensor<4x8xi16>, tensor<4x8xi16>) -> tensor<4x8xi16>
  %w = tensor.parameter @w : tensor<8x3xi8>
  %4 = tensor.convert %w : (tensor<8x3xi8>) -> tensor<8x3xi16>
  %5 = tensor.constant dense<0> : tensor<i8> : tensor<i8>
  %6 = tensor.convert %5 : (tensor<i8>) -> tensor<i16>
  %7 = tensor.broadcast_in_dim %6, dims = [] : (tensor<i16>) -> tensor<8x3xi16>
  %8 = tensor.subtract %4, %7 : (tensor<8x3xi16>, tensor<8x3xi16>) -> tensor<8x3xi16>
  %9 = tensor.dot_general %3, %8 batch [] x [] contract [1] x [0] : (tensor<4x8xi16>, tensor<8x3xi16>) -> tensor<4x3xi32>
  func.return %9 : tensor<4x3xi32>
}

// What a convolution pads with is the zero point.
// CHECK-LABEL: @convolution
// CHECK: %[[Z:.*]] = tensor.constant dense<7> : tensor<ui8>
// CHECK: %[[P:.*]] = tensor.pad %x, %[[Z]] low <["0", "0", "1", "0"]> high <["0", "0", "0", "1"]>
// CHECK: "tensor.convolution"(%[[P]], %{{.*}}) <{{.*}}padding_low = #hr.exprs<["0", "0"]>
// CHECK: tensor.subtract
func.func @convolution(%x: tensor<1x2x4x4xui8>) -> tensor<1x3x4x4xi32> {
  %0 = tensor.convert %x : (tensor<1x2x4x4xui8>) -> tensor<1x2x4x4xi16>
  %1 = tensor.constant dense<7> : tensor<i16> : tensor<i16>
  %2 = tensor.broadcast_in_dim %1, dims = [] : (tensor<i16>) -> tensor<1x2x4x4xi16>
  %3 = tensor.subtract %0, %2 : (tensor<1x2x4x4xi16>, tensor<1x2x4x4xi16>) -> tensor<1x2x4x4xi16>
  %w = tensor.parameter @w : tensor<3x2x2x2xi8>
  %4 = "tensor.convolution"(%3, %w) <{window_strides = array<i64: 1, 1>, padding_low = #hr.exprs<["1", "0"]>, padding_high = #hr.exprs<["0", "1"]>, lhs_dilation = array<i64: 1, 1>, rhs_dilation = array<i64: 1, 1>, feature_group_count = array<i64: 1>}> : (tensor<1x2x4x4xi16>, tensor<3x2x2x2xi8>) -> tensor<1x3x4x4xi32>
  func.return %4 : tensor<1x3x4x4xi32>
}

// -----

// A zero point that the numbers' type does not hold pads with nothing they have.
// CHECK-LABEL: @too_large
// CHECK: tensor.subtract
// CHECK: "tensor.convolution"
// CHECK-NEXT: func.return
func.func @too_large(%x: tensor<1x2x4x4xui8>) -> tensor<1x3x4x4xi32> {
  %0 = tensor.convert %x : (tensor<1x2x4x4xui8>) -> tensor<1x2x4x4xi16>
  %1 = tensor.constant dense<300> : tensor<i16> : tensor<i16>
  %2 = tensor.broadcast_in_dim %1, dims = [] : (tensor<i16>) -> tensor<1x2x4x4xi16>
  %3 = tensor.subtract %0, %2 : (tensor<1x2x4x4xi16>, tensor<1x2x4x4xi16>) -> tensor<1x2x4x4xi16>
  %w = tensor.parameter @w : tensor<3x2x2x2xi8>
  %4 = "tensor.convolution"(%3, %w) <{window_strides = array<i64: 1, 1>, padding_low = #hr.exprs<["1", "0"]>, padding_high = #hr.exprs<["0", "1"]>, lhs_dilation = array<i64: 1, 1>, rhs_dilation = array<i64: 1, 1>, feature_group_count = array<i64: 1>}> : (tensor<1x2x4x4xi16>, tensor<3x2x2x2xi8>) -> tensor<1x3x4x4xi32>
  func.return %4 : tensor<1x3x4x4xi32>
}

// -----

// Weights that need 9 bits themselves, or that are no weights, stay as they are.
// CHECK-LABEL: @wide
// CHECK: tensor.dot_general %{{.*}}, %w
// CHECK-NEXT: func.return
func.func @wide(%x: tensor<4x8xui8>, %z: tensor<i16>, %w: tensor<8x3xi8>) -> tensor<4x3xi32> {
  %0 = tensor.convert %x : (tensor<4x8xui8>) -> tensor<4x8xi16>
  %2 = tensor.broadcast_in_dim %z, dims = [] : (tensor<i16>) -> tensor<4x8xi16>
  %3 = tensor.subtract %0, %2 : (tensor<4x8xi16>, tensor<4x8xi16>) -> tensor<4x8xi16>
  %9 = tensor.dot_general %3, %w batch [] x [] contract [1] x [0] : (tensor<4x8xi16>, tensor<8x3xi8>) -> tensor<4x3xi32>
  func.return %9 : tensor<4x3xi32>
}
