"""Slices of transfers beside the commands that hide them."""

from __future__ import annotations

from dataclasses import replace

import pytest
from runtime_models import Mlp

from headrace.artifact.reader import open_artifact
from headrace.plan.planner import prepare
from headrace.plan.profile import Profile
from headrace.runtime.drivers.interleave import interleave

PROFILE = Profile(link_bytes_per_s=5e10, operations_per_s=1e12, memory_bytes_per_s=1e12)


@pytest.fixture(scope="module")
def plans(tmp_path_factory):
    path = Mlp((1024,) * 9).write(tmp_path_factory.mktemp("interleave") / "mlp.hrx")
    module = open_artifact(path).module
    prepared = prepare(module, module.programs[0], 0, {"batch": 2}, PROFILE, threads=1)
    least, most = prepared.minimum_budget_bytes, prepared.stored_bytes
    return [prepared.plan(int(least + share * (most - least))) for share in (0, 0.2, 0.6)]


@pytest.mark.parametrize("number", range(3))
def test_every_byte_comes_once_after_its_place_is_free_and_before_it_is_read(plans, number):
    plan = plans[number]
    made = interleave(plan)
    came: dict[int, list[tuple[int, int, int]]] = {n: [] for n in range(len(plan.fetches))}
    for at, pieces in enumerate(made.alone):
        for piece in pieces:
            came[piece.fetch].append((piece.begin_bytes, piece.size_bytes, at))
            fetch = plan.fetches[piece.fetch]
            after = fetch.previous_issue_after if fetch.issue_after < 0 else fetch.issue_after
            assert after < at
            assert at <= fetch.needed_by or fetch.issue_after < 0
    for at, pieces in enumerate(made.beside):
        for piece in pieces:
            came[piece.fetch].append((piece.begin_bytes, piece.size_bytes, at))
            fetch = plan.fetches[piece.fetch]
            if fetch.issue_after < 0:
                assert fetch.previous_issue_after < at
            else:
                assert fetch.issue_after < at < fetch.needed_by
    assert sum(len(c) for c in came.values()) == made.count
    for index, parts in came.items():
        end = 0
        for begin, size, _ in sorted(parts):
            assert begin == end and size > 0
            end += size
        assert end == plan.fetches[index].size_bytes
        assert [at for _, _, at in sorted(parts)] == sorted(at for _, _, at in parts)


def test_shares_follow_the_predicted_times(plans):
    plan = plans[0]
    fetch = replace(plan.fetches[0], issue_after=0, needed_by=4, size_bytes=8 << 20)
    commands = tuple(
        replace(c, predicted_ns=ns)
        for c, ns in zip(plan.commands[:5], (9, 10, 20, 10, 7), strict=True)
    )
    made = interleave(replace(plan, fetches=(fetch,), commands=commands))
    sizes = [sum(p.size_bytes for p in pieces) for pieces in made.beside]
    assert sizes == [0, 2 << 20, 4 << 20, 2 << 20, 0]
    waiting = replace(fetch, issue_after=3)
    made = interleave(replace(plan, fetches=(waiting,), commands=commands))
    assert [len(p) for p in made.alone] == [0, 0, 0, 0, 1, 0]
