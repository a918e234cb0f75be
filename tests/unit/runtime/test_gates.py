"""Gates: a step and its transfers on two queues, played against each other."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest
from runtime_models import Mlp

from headrace.artifact.reader import open_artifact
from headrace.plan.model import Plan
from headrace.plan.planner import prepare
from headrace.plan.profile import Profile
from headrace.runtime.drivers import gates
from headrace.runtime.drivers.gates import Gated, gates_of

PROFILES = (
    Profile(link_bytes_per_s=5e10, operations_per_s=1e12, memory_bytes_per_s=1e12),
    Profile(link_bytes_per_s=1e9, fetch_overhead_ns=1000, operations_per_s=1e11),
)


@pytest.fixture(scope="module")
def plans(tmp_path_factory):
    path = Mlp((1024, 512, 2048, 1024, 768, 1024, 512, 1024)).write(
        tmp_path_factory.mktemp("gates") / "mlp.hrx"
    )
    module = open_artifact(path).module
    found: list[Plan] = []
    for profile in PROFILES:
        prepared = prepare(module, module.programs[0], 0, {"batch": 2}, profile, threads=1)
        least, most = prepared.minimum_budget_bytes, prepared.stored_bytes
        shares = (0, 0.05, 0.2, 0.4, 0.6, 0.8, 0.999)
        found += [prepared.plan(int(least + s * (most - least))) for s in shares]
    return found


class _Queues:
    """Both queues as the device runs them: either may be ahead whenever it need not wait."""

    def __init__(self, plan: Plan, gated: Gated, draw: random.Random) -> None:
        self.plan, self.gated, self.draw = plan, gated, draw
        self.count = len(plan.commands)
        self.progress = 0
        self.arrived = [0] * len(gated.rows)
        first = len(gated.rows) - gated.heads
        # Fetch and step whose bytes stand in the ring, by range.
        self.ring: dict[tuple[int, int], tuple[int, int]] = {}
        for row in range(first, len(gated.rows)):
            self.arrived[row] = 1
            self._land(gated.rows[row].fetch, 0)

    def _land(self, fetch: int, step: int) -> None:
        at = self.plan.fetches[fetch]
        begin, end = at.ring_offset_bytes, at.ring_offset_bytes + at.size_bytes
        for low, high in list(self.ring):
            if low < end and begin < high:
                del self.ring[low, high]
        self.ring[begin, end] = fetch, step

    def transfers(self, steps: int):
        """Yields before each turn; may go on where the row's place is free."""
        for step in range(steps):
            for number, row in enumerate(self.gated.rows):
                if row.release:
                    value = step * (self.count + 1) + row.release
                    while self.progress < value:
                        yield False
                yield True
                ahead = number >= len(self.gated.rows) - self.gated.heads
                self._land(row.fetch, step + ahead)
                self.arrived[number] += 1

    def commands(self, steps: int):
        for step in range(steps):
            for number, command in enumerate(self.plan.commands):
                for gate in (self.gated.alone[number], self.gated.beside[number]):
                    if gate is None:
                        continue
                    if gate.done:
                        assert gate.done <= number  # only what a barrier has ended
                        self.progress = step * (self.count + 1) + gate.done
                    while gate.row >= 0 and self.arrived[gate.row] < step + 1:
                        yield False
                    if gate is self.gated.alone[number]:
                        yield True
                used = [f for f, at in enumerate(self.plan.fetches)
                        if at.needed_by <= number <= at.released_after]  # fmt: skip
                for _ in range(2):  # what it reads is there as long as it runs
                    held = set(self.ring.values())
                    assert {(f, step) for f in used} <= held, f"command {number}"
                    yield True
                del command
            self.progress = step * (self.count + 1) + self.count


