// RUN: flow-outline-dispatches
// Values from around a region become arguments; weights are marked; workloads may be symbolic.
// CHECK: flow.executable @main_ex_dispatch_0 {
// CHECK-NEXT: builtin.module {
// CHECK-NEXT: func.func @main_entry_dispatch_0([[X:%[a-z0-9]+]]: tensor<?x4xf32, #hr.dims<["batch", ""]>>, [[W:%[a-z0-9]+]]: tensor<4x3xf32> {hr.constant}) -> tensor<?x3xf32, #hr.dims<["batch", ""]>> attributes {hr.ordinal = 0 : i32, hr.workload = #hr.exprs<["3", "batch", "1"]>} {
// CHECK-NEXT: [[D:%[a-z0-9]+]] = tensor.dot_general [[X]], [[W]]
// CHECK-NEXT: func.return [[D]]
// CHECK: func.func public @main([[X:%[a-z0-9]+]]: {{.*}}) ->
// CHECK-NEXT: [[W:%[a-z0-9]+]] = tensor.parameter @w
// CHECK-NEXT: [[R:%[a-z0-9]+]] = flow.dispatch @main_ex_dispatch_0::@main_entry_dispatch_0[<["3", "batch", "1"]>] ([[X]], [[W]])
// CHECK-NEXT: func.return [[R]]
func.func public @main(%x: tensor<?x4xf32, #hr.dims<["batch", ""]>>) -> tensor<?x3xf32, #hr.dims<["batch", ""]>> {
  %w = tensor.parameter @w : tensor<4x3xf32>
  %r = flow.dispatch.region -> tensor<?x3xf32, #hr.dims<["batch", ""]>> {
    %d = tensor.dot_general %x, %w batch [] x [] contract [1] x [0] : (tensor<?x4xf32, #hr.dims<["batch", ""]>>, tensor<4x3xf32>) -> tensor<?x3xf32, #hr.dims<["batch", ""]>>
    flow.return %d : tensor<?x3xf32, #hr.dims<["batch", ""]>>
  }
  func.return %r : tensor<?x3xf32, #hr.dims<["batch", ""]>>
}
