// RUN: tensor-eliminate-dead-code

// CHECK-LABEL: @main
// CHECK-NEXT: func.return %x
func.func @main(%x: tensor<4xf32>) -> tensor<4xf32> {
  %w = tensor.parameter @w : tensor<4xf32>
  %0 = tensor.add %x, %w : (tensor<4xf32>, tensor<4xf32>) -> tensor<4xf32>
  %1 = tensor.tanh %0 : (tensor<4xf32>) -> tensor<4xf32>
  func.return %x : tensor<4xf32>
}
