// RUN: flow-assign-layouts{level=2}

// An input with a strict reader is copied once, into channels last with the halo; the copy
// writes the halo, so the reader's guard goes. What the two convolutions hand on stands so
// from the start. The output is row-major. The weight is packed: one parameter for its
// layout. The pool wants another value in the halo, so it keeps its guard. The elementwise
// kernel nobody wishes anything of follows its neighbour. The shared executable parts.

// CHECK-LABEL: flow.executable @conv {
// CHECK:             ro x : f32[1, 8, 6, 6] layout [512, 1, 64, 8] offset 72 size 512 halo [0, 0, 1, 1] [0, 0, 1, 1] value 0.0
// CHECK-NEXT:        ro constant w : f32[8, 8, 3, 3] layout [1152 tile 16 by 1, 144, 48, 16] offset 0 size 1152
// CHECK-NEXT:        wo y : f32[1, 8, 6, 6] layout [512, 1, 64, 8] offset 72 size 512 halo [0, 0, 1, 1] [0, 0, 1, 1] value 0.0
// CHECK:               %v0 = load x[0, %r0, %d1 + %r1 - 1, %d2 + %r2 - 1]
// CHECK-NEXT:          %v1 = load w
// CHECK-LABEL: flow.executable @conv_1 {
// CHECK:             ro x : f32[1, 8, 6, 6] layout [512, 1, 64, 8] offset 72 size 512 halo
// CHECK:             wo y : f32[1, 8, 6, 6] layout [288, 1, 48, 8] offset 0 size 288
// CHECK-LABEL: flow.executable @pool {
// CHECK:             ro x : f32[1, 8, 6, 6] layout [512, 1, 64, 8] offset 72 size 512 halo [0, 0, 1, 1] [0, 0, 1, 1] value 0.0
// CHECK-NEXT:        wo y : f32[1, 8, 6, 6]
// CHECK-NEXT:        local
// CHECK:               bounded [2, 3] otherwise -inf
// CHECK-LABEL: flow.executable @negate {
// CHECK:             ro x : f32[1, 8, 6, 6] layout [288, 1, 48, 8] offset 0 size 288
// CHECK-NEXT:        wo y : f32[1, 8, 6, 6]
// CHECK-NEXT:        map
// CHECK-LABEL: flow.executable @main_ex_relayout_0 {
// CHECK:             ro x : f32[1, 8, 6, 6]
// CHECK-NEXT:        wo y : f32[1, 8, 6, 6] layout [512, 1, 64, 8] offset 72 size 512 halo [0, 0, 1, 1] [0, 0, 1, 1] value 0.0
// CHECK-LABEL: func.func @main(
// CHECK:         [[COPY:%.*]] = flow.dispatch @main_ex_relayout_0::@main_entry_relayout_0[<["288", "1", "1"]>]{{ ?}}(%x)
// CHECK-NEXT:    [[W:%.*]] = tensor.parameter @w$layout0 : tensor<8x8x3x3xf32>
// CHECK-NEXT:    [[A:%.*]] = flow.dispatch @conv::@conv_entry[<["288"]>]{{ ?}}([[COPY]], [[W]])
// CHECK-NEXT:    [[B:%.*]] = flow.dispatch @conv_1::@conv_entry_1[<["288"]>]{{ ?}}([[A]], [[W]])
// CHECK-NEXT:    [[P:%.*]] = flow.dispatch @pool::@pool_entry[<["288"]>]{{ ?}}([[A]])
// CHECK-NEXT:    [[N:%.*]] = flow.dispatch @negate::@negate_entry[<["288"]>]{{ ?}}([[B]])
// CHECK-NEXT:    func.return [[P]], [[N]]
builtin.module {
  flow.executable @conv {
    builtin.module {
      func.func @conv_entry(%x: tensor<1x8x6x6xf32>, %w: tensor<8x8x3x3xf32>) -> tensor<1x8x6x6xf32> attributes {hr.wishes = {x = "0 2 3 1 halo 0 0 1 1 / 0 0 1 1 = 0.0 strict", w = "1 2 3 panel 0 16 strict", y = "0 2 3 1"}} {
        %r = kernel.execute <kernel(%d0 = 8, %d1 = 6, %d2 = 6) {
          ro x : f32[1, 8, 6, 6]
          ro constant w : f32[8, 8, 3, 3]
          wo y : f32[1, 8, 6, 6]
          local a : f32
          reduce(%r0 = 8, %r1 = 3, %r2 = 3) {
            %v0 = load x[0, %r0, %d1 + %r1 - 1, %d2 + %r2 - 1] bounded [2, 3] otherwise 0.0
            %v1 = load w[%d0, %r0, %r1, %r2]
            %v2 = multiply(%v0, %v1) : f32
            fold %v2 from 0.0 with add into a
          }
          map() {
            %v0 = read a[]
            store %v0 to y[0, %d0, %d1, %d2]
          }
        }>(%x, %w) : (tensor<1x8x6x6xf32>, tensor<8x8x3x3xf32>) -> tensor<1x8x6x6xf32>
        func.return %r : tensor<1x8x6x6xf32>
      }
    }
  }
  flow.executable @pool {
    builtin.module {
      func.func @pool_entry(%x: tensor<1x8x6x6xf32>) -> tensor<1x8x6x6xf32> {
        %r = kernel.execute <kernel(%d0 = 8, %d1 = 6, %d2 = 6) {
          ro x : f32[1, 8, 6, 6]
          wo y : f32[1, 8, 6, 6]
          local a : f32
          reduce(%r1 = 3, %r2 = 3) {
            %v0 = load x[0, %d0, %d1 + %r1 - 1, %d2 + %r2 - 1] bounded [2, 3] otherwise -inf
            fold %v0 from -inf with maximum into a
          }
          map() {
            %v0 = read a[]
            store %v0 to y[0, %d0, %d1, %d2]
          }
        }>(%x) : (tensor<1x8x6x6xf32>) -> tensor<1x8x6x6xf32>
        func.return %r : tensor<1x8x6x6xf32>
      }
    }
  }
  flow.executable @negate {
    builtin.module {
      func.func @negate_entry(%x: tensor<1x8x6x6xf32>) -> tensor<1x8x6x6xf32> {
        %r = kernel.execute <kernel(%d0 = 8, %d1 = 6, %d2 = 6) {
          ro x : f32[1, 8, 6, 6]
          wo y : f32[1, 8, 6, 6]
          map() {
            %v0 = load x[0, %d0, %d1, %d2]
            %v1 = negate(%v0) : f32
            store %v1 to y[0, %d0, %d1, %d2]
          }
        }>(%x) : (tensor<1x8x6x6xf32>) -> tensor<1x8x6x6xf32>
        func.return %r : tensor<1x8x6x6xf32>
      }
    }
  }
  func.func @main(%x: tensor<1x8x6x6xf32>) -> (tensor<1x8x6x6xf32>, tensor<1x8x6x6xf32>) {
    %w = tensor.parameter @w : tensor<8x8x3x3xf32>
    %a = flow.dispatch @conv::@conv_entry[<["288"]>](%x, %w) : (tensor<1x8x6x6xf32>, tensor<8x8x3x3xf32>) -> tensor<1x8x6x6xf32>
    %b = flow.dispatch @conv::@conv_entry[<["288"]>](%a, %w) : (tensor<1x8x6x6xf32>, tensor<8x8x3x3xf32>) -> tensor<1x8x6x6xf32>
    %p = flow.dispatch @pool::@pool_entry[<["288"]>](%a) : (tensor<1x8x6x6xf32>) -> tensor<1x8x6x6xf32>
    %n = flow.dispatch @negate::@negate_entry[<["288"]>](%b) : (tensor<1x8x6x6xf32>) -> tensor<1x8x6x6xf32>
    func.return %p, %n : tensor<1x8x6x6xf32>, tensor<1x8x6x6xf32>
  }
}
// -----

