"""Einsum: operands contracted two at a time."""

from __future__ import annotations

from xdsl.ir import SSAValue

from headrace.base.dtypes import I64
from headrace.base.symbols import Expr
from headrace.importers.onnx.context import NodeContext
from headrace.importers.onnx.registry import onnx_op
from headrace.ir.types import shape_of


@onnx_op("Einsum")
def einsum(c: NodeContext) -> SSAValue:
    operands = c.all_data()
    terms, result = _parse(c, [len(shape_of(o)) for o in operands])
    sizes: dict[str, Expr] = {}
    for term, operand in zip(terms, operands, strict=True):
        for label, size in zip(term, shape_of(operand), strict=True):
            known = sizes.setdefault(label, size)
            sizes[label] = c.common_shape((known,), (size,))[0]
    pairs = [_diagonal(c, o, t) for o, t in zip(operands, terms, strict=True)]
    left, left_labels = pairs[0]
    for n, (right, right_labels) in enumerate(pairs[1:], 1):
        later = {label for t in terms[n + 1 :] for label in t} | set(result)
        left, left_labels = _contract(c, left, left_labels, right, right_labels, later, sizes)
    gone = [n for n, label in enumerate(left_labels) if label not in result]
    left = c.reduce(left, 0, gone, "add")
    kept = [label for label in left_labels if label in result]
    return c.build.transpose(left, [kept.index(label) for label in result if label in kept])


def _parse(c: NodeContext, ranks: list[int]) -> tuple[list[str], str]:
    """Labels of operands and result; an ellipsis becomes labels of its own."""
    equation = c.string("equation").replace(" ", "")
    text, arrow, result = equation.partition("->")
    parts = text.split(",")
    if len(parts) != len(ranks):
        raise c.malformed(f"'{equation}' has {len(parts)} operands, the node {len(ranks)}")
    wide = max(
        (
            r - len(p.replace("...", ""))
            for p, r in zip(parts, ranks, strict=True)
            if "..." in p
        ),
        default=0,
    )
    ellipsis_labels = "".join(chr(0x2460 + n) for n in range(wide))
    terms: list[str] = []
    for part, rank in zip(parts, ranks, strict=True):
        count = rank - len(part.replace("...", ""))
        labels = part.replace("...", ellipsis_labels[wide - count :] if count else "")
        if len(labels) != rank:
            raise c.malformed(f"'{part}' does not fit rank {rank}")
        terms.append(labels)
    if not arrow:
        flat = text.replace("...", "").replace(",", "")
        once = sorted(label for label in set(flat) if flat.count(label) == 1)
        return terms, ellipsis_labels + "".join(once)
    return terms, result.replace("...", ellipsis_labels)


def _diagonal(c: NodeContext, x: SSAValue, labels: str) -> tuple[SSAValue, str]:
    """Repeated labels of one operand folded to their diagonal."""
    b = c.build
    for label in dict.fromkeys(labels):
        while labels.count(label) > 1:
            first = labels.index(label)
            second = labels.index(label, first + 1)
            shape = shape_of(x)
            same = b.compare("EQ", b.iota(I64, shape, first), b.iota(I64, shape, second))
            kept = b.select(same, x, c.scalar_like(0, x))
            x = c.reduce(kept, 0, [second], "add")
            labels = labels[:second] + labels[second + 1 :]
    return x, labels


def _contract(
    c: NodeContext,
    left: SSAValue,
    left_labels: str,
    right: SSAValue,
    right_labels: str,
    later: set[str],
    sizes: dict[str, Expr],
) -> tuple[SSAValue, str]:
    """One pair: shared labels needed later are batch, the other shared ones contract."""
    left, left_labels = _summed_alone(c, left, left_labels, set(right_labels) | later)
    right, right_labels = _summed_alone(c, right, right_labels, set(left_labels) | later)
    shared = [label for label in left_labels if label in right_labels]
    left = c.build.broadcast_to(
        left,
        [
            sizes[t] if t in shared else s
            for t, s in zip(left_labels, shape_of(left), strict=True)
        ],
    )
    right = c.build.broadcast_to(
        right,
        [
            sizes[t] if t in shared else s
            for t, s in zip(right_labels, shape_of(right), strict=True)
        ],
    )
    batch = [label for label in shared if label in later]
    gone = [label for label in shared if label not in later]
    made = c.build.dot_general(
        left,
        right,
        batch=([left_labels.index(t) for t in batch], [right_labels.index(t) for t in batch]),
        contract=([left_labels.index(t) for t in gone], [right_labels.index(t) for t in gone]),
    )
    free = [t for t in left_labels if t not in shared] + [
        t for t in right_labels if t not in shared
    ]
    return made, "".join([*batch, *free])


def _summed_alone(
    c: NodeContext, x: SSAValue, labels: str, needed: set[str]
) -> tuple[SSAValue, str]:
    """Labels that nothing else mentions are summed at once."""
    gone = [n for n, label in enumerate(labels) if label not in needed]
    return c.reduce(x, 0, gone, "add"), "".join(t for t in labels if t in needed)
