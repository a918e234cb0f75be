// RUN: flow-split-at-sizes
// What names the dimension runs in a second function; the constant is made anew there, the
// value that both need is handed over, and the count is read back.
// CHECK-LABEL: func.func @main
// CHECK-SAME: (%0: tensor<4xf32>, %1: tensor<i64>) -> (tensor<4xf32> {hr.name = "result1"}, tensor<i64> {hr.name = "%{{[0-9]+}}"})
// CHECK-SAME: hr.next = "main$1", hr.sizes = {{\[\[}}"k", "%{{[0-9]+}}"]], hr.results = ["result0", "result1"]
// CHECK:        %y = tensor.negate %0
// CHECK:        %size = tensor.abs %1
// CHECK:        func.return %y, %size
// CHECK-LABEL: func.func @main$1
// CHECK-SAME: (%0: tensor<4xf32> {hr.name = "result1"}) -> (tensor<?xf32, #hr.dims<["k"]>> {hr.name = "result0"})
// CHECK:        tensor.slice %0
// CHECK:        tensor.constant
// CHECK-NOT:    tensor.define_dimension
func.func @main(%x: tensor<4xf32>, %n: tensor<i64>) -> (tensor<?xf32, #hr.dims<["k"]>>, tensor<4xf32>) {
  %one = tensor.constant dense<1.0> : tensor<f32> : tensor<f32>
  %ones = tensor.broadcast_in_dim %one, dims = [] : (tensor<f32>) -> tensor<4xf32>
  %y = tensor.negate %x : (tensor<4xf32>) -> tensor<4xf32>
  %size = tensor.abs %n : (tensor<i64>) -> tensor<i64>
  tensor.define_dimension "k" = %size : tensor<i64>
  %z = tensor.slice %y, <["0"]> to <["k"]> step [1] : (tensor<4xf32>) -> tensor<?xf32, #hr.dims<["k"]>>
  %w = tensor.broadcast_in_dim %one, dims = [] : (tensor<f32>) -> tensor<?xf32, #hr.dims<["k"]>>
  %r = tensor.add %z, %w : (tensor<?xf32, #hr.dims<["k"]>>, tensor<?xf32, #hr.dims<["k"]>>) -> tensor<?xf32, #hr.dims<["k"]>>
  func.return %r, %y : tensor<?xf32, #hr.dims<["k"]>>, tensor<4xf32>
}