// Preferences force no copy: of an input, or of what is seen through a reshape. A strict
// producer of an output writes its own layout and the copy makes the output.

// CHECK-LABEL: flow.executable @prefers {
// CHECK:             ro x : f32[1, 8, 6, 6]
// CHECK-NEXT:        wo y : f32[1, 8, 6, 6]
// CHECK-NEXT:        map
// CHECK-LABEL: flow.executable @insists {
// CHECK:             ro x : f32[1, 8, 6, 6]
// CHECK-NEXT:        wo y : f32[1, 8, 6, 6] layout [288, 1, 48, 8] offset 0 size 288
// CHECK-LABEL: flow.executable @main_ex_relayout_0 {
// CHECK:             ro x : f32[1, 8, 6, 6] layout [288, 1, 48, 8] offset 0 size 288
// CHECK-NEXT:        wo y : f32[1, 8, 6, 6]
// CHECK-NEXT:        map
// CHECK-LABEL: func.func @main(
// CHECK:         [[A:%.*]] = flow.dispatch @prefers::@prefers_entry[<["288"]>]{{ ?}}(%x)
// CHECK-NEXT:    [[F:%.*]] = flow.tensor.reshape [[A]]
// CHECK-NEXT:    [[B:%.*]] = flow.dispatch @insists::@insists_entry[<["288"]>]{{ ?}}(%x)
// CHECK-NEXT:    [[C:%.*]] = flow.dispatch @main_ex_relayout_0::@main_entry_relayout_0[<["288", "1", "1"]>]{{ ?}}([[B]])
// CHECK-NEXT:    func.return [[F]], [[C]]
builtin.module {
  flow.executable @prefers {
    builtin.module {
      func.func @prefers_entry(%x: tensor<1x8x6x6xf32>) -> tensor<1x8x6x6xf32> attributes {hr.wishes = {x = "0 2 3 1", y = "0 2 3 1"}} {
        %r = kernel.execute <kernel(%d0 = 8, %d1 = 6, %d2 = 6) {
          ro x : f32[1, 8, 6, 6]
          wo y : f32[1, 8, 6, 6]
          map() {
            %v0 = load x[0, %d0, %d1, %d2]
            %v1 = negate(%v0) : f32
            store %v1 to y[0, %d0, %d1, %d2]
          }
        }>(%x) : (tensor<1x8x6x6xf32>) -> tensor<1x8x6x6xf32>
        func.return %r : tensor<1x8x6x6xf32>
      }
    }
  }
  flow.executable @insists {
    builtin.module {
      func.func @insists_entry(%x: tensor<1x8x6x6xf32>) -> tensor<1x8x6x6xf32> attributes {hr.wishes = {y = "0 2 3 1 strict"}} {
        %r = kernel.execute <kernel(%d0 = 8, %d1 = 6, %d2 = 6) {
          ro x : f32[1, 8, 6, 6]
          wo y : f32[1, 8, 6, 6]
          map() {
            %v0 = load x[0, %d0, %d1, %d2]
            %v1 = negate(%v0) : f32
            store %v1 to y[0, %d0, %d1, %d2]
          }
        }>(%x) : (tensor<1x8x6x6xf32>) -> tensor<1x8x6x6xf32>
        func.return %r : tensor<1x8x6x6xf32>
      }
    }
  }
  func.func @main(%x: tensor<1x8x6x6xf32>) -> (tensor<288xf32>, tensor<1x8x6x6xf32>) {
    %a = flow.dispatch @prefers::@prefers_entry[<["288"]>](%x) : (tensor<1x8x6x6xf32>) -> tensor<1x8x6x6xf32>
    %f = flow.tensor.reshape %a : (tensor<1x8x6x6xf32>) -> tensor<288xf32>
    %b = flow.dispatch @insists::@insists_entry[<["288"]>](%x) : (tensor<1x8x6x6xf32>) -> tensor<1x8x6x6xf32>
    func.return %f, %b : tensor<288xf32>, tensor<1x8x6x6xf32>
  }
}
// -----

