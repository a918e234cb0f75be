// RUN: flow-outline-dispatches flow-deduplicate-executables
// Equal bodies are one executable; another constant (here a negative zero) is another body.
// CHECK: flow.executable @main_ex_dispatch_0
// CHECK-NOT: flow.executable @main_ex_dispatch_1
// CHECK: flow.executable @main_ex_dispatch_2
// CHECK: func.func public @main
// CHECK: flow.dispatch @main_ex_dispatch_0::@main_entry_dispatch_0
// CHECK: flow.dispatch @main_ex_dispatch_0::@main_entry_dispatch_0
// CHECK: flow.dispatch @main_ex_dispatch_2::@main_entry_dispatch_2
func.func public @main(%x: tensor<4xf32>) -> tensor<4xf32> {
  %a = flow.dispatch.region -> tensor<4xf32> {
    %c = tensor.constant dense<0.0> : tensor<4xf32> : tensor<4xf32>
    %s = tensor.maximum %x, %c : (tensor<4xf32>, tensor<4xf32>) -> tensor<4xf32>
    flow.return %s : tensor<4xf32>
  }
  %b = flow.dispatch.region -> tensor<4xf32> {
    %other = tensor.constant dense<0.0> : tensor<4xf32> : tensor<4xf32>
    %names = tensor.maximum %a, %other : (tensor<4xf32>, tensor<4xf32>) -> tensor<4xf32>
    flow.return %names : tensor<4xf32>
  }
  %d = flow.dispatch.region -> tensor<4xf32> {
    %c = tensor.constant dense<-0.0> : tensor<4xf32> : tensor<4xf32>
    %s = tensor.maximum %b, %c : (tensor<4xf32>, tensor<4xf32>) -> tensor<4xf32>
    flow.return %s : tensor<4xf32>
  }
  func.return %d : tensor<4xf32>
}
