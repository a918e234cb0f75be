"""Products and convolutions in the layouts that the CPU target wishes for."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from tests.unit.targets.cpu.harness import GENERIC, NATIVE, Linked

from headrace.base.dtypes import BF16, F16, F32
from headrace.base.errors import HeadraceError
from headrace.base.symbols import as_expr, dim
from headrace.kernel.buffers import pack_operand, unpack_operand
from headrace.kernel.description import (
    Axis,
    Combiner,
    Compute,
    Constant,
    Kernel,
    Load,
    LoadLocal,
    Local,
    Operand,
    Phase,
    Reduction,
    Store,
    ordered_layout,
    panel_layout,
    transformed_shape,
)
from headrace.kernel.interp import evaluate
from headrace.kernel.target import LayoutWish
from headrace.kernel.text import parse_kernel

ADD = Combiner(("%l",), ("%r",), (Compute("%s", "add", ("%l", "%r"), F32),), ("%s",))


def operand(name, shape, access="ro", constant=False):
    sizes = tuple(as_expr(s) for s in shape)
    return Operand(name, F32, sizes, access, ordered_layout(sizes), constant)


def epilogue(outputs_index, bias_operand, bias_index, residual=None):
    body = [
        LoadLocal("%acc", "sum"),
        Load("%bias", bias_operand, bias_index),
        Compute("%b", "add", ("%acc", "%bias"), F32),
        Constant("%zero", F32, 0.0),
    ]
    value = "%b"
    if residual is not None:
        body += [
            Load("%res", residual, outputs_index),
            Compute("%c", "add", ("%b", "%res"), F32),
        ]
        value = "%c"
    body.append(Compute("%y", "maximum", (value, "%zero"), F32))
    return tuple(body)


def matmul(m, n, k, residual=False, dims=(), transposed=False):
    i, j, r = dim("%d0"), dim("%d1"), dim("%r0")
    operands = [
        operand("a", (m, k)),
        operand("w", (n, k) if transposed else (k, n), constant=not transposed),
        operand("bias", (n,), constant=True),
    ]
    if residual:
        operands.append(operand("res", (m, n)))
    operands.append(operand("y", (m, n), "wo"))
    out = len(operands) - 1
    body = (
        Load("%a", 0, (i, r)),
        Load("%w", 1, (j, r) if transposed else (r, j)),
        Compute("%p", "multiply", ("%a", "%w"), F32),
    )
    return Kernel(
        (Axis("%d0", as_expr(m)), Axis("%d1", as_expr(n))),
        tuple(operands),
        (Local("sum", F32),),
        (
            Phase(
                (), (Axis("%r0", as_expr(k)),), body, Reduction(("%p",), (0.0,), ADD, ("sum",))
            ),
            Phase(
                (),
                (),
                epilogue((i, j), 2, (j,), 3 if residual else None),
                stores=(Store("%y", out, (i, j)),),
            ),
        ),
        tuple(dims),
    )


def convolution(c, n, size, k, stride, residual=False, batch=1, first=0):
    """`first`: the image is a slice of one with so many channels before it."""
    pad = k // 2
    out = (size + 2 * pad - k) // stride + 1
    b, o, y, x = (dim(f"%d{i}") for i in range(4))
    ic, kh, kw = (dim(f"%r{i}") for i in range(3))
    operands = [
        operand("x", (batch, first + c, size, size)),
        operand("w", (n, c, k, k), constant=True),
        operand("bias", (n,), constant=True),
    ]
    if residual:
        operands.append(operand("res", (batch, n, out, out)))
    operands.append(operand("y", (batch, n, out, out), "wo"))
    index = (b, o, y, x)
    body = (
        Load(
            "%a",
            0,
            (b, ic + first, y * stride + kh - pad, x * stride + kw - pad),
            (2, 3) if pad else (),
            0.0 if pad else None,
        ),
        Load("%w", 1, (o, ic, kh, kw)),
        Compute("%p", "multiply", ("%a", "%w"), F32),
    )
    sizes = (c, k, k)
    return Kernel(
        tuple(Axis(f"%d{i}", as_expr(s)) for i, s in enumerate((batch, n, out, out))),
        tuple(operands),
        (Local("sum", F32),),
        (
            Phase(
                (),
                tuple(Axis(f"%r{i}", as_expr(s)) for i, s in enumerate(sizes)),
                body,
                Reduction(("%p",), (0.0,), ADD, ("sum",)),
            ),
            Phase(
                (),
                (),
                epilogue(index, 2, (o,), 3 if residual else None),
                stores=(Store("%y", len(operands) - 1, index),),
            ),
        ),
    )


def with_wishes(kernel: Kernel, target, output_halo: int = 0) -> Kernel:
    """What the layout pass does: grants every wish, drops the guards a halo covers."""
    wishes = target.layout_wishes(kernel)
    operands = list(kernel.operands)
    for number, wish in wishes.items():
        old = operands[number]
        operands[number] = replace(old, layout=granted(old.shape, wish))
    if output_halo:
        old = operands[-1]
        halo = (0, 0, output_halo, output_halo)
        order = wishes[len(operands) - 1].order
        layout = ordered_layout(old.shape, order, halo, halo, -1.5)
        operands[-1] = replace(old, layout=layout)
    phases = []
    for phase in kernel.phases:
        body = tuple(
            replace(i, bounded=(), otherwise=None)
            if isinstance(i, Load) and operands[i.operand].layout.has_halo
            else i
            for i in phase.body
        )
        phases.append(replace(phase, body=body))
    return replace(kernel, operands=tuple(operands), phases=tuple(phases))


def granted(shape, wish: LayoutWish):
    if wish.panel is not None:
        whole = transformed_shape(shape, wish.transform)
        return replace(panel_layout(whole, wish.order, *wish.panel), transform=wish.transform)
    return ordered_layout(
        shape, wish.order, wish.halo_low or None, wish.halo_high or None, wish.halo_value
    )


def run(kernel: Kernel, dims=None, target=NATIVE, parts=3, tolerance=2e-5):
    dims = dims or {}
    random = np.random.default_rng(0)
    arrays = [
        random.standard_normal([s.evaluate(dims) for s in o.shape]).astype(o.dtype.numpy_dtype)
        for o in kernel.operands
    ]
    buffers = [pack_operand(a, o, dims) for a, o in zip(arrays, kernel.operands, strict=True)]
    expected = [b.copy() for b in buffers]
    evaluate(kernel, expected, dims)
    found = [b.copy() for b in buffers]
    found[-1][...] = 7.0
    linked = Linked(kernel, target)
    linked(found, dims, parts=parts)
    wanted = unpack_operand(expected[-1], kernel.operands[-1], dims)
    got = unpack_operand(found[-1], kernel.operands[-1], dims)
    np.testing.assert_allclose(got, wanted, rtol=2e-5, atol=tolerance)
    if kernel.operands[-1].layout.has_halo:
        np.testing.assert_allclose(found[-1], expected[-1], rtol=2e-5, atol=tolerance)
    return linked.family(dims), found[-1]


@pytest.mark.parametrize("target", [NATIVE, GENERIC], ids=["v3", "generic"])
@pytest.mark.parametrize(
    ("m", "n", "k"),
    [
        (1, 10, 128),
        (1, 128, 784),
        (1, 100, 37),
        (3, 40, 20),
        (13, 33, 65),
        (49, 64, 64),
        (128, 48, 96),
    ],
)
def test_matmul(m, n, k, target):
    family, _ = run(with_wishes(matmul(m, n, k, residual=m == 13), target), target=target)
    assert family == "contract"


@pytest.mark.parametrize("rows", [1, 5, 6, 17])
def test_symbolic_rows_and_columns(rows):
    kernel = with_wishes(matmul("m", 24, 40, dims=("m",)), NATIVE)
    assert run(kernel, {"m": rows})[0] == "contract"
    kernel = with_wishes(matmul("m", "n", 40, dims=("m", "n"), transposed=True), NATIVE)
    assert run(kernel, {"m": rows, "n": 2 * rows + 1})[0] == "contract"


@pytest.mark.parametrize(
    ("c", "n", "size", "k", "stride", "residual"),
    [
        (3, 16, 13, 7, 2, False),
        (8, 24, 9, 3, 1, True),
        (8, 20, 10, 3, 2, False),
        (32, 16, 7, 1, 1, True),
        (16, 16, 8, 1, 2, False),
    ],
)
def test_convolution(c, n, size, k, stride, residual):
    kernel = with_wishes(convolution(c, n, size, k, stride, residual, batch=2), NATIVE)
    assert run(kernel)[0] in ("convolution", "contract")


def test_convolution_writes_its_halo():
    kernel = with_wishes(convolution(8, 16, 9, 3, 1), NATIVE, output_halo=2)
    assert run(kernel)[0] == "convolution"


def test_bits_do_not_depend_on_how_tiles_are_shared():
    kernel = with_wishes(matmul(50, 70, 64), NATIVE)
    one, many = (run(kernel, parts=p)[1] for p in (1, 7))
    assert one.tobytes() == many.tobytes()


@pytest.mark.parametrize("target", [NATIVE, GENERIC])
@pytest.mark.parametrize(
    ("m", "n", "k"), [(13, 24, 512), (169, 1000, 512), (1, 40, 784), (4, 23, 300)]
)
def test_bits_do_not_depend_on_where_an_element_stands(m, n, k, target):
    """Equal rows by equal columns: whole tiles and the rest of one round alike."""
    kernel = with_wishes(matmul(m, n, k), target)
    a, w = np.random.default_rng(2).standard_normal((2, k)).astype(np.float32)
    arrays = [np.tile(a, (m, 1)), np.tile(w[:, None], (1, n)), np.full(n, 50, np.float32)]
    arrays.append(np.empty((m, n), np.float32))
    buffers = [pack_operand(x, o, {}) for x, o in zip(arrays, kernel.operands, strict=True)]
    Linked(kernel, target)(buffers, {}, parts=3)
    found = unpack_operand(buffers[-1], kernel.operands[-1], {})
    assert len(np.unique(found)) == 1


def test_weight_may_be_cut_along_its_panels():
    kernel = with_wishes(matmul(1, 512, 256), NATIVE)
    (specialisation,) = NATIVE.translate("k", kernel).specialisations
    (launch,) = specialisation.launches
    rule = launch.slice
    assert rule is not None and rule.axis == 1 and rule.binding == 1
    columns = launch.workgroups[1].value
    assert rule.step_bytes.value * columns >= 512 * 256 * 4


def test_large_slices_end_with_a_page_of_two_mib() -> None:
    """GPT-2's logits: 131 of 3,142 panels of 48 KiB would be 3.07 pages."""
    kernel = with_wishes(matmul(1, 50257, 768), NATIVE)
    (specialisation,) = NATIVE.translate("k", kernel).specialisations
    (launch,) = specialisation.launches
    assert launch.slice is not None
    assert launch.slice.step_bytes.value == 6 << 20