// A symbolic strided window: its last place reaches at most its padding beyond, whatever
// the size, so the halo covers it.

// CHECK-LABEL: flow.executable @window {
// CHECK:             ro x : f32[h, 4] layout [1, h + 3] offset 1 size 4*h + 12 halo [1, 0] [2, 0] value 0.0
// CHECK:               %v0 = load x[2*%d0 + %r0 - 1, %d1]
// CHECK-NEXT:          fold
builtin.module {
  flow.executable @give {
    builtin.module {
      func.func @give_entry(%x: tensor<?x4xf32, #hr.dims<["h", ""]>>) -> tensor<?x4xf32, #hr.dims<["h", ""]>> {
        %r = kernel.execute <kernel(%d0 = h, %d1 = 4) dims(h) {
          ro x : f32[h, 4]
          wo y : f32[h, 4]
          map() {
            %v0 = load x[%d0, %d1]
            store %v0 to y[%d0, %d1]
          }
        }>(%x) : (tensor<?x4xf32, #hr.dims<["h", ""]>>) -> tensor<?x4xf32, #hr.dims<["h", ""]>>
        func.return %r : tensor<?x4xf32, #hr.dims<["h", ""]>>
      }
    }
  }
  flow.executable @window {
    builtin.module {
      func.func @window_entry(%x: tensor<?x4xf32, #hr.dims<["h", ""]>>) -> tensor<?x4xf32, #hr.dims<["(h - 1) floordiv 2 + 1", ""]>> attributes {hr.wishes = {x = "1 0 halo 1 0 / 2 0 = 0.0 strict"}} {
        %r = kernel.execute <kernel(%d0 = (h - 1) floordiv 2 + 1, %d1 = 4) dims(h) {
          ro x : f32[h, 4]
          wo y : f32[(h - 1) floordiv 2 + 1, 4]
          local a : f32
          reduce(%r0 = 3) {
            %v0 = load x[2*%d0 + %r0 - 1, %d1] bounded [0] otherwise 0.0
            fold %v0 from 0.0 with add into a
          }
          map() {
            %v0 = read a[]
            store %v0 to y[%d0, %d1]
          }
        }>(%x) : (tensor<?x4xf32, #hr.dims<["h", ""]>>) -> tensor<?x4xf32, #hr.dims<["(h - 1) floordiv 2 + 1", ""]>>
        func.return %r : tensor<?x4xf32, #hr.dims<["(h - 1) floordiv 2 + 1", ""]>>
      }
    }
  }
  func.func @main(%x: tensor<?x4xf32, #hr.dims<["h", ""]>>) -> tensor<?x4xf32, #hr.dims<["(h - 1) floordiv 2 + 1", ""]>> {
    %a = flow.dispatch @give::@give_entry[<["h"]>](%x) : (tensor<?x4xf32, #hr.dims<["h", ""]>>) -> tensor<?x4xf32, #hr.dims<["h", ""]>>
    %b = flow.dispatch @window::@window_entry[<["h"]>](%a) : (tensor<?x4xf32, #hr.dims<["h", ""]>>) -> tensor<?x4xf32, #hr.dims<["(h - 1) floordiv 2 + 1", ""]>>
    func.return %b : tensor<?x4xf32, #hr.dims<["(h - 1) floordiv 2 + 1", ""]>>
  }
}