@pytest.mark.parametrize("number", range(14))
def test_no_command_reads_too_early_and_no_transfer_writes_too_early(plans, number):
    plan = plans[number]
    gated = gates_of(plan, 5e10)
    assert sorted(row.fetch for row in gated.rows) == list(range(len(plan.fetches)))
    for n, with_last in enumerate(gated.joined):
        if with_last:  # no barrier before it: nothing is told, nothing waited for
            assert gated.alone[n] is None
            assert gated.beside[n] is None or not gated.beside[n].done
    for seed in range(6):
        draw = random.Random(seed)
        queues = _Queues(plan, gated, draw)
        running = [queues.commands(3), queues.transfers(3)]
        idle = 0
        while running:
            # One side runs far ahead at times.
            side = draw.choice(running)
            for _ in range(draw.choice((1, 1, 20))):
                moved = next(side, None)
                if moved is None:
                    running.remove(side)
                    break
                idle = 0 if moved else idle + 1
                assert idle < 500, "both sides wait"


def test_slices_run_together_where_their_weights_have_come(plans):
    count = {
        rate: sum(sum(gates_of(plan, rate).joined) for plan in plans)
        for rate in (1e6, 5e10, 1e15)
    }
    assert 0 <= count[1e6] < count[5e10] <= count[1e15]
    for plan in plans:
        joined = gates_of(plan, 1e15).joined
        for n, with_last in enumerate(joined):
            if with_last:
                before, here = plan.commands[n - 1 : n + 1]
                assert (before.command, before.symbol) == (here.command, here.symbol)


def test_few_gates_stand_alone(plans):
    """A gate between two barriers costs one of them; beside a command it costs none."""
    for plan in plans:
        if not plan.fetches:
            continue
        slow = [replace(c, predicted_ns=c.predicted_ns + 10**6) for c in plan.commands]
        gated = gates_of(replace(plan, commands=tuple(slow)), 5e10)
        alone = [g for g in gated.alone[1:] if g is not None]
        late = [f for f in plan.fetches if f.issue_after >= f.needed_by - 1]
        assert len(alone) <= len(late) + sum(gated.joined)


def _step_ns(plan: Plan, gated: Gated, rate: float, gate_ns: float) -> float:
    """A step's time where each gate takes as long to begin, and each word to be seen."""
    told = {0: 0.0}
    arrived: list[float] = []
    now = link = 0.0

    def arrival(number: int) -> float:
        nonlocal link
        if number >= len(gated.rows) - gated.heads:
            return 0.0
        while len(arrived) <= number:
            row = gated.rows[len(arrived)]
            begin = min(at for done, at in told.items() if done >= row.release)
            link = max(link, begin) + plan.fetches[row.fetch].size_bytes * 1e9 / rate
            arrived.append(link)
        return arrived[number]

    for command, alone, beside in zip(plan.commands, gated.alone, gated.beside, strict=True):
        ends = [now + command.predicted_ns]
        for gate in (alone, beside):
            if gate is None:
                continue
            if gate.done:
                told[gate.done] = now + gate_ns
            end = now + gate_ns if gate.row < 0 else max(now, arrival(gate.row)) + gate_ns
            if gate is alone:
                ends[0], now = end + command.predicted_ns, end
            else:
                ends.append(end)
        now = max(ends)
    return now


def test_the_link_does_not_wait_for_a_command_whose_end_was_not_told(plans, monkeypatch):
    """With two places in the ring a row begins while the one before it is waited for."""
    plan, rate, gate_ns = plans[0], 5e10, 3000.0
    bytes_ns = sum(f.size_bytes for f in plan.fetches if f.issue_after >= 0) * 1e9 / rate
    rows = len(plan.fetches)
    assert _step_ns(plan, gates_of(plan, rate), rate, gate_ns) < bytes_ns + 10 * gate_ns
    monkeypatch.setattr(gates._Gates, "_holds_up", lambda *_: False)
    before = _step_ns(plan, gates_of(plan, rate), rate, gate_ns)
    assert before > bytes_ns + 0.8 * rows * gate_ns