@pytest.mark.parametrize(
    ("c", "n", "size", "k", "stride"),
    [(128, 40, 5, 3, 1), (116, 20, 7, 3, 2), (1028, 33, 5, 1, 1), (200, 16, 6, 3, 1)],
)
def test_long_sums_are_cut_and_wait_in_scratch(c, n, size, k, stride):
    kernel = with_wishes(convolution(c, n, size, k, stride, residual=n == 40, batch=2), NATIVE)
    (launch,) = NATIVE.translate("k", kernel).specialisations[0].launches
    assert 0 < launch.scratch_bytes.value <= 64 << 10
    one, many = (run(kernel, parts=p, tolerance=2e-4)[1] for p in (1, 5))
    assert one.tobytes() == many.tobytes()


@pytest.mark.parametrize("target", [NATIVE, GENERIC], ids=["v3", "generic"])
@pytest.mark.parametrize(
    ("c", "n", "size", "residual", "batch", "halo"),
    [
        (32, 48, 14, False, 1, 0),
        (40, 32, 16, True, 2, 0),
        (64, 32, 18, False, 1, 1),
        (32, 32, 9, True, 2, 0),
        (32, 32, 15, False, 1, 1),
        (520, 32, 14, False, 1, 0),
    ],
)
def test_winograd(c, n, size, residual, batch, halo, target):
    kernel = convolution(c, n, size, 3, 1, residual, batch)
    kernel = with_wishes(kernel, target, output_halo=halo)
    family, one = run(kernel, target=target, tolerance=2e-4)
    assert family == "winograd"
    assert one.tobytes() == run(kernel, target=target, parts=7, tolerance=2e-4)[1].tobytes()


