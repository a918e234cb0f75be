"""RNN, GRU and LSTM, compiled, against onnxruntime."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx_cases import Case, draw_again, floats, proto_of, unique
from onnx_graphs import check_on_cpu

draw_again()

STEPS, BATCH, WIDTH, HIDDEN = 5, 3, 4, 6
GATES = {"RNN": 1, "GRU": 3, "LSTM": 4}
LENGTHS = np.array([5, 2, 1], np.int32)


def _case(
    kind: str,
    *,
    lengths: bool = False,
    state: bool = False,
    peephole: bool = False,
    scale: float = 1.0,
    **rest: Any,
) -> Case:
    count = 2 if rest.get("direction") == "bidirectional" else 1
    rows = GATES[kind] * HIDDEN
    shapes = ((count, rows, WIDTH), (count, rows, HIDDEN), (count, 2 * rows))
    weights = [floats(*shape) * np.float32(scale) for shape in shapes]
    first = floats(count, BATCH, HIDDEN) if state else None
    weights += [LENGTHS if lengths else None, first]
    if kind == "LSTM":
        weights.append(floats(count, BATCH, HIDDEN) if state else None)
        weights.append(floats(count, 3 * HIDDEN) if peephole else None)
    outputs = 3 if kind == "LSTM" else 2
    rest["hidden_size"] = HIDDEN
    notes = [n for n, on in (("lengths", lengths), ("state", state)) if on]
    x = floats(STEPS, BATCH, WIDTH)
    return Case(kind, (x,), tuple(weights), rest, outputs=outputs, note="_".join(notes))


CASES = [
    *(
        _case(kind, lengths=True, state=True, direction=direction)
        for kind in GATES
        for direction in ("forward", "reverse", "bidirectional")
    ),
    _case("RNN", activations=["Relu"], clip=0.5),
    _case("RNN", direction="bidirectional", activations=["HardSigmoid", "LeakyRelu"],
          activation_alpha=[0.3, 0.05], activation_beta=[0.4]),
    *(_case("RNN", activations=[name]) for name in ("Softsign", "Elu")),
    # onnxruntime's logarithm of 1 + exp(x) is infinite from x = 89 on.
    _case("RNN", activations=["Softplus"], scale=0.3),
    _case("RNN", activations=["ScaledTanh"], activation_alpha=[0.8], activation_beta=[0.6]),
    _case("RNN", activations=["Affine"], activation_alpha=[0.5], activation_beta=[0.1]),
    _case("GRU", linear_before_reset=1, clip=0.7),
    _case("GRU", linear_before_reset=1, state=True, direction="bidirectional"),
    _case("GRU", activations=["HardSigmoid", "Softsign"], activation_alpha=[0.4]),
    _case("LSTM", peephole=True, state=True, lengths=True),
    _case("LSTM", peephole=True, direction="bidirectional", clip=0.4),
    _case("LSTM", activations=["HardSigmoid", "Relu", "Softsign"]),
]  # fmt: skip


@pytest.mark.parametrize("case", unique(CASES))
def test_recurrent(case: Case, tmp_path: Path) -> None:
    proto, inputs = proto_of(case, symbolic=False)
    check_on_cpu(proto, inputs, tmp_path, tolerance=1e-4)


@pytest.mark.parametrize("kind", GATES)
def test_layout_by_batch_is_the_transposed_other(kind: str, tmp_path: Path) -> None:
    """onnxruntime lacks this layout."""
    case = _case(kind, direction="bidirectional", lengths=True)
    proto, inputs = proto_of(case, symbolic=False)
    wanted = _outputs(proto, inputs)
    turned = Case(
        kind, (case.inputs[0].transpose(1, 0, 2),), case.weights,
        {**case.attributes, "layout": 1}, outputs=case.outputs,
    )  # fmt: skip
    proto, inputs = proto_of(turned, symbolic=False)
    moved = [wanted[0].transpose(2, 0, 1, 3), *(w.transpose(1, 0, 2) for w in wanted[1:])]
    check_on_cpu(proto, inputs, tmp_path, tolerance=1e-4, wanted=moved)


def _outputs(proto: Any, inputs: dict[str, Any]) -> list[Any]:
    import onnxruntime

    session = onnxruntime.InferenceSession(proto.SerializeToString())
    return session.run(None, inputs)
