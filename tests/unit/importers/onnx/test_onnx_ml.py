"""`ai.onnx.ml` on numbers, compiled, against onnxruntime."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pytest
from onnx import helper, numpy_helper
from onnx_cases import Case, draw_again, floats, positive
from onnx_graphs import check_on_cpu, model_of

from headrace import HeadraceError
from headrace.importers.onnx.reader import import_model

draw_again()

ML = "ai.onnx.ml"
_DRAW = np.random.default_rng(29)
_MODES = ["BRANCH_LEQ", "BRANCH_LT", "BRANCH_GTE", "BRANCH_GT", "BRANCH_EQ", "BRANCH_NEQ"]
X = np.round(floats(9, 5), 1)
GAPS = np.where(_DRAW.random((9, 5)) < 0.3, np.float32(np.nan), X)


def forest(
    owner: str, targets: list[int], modes: list[str], low: float = -1.0
) -> dict[str, Any]:
    """Attributes of five random trees, the last of them one leaf."""
    made: dict[str, list[Any]] = {}

    def add(**values: Any) -> None:
        for name, value in values.items():
            made.setdefault(name, []).append(value)

    def grow(tree: int, depth: int, node: int) -> int:
        """Appends a node and what is below it; the number that comes next."""
        is_leaf = depth == 0 or (depth < 3 and _DRAW.random() < 0.2)
        at = len(made.get("nodes_nodeids", []))
        add(
            nodes_treeids=tree,
            nodes_nodeids=node,
            nodes_featureids=int(_DRAW.integers(5)),
            nodes_modes="LEAF" if is_leaf else modes[int(_DRAW.integers(len(modes)))],
            nodes_values=0.0 if is_leaf else float(np.float32(round(_DRAW.normal(), 1))),
            nodes_truenodeids=0,
            nodes_falsenodeids=0,
            nodes_missing_value_tracks_true=int(_DRAW.integers(2)),
        )
        if is_leaf:
            for target in targets:
                add(**{
                    f"{owner}_treeids": tree, f"{owner}_nodeids": node,
                    f"{owner}_ids": target, f"{owner}_weights": float(_DRAW.uniform(low, 1)),
                })  # fmt: skip
            return node + 1
        made["nodes_truenodeids"][at] = node + 1
        behind = grow(tree, depth - 1, node + 1)
        made["nodes_falsenodeids"][at] = behind
        return grow(tree, depth - 1, behind)

    for tree in range(5):
        grow(tree, 4 if tree < 4 else 0, 0)
    return made


def regressor(modes: list[str], targets: int = 3, **more: Any) -> dict[str, Any]:
    """Leaves name two targets of three, or all: onnxruntime gives others no base value."""
    named = [0, 2] if targets == 3 else list(range(targets))
    return {**forest("target", named, modes), "n_targets": targets, **more}


def classifier(labels: list[int], ids: list[int], low: float, **more: Any) -> dict[str, Any]:
    return {**forest("class", ids, _MODES[:1], low), "classlabels_int64s": labels, **more}


_TRANSFORMS = ["NONE", "SOFTMAX", "LOGISTIC", "SOFTMAX_ZERO", "PROBIT"]
_SUPPORT = [float(v) for v in floats(12)]

COEFFICIENTS = floats(24)

CASES = [
    *(
        Case(
            "SVMClassifier",
            (X[:, :4],),
            (),
            {
                "kernel_type": kernel,
                "kernel_params": [0.3, 0.2, 3.0],
                "vectors_per_class": [1, 2, 3][:classes],
                "coefficients": [float(v) for v in COEFFICIENTS[: (3, 12)[classes - 2]]],
                "support_vectors": [float(v) for v in COEFFICIENTS[: (12, 24)[classes - 2]]],
                "rho": [0.4, -0.3, 0.1][: (1, 3)[classes - 2]],
                "classlabels_ints": [7, 3, 5][:classes],
                "post_transform": name,
            },
            outputs=2,
            note=f"{kernel} {classes} {name}",
        )
        for kernel, classes, name in (
            ("LINEAR", 3, "NONE"),
            ("RBF", 3, "SOFTMAX"),
            ("POLY", 3, "LOGISTIC"),
            ("RBF", 2, "NONE"),
            ("LINEAR", 2, "LOGISTIC"),
        )
    ),
    *(Case("TreeEnsembleRegressor", (X,), (), regressor([m]), note=m) for m in _MODES),
    Case("TreeEnsembleRegressor", (GAPS,), (), regressor(_MODES[:1]), note="nan"),
    Case("TreeEnsembleRegressor", (X,), (), regressor(_MODES), note="mixed"),
    *(
        Case("TreeEnsembleRegressor", (X,), (),
             regressor(_MODES[:1], 2, aggregate_function=how, base_values=[1.0, 2.0]), note=how)
        for how in ("SUM", "AVERAGE", "MIN", "MAX")
    ),
    Case("TreeEnsembleRegressor", (X.astype(np.float64),), (), regressor(_MODES[:1]), note="f64"),
    *(
        Case("TreeEnsembleClassifier", (X,), (),
             classifier([7, 3, 5], [0, 1, 2], -1.0, post_transform=t), outputs=2, note=t)
        for t in _TRANSFORMS[:4]
    ),
    Case("TreeEnsembleClassifier", (X,), (),
         classifier([7, 3, 5], [0, 1, 2], 0.0, base_values=[0.1, 0.2, 0.3]), outputs=2, note="base"),
    *(
        Case("TreeEnsembleClassifier", (X,), (),
             classifier([4, 9], [which], low, post_transform=t), outputs=2,
             note=f"one {which} {low} {t}")
        for low in (-1.0, 0.0)
        for which in (0, 1)
        for t in ("NONE", "LOGISTIC", "SOFTMAX")
    ),
    *(
        Case("LinearRegressor", (X,), (),
             {"coefficients": _SUPPORT[:10], "targets": 2, "intercepts": [0.5, -1.0],
              "post_transform": t}, note=t)
        for t in _TRANSFORMS[:4]
    ),
    Case("LinearRegressor", (X,), (), {"coefficients": _SUPPORT[:5]}, note="bare"),
    *(
        Case("LinearClassifier", (X[:, :4],), (),
             {"coefficients": _SUPPORT, "intercepts": [0.5, -1.0, 0.25], "post_transform": t,
              "classlabels_ints": [8, 4, 6]}, outputs=2, note=t)
        for t in _TRANSFORMS[:4]
    ),
    *(
        Case("LinearClassifier", (X,), (),
             {"coefficients": _SUPPORT[:5], "intercepts": [0.5], "post_transform": t,
              "classlabels_ints": [8, 4]}, outputs=2, note=f"two {t}")
        for t in ("NONE", "LOGISTIC", "SOFTMAX")
    ),
    *(
        Case("SVMRegressor", (X[:, :4],), (),
             {"kernel_type": kernel, "kernel_params": [0.3, 0.2, 3.0], "n_supports": 3,
              "coefficients": [0.5, -2.0, 1.5], "support_vectors": _SUPPORT, "rho": [0.4]})
        for kernel in ("LINEAR", "RBF", "SIGMOID", "POLY")
    ),
    Case("SVMRegressor", (X[:, :4],), (),
         {"kernel_type": "LINEAR", "kernel_params": [0.0, 0.0, 0.0], "n_supports": 0, "coefficients": _SUPPORT[:4], "rho": [0.4]},
         note="liblinear"),
    Case("Scaler", (X,), (), {"offset": _SUPPORT[:5], "scale": _SUPPORT[5:10]}),
    Case("Scaler", (X,), (), {"offset": [0.5], "scale": [3.0]}),
    Case("Scaler", (np.arange(10).reshape(2, 5),), (), {"offset": [0.5], "scale": [3.0]}),
    *(Case("Normalizer", (x,), (), {"norm": n}, note=note)
      for n in ("MAX", "L1", "L2")
      for x, note in ((positive(4, 5), "positive"), (X, "signed"),
                      (np.zeros((2, 3), np.float32), "zero"))),
    Case("Binarizer", (X,), (), {"threshold": 0.3}),
    Case("Imputer", (GAPS,), (),
         {"imputed_value_floats": _SUPPORT[:5], "replaced_value_float": float("nan")}),
    Case("Imputer", (np.arange(10).reshape(2, 5) % 3,), (),
         {"imputed_value_int64s": [9], "replaced_value_int64": 1}),
    Case("ArrayFeatureExtractor", (X,), (np.array([3, 0, 3]),)),
    Case("ArrayFeatureExtractor", (floats(2, 3, 4),), (np.array([[1, 2]]),)),
    Case("ArrayFeatureExtractor", (floats(6),), (np.array([1, 2]),)),
    Case("FeatureVectorizer", (floats(3, 2), floats(3, 4)), (), {"inputdimensions": [2, 4]}),
    Case("OneHotEncoder", (np.array([3, 1, 9]),), (), {"cats_int64s": [1, 2, 3]}),
    Case("OneHotEncoder", (floats(3, 2) * 2,), (), {"cats_int64s": [-1, 0, 1]}),
    Case("LabelEncoder", (np.array([[5, 1], [7, 2]]),), (),
         {"keys_int64s": [7, 1, 5], "values_floats": [0.5, 1.5, 2.5]}),
    Case("LabelEncoder", (np.arange(70) - 3,), (),
         {"keys_int64s": list(range(0, 99, 3)), "values_int64s": list(range(33)),
          "default_int64": 1000}),
    Case("LabelEncoder", (np.array([0.5, np.nan, -1.0, 8.0], np.float32),), (),
         {"keys_floats": [float("nan"), 8.0, 0.5], "values_int64s": [4, 5, 6]}),
]  # fmt: skip


@pytest.mark.parametrize(
    "case", [pytest.param(c, id=f"{c.kind}-{c.note}-{n}") for n, c in enumerate(CASES)]
)
def test_ml(case: Case, tmp_path: Path) -> None:
    inputs = {f"x{n}": a for n, a in enumerate(case.inputs)}
    weights = {f"w{n}": a for n, a in enumerate(case.weights)}
    outputs = [f"y{n}" for n in range(case.outputs)]
    node = helper.make_node(
        case.kind, [*inputs, *weights], outputs, domain=ML, **case.attributes
    )
    shapes = {n: ["batch", *a.shape[1:]] for n, a in inputs.items()}
    proto = model_of(
        [node],
        inputs,
        outputs,
        weights=weights,
        shapes=shapes,
        opsets={ML: 4 if case.kind == "LabelEncoder" else 3},
    )
    check_on_cpu(proto, inputs, tmp_path, tolerance=2e-5)


def test_two_scored_classes_have_the_label_of_the_greater(tmp_path: Path) -> None:
    """onnxruntime gives 0 and 1 there, whatever the labels are; its scores are right."""
    attributes = classifier([4, 9], [0, 1], -1.0)
    node = helper.make_node(
        "TreeEnsembleClassifier", ["x"], ["y", "z"], domain=ML, **attributes
    )
    proto = model_of([node], {"x": X}, ["y", "z"], opsets={ML: 3})
    scores = onnxruntime.InferenceSession(proto.SerializeToString()).run(["z"], {"x": X})[0]
    labels = np.array([4, 9])[np.argmax(scores, axis=1)]
    assert len(set(labels)) == 2
    check_on_cpu(proto, {"x": X}, tmp_path, wanted=[labels, scores])


@pytest.mark.parametrize("how", ["AVERAGE", "SUM", "MIN", "MAX"])
def test_trees_by_position(how: str, tmp_path: Path) -> None:
    """Sets, NaN that goes to either side, and a tree that is one leaf."""
    node = helper.make_node(
        "TreeEnsemble",
        ["x"],
        ["y"],
        domain=ML,
        n_targets=2,
        aggregate_function=["AVERAGE", "SUM", "MIN", "MAX"].index(how),
        tree_roots=[0, 2, 3],
        nodes_featureids=[0, 1, 1, 0],
        nodes_modes=numpy_helper.from_array(np.array([6, 0, 6, 0], np.uint8)),
        nodes_splits=numpy_helper.from_array(np.array([0, 0.5, 0, 0], np.float32)),
        nodes_truenodeids=[1, 1, 0, 3],
        nodes_falsenodeids=[0, 2, 2, 3],
        nodes_trueleafs=[0, 1, 1, 1],
        nodes_falseleafs=[1, 1, 1, 1],
        nodes_missing_value_tracks_true=[1, 0, 0, 0],
        membership_values=numpy_helper.from_array(
            np.array([1, 2, 4, np.nan, 0.25, np.nan], np.float32)
        ),
        leaf_targetids=[0, 1, 0, 1],
        leaf_weights=numpy_helper.from_array(np.array([0.5, -1.5, 2.5, 4.0], np.float32)),
    )
    gap = np.nan
    x = np.array([[1, 0.5], [2, 0.75], [3, 0.25], [gap, 0.25], [4, gap]], np.float32)
    leaves = [(1, 2, 3), (2, 2, 3), (0, 0, 3), (1, 0, 3), (2, 2, 3)]
    weights, owners = [0.5, -1.5, 2.5, 4.0], [0, 1, 0, 1]
    wanted = np.zeros((5, 2), np.float32)
    fold = {"AVERAGE": lambda v: sum(v) / 3, "SUM": sum, "MIN": min, "MAX": max}[how]
    for row, reached in enumerate(leaves):
        for target in (0, 1):
            found = [weights[leaf] for leaf in reached if owners[leaf] == target]
            wanted[row, target] = fold(found) if found else 0
    proto = model_of([node], {"x": x}, ["y"], shapes={"x": ["n", 2]}, opsets={ML: 5})
    check_on_cpu(proto, {"x": x}, tmp_path, wanted=[wanted])


def test_many_labels_are_looked_up_by_halving(tmp_path: Path) -> None:
    keys = _DRAW.permutation(5000)
    x = _DRAW.integers(-10, 6000, (7, 9))
    node = helper.make_node(
        "LabelEncoder", ["x"], ["y"], domain=ML,
        keys_int64s=keys.tolist(), values_floats=(keys / 8).tolist(), default_float=-3.0,
    )  # fmt: skip
    proto = model_of([node], {"x": x}, ["y"], opsets={ML: 4})
    wanted = np.where((x >= 0) & (x < 5000), x / 8, -3.0).astype(np.float32)
    check_on_cpu(proto, {"x": x}, tmp_path, wanted=[wanted])


@pytest.mark.parametrize(
    ("change", "fact"),
    [
        ({"nodes_truenodeids": [0, 0, 0]}, "circle"),
        ({"nodes_truenodeids": [7, 0, 0]}, "child is not in its tree"),
        ({"nodes_featureids": [5, 0, 0]}, "feature 5 of 5"),
        ({"target_ids": [0, 3]}, "target is not one of 1"),
        ({"target_nodeids": [0, 2]}, "is no leaf"),
        ({"nodes_modes": ["BRANCH_AND", "LEAF", "LEAF"]}, "BRANCH_AND"),
        ({"nodes_values": [0.0]}, "3 entries"),
    ],
)
def test_what_is_no_forest_is_refused(change: dict[str, Any], fact: str) -> None:
    attributes: dict[str, Any] = {
        "nodes_treeids": [0, 0, 0],
        "nodes_nodeids": [0, 1, 2],
        "nodes_featureids": [0, 0, 0],
        "nodes_modes": ["BRANCH_LEQ", "LEAF", "LEAF"],
        "nodes_values": [0.5, 0.0, 0.0],
        "nodes_truenodeids": [1, 0, 0],
        "nodes_falsenodeids": [2, 0, 0],
        "target_treeids": [0, 0],
        "target_nodeids": [1, 2],
        "target_ids": [0, 0],
        "target_weights": [1.0, 2.0],
    }
    node = helper.make_node(
        "TreeEnsembleRegressor", ["x"], ["y"], domain=ML, **{**attributes, **change}
    )
    with pytest.raises(HeadraceError, match=fact):
        import_model(model_of([node], {"x": X}, ["y"], opsets={ML: 3}))
