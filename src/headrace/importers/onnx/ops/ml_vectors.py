"""Classifiers by support vectors of `ai.onnx.ml`."""

from __future__ import annotations

from itertools import combinations

from xdsl.ir import SSAValue

from headrace.base.dtypes import F32
from headrace.importers.onnx.context import NodeContext
from headrace.importers.onnx.ops.ml_linear import kernel_values, product_with, rows_of
from headrace.importers.onnx.ops.ml_scores import (
    best_labels,
    integer_labels,
    matrix_input,
    post_transform,
    table,
    transformed,
    two_columns,
)
from headrace.importers.onnx.registry import onnx_op
from headrace.ir.types import shape_of


@onnx_op("SVMClassifier", domain="ai.onnx.ml")
def svm_classifier(c: NodeContext) -> list[SSAValue]:
    """Each pair of classes has a score and a vote; most votes win, the first of equals."""
    import numpy as np

    b = c.build
    labels = integer_labels(c, "classlabels_ints", "classlabels_strings")
    counts = c.ints("vectors_per_class") or []
    classes = len(labels)
    if c.floats("prob_a"):
        raise c.unsupported("probabilities of support vectors ('prob_a')")
    if not counts:
        raise c.unsupported("linear classes without support vectors")
    if classes < 2 or len(counts) != classes:
        raise c.malformed("'vectors_per_class' must have one entry a label, and two or more")
    total = sum(counts)
    kernels = kernel_values(
        c, b.convert(matrix_input(c), F32), rows_of(c, "support_vectors", total)
    )
    given = rows_of(c, "coefficients", classes - 1)
    pairs = list(combinations(range(classes), 2))
    first = [sum(counts[:n]) for n in range(classes)]
    weights = np.zeros((len(pairs), total), np.float32)
    votes = np.zeros((classes, len(pairs)), np.float32)
    for n, (i, j) in enumerate(pairs):
        of_i, of_j = (slice(first[k], first[k] + counts[k]) for k in (i, j))
        weights[n, of_i], weights[n, of_j] = given[j - 1, of_i], given[i, of_j]
        votes[i, n], votes[j, n] = 1, -1
    made = product_with(c, kernels, weights)
    offsets = c.floats("rho") or []
    if len(offsets) != len(pairs):
        raise c.malformed(f"'rho' must have {len(pairs)} entries")
    made = b.binary("add", made, c.along(table(c, offsets, "f4"), 1, shape_of(made)))
    above = b.compare("GT", made, c.scalar_like(0, made))
    # The winner of a pair gains half a vote, the loser loses it: in the order of votes.
    won = b.select(above, c.scalar_like(0.5, made), c.scalar_like(-0.5, made))
    label = best_labels(c, product_with(c, won, votes), labels)
    name = post_transform(c)
    if classes > 2:
        return [label, transformed(c, made, name)]
    return [label, two_columns(c, made, False, name)]
