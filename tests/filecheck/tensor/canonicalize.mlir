// RUN: tensor-canonicalize

// Movement that moves nothing.
// CHECK-LABEL: @nothing
// CHECK-NEXT: func.return %x
func.func @nothing(%x: tensor<2x3xf32>) -> tensor<2x3xf32> {
  %0 = tensor.reshape %x : (tensor<2x3xf32>) -> tensor<2x3xf32>
  %1 = tensor.transpose %0, dims = [0, 1] : (tensor<2x3xf32>) -> tensor<2x3xf32>
  %2 = tensor.convert %1 : (tensor<2x3xf32>) -> tensor<2x3xf32>
  %3 = tensor.broadcast_in_dim %2, dims = [0, 1] : (tensor<2x3xf32>) -> tensor<2x3xf32>
  %4 = tensor.slice %3, <["0", "0"]> to <["2", "3"]> step [1, 1] : (tensor<2x3xf32>) -> tensor<2x3xf32>
  %c = tensor.constant dense<0.0> : tensor<f32> : tensor<f32>
  %5 = tensor.pad %4, %c low <["0", "0"]> high <["0", "0"]> interior [0, 0] : (tensor<2x3xf32>, tensor<f32>) -> tensor<2x3xf32>
  %6 = tensor.concatenate %5 dim = [0] : (tensor<2x3xf32>) -> tensor<2x3xf32>
  func.return %6 : tensor<2x3xf32>
}

// -----

// Reshapes, transposes, broadcasts and slices of one another become one.
// CHECK-LABEL: @composed
// CHECK-NEXT: tensor.transpose %x, dims = [2, 0, 1]
// CHECK-NEXT: tensor.reshape %y : (tensor<6xf32>) -> tensor<3x2xf32>
// CHECK-NEXT: tensor.slice %x, <["1", "0", "0"]> to <["2", "3", "1"]> step [1, 2, 1]
// CHECK-NEXT: tensor.broadcast_in_dim %y, dims = [1]
func.func @composed(%x: tensor<2x3x4xf32>, %y: tensor<6xf32>) -> (tensor<4x2x3xf32>, tensor<3x2xf32>, tensor<1x2x1xf32>, tensor<5x6x7xf32>) {
  %0 = tensor.transpose %x, dims = [1, 0, 2] : (tensor<2x3x4xf32>) -> tensor<3x2x4xf32>
  %1 = tensor.transpose %0, dims = [2, 1, 0] : (tensor<3x2x4xf32>) -> tensor<4x2x3xf32>
  %2 = tensor.reshape %y : (tensor<6xf32>) -> tensor<2x3xf32>
  %3 = tensor.reshape %2 : (tensor<2x3xf32>) -> tensor<3x2xf32>
  %4 = tensor.slice %x, <["1", "0", "0"]> to <["2", "3", "4"]> step [1, 1, 1] : (tensor<2x3x4xf32>) -> tensor<1x3x4xf32>
  %5 = tensor.slice %4, <["0", "0", "0"]> to <["1", "3", "1"]> step [1, 2, 1] : (tensor<1x3x4xf32>) -> tensor<1x2x1xf32>
  %6 = tensor.broadcast_in_dim %y, dims = [0] : (tensor<6xf32>) -> tensor<6x7xf32>
  %7 = tensor.broadcast_in_dim %6, dims = [1, 2] : (tensor<6x7xf32>) -> tensor<5x6x7xf32>
  func.return %1, %3, %5, %7 : tensor<4x2x3xf32>, tensor<3x2xf32>, tensor<1x2x1xf32>, tensor<5x6x7xf32>
}

// -----

// A broadcast names only the dimensions that are not 1: a bias [C, 1, 1] is one of rank 1.
// CHECK-LABEL: @bias
// CHECK-NEXT: %[[R:.*]] = tensor.reshape %x : (tensor<8x1x1xf32>) -> tensor<8xf32>
// CHECK-NEXT: tensor.broadcast_in_dim %[[R]], dims = [1]
func.func @bias(%x: tensor<8x1x1xf32>) -> tensor<?x8x4x4xf32, #hr.dims<["b", "", "", ""]>> {
  %0 = tensor.broadcast_in_dim %x, dims = [1, 2, 3] : (tensor<8x1x1xf32>) -> tensor<?x8x4x4xf32, #hr.dims<["b", "", "", ""]>>
  func.return %0 : tensor<?x8x4x4xf32, #hr.dims<["b", "", "", ""]>>
}

// -----

