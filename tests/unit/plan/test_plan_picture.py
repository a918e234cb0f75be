"""Pictures of plans."""

from __future__ import annotations

import subprocess
import sys

import plan_chains as chains
import pytest

from headrace.base.errors import HeadraceError
from headrace.plan import planner
from headrace.plan.picture import draw_curve, draw_plan
from headrace.plan.profile import Profile


@pytest.fixture
def prepared():
    module = chains.random_module(5, 20)
    return planner.prepare(module, module.programs[0], 0, {}, Profile(), threads=2)


def test_a_plan_is_drawn_the_same_each_time(tmp_path, prepared):
    plan = prepared.plan(prepared.minimum_budget_bytes)
    names = [r.name for r in prepared.flat.function.resources]
    for name in ("a.png", "b.png"):
        draw_plan(plan, tmp_path / name, names, "random")
    data = (tmp_path / "a.png").read_bytes()
    assert data.startswith(b"\x89PNG")
    assert data == (tmp_path / "b.png").read_bytes()


def test_a_plan_without_values_weights_or_ring_is_drawn(tmp_path):
    module = chains.build([chains.Layer((), reads=(0,), writes=1)], [], [64, 64])
    prepared = planner.prepare(module, module.programs[0], 0, {}, Profile(), threads=1)
    draw_plan(prepared.plan(0), tmp_path / "a.png")
    assert (tmp_path / "a.png").stat().st_size > 1000


def test_a_curve_is_drawn(tmp_path, prepared):
    low, high = prepared.minimum_budget_bytes, prepared.stored_bytes
    budgets = [low + (high - low) * i // 8 for i in range(9)]
    points = [(b, prepared.plan(b).prediction) for b in budgets]
    draw_curve(points, tmp_path / "a.png", measured=[(budgets[3], 20_000_000)])
    assert (tmp_path / "a.png").stat().st_size > 1000


def test_a_folder_that_is_not_there(tmp_path, prepared):
    with pytest.raises(HeadraceError) as caught:
        draw_plan(prepared.plan(prepared.stored_bytes), tmp_path / "no" / "a.png")
    assert caught.value.diagnostics[0].code == "HR3401"


def test_planning_loads_no_drawing_and_no_compiler():
    script = (
        "import sys, headrace.plan.planner, headrace.plan.picture, headrace.artifact.reader\n"
        "bad = {'matplotlib', 'xdsl', 'onnx', 'llvmlite', 'numpy'} & sys.modules.keys()\n"
        "assert not bad, bad"
    )
    subprocess.run([sys.executable, "-c", script], check=True)
