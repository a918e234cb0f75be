"""`com.microsoft`: operators that optimisers make of several of ONNX's.

Definitions: onnxruntime's docs/ContribOperators.md .
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from xdsl.ir import SSAValue

from headrace.base.dtypes import F32, I32, I64
from headrace.base.symbols import Expr
from headrace.importers.onnx.context import NodeContext
from headrace.importers.onnx.ops.activation import gelu_of, hard_sigmoid_of
from headrace.importers.onnx.ops.contraction import gemm_values, matmul_values
from headrace.importers.onnx.ops.convolution import convolved, with_bias
from headrace.importers.onnx.ops.normalization import normalised
from headrace.importers.onnx.ops.quantization import rankless
from headrace.importers.onnx.registry import onnx_op
from headrace.ir.types import dtype_of, shape_of

DOMAIN = "com.microsoft"

# -- products -------------------------------------------------------------------------------


def _turned(c: NodeContext, x: SSAValue, last: bool, batch: bool) -> SSAValue:
    """`batch` moves the first dimension behind the others but the last; then `last` swaps two."""
    order = list(range(len(shape_of(x))))
    if batch and len(order) > 2:
        order = [*order[1:-1], 0, order[-1]]
    if last and len(order) > 1:
        order[-2:] = [order[-1], order[-2]]
    return c.build.transpose(x, order)


@onnx_op("FusedMatMul", "TransposeMatMul", domain=DOMAIN)
def fused_matmul(c: NodeContext) -> SSAValue:
    """alpha * A' * B'."""
    left = _turned(c, c.data(0), c.flag("transA"), c.flag("transBatchA"))
    right = _turned(c, c.data(1), c.flag("transB"), c.flag("transBatchB"))
    made = matmul_values(c, left, right)
    alpha = c.float("alpha", 1.0)
    return made if alpha == 1.0 else c.with_scalar("multiply", made, alpha)


# -- activations ----------------------------------------------------------------------------


def activated(c: NodeContext, x: SSAValue, settings: Sequence[float]) -> SSAValue:
    """By the attribute `activation`, whose numbers are `settings`; none leaves x."""
    name, b = c.string("activation"), c.build
    if name in ("", "None"):
        return x
    if name == "Relu":
        return b.binary("maximum", x, c.scalar_like(0, x))
    if name in ("Tanh", "Sigmoid"):
        return b.unary("tanh" if name == "Tanh" else "logistic", x)
    if name == "LeakyRelu":
        slope = settings[0] if settings else 0.01
        low = b.compare("LT", x, c.scalar_like(0, x))
        return b.select(low, c.with_scalar("multiply", x, slope), x)
    if name not in ("Clip", "HardSigmoid"):
        raise c.unsupported(f"activation '{name}'")
    if len(settings) != 2:
        raise c.malformed(f"activation '{name}' has two settings")
    if name == "HardSigmoid":
        return hard_sigmoid_of(c, x, settings[0], settings[1])
    return b.clamp(c.scalar_like(settings[0], x), x, c.scalar_like(settings[1], x))


@onnx_op("FusedConv", domain=DOMAIN)
def fused_conv(c: NodeContext) -> SSAValue:
    """A convolution, plus a tensor of the result's shape, activated."""
    made = with_bias(c, convolved(c, c.data(0), c.data(1)))
    if c.has(3):
        made = c.binary("add", made, c.data(3))
    return activated(c, made, c.floats("activation_params") or [])


@onnx_op("FusedGemm", domain=DOMAIN)
def fused_gemm(c: NodeContext) -> SSAValue:
    names = [f"activation_{n}" for n in ("alpha", "beta", "gamma")]
    return activated(c, gemm_values(c), [c.float(n) for n in names if c.has_attribute(n)])


@onnx_op("NhwcConv", domain=DOMAIN)
def channels_last_conv(c: NodeContext) -> SSAValue:
    """A convolution of images whose channels are last; so are those of the kernel."""
    b, rank = c.build, c.rank(0)
    first = (0, rank - 1, *range(1, rank - 1))
    made = convolved(c, b.transpose(c.data(0), first), b.transpose(c.data(1), first))
    return b.transpose(with_bias(c, made), (0, *range(2, rank), 1))


def _in_f32(c: NodeContext, x: SSAValue, of: Callable[[SSAValue], SSAValue]) -> SSAValue:
    """Computes in f32 what is narrower."""
    kind = dtype_of(x)
    narrow = kind.is_float and kind.bits < 32
    return c.build.convert(of(c.build.convert(x, F32) if narrow else x), kind)


@onnx_op("Gelu", "BiasGelu", "FastGelu", domain=DOMAIN)
def biased_gelu(c: NodeContext) -> SSAValue:
    """Of x + bias; FastGelu is the approximation by tanh."""
    x = c.binary("add", c.data(0), c.data(1)) if c.has(1) else c.data(0)
    return _in_f32(c, x, lambda wide: gelu_of(c, wide, c.node.op_type == "FastGelu"))


@onnx_op("QuickGelu", domain=DOMAIN)
def quick_gelu(c: NodeContext) -> SSAValue:
    b, alpha = c.build, c.float("alpha", 1.702)

    def of(x: SSAValue) -> SSAValue:
        bent = b.unary("logistic", c.with_scalar("multiply", x, alpha))
        return b.binary("multiply", x, bent)

    return _in_f32(c, c.data(0), of)