@pytest.mark.parametrize("size", [14, 11])
def test_winograd_without_a_halo_and_channels_first(size):
    kernel = convolution(32, 32, size, 3, 1)
    weight = NATIVE.layout_wishes(kernel)[1]
    operands = list(kernel.operands)
    operands[1] = replace(operands[1], layout=granted(operands[1].shape, weight))
    family, _ = run(replace(kernel, operands=tuple(operands)), tolerance=2e-4)
    assert family == "winograd"


@pytest.mark.parametrize("size", [7, 14])
def test_convolution_of_some_channels(size):
    kernel = with_wishes(convolution(32, 32, size, 3, 1, first=19), NATIVE)
    family, _ = run(kernel, tolerance=2e-4)
    assert family == ("convolution" if size == 7 else "winograd")


def test_winograd_only_where_it_pays():
    for kernel in (
        convolution(64, 64, 7, 3, 1),  # few pixels
        convolution(512, 512, 13, 3, 1),  # many weights, few pixels
        convolution(16, 64, 56, 3, 1),  # few channels
        convolution(64, 64, 28, 3, 2),
    ):
        assert NATIVE.layout_wishes(kernel)[1].transform == ""


def test_winograd_weights_in_a_kernel_that_is_none():
    kernel = with_wishes(convolution(32, 32, 14, 3, 1), NATIVE)
    first = kernel.phases[0]
    wrong = replace(first, reduction=replace(first.reduction, initial=(1.0,)))
    with pytest.raises(HeadraceError, match="HR9434"):
        NATIVE.translate("k", replace(kernel, phases=(wrong, *kernel.phases[1:])))


