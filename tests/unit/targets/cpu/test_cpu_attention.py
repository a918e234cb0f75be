"""Attention in one dispatch, on the CPU: shapes, layouts and types against the interpreter."""

from __future__ import annotations

import numpy as np
import pytest
from harness import GENERIC, NATIVE, Linked, copied
from sample_kernels import Sample, assert_close

TEXT = """
kernel(%d0 = 2, %d1 = {heads}, %d2 = {rows}) {dims} {{
  ro q : f32[2, {rows}, {heads}, {depth}]
  ro k : {narrow}[2, {keys}, {heads}, {depth}] {key_layout}
  ro v : {narrow}[2, {keys}, {heads}, {width}]
  ro mask : i1[{rows}, {keys}]
  wo y : f32[2, {rows}, {heads}, {width}]
  local scores : f32[{keys}]
  local masked : f32[{keys}]
  local most : f32
  local total : f32
  local weights : f32[{keys}]
  local mixed : f32[{width}]
  reduce(%d3 = {keys}, %r0 = {depth}) {{
    %v0 = load q[%d0, %d2, %d1, %r0]
    %v1 = load k[%d0, %d3, %d1, %r0]
    {widen_key}
    %v3 = multiply(%v0, %v2) : f32
    fold %v3 from 0.0 with add into scores
  }}
  map(%d3 = {keys}) {{
    %v4 = load mask[%d2, %d3]
    %v5 = read scores[%d3]
    %v6 = constant 0.125 : f32
    %v7 = multiply(%v5, %v6) : f32
    %v8 = constant -1e30 : f32
    %v9 = select(%v4, %v7, %v8) : f32
    set masked[%d3] = %v9
  }}
  reduce(%r0 = {keys}) {{
    %v10 = read masked[%r0]
    fold %v10 from -inf with maximum into most
  }}
  reduce(%r0 = {keys}) {{
    %v11 = read masked[%r0]
    %v12 = read most[]
    %v13 = subtract(%v11, %v12) : f32
    %v14 = exponential(%v13) : f32
    fold %v14 from {start} with add into total
  }}
  map(%d3 = {keys}) {{
    %v15 = read masked[%d3]
    %v16 = read most[]
    %v17 = subtract(%v15, %v16) : f32
    %v18 = exponential(%v17) : f32
    %v19 = read total[]
    %v20 = divide(%v18, %v19) : f32
    set weights[%d3] = %v20
  }}
  reduce(%d3 = {width}, %r0 = {keys}) {{
    %v21 = read weights[%r0]
    %v22 = load v[%d0, %r0, %d1, %d3]
    {widen_value}
    %v24 = multiply(%v21, %v23) : f32
    fold %v24 from 0.0 with add into mixed
  }}
  map(%d3 = {width}) {{
    %v25 = read mixed[%d3]
    store %v25 to y[%d0, %d2, %d1, %d3]
  }}
}}
"""


def sample(rows, keys, depth=16, width=16, heads=3, narrow="f32", transposed=False, start=0.0):
    dims = {n: 21 for n in (rows, keys) if isinstance(n, str)}
    layout = ""
    if transposed:  # [batch, head, depth, key], as caches stand
        strides = [heads * keys * depth, 1, keys * depth, keys]
        layout = f"layout {strides} offset 0 size {2 * heads * keys * depth}"
    convert = "%v{} = {}(%v{}) : f32".format
    text = TEXT.format(
        rows=rows,
        keys=keys,
        depth=depth,
        width=width,
        heads=heads,
        narrow=narrow,
        start=start,
        key_layout=layout,
        dims=f"dims({', '.join(sorted(dims))})" if dims else "",
        widen_key=convert(2, "convert", 1),
        widen_value=convert(23, "convert", 22),
    )
    return Sample(f"attention {rows} {keys} {depth} {width} {narrow}", text, dims)


CASES = {
    "whole tiles": sample(12, 32),
    "rests everywhere": sample(17, 21, depth=24, width=20),
    "narrow head of odd depth": sample(9, 16, depth=5, width=3),
    "symbolic": sample("rows", "keys", depth=32, width=32),
    "symbolic keys, known rows": sample(13, "keys"),
    "one row": sample(1, 37, depth=32, width=32),
    "few rows": sample(3, 20, width=48),
    "few rows, odd width": sample(2, 20, width=10),
    "half keys and values": sample(14, 19, depth=24, narrow="f16"),
    "bfloat16, one row": sample(1, 19, depth=24, narrow="bf16"),
    "keys transposed": sample(14, 19, transposed=True),
    "one row, keys transposed": sample(1, 19, transposed=True),
    "blocks of rows": sample(200, 18, heads=1),
    "a sum that starts at 0.5": sample(8, 16, start=0.5),
}


@pytest.mark.parametrize("machine", ["v3", "generic"])
@pytest.mark.parametrize("case", CASES)
def test_matches_the_interpreter(case: str, machine: str) -> None:
    made = CASES[case]
    linked = Linked(made.kernel, NATIVE if machine == "v3" else GENERIC)
    assert linked.family(made.dims) == "attention"
    inputs = made.buffers()
    buffers = copied(inputs)
    linked(buffers, made.dims, parts=3)
    assert_close(made, buffers, made.expected(inputs))


def test_the_bits_do_not_depend_on_who_computes_a_tile() -> None:
    made = CASES["blocks of rows"]
    linked = Linked(made.kernel)
    inputs = made.buffers()
    results = []
    for parts in (1, 2, 5):
        buffers = copied(inputs)
        linked(buffers, made.dims, parts=parts)
        results.append(buffers[-1].tobytes())
    assert len(set(results)) == 1


def test_masked_scores_weigh_nothing() -> None:
    """Keys behind the mask may hold anything finite: the result has the same bits."""
    made = CASES["whole tiles"]
    linked = Linked(made.kernel)
    first = made.buffers()
    first[3][:] = (np.arange(32) < 20)[None].repeat(12, 0).reshape(-1)
    second = copied(first)
    shaped = second[2].reshape(2, 32, 3, 16)
    shaped[:, 20:] = 100.0
    for buffers in (first, second):
        linked(buffers, made.dims)
    np.testing.assert_array_equal(first[-1], second[-1])
