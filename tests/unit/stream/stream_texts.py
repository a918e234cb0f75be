"""Texts and helpers shared by the tests of stream, hal and what follows them."""

from __future__ import annotations

from collections.abc import Mapping
from io import StringIO
from typing import Any

import numpy as np
from xdsl.printer import Printer

from headrace.base.parameters import array_source
from headrace.ir.model import Model
from headrace.ir.passes import make_pass
from headrace.ir.text import parse_module
from headrace.ir.types import dtype_of, static_shape
from headrace.pipeline import context, run_pass
from headrace.tensor.dialect import ParameterOp

N4 = 'tensor<?x4xf32, #hr.dims<["n", ""]>>'

TWO_LAYERS = """
builtin.module {
  flow.executable @product {
    builtin.module {
      func.func @product_entry(%x: N4, %w: tensor<4x4xf32>) -> N4 {
        %r = kernel.execute <kernel(%d0 = n, %d1 = 4) dims(n) {
          ro x : f32[n, 4]
          ro constant w : f32[4, 4]
          wo y : f32[n, 4]
          local a : f32
          reduce(%r0 = 4) {
            %v0 = load x[%d0, %r0]
            %v1 = load w[%r0, %d1]
            %v2 = multiply(%v0, %v1) : f32
            fold %v2 from 0.0 with add into a
          }
          map() {
            %v0 = read a[]
            store %v0 to y[%d0, %d1]
          }
        }>(%x, %w) : (N4, tensor<4x4xf32>) -> N4
        func.return %r : N4
      }
    }
  }
  flow.executable @sum {
    builtin.module {
      func.func @sum_entry(%x: N4, %y: N4) -> N4 {
        %r = kernel.execute <kernel(%d0 = n, %d1 = 4) dims(n) {
          ro x : f32[n, 4]
          ro y : f32[n, 4]
          wo z : f32[n, 4]
          map() {
            %v0 = load x[%d0, %d1]
            %v1 = load y[%d0, %d1]
            %v2 = add(%v0, %v1) : f32
            store %v2 to z[%d0, %d1]
          }
        }>(%x, %y) : (N4, N4) -> N4
        func.return %r : N4
      }
    }
  }
  func.func @main(%x: N4 {hr.name = "x"}) -> (N4 {hr.name = "y"}, tensor<?xf32, #hr.dims<["4*n"]>> {hr.name = "flat"}, N4 {hr.name = "x_too"}) {
    %w = tensor.parameter @w : tensor<4x4xf32>
    %0 = flow.dispatch @product::@product_entry[<["n", "4", "1"]>](%x, %w) : (N4, tensor<4x4xf32>) -> N4
    %1 = flow.dispatch @product::@product_entry[<["n", "4", "1"]>](%0, %w) : (N4, tensor<4x4xf32>) -> N4
    %2 = flow.dispatch @sum::@sum_entry[<["n", "4", "1"]>](%0, %1) : (N4, N4) -> N4
    %3 = flow.dispatch @sum::@sum_entry[<["n", "4", "1"]>](%0, %2) : (N4, N4) -> N4
    %4 = flow.tensor.reshape %3 : (N4) -> tensor<?xf32, #hr.dims<["4*n"]>>
    func.return %3, %4, %x : N4, tensor<?xf32, #hr.dims<["4*n"]>>, N4
  }
}
""".replace("N4", N4)
"""x -> product -> product, a residual added twice; outputs that alias and pass through."""

STREAM_PASSES = (
    "stream-convert-from-flow",
    "stream-materialize-copies",
    "stream-elide-copies",
    "stream-emplace-results",
    "stream-pack-dispatch-operands",
)


def parsed(text: str) -> Model:
    """The model of a text; every parameter gets seeded random values."""
    model = Model(parse_module(text, "test.mlir", context()), {}, "test")
    random = np.random.default_rng(0)
    for op in model.ir.walk():
        if isinstance(op, ParameterOp):
            array = random.standard_normal(static_shape(op.result))
            kind = dtype_of(op.result).numpy_dtype
            name = op.parameter.root_reference.data
            model.parameters.setdefault(name, array_source(array.astype(kind)))
    return model


def passed(model: Model, *passes: str) -> Model:
    """The model after passes by name, verified by xDSL."""
    for name in passes:
        run_pass(make_pass(name), model)
    model.ir.verify()
    return model


def printed(model: Model, generic: bool = False) -> str:
    out = StringIO()
    Printer(out, print_generic_format=generic).print_op(model.ir)
    return out.getvalue()


def weight(model: Model, name: str) -> Any:
    source: Any = model.parameters[name]
    return source.array


def two_layers_reference(model: Model, x: Any) -> Mapping[str, Any]:
    w = weight(model, "w")
    first = x @ w
    y = first + (first + first @ w)
    return {"y": y, "flat": y.reshape(-1), "x_too": x}