// Arithmetic with neutral constants goes; powers are products and roots; a power of two divides exactly.
// CHECK-LABEL: @arithmetic
// CHECK: %[[SQ:.*]] = tensor.multiply %x, %x
// CHECK-NEXT: %[[ROOT:.*]] = tensor.sqrt %[[SQ]]
// CHECK: %[[Q:.*]] = tensor.constant dense<2.500000e-01>
// CHECK: %[[S:.*]] = tensor.broadcast_in_dim %[[Q]]
// CHECK-NEXT: tensor.multiply %[[ROOT]], %[[S]]
// CHECK-NOT: tensor.add
// CHECK-NOT: tensor.divide
func.func @arithmetic(%x: tensor<4xf32>) -> tensor<4xf32> {
  %zero = tensor.constant dense<0.0> : tensor<4xf32> : tensor<4xf32>
  %one = tensor.constant dense<1.0> : tensor<4xf32> : tensor<4xf32>
  %two = tensor.constant dense<2.0> : tensor<4xf32> : tensor<4xf32>
  %half = tensor.constant dense<0.5> : tensor<4xf32> : tensor<4xf32>
  %four = tensor.constant dense<4.0> : tensor<4xf32> : tensor<4xf32>
  %0 = tensor.add %zero, %x : (tensor<4xf32>, tensor<4xf32>) -> tensor<4xf32>
  %1 = tensor.multiply %0, %one : (tensor<4xf32>, tensor<4xf32>) -> tensor<4xf32>
  %2 = tensor.negate %1 : (tensor<4xf32>) -> tensor<4xf32>
  %3 = tensor.negate %2 : (tensor<4xf32>) -> tensor<4xf32>
  %4 = tensor.power %3, %two : (tensor<4xf32>, tensor<4xf32>) -> tensor<4xf32>
  %5 = tensor.power %4, %half : (tensor<4xf32>, tensor<4xf32>) -> tensor<4xf32>
  %6 = tensor.divide %5, %four : (tensor<4xf32>, tensor<4xf32>) -> tensor<4xf32>
  func.return %6 : tensor<4xf32>
}

// -----

// Dividing by 3 stays: its reciprocal is not exact. Reductions that start at 0.5 stay too.
// CHECK-LABEL: @kept
// CHECK: tensor.divide
// CHECK: tensor.reduce
func.func @kept(%x: tensor<4x1xf32>) -> (tensor<4x1xf32>, tensor<4xf32>) {
  %three = tensor.constant dense<3.0> : tensor<4x1xf32> : tensor<4x1xf32>
  %half = tensor.constant dense<0.5> : tensor<f32> : tensor<f32>
  %0 = tensor.divide %x, %three : (tensor<4x1xf32>, tensor<4x1xf32>) -> tensor<4x1xf32>
  %1 = "tensor.reduce"(%x, %half) <{dimensions = array<i64: 1>, operandSegmentSizes = array<i32: 1, 1>}> ({
  ^bb0(%a: tensor<f32>, %b: tensor<f32>):
    %s = tensor.add %a, %b : (tensor<f32>, tensor<f32>) -> tensor<f32>
    tensor.return %s : tensor<f32>
  }) : (tensor<4x1xf32>, tensor<f32>) -> tensor<4xf32>
  func.return %0, %1 : tensor<4x1xf32>, tensor<4xf32>
}

// -----

// Conversions there and back go where nothing is lost: f32 holds i8, but i32 to f64 to i8
// saturates where i32 to i8 wraps.
// CHECK-LABEL: @convert
// CHECK-NEXT: %[[A:.*]] = tensor.convert %x : (tensor<4xi8>) -> tensor<4xf64>
// CHECK-NEXT: %[[B:.*]] = tensor.convert %y : (tensor<4xi32>) -> tensor<4xf64>
// CHECK-NEXT: %[[C:.*]] = tensor.convert %[[B]] : (tensor<4xf64>) -> tensor<4xi8>
// CHECK-NEXT: func.return %[[A]], %[[C]], %x
func.func @convert(%x: tensor<4xi8>, %y: tensor<4xi32>) -> (tensor<4xf64>, tensor<4xi8>, tensor<4xi8>) {
  %0 = tensor.convert %x : (tensor<4xi8>) -> tensor<4xf32>
  %1 = tensor.convert %0 : (tensor<4xf32>) -> tensor<4xf64>
  %2 = tensor.convert %y : (tensor<4xi32>) -> tensor<4xf64>
  %3 = tensor.convert %2 : (tensor<4xf64>) -> tensor<4xi8>
  %4 = tensor.convert %1 : (tensor<4xf64>) -> tensor<4xi8>
  func.return %1, %3, %4 : tensor<4xf64>, tensor<4xi8>, tensor<4xi8>
}

