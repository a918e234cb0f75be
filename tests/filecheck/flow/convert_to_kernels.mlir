// RUN: flow-form-dispatches flow-outline-dispatches flow-convert-to-kernels
// A padded, strided convolution with bias: index maps, no padding operation.
// CHECK: kernel.execute <kernel(%d0 = batch, %d1 = 4, %d2 = 5, %d3 = 5) dims(batch) {
// CHECK-NEXT: ro in0 : f32[batch, 3, 10, 10]
// CHECK-NEXT: ro constant in1 : f32[4, 3, 3, 3]
// CHECK-NEXT: ro constant in2 : f32[4]
// CHECK-NEXT: wo out0 : f32[batch, 4, 5, 5]
// CHECK-NEXT: local fold0 : f32
// CHECK-NEXT: reduce(%r0 = 3, %r1 = 3, %r2 = 3) {
// CHECK-NEXT: load in0[%d0, %r0, 2*%d2 + %r1 - 1, 2*%d3 + %r2 - 1] bounded [2, 3] otherwise 0.0
// CHECK-NEXT: load in1[%d1, %r0, %r1, %r2]
// CHECK-NEXT: multiply
// CHECK-NEXT: fold %{{.*}} from 0.0 with add into fold0
// CHECK: map() {
// CHECK-NEXT: read fold0[]
// CHECK-NEXT: load in2[%d1]
// CHECK-NEXT: add
// CHECK-NEXT: store %{{.*}} to out0[%d0, %d1, %d2, %d3]
func.func public @main(%x: tensor<?x3x10x10xf32, #hr.dims<["batch", "", "", ""]>>) -> tensor<?x4x5x5xf32, #hr.dims<["batch", "", "", ""]>> {
  %w = tensor.parameter @w : tensor<4x3x3x3xf32>
  %b = tensor.parameter @b : tensor<4xf32>
  %c = "tensor.convolution"(%x, %w) <{window_strides = array<i64: 2, 2>, padding_low = #hr.exprs<["1", "1"]>, padding_high = #hr.exprs<["0", "0"]>, lhs_dilation = array<i64: 1, 1>, rhs_dilation = array<i64: 1, 1>, feature_group_count = array<i64: 1>}> : (tensor<?x3x10x10xf32, #hr.dims<["batch", "", "", ""]>>, tensor<4x3x3x3xf32>) -> tensor<?x4x5x5xf32, #hr.dims<["batch", "", "", ""]>>
  %bias = tensor.broadcast_in_dim %b, dims = [1] : (tensor<4xf32>) -> tensor<?x4x5x5xf32, #hr.dims<["batch", "", "", ""]>>
  %r = tensor.add %c, %bias : (tensor<?x4x5x5xf32, #hr.dims<["batch", "", "", ""]>>, tensor<?x4x5x5xf32, #hr.dims<["batch", "", "", ""]>>) -> tensor<?x4x5x5xf32, #hr.dims<["batch", "", "", ""]>>
  func.return %r : tensor<?x4x5x5xf32, #hr.dims<["batch", "", "", ""]>>
}
// -----
// Heads split by the store; a reshape of whole rows needs no division elsewhere.
// CHECK: store %{{.*}} to out0[(%d1 floordiv 5), %d0, (%d1 mod 5)]
func.func public @main(%x: tensor<2x4xf32>) -> tensor<3x2x5xf32> {
  %w = tensor.parameter @w : tensor<4x15xf32>
  %d = tensor.dot_general %x, %w batch [] x [] contract [1] x [0] : (tensor<2x4xf32>, tensor<4x15xf32>) -> tensor<2x15xf32>
  %s = tensor.reshape %d : (tensor<2x15xf32>) -> tensor<2x3x5xf32>
  %r = tensor.transpose %s, dims = [1, 0, 2] : (tensor<2x3x5xf32>) -> tensor<3x2x5xf32>
  func.return %r : tensor<3x2x5xf32>
}
// -----
// A gather clamps its index; concatenation writes each part in a phase of its own.
// CHECK: load in0[max(min(%v0, 6), 0), %d1]
// CHECK: store %{{.*}} to out0[%d0, %d1]
// CHECK: store %{{.*}} to out0[%d0, %d1 + 5]
func.func public @main(%i: tensor<3xi64>, %t: tensor<7x5xf32>, %x: tensor<3x2xf32>) -> tensor<3x7xf32> {
  %g = "tensor.gather"(%t, %i) <{offset_dims = array<i64: 1>, collapsed_slice_dims = array<i64: 0>, operand_batching_dims = array<i64>, start_indices_batching_dims = array<i64>, start_index_map = array<i64: 0>, index_vector_dim = array<i64: 1>, slice_sizes = #hr.exprs<["1", "5"]>}> : (tensor<7x5xf32>, tensor<3xi64>) -> tensor<3x5xf32>
  %n = tensor.negate %g : (tensor<3x5xf32>) -> tensor<3x5xf32>
  %m = tensor.negate %x : (tensor<3x2xf32>) -> tensor<3x2xf32>
  %r = tensor.concatenate %n, %m dim = [1] : (tensor<3x5xf32>, tensor<3x2xf32>) -> tensor<3x7xf32>
  func.return %r : tensor<3x7xf32>
}
// -----
// A reduction whose start is only known at run time starts at the neutral element.
// CHECK: fold %v0 from -inf with maximum into fold0
// CHECK: map() {
// CHECK-NEXT: load in1[]
// CHECK-NEXT: read fold0[]
// CHECK-NEXT: maximum(
// CHECK-NEXT: set kept1[]
func.func public @main(%x: tensor<3xf32>, %s: tensor<f32>) -> tensor<f32> {
  %m = "tensor.reduce"(%x, %s) <{dimensions = array<i64: 0>, operandSegmentSizes = array<i32: 1, 1>}> ({
  ^bb0(%a: tensor<f32>, %b: tensor<f32>):
    %c = tensor.maximum %a, %b : (tensor<f32>, tensor<f32>) -> tensor<f32>
    tensor.return %c : tensor<f32>
  }) : (tensor<3xf32>, tensor<f32>) -> tensor<f32>
  func.return %m : tensor<f32>
}
// -----
// One whose combiner has no neutral element is refused, with its place.
// ERROR: a reduction starts at a value that is not known when compiling
func.func public @main(%x: tensor<3xf32>, %s: tensor<f32>) -> tensor<f32> {
  %m = "tensor.reduce"(%x, %s) <{dimensions = array<i64: 0>, operandSegmentSizes = array<i32: 1, 1>}> ({
  ^bb0(%a: tensor<f32>, %b: tensor<f32>):
    %c = tensor.subtract %a, %b : (tensor<f32>, tensor<f32>) -> tensor<f32>
    tensor.return %c : tensor<f32>
  }) : (tensor<3xf32>, tensor<f32>) -> tensor<f32>
  func.return %m : tensor<f32>
}
// -----
// A scatter copies, then combines its updates in order; whole windows are outer axes.
// CHECK: kernel.execute <kernel(%d0 = 5) {
// CHECK: map(%d1 = 4) {
// CHECK-NEXT: load in0[%d1, %d0]
// CHECK-NEXT: store %v0 to out0[%d1, %d0]
// CHECK: serial(%d1 = 3) {
// CHECK-NEXT: %[[I:.*]] = load in1[%d1]
// CHECK-NEXT: load out0[%[[I]], %d0] bounded [0] otherwise 0.0
// CHECK-NEXT: load in2[%d1, %d0]
// CHECK-NEXT: add
// CHECK-NEXT: store %{{.*}} to out0[%[[I]], %d0] bounded [0]
func.func public @main(%x: tensor<4x5xf32>, %i: tensor<3xi64>, %u: tensor<3x5xf32>) -> tensor<4x5xf32> {
  %r = "tensor.scatter"(%x, %i, %u) <{update_window_dims = array<i64: 1>, inserted_window_dims = array<i64: 0>, input_batching_dims = array<i64>, scatter_indices_batching_dims = array<i64>, scatter_dims_to_operand_dims = array<i64: 0>, index_vector_dim = array<i64: 1>, operandSegmentSizes = array<i32: 1, 1, 1>}> ({
  ^bb0(%a: tensor<f32>, %b: tensor<f32>):
    %c = tensor.add %a, %b : (tensor<f32>, tensor<f32>) -> tensor<f32>
    tensor.return %c : tensor<f32>
  }) : (tensor<4x5xf32>, tensor<3xi64>, tensor<3x5xf32>) -> tensor<4x5xf32>
  func.return %r : tensor<4x5xf32>
}
// -----
// A sort counts the place of each element, then puts it there.
// CHECK: local rank : i64[6]
// CHECK: reduce(%d1 = 6, %r0 = 6) {
// CHECK: fold %{{.*}} from 0 with add into rank
// CHECK: map(%d1 = 6) {
// CHECK: %[[P:.*]] = read rank[%d1]
// CHECK: store %{{.*}} to out0[%d0, %[[P]]]
func.func public @main(%x: tensor<2x6xi32>) -> tensor<2x6xi32> {
  %r = "tensor.sort"(%x) <{dimension = array<i64: 1>}> ({
  ^bb0(%a: tensor<i32>, %b: tensor<i32>):
    %c = tensor.compare "LT", %a, %b : (tensor<i32>, tensor<i32>) -> tensor<i1>
    tensor.return %c : tensor<i1>
  }) : (tensor<2x6xi32>) -> tensor<2x6xi32>
  func.return %r : tensor<2x6xi32>
}

// -----

// A transposed convolution of stride 2: a sum over the taps that hit an element, a sub-pixel
// being an axis of the weights.
// CHECK: kernel(%d0 = 1, %d1 = 4, %d2 = 5, %d3 = 2, %d4 = 5, %d5 = 2)
// CHECK: reduce(%r0 = 3, %r1 = 2, %r2 = 2)
// CHECK: load in0[%d0, %r0, {{.*}}%r1{{.*}}, {{.*}}%r2{{.*}}] bounded
// CHECK: load in1[%d1, %r0,
// CHECK-NOT: select
// CHECK: store %{{.*}} to out0[%d0, %d1, 2*%d2 + %d3, 2*%d4 + %d5]
func.func public @main(%x: tensor<1x3x5x5xf32>) -> tensor<1x4x10x10xf32> {
  %w = tensor.parameter @w : tensor<4x3x4x4xf32>
  %0 = "tensor.convolution"(%x, %w) <{window_strides = array<i64: 1, 1>, padding_low = #hr.exprs<["2", "2"]>, padding_high = #hr.exprs<["2", "2"]>, lhs_dilation = array<i64: 2, 2>, rhs_dilation = array<i64: 1, 1>, feature_group_count = array<i64: 1>}> : (tensor<1x3x5x5xf32>, tensor<4x3x4x4xf32>) -> tensor<1x4x10x10xf32>
  func.return %0 : tensor<1x4x10x10xf32>
}
