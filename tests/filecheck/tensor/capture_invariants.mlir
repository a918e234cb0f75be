// RUN: tensor-capture-invariants

// What comes back as it came is no longer carried, through a loop within neither.
// CHECK-LABEL: func.func @main
// CHECK:         %w = tensor.parameter @w
// CHECK-NEXT:    %a = "tensor.while"(%x) <{trip_count = #hr.exprs<["n"]>}> ({
// CHECK:           %c = tensor.compare "LT", %v, %m
// CHECK:         }, {
// CHECK:           %b = "tensor.while"(%v_1) ({
// CHECK:             tensor.compare "LT", %q, %m
// CHECK:             %s = tensor.add %q_1, %w
// CHECK-NEXT:        tensor.return %s : tensor<f32>
// CHECK:           tensor.return %b : tensor<f32>
// CHECK:         func.return %a, %w, %m : tensor<f32>, tensor<f32>, tensor<f32>
func.func @main(%x: tensor<f32>, %m: tensor<f32>) -> (tensor<f32>, tensor<f32>, tensor<f32>) {
  %w = tensor.parameter @w : tensor<f32>
  %k, %a, %l = "tensor.while"(%w, %x, %m) <{trip_count = #hr.exprs<["n"]>}> ({
  ^bb0(%u: tensor<f32>, %v: tensor<f32>, %limit: tensor<f32>):
    %c = tensor.compare "LT", %v, %limit : (tensor<f32>, tensor<f32>) -> tensor<i1>
    tensor.return %c : tensor<i1>
  }, {
  ^bb0(%u: tensor<f32>, %v: tensor<f32>, %limit: tensor<f32>):
    %b, %o, %y = "tensor.while"(%v, %u, %limit) ({
    ^bb0(%q: tensor<f32>, %r: tensor<f32>, %z: tensor<f32>):
      %c = tensor.compare "LT", %q, %z : (tensor<f32>, tensor<f32>) -> tensor<i1>
      tensor.return %c : tensor<i1>
    }, {
    ^bb0(%q: tensor<f32>, %r: tensor<f32>, %z: tensor<f32>):
      %s = tensor.add %q, %r : (tensor<f32>, tensor<f32>) -> tensor<f32>
      tensor.return %s, %r, %z : tensor<f32>, tensor<f32>, tensor<f32>
    }) : (tensor<f32>, tensor<f32>, tensor<f32>) -> (tensor<f32>, tensor<f32>, tensor<f32>)
    tensor.return %o, %b, %y : tensor<f32>, tensor<f32>, tensor<f32>
  }) : (tensor<f32>, tensor<f32>, tensor<f32>) -> (tensor<f32>, tensor<f32>, tensor<f32>)
  func.return %a, %k, %l : tensor<f32>, tensor<f32>, tensor<f32>
}
