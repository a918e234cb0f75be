"""Kernels with loops, for the targets that take them (`Target.loop_points`)."""

from __future__ import annotations

from sample_kernels import Sample

RECURRENCE = """
kernel() dims(n) {
  ro constant w : f32[n, n]
  ro x : f32[20, n]
  rw h : f32[n]
  rw kept : f32[20, n]
  rw i : i32[]
  rw goes_on : i1[]
  local fold : f32[n]
  while goes_on at_most 64 likely 20 {
    reduce(%d0 = n, %r0 = n) {
      %v0 = load w[%r0, %d0]
      %v1 = load h[%r0]
      %v2 = multiply(%v0, %v1) : f32
      fold %v2 from 0.0 with add into fold
    }
    map(%d0 = n) {
      %v0 = read fold[%d0]
      %v1 = load i[]
      %v2 = load x[max(min(%v1, 19), 0), %d0]
      %v3 = add(%v0, %v2) : f32
      %v4 = tanh(%v3) : f32
      store %v4 to h[%d0]
    }
    map(%d0 = n) {
      %v0 = load i[]
      %v1 = load h[%d0]
      store %v1 to kept[max(min(%v0, 19), 0), %d0]
    }
    map() {
      %v0 = load i[]
      %v1 = constant 1 : i32
      %v2 = add(%v0, %v1) : i32
      %v3 = constant 20 : i32
      %v4 = compare LT(%v2, %v3) : i1
      store %v2 to i[]
      store %v4 to goes_on[]
    }
  }
}
"""

SWAP = """
kernel() {
  rw a : f16[5]
  rw b : f16[5]
  wo c : f16[5]
  rw n : ui8[]
  rw goes_on : i1[]
  while goes_on at_most 7 likely 7 {
    map(%d0 = 5) {
      %v0 = load a[%d0]
      %v1 = load b[%d0]
      %v2 = add(%v0, %v1) : f16
      %v3 = constant 0.5 : f16
      %v4 = multiply(%v2, %v3) : f16
      store %v4 to c[%d0]
    }
    map(%d0 = 5) {
      %v0 = load b[%d0]
      store %v0 to a[%d0]
    }
    map(%d0 = 5) {
      %v0 = load c[%d0]
      store %v0 to b[%d0]
    }
    map() {
      %v0 = load n[]
      %v1 = constant 3 : ui8
      %v2 = add(%v0, %v1) : ui8
      %v3 = constant 40 : ui8
      %v4 = compare LT(%v2, %v3) : i1
      store %v2 to n[]
      store %v4 to goes_on[]
    }
  }
}
"""

NESTED = """
kernel() {
  rw i : i64[]
  rw bins : i64[4]
  wo j : i64[]
  rw more : i1[]
  wo again : i1[]
  local sum : i64
  while more at_most 100 likely 10 {
    map() {
      %v0 = load i[]
      %v1 = constant true : i1
      store %v0 to j[]
      store %v1 to again[]
    }
    while again likely 5 {
      serial(%d0 = 3) {
        %v0 = load j[]
        %v1 = constant 3 : i64
        %v2 = and(%v0, %v1) : i64
        %v3 = load bins[%v2]
        %v4 = index [%d0] : i64
        %v5 = add(%v3, %v4) : i64
        store %v5 to bins[%v2] bounded [0]
      }
      map() {
        %v0 = load j[]
        %v1 = constant 1 : i64
        %v2 = subtract(%v0, %v1) : i64
        %v3 = constant 0 : i64
        %v4 = compare GT(%v2, %v3) : i1
        store %v2 to j[]
        store %v4 to again[]
      }
    }
    reduce(%r0 = 4) {
      %v0 = load bins[%r0]
      fold %v0 from 0 with add into sum
    }
    map() {
      %v0 = read sum[]
      %v1 = load i[]
      %v2 = constant 1 : i64
      %v3 = subtract(%v1, %v2) : i64
      %v4 = constant 500 : i64
      %v5 = compare LT(%v0, %v4) : i1
      %v6 = constant 0 : i64
      %v7 = compare GT(%v3, %v6) : i1
      %v8 = and(%v5, %v7) : i1
      store %v3 to i[]
      store %v8 to more[]
    }
  }
}
"""

_HOLDS = {"goes_on": (0.0, 1.0), "more": (0.0, 1.0)}

LOOPS: tuple[Sample, ...] = (
    Sample("recurrence", RECURRENCE, {"n": 37}, {"i": (0, 3), "w": (-0.2, 0.2), **_HOLDS}),
    Sample("recurrence_of_none", RECURRENCE, {"n": 0}, {"i": (0, 3), **_HOLDS}),
    Sample("recurrence_ended", RECURRENCE, {"n": 4}, {"i": (18, 20), **_HOLDS}),
    Sample("swap", SWAP, ranges={"n": (0, 30), **_HOLDS}),
    Sample("no_trips", SWAP, ranges={"goes_on": (0.0, 0.0)}),
    Sample("nested", NESTED, ranges={"i": (12, 13), **_HOLDS}),
)
