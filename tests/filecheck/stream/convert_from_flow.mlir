// RUN: stream-convert-from-flow

// Executables: a binding for each operand of the kernel, in its order (the result's too),
// then an index for each named dimension. Programs: inputs are external, weights constant,
// results transient and rounded up to 64 bytes; a reshape is the same resource.

// CHECK-LABEL: stream.executable private @ex {
// CHECK-NEXT:    stream.executable.export public @entry
// CHECK:           func.func @entry(%x_binding: !stream.binding, %w_binding: !stream.binding, %y_binding: !stream.binding, %n: index) {
// CHECK-NEXT:        %zero = arith.constant 0 : index
// CHECK-NEXT:        %x = stream.binding.subspan %x_binding[%zero] : !stream.binding -> tensor<?x4xf32, #hr.dims<["n", ""]>>
// CHECK-NEXT:        %w = stream.binding.subspan %w_binding[%zero] : !stream.binding -> tensor<4xf32>
// CHECK-NEXT:        %y = stream.binding.subspan %y_binding[%zero] : !stream.binding -> tensor<?x4xf32, #hr.dims<["n", ""]>>
// CHECK-NEXT:        kernel.execute
// CHECK:             }>(%x, %w, %y, %n)
// CHECK-LABEL: func.func @main(%x: !stream.resource<external>
// CHECK-SAME:    stream.io = "input"
// CHECK-SAME:    hr.type = tensor<?x4xf32, #hr.dims<["n", ""]>>
// CHECK-SAME:    stream.size = #hr.exprs<["16*n"]>
// CHECK-NEXT:    %n = stream.size "n" : index
// CHECK-NEXT:    %bias = stream.resource.constant @bias : !stream.resource<constant>{16}
// CHECK-NEXT:    %0 = stream.resource.alloc "ex" : !stream.resource<transient>{"64*((16*n + 63) floordiv 64)"}
// CHECK-NEXT:    stream.cmd.dispatch @ex::@entry["n", 4, 1](%n : index) {
// CHECK-NEXT:      ro %x[0 for "16*n"] : !stream.resource<external>,
// CHECK-NEXT:      ro %bias[0 for 16] : !stream.resource<constant>,
// CHECK-NEXT:      wo %0[0 for "16*n"] : !stream.resource<transient>
// CHECK-NEXT:    }
// CHECK-NEXT:    func.return %0, %x
builtin.module {
  flow.executable @ex {
    builtin.module {
      func.func @entry(%x: tensor<?x4xf32, #hr.dims<["n", ""]>>, %w: tensor<4xf32>) -> tensor<?x4xf32, #hr.dims<["n", ""]>> {
        %r = kernel.execute <kernel(%d0 = n, %d1 = 4) dims(n) {
          ro x : f32[n, 4]
          ro constant w : f32[4]
          wo y : f32[n, 4]
          map() {
            %v0 = load x[%d0, %d1]
            %v1 = load w[%d1]
            %v2 = add(%v0, %v1) : f32
            store %v2 to y[%d0, %d1]
          }
        }>(%x, %w) : (tensor<?x4xf32, #hr.dims<["n", ""]>>, tensor<4xf32>) -> tensor<?x4xf32, #hr.dims<["n", ""]>>
        func.return %r : tensor<?x4xf32, #hr.dims<["n", ""]>>
      }
    }
  }
  func.func @main(%x: tensor<?x4xf32, #hr.dims<["n", ""]>> {hr.name = "x"}) -> (tensor<?xf32, #hr.dims<["4*n"]>> {hr.name = "flat"}, tensor<?xf32, #hr.dims<["4*n"]>> {hr.name = "same"}) {
    %bias = tensor.parameter @bias : tensor<4xf32>
    %0 = flow.dispatch @ex::@entry[<["n", "4", "1"]>](%x, %bias) : (tensor<?x4xf32, #hr.dims<["n", ""]>>, tensor<4xf32>) -> tensor<?x4xf32, #hr.dims<["n", ""]>>
    %1 = flow.tensor.reshape %0 : (tensor<?x4xf32, #hr.dims<["n", ""]>>) -> tensor<?xf32, #hr.dims<["4*n"]>>
    %2 = flow.tensor.reshape %x : (tensor<?x4xf32, #hr.dims<["n", ""]>>) -> tensor<?xf32, #hr.dims<["4*n"]>>
    func.return %1, %2 : tensor<?xf32, #hr.dims<["4*n"]>>, tensor<?xf32, #hr.dims<["4*n"]>>
  }
}
