// RUN: flow-form-dispatches
// A product takes bias and activation; a reshape moves nothing and stays outside.
// CHECK-LABEL: @dense
// CHECK: flow.tensor.reshape %{{.*}} : (tensor<1x4x7xf32>) -> tensor<1x28xf32>
// CHECK: flow.dispatch.region -> tensor<1x8xf32>
// CHECK-NEXT: tensor.dot_general
// CHECK-NEXT: tensor.broadcast_in_dim
// CHECK-NEXT: tensor.add
// CHECK-NEXT: tensor.constant
// CHECK-NEXT: tensor.broadcast_in_dim
// CHECK-NEXT: tensor.maximum
// CHECK-NEXT: flow.return
// CHECK-NOT: flow.dispatch.region
func.func public @dense(%x: tensor<1x4x7xf32>) -> tensor<1x8xf32> {
  %flat = tensor.reshape %x : (tensor<1x4x7xf32>) -> tensor<1x28xf32>
  %w = tensor.parameter @w : tensor<28x8xf32>
  %b = tensor.parameter @b : tensor<8xf32>
  %dot = tensor.dot_general %flat, %w batch [] x [] contract [1] x [0] : (tensor<1x28xf32>, tensor<28x8xf32>) -> tensor<1x8xf32>
  %bias = tensor.broadcast_in_dim %b, dims = [1] : (tensor<8xf32>) -> tensor<1x8xf32>
  %sum = tensor.add %dot, %bias : (tensor<1x8xf32>, tensor<1x8xf32>) -> tensor<1x8xf32>
  %zero = tensor.constant dense<0.0> : tensor<f32> : tensor<f32>
  %zeros = tensor.broadcast_in_dim %zero, dims = [] : (tensor<f32>) -> tensor<1x8xf32>
  %r = tensor.maximum %sum, %zeros : (tensor<1x8xf32>, tensor<1x8xf32>) -> tensor<1x8xf32>
  func.return %r : tensor<1x8xf32>
}
// -----
// Softmax is one dispatch: three phases over the same rows.
// CHECK-LABEL: @softmax
// CHECK: flow.dispatch.region -> tensor<?x10xf32
// CHECK: "tensor.reduce"
// CHECK: tensor.exponential
// CHECK: "tensor.reduce"
// CHECK: tensor.divide
// CHECK-NEXT: flow.return
// CHECK-NOT: flow.dispatch.region
func.func public @softmax(%x: tensor<?x10xf32, #hr.dims<["batch", ""]>>) -> tensor<?x10xf32, #hr.dims<["batch", ""]>> {
  %low = tensor.constant dense<0xFF800000> : tensor<f32> : tensor<f32>
  %m = "tensor.reduce"(%x, %low) <{dimensions = array<i64: 1>, operandSegmentSizes = array<i32: 1, 1>}> ({
  ^bb0(%a: tensor<f32>, %b: tensor<f32>):
    %c = tensor.maximum %a, %b : (tensor<f32>, tensor<f32>) -> tensor<f32>
    tensor.return %c : tensor<f32>
  }) : (tensor<?x10xf32, #hr.dims<["batch", ""]>>, tensor<f32>) -> tensor<?xf32, #hr.dims<["batch"]>>
  %ms = tensor.broadcast_in_dim %m, dims = [0] : (tensor<?xf32, #hr.dims<["batch"]>>) -> tensor<?x10xf32, #hr.dims<["batch", ""]>>
  %d = tensor.subtract %x, %ms : (tensor<?x10xf32, #hr.dims<["batch", ""]>>, tensor<?x10xf32, #hr.dims<["batch", ""]>>) -> tensor<?x10xf32, #hr.dims<["batch", ""]>>
  %e = tensor.exponential %d : (tensor<?x10xf32, #hr.dims<["batch", ""]>>) -> tensor<?x10xf32, #hr.dims<["batch", ""]>>
  %start = tensor.constant dense<0.5> : tensor<f32> : tensor<f32>
  %s = "tensor.reduce"(%e, %start) <{dimensions = array<i64: 1>, operandSegmentSizes = array<i32: 1, 1>}> ({
  ^bb0(%a: tensor<f32>, %b: tensor<f32>):
    %c = tensor.add %a, %b : (tensor<f32>, tensor<f32>) -> tensor<f32>
    tensor.return %c : tensor<f32>
  }) : (tensor<?x10xf32, #hr.dims<["batch", ""]>>, tensor<f32>) -> tensor<?xf32, #hr.dims<["batch"]>>
  %ss = tensor.broadcast_in_dim %s, dims = [0] : (tensor<?xf32, #hr.dims<["batch"]>>) -> tensor<?x10xf32, #hr.dims<["batch", ""]>>
  %r = tensor.divide %e, %ss : (tensor<?x10xf32, #hr.dims<["batch", ""]>>, tensor<?x10xf32, #hr.dims<["batch", ""]>>) -> tensor<?x10xf32, #hr.dims<["batch", ""]>>
  func.return %r : tensor<?x10xf32, #hr.dims<["batch", ""]>>
}
// -----
// A residual sum joins the later of its two branches; the first must be in memory then.
// CHECK-LABEL: @residual
// CHECK: [[ONE:%[a-z0-9]+]] = flow.dispatch.region -> tensor<4x4xf32>
// CHECK-NEXT: tensor.dot_general
// CHECK-NEXT: flow.return
// CHECK: flow.dispatch.region -> tensor<4x4xf32>
// CHECK-NEXT: tensor.dot_general
// CHECK-NEXT: tensor.add [[ONE]]
// CHECK-NEXT: flow.return
func.func public @residual(%x: tensor<4x4xf32>) -> tensor<4x4xf32> {
  %v = tensor.parameter @v : tensor<4x4xf32>
  %w = tensor.parameter @w : tensor<4x4xf32>
  %a = tensor.dot_general %x, %v batch [] x [] contract [1] x [0] : (tensor<4x4xf32>, tensor<4x4xf32>) -> tensor<4x4xf32>
  %b = tensor.dot_general %x, %w batch [] x [] contract [1] x [0] : (tensor<4x4xf32>, tensor<4x4xf32>) -> tensor<4x4xf32>
  %r = tensor.add %a, %b : (tensor<4x4xf32>, tensor<4x4xf32>) -> tensor<4x4xf32>
  func.return %r : tensor<4x4xf32>
}
// -----
// Transposes of a result are stores at other indices; those of an operand are loads.
// CHECK-LABEL: @heads
// CHECK: flow.dispatch.region -> tensor<3x2x5xf32>
// CHECK-NEXT: tensor.transpose
// CHECK-NEXT: tensor.dot_general
// CHECK-NEXT: tensor.reshape
// CHECK-NEXT: tensor.transpose
// CHECK-NEXT: flow.return
// CHECK-NOT: flow.dispatch.region
func.func public @heads(%x: tensor<4x2xf32>) -> tensor<3x2x5xf32> {
  %w = tensor.parameter @w : tensor<4x15xf32>
  %t = tensor.transpose %x, dims = [1, 0] : (tensor<4x2xf32>) -> tensor<2x4xf32>
  %d = tensor.dot_general %t, %w batch [] x [] contract [1] x [0] : (tensor<2x4xf32>, tensor<4x15xf32>) -> tensor<2x15xf32>
  %s = tensor.reshape %d : (tensor<2x15xf32>) -> tensor<2x3x5xf32>
  %r = tensor.transpose %s, dims = [1, 0, 2] : (tensor<2x3x5xf32>) -> tensor<3x2x5xf32>
  func.return %r : tensor<3x2x5xf32>
}
// -----
// x * logistic(x): both users of a sum join, because one value leaves.
// CHECK-LABEL: @gated
// CHECK: flow.dispatch.region
// CHECK-NEXT: tensor.dot_general
// CHECK-NEXT: tensor.logistic
// CHECK-NEXT: tensor.multiply
// CHECK-NEXT: flow.return
// CHECK-NOT: flow.dispatch.region
func.func public @gated(%x: tensor<2x4xf32>) -> tensor<2x4xf32> {
  %w = tensor.parameter @w : tensor<4x4xf32>
  %d = tensor.dot_general %x, %w batch [] x [] contract [1] x [0] : (tensor<2x4xf32>, tensor<4x4xf32>) -> tensor<2x4xf32>
  %g = tensor.logistic %d : (tensor<2x4xf32>) -> tensor<2x4xf32>
  %r = tensor.multiply %d, %g : (tensor<2x4xf32>, tensor<2x4xf32>) -> tensor<2x4xf32>
  func.return %r : tensor<2x4xf32>
}
// -----
// What is expensive is not computed anew for each of two consumers; what is cheap is.
// CHECK-LABEL: @shared
// CHECK: flow.dispatch.region -> tensor<4xf32>
// CHECK-NEXT: tensor.exponential
// CHECK-NEXT: flow.return
// CHECK: flow.dispatch.region
// CHECK: tensor.negate
// CHECK: flow.dispatch.region
// CHECK: tensor.negate
func.func public @shared(%x: tensor<4xf32>) -> (tensor<f32>, tensor<f32>) {
  %e = tensor.exponential %x : (tensor<4xf32>) -> tensor<4xf32>
  %n = tensor.negate %e : (tensor<4xf32>) -> tensor<4xf32>
  %zero = tensor.constant dense<0.0> : tensor<f32> : tensor<f32>
  %s = "tensor.reduce"(%n, %zero) <{dimensions = array<i64: 0>, operandSegmentSizes = array<i32: 1, 1>}> ({
  ^bb0(%a: tensor<f32>, %b: tensor<f32>):
    %c = tensor.add %a, %b : (tensor<f32>, tensor<f32>) -> tensor<f32>
    tensor.return %c : tensor<f32>
  }) : (tensor<4xf32>, tensor<f32>) -> tensor<f32>
  %p = "tensor.reduce"(%n, %zero) <{dimensions = array<i64: 0>, operandSegmentSizes = array<i32: 1, 1>}> ({
  ^bb0(%a: tensor<f32>, %b: tensor<f32>):
    %c = tensor.maximum %a, %b : (tensor<f32>, tensor<f32>) -> tensor<f32>
    tensor.return %c : tensor<f32>
  }) : (tensor<4xf32>, tensor<f32>) -> tensor<f32>
  func.return %s, %p : tensor<f32>, tensor<f32>
}
// -----
// Constants that are no splats become weights; so do large splats that a product reads.
// CHECK-LABEL: @weights
// CHECK-DAG: tensor.parameter @constant_{{[0-9a-f]+}} : tensor<3xf32>
// CHECK-DAG: tensor.parameter @constant_{{[0-9a-f]+}} : tensor<100x3xf32>
// CHECK: flow.dispatch.region
// CHECK-NOT: tensor.constant
func.func public @weights(%x: tensor<1x100xf32>) -> tensor<1x3xf32> {
  %half = tensor.constant dense<0.5> : tensor<f32> : tensor<f32>
  %w = tensor.broadcast_in_dim %half, dims = [] : (tensor<f32>) -> tensor<100x3xf32>
  %b = tensor.constant dense<[1.0, 2.0, 3.0]> : tensor<3xf32> : tensor<3xf32>
  %d = tensor.dot_general %x, %w batch [] x [] contract [1] x [0] : (tensor<1x100xf32>, tensor<100x3xf32>) -> tensor<1x3xf32>
  %bias = tensor.broadcast_in_dim %b, dims = [1] : (tensor<3xf32>) -> tensor<1x3xf32>
  %r = tensor.add %d, %bias : (tensor<1x3xf32>, tensor<1x3xf32>) -> tensor<1x3xf32>
  func.return %r : tensor<1x3xf32>
}
// -----
// A sum over rows and what follows per element: the mean does not leave the dispatch.
// CHECK-LABEL: @centred
// CHECK: flow.dispatch.region -> tensor<2x8xf32>
// CHECK-NOT: flow.dispatch.region
// CHECK: tensor.subtract
// CHECK-NEXT: flow.return
func.func public @centred(%x: tensor<2x8xf32>) -> tensor<2x8xf32> {
  %zero = tensor.constant dense<0.0> : tensor<f32> : tensor<f32>
  %s = "tensor.reduce"(%x, %zero) <{dimensions = array<i64: 1>, operandSegmentSizes = array<i32: 1, 1>}> ({
  ^bb0(%a: tensor<f32>, %b: tensor<f32>):
    %c = tensor.add %a, %b : (tensor<f32>, tensor<f32>) -> tensor<f32>
    tensor.return %c : tensor<f32>
  }) : (tensor<2x8xf32>, tensor<f32>) -> tensor<2xf32>
  %eighth = tensor.constant dense<0.125> : tensor<2xf32> : tensor<2xf32>
  %m = tensor.multiply %s, %eighth : (tensor<2xf32>, tensor<2xf32>) -> tensor<2xf32>
  %thin = tensor.reshape %m : (tensor<2xf32>) -> tensor<2x1xf32>
  %ms = tensor.broadcast_in_dim %thin, dims = [0, 1] : (tensor<2x1xf32>) -> tensor<2x8xf32>
  %r = tensor.subtract %x, %ms : (tensor<2x8xf32>, tensor<2x8xf32>) -> tensor<2x8xf32>
  func.return %r : tensor<2x8xf32>
}
// -----
// What a norm widens is written narrow: both who read it widen it themselves.
// CHECK-LABEL: @widened
// CHECK: flow.dispatch.region -> tensor<4x8xf16>
// CHECK-NEXT: tensor.dot_general
// CHECK-NEXT: flow.return
// CHECK: flow.dispatch.region -> tensor<4x8xf32>
// CHECK-NEXT: tensor.convert
// CHECK: "tensor.reduce"
// CHECK: tensor.subtract
// CHECK-NEXT: flow.return
func.func public @widened(%x: tensor<4x8xf16>) -> tensor<4x8xf32> {
  %w = tensor.parameter @w : tensor<8x8xf16>
  %0 = tensor.dot_general %x, %w batch [] x [] contract [1] x [0] : (tensor<4x8xf16>, tensor<8x8xf16>) -> tensor<4x8xf16>
  %1 = tensor.convert %0 : (tensor<4x8xf16>) -> tensor<4x8xf32>
  %zero = tensor.constant dense<0.0> : tensor<f32> : tensor<f32>
  %s = "tensor.reduce"(%1, %zero) <{dimensions = array<i64: 1>, operandSegmentSizes = array<i32: 1, 1>}> ({
  ^bb0(%a: tensor<f32>, %b: tensor<f32>):
    %c = tensor.add %a, %b : (tensor<f32>, tensor<f32>) -> tensor<f32>
    tensor.return %c : tensor<f32>
  }) : (tensor<4x8xf32>, tensor<f32>) -> tensor<4xf32>
  %m = tensor.broadcast_in_dim %s, dims = [0] : (tensor<4xf32>) -> tensor<4x8xf32>
  %d = tensor.subtract %1, %m : (tensor<4x8xf32>, tensor<4x8xf32>) -> tensor<4x8xf32>
  func.return %d : tensor<4x8xf32>
}
