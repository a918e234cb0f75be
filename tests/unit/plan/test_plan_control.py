"""Trees of blocks: branches overlay, loops weigh by their trips, nothing flies across."""

from __future__ import annotations

from dataclasses import replace

import plan_chains as chains
import pytest
from plan_checks import check_plan

from headrace.artifact import schema as s
from headrace.base.errors import HeadraceError
from headrace.base.symbols import ZERO, as_expr
from headrace.plan import planner
from headrace.plan.model import PlannedBranch, PlannedDispatch, PlannedJump
from headrace.plan.profile import Profile


def with_body(module, make, more=()):
    program = module.programs[0]
    function = program.functions[0]
    body = make(function.body.commands)
    changed = replace(function, body=s.Block(tuple(body)))
    return replace(module, programs=(replace(program, functions=(changed, *more)),))


def prepare(module):
    return planner.prepare(module, module.programs[0], 0, {}, Profile(), threads=2)


def all_budgets(module, count=5):
    prepared = prepare(module)
    low, high = prepared.minimum_budget_bytes, prepared.stored_bytes
    for i in range(count + 1):
        budget = low + (high - low) * i // count
        yield budget, prepared.plan(budget)


def test_branches_and_their_targets():
    module = with_body(
        chains.chain(12, bias_bytes=4096),
        lambda c: [
            *c[:4],
            s.If(4, s.Block(c[4:8]), s.Block(c[8:10])),
            *c[10:],
        ],
    )
    for budget, plan in all_budgets(module):
        check_plan(module, plan, budget)
        branch = next(c for c in plan.commands if isinstance(c, PlannedBranch))
        jump = next(c for c in plan.commands if isinstance(c, PlannedJump))
        after = plan.commands[branch.target]
        assert isinstance(after, PlannedDispatch) and after.symbol == "k8"
        assert plan.commands.index(jump) == branch.target - 1
        end = plan.commands[jump.target]
        assert isinstance(end, PlannedDispatch) and end.symbol == "k10"


def test_what_lives_in_one_branch_only_overlays_the_other():
    module = with_body(
        chains.chain(12, value_bytes=1 << 20),
        lambda c: [*c[:2], s.If(2, s.Block(c[2:6]), s.Block(c[6:10])), *c[10:]],
    )
    layout = prepare(module).slab
    assert layout.slab_bytes <= 4 << 20


def test_nothing_is_fetched_across_a_branch():
    module = with_body(
        chains.chain(30, bias_bytes=4096),
        lambda c: [*c[:10], s.If(10, s.Block(c[10:20]), s.Block(())), *c[20:]],
    )
    for budget, plan in all_budgets(module):
        check_plan(module, plan, budget)
        borders = [i for i, c in enumerate(plan.commands) if isinstance(c, PlannedBranch)]
        for fetch in plan.fetches:
            for border in borders:
                assert not (fetch.issue_after < border < fetch.needed_by)
                assert not (fetch.needed_by <= border <= fetch.released_after)
            if fetch.issue_after < 0:
                assert fetch.previous_issue_after == len(plan.commands) - 1


def test_what_a_loop_reads_stays_first():
    module = with_body(
        chains.chain(30, bias_bytes=4096),
        lambda c: [
            *c[:10],
            s.Loop(s.Block(()), 10, s.Block(c[10:15]), as_expr(50)),
            *c[15:],
        ],
    )
    half = prepare(module)
    plan = half.plan(half.stored_bytes // 2)
    check_plan(module, plan, half.stored_bytes // 2)
    branch = next(i for i, c in enumerate(plan.commands) if isinstance(c, PlannedBranch))
    jump = next(i for i, c in enumerate(plan.commands) if isinstance(c, PlannedJump))
    back = plan.commands[jump]
    assert isinstance(back, PlannedJump) and back.target == branch
    assert not [f for f in plan.fetches if branch < f.needed_by < jump]
    assert plan.fetches


def test_a_call_runs_in_place_on_the_callers_resources():
    module = chains.chain(6)
    program = module.programs[0]
    main = program.functions[0]
    callee = replace(main, name="inner")
    count = len(main.resources)
    body = s.Block((s.Call(1, tuple(range(count))),))
    called = replace(
        module,
        programs=(replace(program, functions=(replace(main, body=body), callee)),),
    )
    direct, through = prepare(module), prepare(called)
    budget = direct.minimum_budget_bytes * 2
    assert direct.plan(budget).commands == through.plan(budget).commands


def test_copies_of_weights_keep_them_resident():
    module = chains.chain(10, bias_bytes=4096)
    main = module.programs[0].functions[0]
    weight = next(i for i, r in enumerate(main.resources) if r.name == "w6")
    copy = s.Copy(weight, ZERO, 3, ZERO, as_expr(4096))
    changed = with_body(module, lambda c: [*c[:2], copy, *c[2:]])
    for budget, plan in all_budgets(changed):
        check_plan(changed, plan, budget)


def test_programs_without_end_are_refused():
    module = chains.chain(4)
    program = module.programs[0]
    main = program.functions[0]
    functions = [main]
    for depth in range(30):
        calls = tuple(s.Call(depth, tuple(range(len(main.resources)))) for _ in range(2))
        functions.append(replace(main, name=f"f{depth}", body=s.Block(calls)))
    functions[0], functions[-1] = functions[-1], functions[0]
    large = replace(
        module,
        programs=(
            replace(
                program,
                functions=tuple(
                    replace(f, body=_renumber(f.body, len(functions) - 1)) for f in functions
                ),
            ),
        ),
    )
    with pytest.raises(HeadraceError) as caught:
        prepare(large)
    assert caught.value.diagnostics[0].code == "HR3205"


def _renumber(block, last):
    return s.Block(
        tuple(
            replace(c, function=last) if isinstance(c, s.Call) and c.function == 0 else c
            for c in block.commands
        )
    )