// -----

// An operation of broadcasts is the broadcast of an operation.
// CHECK-LABEL: @behind_broadcast
// CHECK: %[[R:.*]] = tensor.sqrt %{{.*}} : (tensor<8xf32>) -> tensor<8xf32>
// CHECK-NEXT: tensor.broadcast_in_dim %[[R]], dims = [1] : (tensor<8xf32>) -> tensor<4x8xf32>
func.func @behind_broadcast(%x: tensor<8xf32>) -> tensor<4x8xf32> {
  %c = tensor.constant dense<1.0e-05> : tensor<f32> : tensor<f32>
  %0 = tensor.broadcast_in_dim %x, dims = [1] : (tensor<8xf32>) -> tensor<4x8xf32>
  %1 = tensor.broadcast_in_dim %c, dims = [] : (tensor<f32>) -> tensor<4x8xf32>
  %2 = tensor.add %0, %1 : (tensor<4x8xf32>, tensor<4x8xf32>) -> tensor<4x8xf32>
  %3 = tensor.sqrt %2 : (tensor<4x8xf32>) -> tensor<4x8xf32>
  func.return %3 : tensor<4x8xf32>
}

// -----

// Slices of a concatenation that lie within one part; starts that are known.
// CHECK-LABEL: @slices
// CHECK-NEXT: %[[A:.*]] = tensor.slice %y, <["1"]> to <["3"]>
// CHECK-NEXT: %[[B:.*]] = tensor.slice %x, <["2"]> to <["4"]>
// CHECK-NEXT: func.return %[[A]], %[[B]]
func.func @slices(%x: tensor<4xf32>, %y: tensor<4xf32>) -> (tensor<2xf32>, tensor<2xf32>) {
  %i = tensor.constant dense<9> : tensor<i64> : tensor<i64>
  %0 = tensor.concatenate %x, %y dim = [0] : (tensor<4xf32>, tensor<4xf32>) -> tensor<8xf32>
  %1 = tensor.slice %0, <["5"]> to <["7"]> step [1] : (tensor<8xf32>) -> tensor<2xf32>
  %2 = tensor.dynamic_slice %x at %i : (tensor<4xf32>, tensor<i64>) -> tensor<2xf32>
  func.return %1, %2 : tensor<2xf32>, tensor<2xf32>
}

// -----

// An operation of reshapes is the reshape of an operation: those around the mean cancel.
// CHECK-LABEL: @behind_reshape
// CHECK-NOT: tensor.reshape
// CHECK: %[[D:.*]] = tensor.divide %x, %{{.*}} : (tensor<4xf32>, tensor<4xf32>) -> tensor<4xf32>
// CHECK-NEXT: tensor.broadcast_in_dim %[[D]], dims = [0] : (tensor<4xf32>) -> tensor<4x8xf32>
func.func @behind_reshape(%x: tensor<4xf32>) -> tensor<4x8xf32> {
  %c = tensor.constant dense<3.0> : tensor<f32> : tensor<f32>
  %0 = tensor.reshape %x : (tensor<4xf32>) -> tensor<4x1xf32>
  %1 = tensor.broadcast_in_dim %c, dims = [] : (tensor<f32>) -> tensor<4x1xf32>
  %2 = tensor.divide %0, %1 : (tensor<4x1xf32>, tensor<4x1xf32>) -> tensor<4x1xf32>
  %3 = tensor.broadcast_in_dim %2, dims = [0, 1] : (tensor<4x1xf32>) -> tensor<4x8xf32>
  func.return %3 : tensor<4x8xf32>
}

// -----

// A reduction that starts at a computed value folds from zero; the start is added.
// CHECK-LABEL: @computed_start
// CHECK: %[[Z:.*]] = tensor.constant dense<0.000000e+00>
// CHECK: %[[R:.*]] = "tensor.reduce"(%x, %[[Z]])
// CHECK: %[[S:.*]] = tensor.broadcast_in_dim %start, dims = []
// CHECK-NEXT: tensor.add %[[R]], %[[S]]
func.func @computed_start(%x: tensor<4x8xf32>, %start: tensor<f32>) -> tensor<4xf32> {
  %0 = "tensor.reduce"(%x, %start) <{dimensions = array<i64: 1>, operandSegmentSizes = array<i32: 1, 1>}> ({
  ^bb0(%a: tensor<f32>, %b: tensor<f32>):
    %s = tensor.add %a, %b : (tensor<f32>, tensor<f32>) -> tensor<f32>
    tensor.return %s : tensor<f32>
  }) : (tensor<4x8xf32>, tensor<f32>) -> tensor<4xf32>
  func.return %0 : tensor<4xf32>
}

