// RUN: flow-form-dispatches flow-outline-dispatches flow-convert-to-kernels{precision=tf32}
// A kernel that sums products of f32 says how precise they are.
// CHECK: kernel.execute <kernel(%d0 = 2, %d1 = 15) precision(tf32) {
// CHECK: fold %{{.*}} from 0.0 with add into fold0
func.func public @main(%x: tensor<2x4xf32>) -> tensor<2x15xf32> {
  %w = tensor.parameter @w : tensor<4x15xf32>
  %d = tensor.dot_general %x, %w batch [] x [] contract [1] x [0] : (tensor<2x4xf32>, tensor<4x15xf32>) -> tensor<2x15xf32>
  func.return %d : tensor<2x15xf32>
}
// -----
// Others do not: nothing in them is less precise.
// CHECK: kernel.execute <kernel(%d0 = 3) {
func.func public @main(%x: tensor<3xf32>) -> tensor<3xf32> {
  %n = tensor.negate %x : (tensor<3xf32>) -> tensor<3xf32>
  func.return %n : tensor<3xf32>
}