SCORES = """
kernel(%d0 = b, %d1 = 3, %d2 = s, %d3 = t) dims(b, s, t) {
  ro q : f32[b, s, 3, 24]
  ro k : f32[b, t, 3, 24]
  ro m : f32[b, t]
  wo y : f32[b, 3, s, t]
  local a : f32
  reduce(%r0 = 24) {
    %v0 = load q[%d0, %d2, %d1, %r0]
    %v1 = load k[%d0, %d3, %d1, %r0]
    %v2 = multiply(%v0, %v1) : f32
    fold %v2 from 0.0 with add into a
  }
  map() {
    %v3 = read a[]
    %v4 = load m[%d0, %d3]
    %v5 = add(%v3, %v4) : f32
    store %v5 to y[%d0, %d1, %d2, %d3]
  }
}
"""


@pytest.mark.parametrize("target", [NATIVE, GENERIC], ids=["v3", "generic"])
@pytest.mark.parametrize(("s", "t"), [(1, 1), (7, 33), (13, 300), (64, 16)])
def test_scores_of_attention(s, t, target):
    """The keys of a workgroup are laid out anew: their columns stand apart."""
    kernel = parse_kernel(SCORES)
    family, one = run(kernel, {"b": 2, "s": s, "t": t}, target)
    assert family == "contract"
    assert one.tobytes() == run(kernel, {"b": 2, "s": s, "t": t}, target, 1)[1].tobytes()


def narrowed(kernel: Kernel, numbers, dtype):
    """The kernel with some operands of the product in a narrow type, widened when loaded."""
    operands = list(kernel.operands)
    for number in numbers:
        operands[number] = replace(operands[number], dtype=dtype)
    *loads, multiply = kernel.phases[0].body
    body, names = list(loads), []
    for load in loads:
        names.append(load.result + "w" if load.operand in numbers else load.result)
        if load.operand in numbers:
            body.append(Compute(names[-1], "convert", (load.result,), F32))
    body.append(replace(multiply, operands=tuple(names)))
    first = replace(kernel.phases[0], body=tuple(body))
    return replace(kernel, operands=tuple(operands), phases=(first, *kernel.phases[1:]))


@pytest.mark.parametrize(
    ("numbers", "dtype", "target"),
    [
        ((1,), F16, NATIVE),
        ((0, 1), F16, NATIVE),
        ((0, 1), BF16, NATIVE),
        ((0, 1), F16, GENERIC),
    ],
)
def test_narrow_operands(numbers, dtype, target):
    for kernel in (
        matmul(13, 33, 64),
        matmul(1, 48, 40),
        matmul(5, 20, 37),
        matmul(18, 16, 1028),
        convolution(8, 24, 9, 3, 1, True),
        convolution(64, 24, 14, 3, 1),
    ):
        kernel = with_wishes(narrowed(kernel, numbers, dtype), target)
        family, one = run(kernel, target=target, tolerance=2e-4)
        assert family in ("contract", "convolution")
        assert one.tobytes() == run(kernel, target=target, parts=1, tolerance=2e-4)[1].tobytes()


def test_narrow_scores_of_attention():
    kernel = narrowed(parse_kernel(SCORES), (0, 1), F16)
    assert run(kernel, {"b": 2, "s": 13, "t": 33})[0] == "contract"