// -----

// The second third of the columns, parted into heads: parted first, then a slice of heads.
// CHECK-LABEL: @reshape_of_slice
// CHECK-NEXT: %[[H:.*]] = tensor.reshape %x : (tensor<4x12xf32>) -> tensor<4x6x2xf32>
// CHECK-NEXT: %[[S:.*]] = tensor.slice %[[H]], <["0", "2", "0"]> to <["4", "4", "2"]> step [1, 1, 1]
// CHECK-NEXT: func.return %[[S]]
func.func @reshape_of_slice(%x: tensor<4x12xf32>) -> tensor<4x2x2xf32> {
  %0 = tensor.slice %x, <["0", "4"]> to <["4", "8"]> step [1, 1] : (tensor<4x12xf32>) -> tensor<4x4xf32>
  %1 = tensor.reshape %0 : (tensor<4x4xf32>) -> tensor<4x2x2xf32>
  func.return %1 : tensor<4x2x2xf32>
}

// -----

// The slice does not begin where a head does: it stays.
// CHECK-LABEL: @reshape_of_shifted_slice
// CHECK-NEXT: tensor.slice %x
// CHECK-NEXT: tensor.reshape
func.func @reshape_of_shifted_slice(%x: tensor<4x12xf32>) -> tensor<4x2x2xf32> {
  %0 = tensor.slice %x, <["0", "3"]> to <["4", "7"]> step [1, 1] : (tensor<4x12xf32>) -> tensor<4x4xf32>
  %1 = tensor.reshape %0 : (tensor<4x4xf32>) -> tensor<4x2x2xf32>
  func.return %1 : tensor<4x2x2xf32>
}

// -----

// Scaled queries and keys: their product is scaled, once.
// CHECK-LABEL: @scaled_operands
// CHECK: %[[K:.*]] = tensor.transpose %k, dims = [0, 2, 1]
// CHECK: %[[P:.*]] = tensor.dot_general %q, %[[K]] batch [0] x [0] contract [2] x [1]
// CHECK: %[[C:.*]] = tensor.constant dense<2.500000e-01>
// CHECK: %[[S:.*]] = tensor.broadcast_in_dim %[[C]]
// CHECK: %[[R:.*]] = tensor.multiply %[[P]], %[[S]]
// CHECK: func.return %[[R]]
func.func @scaled_operands(%q: tensor<2x3x4xf32>, %k: tensor<2x5x4xf32>) -> tensor<2x3x5xf32> {
  %c = tensor.constant dense<0.5> : tensor<f32> : tensor<f32>
  %s = tensor.broadcast_in_dim %c, dims = [] : (tensor<f32>) -> tensor<2x3x4xf32>
  %t = tensor.broadcast_in_dim %c, dims = [] : (tensor<f32>) -> tensor<2x4x5xf32>
  %0 = tensor.multiply %q, %s : (tensor<2x3x4xf32>, tensor<2x3x4xf32>) -> tensor<2x3x4xf32>
  %1 = tensor.transpose %k, dims = [0, 2, 1] : (tensor<2x5x4xf32>) -> tensor<2x4x5xf32>
  %2 = tensor.multiply %1, %t : (tensor<2x4x5xf32>, tensor<2x4x5xf32>) -> tensor<2x4x5xf32>
  %3 = tensor.dot_general %0, %2 batch [0] x [0] contract [2] x [1] : (tensor<2x3x4xf32>, tensor<2x4x5xf32>) -> tensor<2x3x5xf32>
  func.return %3 : tensor<2x3x5xf32>
}

// -----

// A product widens narrow integers itself.
// CHECK-LABEL: @widened_integers
// CHECK-NEXT: %[[P:.*]] = tensor.dot_general %x, %w batch [] x [] contract [1] x [0] : (tensor<2x3xui8>, tensor<3x4xi8>) -> tensor<2x4xi32>
// CHECK-NEXT: func.return %[[P]]
func.func @widened_integers(%x: tensor<2x3xui8>, %w: tensor<3x4xi8>) -> tensor<2x4xi32> {
  %0 = tensor.convert %x : (tensor<2x3xui8>) -> tensor<2x3xi16>
  %1 = tensor.convert %w : (tensor<3x4xi8>) -> tensor<3x4xi32>
  %2 = tensor.dot_general %0, %1 batch [] x [] contract [1] x [0] : (tensor<2x3xi16>, tensor<3x4xi32>) -> tensor<2x4xi32>
  func.return %2 : tensor<2x4xi32>
}

