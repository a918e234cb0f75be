"""Kernels that several tests share."""

from __future__ import annotations

SOFTMAX = """
kernel(%d0 = batch) dims(batch) {
  ro x : f32[batch, 10]
  wo y : f32[batch, 10]
  local m : f32
  local s : f32
  reduce(%r0 = 10) {
    %v0 = load x[%d0, %r0]
    fold %v0 from -inf with maximum into m
  }
  reduce(%r0 = 10) {
    %v1 = load x[%d0, %r0]
    %v2 = read m[]
    %v3 = subtract(%v1, %v2) : f32
    %v4 = exponential(%v3) : f32
    fold %v4 from 0.5 with add into s
  }
  map(%d1 = 10) {
    %v5 = load x[%d0, %d1]
    %v6 = read m[]
    %v7 = subtract(%v5, %v6) : f32
    %v8 = exponential(%v7) : f32
    %v9 = read s[]
    %v10 = divide(%v8, %v9) : f32
    store %v10 to y[%d0, %d1]
  }
}
"""

CONVOLUTION = """
kernel(%d0 = 2, %d1 = 4, %d2 = 5, %d3 = 6) {
  ro x : f32[2, 3, 10, 12]
  ro constant w : f32[4, 3, 3, 3]
  ro constant b : f32[4]
  wo y : f32[2, 4, 5, 6]
  local a : f32
  reduce(%r0 = 3, %r1 = 3, %r2 = 3) {
    %v0 = load x[%d0, %r0, 2*%d2 + %r1 - 1, 2*%d3 + %r2 - 1] bounded [2, 3] otherwise 0.0
    %v1 = load w[%d1, %r0, %r1, %r2]
    %v2 = multiply(%v0, %v1) : f32
    fold %v2 from 0.0 with add into a
  }
  map() {
    %v3 = read a[]
    %v4 = load b[%d1]
    %v5 = add(%v3, %v4) : f32
    %v6 = constant 0.0 : f32
    %v7 = maximum(%v5, %v6) : f32
    store %v7 to y[%d0, %d1, %d2, %d3]
  }
}
"""

ARGMAX = """
kernel(%d0 = 3) {
  ro x : f32[3, 7]
  wo y : i32[3]
  local m : f32
  local i : i32
  reduce(%r0 = 7) {
    %v0 = load x[%d0, %r0]
    %v1 = index [%r0] : i32
    fold %v0, %v1 from -inf, 0 with (%a0, %a1) (%b0, %b1) {
      %c0 = compare GE(%a0, %b0) : i1
      %c1 = select(%c0, %a0, %b0) : f32
      %c2 = select(%c0, %a1, %b1) : i32
    } giving %c1, %c2 into m, i
  }
  map() {
    %v2 = read i[]
    store %v2 to y[%d0]
  }
}
"""

GATHER = """
kernel(%d0 = seq, %d1 = 8) dims(seq) {
  ro ids : i64[seq]
  ro constant table : f32[20, 8]
  wo y : f32[seq, 8]
  map() {
    %v0 = load ids[%d0]
    %v1 = load table[max(min(%v0, 19), 0), %d1]
    store %v1 to y[%d0, %d1]
  }
}
"""

VARIANCE = """
kernel(%d0 = 4) {
  ro x : f32[4, 6]
  wo y : f32[4, 6]
  local s : f32
  local c : f32[6]
  local q : f32
  reduce(%r0 = 6) {
    %v0 = load x[%d0, %r0]
    fold %v0 from 0.0 with add into s
  }
  map(%d1 = 6) {
    %v1 = load x[%d0, %d1]
    %v2 = read s[]
    %v3 = constant 6.0 : f32
    %v4 = divide(%v2, %v3) : f32
    %v5 = subtract(%v1, %v4) : f32
    set c[%d1] = %v5
  }
  reduce(%r0 = 6) {
    %v6 = read c[%r0]
    %v7 = multiply(%v6, %v6) : f32
    fold %v7 from 0.0 with add into q
  }
  map(%d1 = 6) {
    %v8 = read c[%d1]
    %v9 = read q[]
    %v10 = constant 6.0 : f32
    %v11 = divide(%v9, %v10) : f32
    %v12 = sqrt(%v11) : f32
    %v13 = divide(%v8, %v12) : f32
    store %v13 to y[%d0, %d1]
  }
}
"""

PADDED = """
kernel(%d0 = 2, %d1 = 3) {
  ro x : f32[2, 3] layout [1, 2] offset 0 size 6
  wo y : f32[2, 3] layout [6, 1] offset 7 size 24 halo [1, 1] [1, 2] value -inf
  map() {
    %v0 = load x[%d0, %d1]
    store %v0 to y[%d0, %d1]
  }
}
"""

# Rows of w are folded by x, again and again: h = tanh(x w + h), n times; n counts down.
LOOP = """
kernel() {
  ro w : f32[3, 5]
  rw h : f32[5]
  rw n : i32[]
  rw goes_on : i1[]
  local fold : f32[5]
  while goes_on at_most 4 likely 4 {
    reduce(%d0 = 5, %r0 = 3) {
      %v0 = load w[%r0, %d0]
      %v1 = load h[%r0]
      %v2 = multiply(%v0, %v1) : f32
      fold %v2 from 0.0 with add into fold
    }
    map(%d0 = 5) {
      %v0 = read fold[%d0]
      %v1 = load h[%d0]
      %v2 = add(%v0, %v1) : f32
      %v3 = tanh(%v2) : f32
      store %v3 to h[%d0]
    }
    map() {
      %v0 = load n[]
      %v1 = constant 1 : i32
      %v2 = subtract(%v0, %v1) : i32
      %v3 = constant 0 : i32
      %v4 = compare GT(%v2, %v3) : i1
      store %v2 to n[]
      store %v4 to goes_on[]
    }
  }
}
"""

# How often 2 goes into each of the numbers i .. 1 in turn, summed.
NESTED = """
kernel() {
  rw i : i64[]
  rw total : i64[]
  wo rest : i64[]
  rw more : i1[]
  wo even : i1[]
  while more at_most 100 likely 10 {
    map() {
      %v0 = load i[]
      store %v0 to rest[]
    }
    map() {
      %v0 = load rest[]
      %v1 = constant 1 : i64
      %v2 = and(%v0, %v1) : i64
      %v3 = constant 0 : i64
      %v4 = compare EQ(%v2, %v3) : i1
      store %v4 to even[]
    }
    while even likely 2 {
      map() {
        %v0 = load rest[]
        %v1 = constant 1 : i64
        %v2 = shift_right_arithmetic(%v0, %v1) : i64
        %v3 = load total[]
        %v4 = add(%v3, %v1) : i64
        %v5 = and(%v2, %v1) : i64
        %v6 = constant 0 : i64
        %v7 = compare EQ(%v5, %v6) : i1
        store %v2 to rest[]
        store %v4 to total[]
        store %v7 to even[]
      }
    }
    map() {
      %v0 = load i[]
      %v1 = constant 1 : i64
      %v2 = subtract(%v0, %v1) : i64
      %v3 = constant 0 : i64
      %v4 = compare GT(%v2, %v3) : i1
      store %v2 to i[]
      store %v4 to more[]
    }
  }
}
"""

ALL = {
    "loop": LOOP,
    "nested": NESTED,
    "softmax": SOFTMAX,
    "convolution": CONVOLUTION,
    "argmax": ARGMAX,
    "gather": GATHER,
    "variance": VARIANCE,
    "padded": PADDED,
}
