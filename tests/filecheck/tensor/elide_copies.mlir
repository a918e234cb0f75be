// RUN: tensor-elide-copies

// CHECK-LABEL: @main
// CHECK-NEXT: %[[T:.*]] = tensor.tanh %x
// CHECK-NEXT: func.return %[[T]]
func.func @main(%x: tensor<4xf32>) -> tensor<4xf32> {
  %0 = tensor.copy %x : (tensor<4xf32>) -> tensor<4xf32>
  %1 = tensor.tanh %0 : (tensor<4xf32>) -> tensor<4xf32>
  %2 = tensor.copy %1 : (tensor<4xf32>) -> tensor<4xf32>
  func.return %2 : tensor<4xf32>
}