// -----

// So does a convolution, whose padding is zero in either type.
// CHECK-LABEL: @widened_image
// CHECK-NEXT: "tensor.convolution"(%x, %w) <{{.*}}padding_low = #hr.exprs<["1", "1"]>{{.*}} : (tensor<1x3x5x5xui8>, tensor<4x3x3x3xi8>) -> tensor<1x4x5x5xi32>
func.func @widened_image(%x: tensor<1x3x5x5xui8>, %w: tensor<4x3x3x3xi8>) -> tensor<1x4x5x5xi32> {
  %0 = tensor.convert %x : (tensor<1x3x5x5xui8>) -> tensor<1x3x5x5xi32>
  %1 = "tensor.convolution"(%0, %w) <{window_strides = array<i64: 1, 1>, padding_low = #hr.exprs<["1", "1"]>, padding_high = #hr.exprs<["1", "1"]>, lhs_dilation = array<i64: 1, 1>, rhs_dilation = array<i64: 1, 1>, feature_group_count = array<i64: 1>}> : (tensor<1x3x5x5xi32>, tensor<4x3x3x3xi8>) -> tensor<1x4x5x5xi32>
  func.return %1 : tensor<1x4x5x5xi32>
}

// -----

// Another value than the one that was widened: the sign is read anew, bits are lost.
// CHECK-LABEL: @changed_integers
// CHECK: tensor.convert %x
// CHECK: tensor.convert %w
// CHECK: tensor.dot_general {{.*}} : (tensor<2x3xi8>, tensor<3x4xi8>) -> tensor<2x4xi32>
func.func @changed_integers(%x: tensor<2x3xui8>, %w: tensor<3x4xi16>) -> tensor<2x4xi32> {
  %0 = tensor.convert %x : (tensor<2x3xui8>) -> tensor<2x3xi8>
  %1 = tensor.convert %w : (tensor<3x4xi16>) -> tensor<3x4xi8>
  %2 = tensor.dot_general %0, %1 batch [] x [] contract [1] x [0] : (tensor<2x3xi8>, tensor<3x4xi8>) -> tensor<2x4xi32>
  func.return %2 : tensor<2x4xi32>
}

// -----

// Batch and heads joined around a transpose of keys: one transpose.
// CHECK-LABEL: @parted_again
// CHECK-NEXT: %[[T:.*]] = tensor.transpose %x, dims = [0, 1, 3, 2] : (tensor<2x3x4x5xf32>) -> tensor<2x3x5x4xf32>
// CHECK-NEXT: func.return %[[T]]
func.func @parted_again(%x: tensor<2x3x4x5xf32>) -> tensor<2x3x5x4xf32> {
  %0 = tensor.reshape %x : (tensor<2x3x4x5xf32>) -> tensor<6x4x5xf32>
  %1 = tensor.transpose %0, dims = [0, 2, 1] : (tensor<6x4x5xf32>) -> tensor<6x5x4xf32>
  %2 = tensor.reshape %1 : (tensor<6x5x4xf32>) -> tensor<2x3x5x4xf32>
  func.return %2 : tensor<2x3x5x4xf32>
}

// -----

// Parted otherwise than it was, or across what was joined: they stay.
// CHECK-LABEL: @parted_otherwise
// CHECK: tensor.transpose {{.*}} -> tensor<6x5x4xf32>
// CHECK: tensor.transpose {{.*}} -> tensor<5x8x3xf32>
func.func @parted_otherwise(%x: tensor<2x3x4x5xf32>) -> (tensor<3x2x5x4xf32>, tensor<5x4x6xf32>) {
  %0 = tensor.reshape %x : (tensor<2x3x4x5xf32>) -> tensor<6x4x5xf32>
  %1 = tensor.transpose %0, dims = [0, 2, 1] : (tensor<6x4x5xf32>) -> tensor<6x5x4xf32>
  %2 = tensor.reshape %1 : (tensor<6x5x4xf32>) -> tensor<3x2x5x4xf32>
  %3 = tensor.reshape %x : (tensor<2x3x4x5xf32>) -> tensor<3x8x5xf32>
  %4 = tensor.transpose %3, dims = [2, 1, 0] : (tensor<3x8x5xf32>) -> tensor<5x8x3xf32>
  %5 = tensor.reshape %4 : (tensor<5x8x3xf32>) -> tensor<5x4x6xf32>
  func.return %2, %5 : tensor<3x2x5x4xf32>, tensor<5x4x6xf32>
}
