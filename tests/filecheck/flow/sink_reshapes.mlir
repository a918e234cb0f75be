// RUN: flow-sink-reshapes
// Bias, activation and residual stay in the shape of the product; one reshape is left.
// CHECK: [[D:%[a-z0-9]+]] = tensor.dot_general
// CHECK: [[B:%[a-z0-9]+]] = tensor.broadcast_in_dim %{{.*}}, dims = [1] : (tensor<3xf32>) -> tensor<?x3xf32, #hr.dims<["4*batch", ""]>>
// CHECK-NEXT: [[S:%[a-z0-9]+]] = tensor.add [[D]], [[B]]
// CHECK-NEXT: [[E:%[a-z0-9]+]] = tensor.tanh [[S]]
// CHECK-NEXT: [[R:%[a-z0-9]+]] = tensor.reshape %x : {{.*}} -> tensor<?x3xf32, #hr.dims<["4*batch", ""]>>
// CHECK-NEXT: [[A:%[a-z0-9]+]] = tensor.add [[E]], [[R]]
// CHECK-NEXT: [[L:%[a-z0-9]+]] = tensor.reshape [[A]]
// CHECK-NEXT: func.return [[L]]
func.func public @main(%x: tensor<?x4x3xf32, #hr.dims<["batch", "", ""]>>) -> tensor<?x4x3xf32, #hr.dims<["batch", "", ""]>> {
  %w = tensor.parameter @w : tensor<3x3xf32>
  %b = tensor.parameter @b : tensor<3xf32>
  %f = tensor.reshape %x : (tensor<?x4x3xf32, #hr.dims<["batch", "", ""]>>) -> tensor<?x3xf32, #hr.dims<["4*batch", ""]>>
  %d = tensor.dot_general %f, %w batch [] x [] contract [1] x [0] : (tensor<?x3xf32, #hr.dims<["4*batch", ""]>>, tensor<3x3xf32>) -> tensor<?x3xf32, #hr.dims<["4*batch", ""]>>
  %r = tensor.reshape %d : (tensor<?x3xf32, #hr.dims<["4*batch", ""]>>) -> tensor<?x4x3xf32, #hr.dims<["batch", "", ""]>>
  %bias = tensor.broadcast_in_dim %b, dims = [2] : (tensor<3xf32>) -> tensor<?x4x3xf32, #hr.dims<["batch", "", ""]>>
  %s = tensor.add %r, %bias : (tensor<?x4x3xf32, #hr.dims<["batch", "", ""]>>, tensor<?x4x3xf32, #hr.dims<["batch", "", ""]>>) -> tensor<?x4x3xf32, #hr.dims<["batch", "", ""]>>
  %t = tensor.tanh %s : (tensor<?x4x3xf32, #hr.dims<["batch", "", ""]>>) -> tensor<?x4x3xf32, #hr.dims<["batch", "", ""]>>
  %a = tensor.add %t, %x : (tensor<?x4x3xf32, #hr.dims<["batch", "", ""]>>, tensor<?x4x3xf32, #hr.dims<["batch", "", ""]>>) -> tensor<?x4x3xf32, #hr.dims<["batch", "", ""]>>
  func.return %a : tensor<?x4x3xf32, #hr.dims<["batch", "", ""]>>
}
// -----
// A broadcast along a dimension that the earlier shape does not have stays where it is.
// CHECK: tensor.reshape
// CHECK: tensor.add
// CHECK-NEXT: func.return
func.func public @main(%x: tensor<6xf32>, %y: tensor<3xf32>) -> tensor<2x3xf32> {
  %n = tensor.negate %x : (tensor<6xf32>) -> tensor<6xf32>
  %r = tensor.reshape %n : (tensor<6xf32>) -> tensor<2x3xf32>
  %b = tensor.broadcast_in_dim %y, dims = [1] : (tensor<3xf32>) -> tensor<2x3xf32>
  %s = tensor.add %r, %b : (tensor<2x3xf32>, tensor<2x3xf32>) -> tensor<2x3xf32>
  func.return %s : tensor<2x3xf32>
}
