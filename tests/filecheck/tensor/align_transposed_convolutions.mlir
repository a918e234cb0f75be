// RUN: tensor-align-transposed-convolutions

// Stride 2, kernel 3: a zero behind the kernel. 2*5 - 1 + 1 + 1 - 2 = 9 elements: one more.
// CHECK-LABEL: @odd
// CHECK: %[[W:.*]] = tensor.parameter @w.pad : tensor<4x3x4x4xf32>
// CHECK: %[[C:.*]] = "tensor.convolution"(%x, %[[W]]) <{{.*}}padding_low = #hr.exprs<["1", "1"]>, padding_high = #hr.exprs<["3", "3"]>{{.*}} -> tensor<1x4x10x10xf32>
// CHECK: %[[S:.*]] = tensor.slice %[[C]], {{.*}} -> tensor<1x4x9x9xf32>
// CHECK: func.return %[[S]]
func.func @odd(%x: tensor<1x3x5x5xf32>) -> tensor<1x4x9x9xf32> {
  %w = tensor.parameter @w : tensor<4x3x3x3xf32>
  %0 = "tensor.convolution"(%x, %w) <{window_strides = array<i64: 1, 1>, padding_low = #hr.exprs<["1", "1"]>, padding_high = #hr.exprs<["1", "1"]>, lhs_dilation = array<i64: 2, 2>, rhs_dilation = array<i64: 1, 1>, feature_group_count = array<i64: 1>}> : (tensor<1x3x5x5xf32>, tensor<4x3x3x3xf32>) -> tensor<1x4x9x9xf32>
  func.return %0 : tensor<1x4x9x9xf32>
}

// -----

// Aligned already; a dilated kernel; a kernel that would grow by more than 4.
// CHECK-LABEL: @left
// CHECK-NOT: parameter @w.pad
// CHECK-NOT: tensor.slice
func.func @left(%x: tensor<1x3x5x5xf32>) -> (tensor<1x4x10x10xf32>, tensor<1x4x11x11xf32>, tensor<1x4x13x13xf32>) {
  %w = tensor.parameter @w : tensor<4x3x2x2xf32>
  %v = tensor.parameter @v : tensor<4x3x1x1xf32>
  %0 = "tensor.convolution"(%x, %w) <{window_strides = array<i64: 1, 1>, padding_low = #hr.exprs<["1", "1"]>, padding_high = #hr.exprs<["1", "1"]>, lhs_dilation = array<i64: 2, 2>, rhs_dilation = array<i64: 1, 1>, feature_group_count = array<i64: 1>}> : (tensor<1x3x5x5xf32>, tensor<4x3x2x2xf32>) -> tensor<1x4x10x10xf32>
  %1 = "tensor.convolution"(%x, %w) <{window_strides = array<i64: 1, 1>, padding_low = #hr.exprs<["2", "2"]>, padding_high = #hr.exprs<["2", "2"]>, lhs_dilation = array<i64: 2, 2>, rhs_dilation = array<i64: 2, 2>, feature_group_count = array<i64: 1>}> : (tensor<1x3x5x5xf32>, tensor<4x3x2x2xf32>) -> tensor<1x4x11x11xf32>
  %2 = "tensor.convolution"(%x, %v) <{window_strides = array<i64: 1, 1>, padding_low = #hr.exprs<["0", "0"]>, padding_high = #hr.exprs<["0", "0"]>, lhs_dilation = array<i64: 3, 3>, rhs_dilation = array<i64: 1, 1>, feature_group_count = array<i64: 1>}> : (tensor<1x3x5x5xf32>, tensor<4x3x1x1xf32>) -> tensor<1x4x13x13xf32>
  func.return %0, %1, %2 : tensor<1x4x10x10xf32>, tensor<1x4x11x11xf32>, tensor<1x4x13x13xf32>
}