# -- normalisations -------------------------------------------------------------------------


def _scaled(c: NodeContext, x: SSAValue, gamma: SSAValue, beta: SSAValue | None) -> SSAValue:
    """x * gamma + beta, which belong to the last dimension."""
    x = c.binary("multiply", x, c.build.convert(gamma, dtype_of(x)))
    return x if beta is None else c.binary("add", x, c.build.convert(beta, dtype_of(x)))


def _layer_normalised(
    c: NodeContext, total: SSAValue, gamma: SSAValue, beta: SSAValue | None
) -> list[SSAValue]:
    """The layer normalisation of the last dimension, the mean and 1 / deviation, in f32."""
    b, kind = c.build, dtype_of(total)
    wide = b.convert(total, F32) if kind.bits < 32 else total
    axes = [len(shape_of(total)) - 1]
    epsilon = c.float("epsilon", 1e-12)
    made, mean, deviation = normalised(c, wide, axes, epsilon)
    inverse = b.binary("divide", c.scalar_like(1, deviation), deviation)
    return [b.convert(_scaled(c, made, gamma, beta), kind), mean, inverse]


def _root_normalised(c: NodeContext, total: SSAValue, gamma: SSAValue) -> list[SSAValue]:
    """x over the root of its mean square; the mean and 1 / root, in f32."""
    b, kind = c.build, dtype_of(total)
    wide = b.convert(total, F32) if kind.bits < 32 else total
    axes = [len(shape_of(total)) - 1]
    square = c.mean(b.binary("multiply", wide, wide), axes, keep=True)
    root = b.unary("sqrt", c.with_scalar("add", square, c.float("epsilon", 1e-12)))
    made = b.binary("divide", wide, b.broadcast_to(root, shape_of(wide)))
    inverse = b.binary("divide", c.scalar_like(1, root), root)
    mean = c.mean(wide, axes, keep=True)
    return [b.convert(_scaled(c, made, gamma, None), kind), mean, inverse]


@onnx_op("SkipLayerNormalization", "SkipSimplifiedLayerNormalization", domain=DOMAIN)
def skip_layer_normalization(c: NodeContext) -> list[SSAValue]:
    """Of the sum of input, skip and bias, which is the last output."""
    simple = c.node.op_type == "SkipSimplifiedLayerNormalization"
    bias = 3 if simple else 4
    total = c.binary("add", c.data(0), c.data(1))
    if c.has(bias):
        total = c.binary("add", total, c.data(bias))
    if simple:
        return [*_root_normalised(c, total, c.data(2)), total]
    beta = c.data(3) if c.has(3) else None
    return [*_layer_normalised(c, total, c.data(2), beta), total]


@onnx_op("EmbedLayerNormalization", domain=DOMAIN)
def embed_layer_normalization(c: NodeContext) -> list[SSAValue]:
    """The normalised sum of a word's, a place's and a segment's row; the mask's lengths."""
    b, shape = c.build, c.shape(0)
    places = c.data(8) if c.has(8) else b.iota(I64, (1, shape[1]), 1)
    total = _embedded(c, places, lambda table, at: b.take(c.data(table), at, 0))
    made = _layer_normalised(c, total, c.data(5), c.data(6) if c.has(6) else None)[0]
    return [made, _lengths(c, shape[0]), total]


@onnx_op("QEmbedLayerNormalization", domain=DOMAIN)
def quantised_embed_layer_normalization(c: NodeContext) -> list[SSAValue]:
    """As `EmbedLayerNormalization`; tables, scale and shift are numbers of 8 bits.

    Their scales are inputs 8 to 12, their zero points 13 to 17. Only rows taken become floats.
    """
    b = c.build

    def floats(x: SSAValue, index: int) -> SSAValue:
        zero = rankless(c, b.convert(c.data(index + 11), I32))
        wide = c.binary("subtract", b.convert(x, I32), zero)
        return c.binary("multiply", b.convert(wide, F32), rankless(c, c.data(index + 6)))

    places = b.iota(I64, (1, c.shape(0)[1]), 1)
    total = _embedded(c, places, lambda table, at: floats(b.take(c.data(table), at, 0), table))
    gamma, beta = floats(c.data(5), 5), floats(c.data(6), 6)
    made = _layer_normalised(c, total, gamma, beta)[0]
    return [made, _lengths(c, c.shape(0)[0])]


def _embedded(
    c: NodeContext, places: SSAValue, rows: Callable[[int, SSAValue], SSAValue]
) -> SSAValue:
    """The sum of what `rows` takes of the tables: words (input 2), places, segments."""
    b, total = c.build, rows(2, c.data(0))
    total = b.binary("add", total, c.broadcast(total, rows(3, places))[1])
    if c.has(1) and c.has(4):
        total = b.binary("add", total, rows(4, c.data(1)))
    return total


def _lengths(c: NodeContext, batch: Expr) -> SSAValue:
    """How many places the mask, input 7, holds a 1 at; 0 where there is none."""
    b = c.build
    if not c.has(7):
        return b.splat(0, I32, (batch,))
    mask = c.data(7)
    one = b.convert(b.compare("EQ", mask, c.scalar_like(1, mask)), I32)
    return c.reduce(one, 0, [1], "add")
