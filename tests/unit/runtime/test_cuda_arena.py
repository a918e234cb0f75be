"""An arena that changes its size, and moves within it."""

from __future__ import annotations

import random

import pytest
from fake_cuda import FakeCalls

from headrace.base.errors import HeadraceError
from headrace.runtime.drivers import cuda_arena
from headrace.runtime.drivers.cuda_arena import Arena, moved_down, moved_up


@pytest.mark.parametrize("seed", range(20))
def test_moves_bring_every_byte_and_no_copy_meets_itself(seed):
    draw = random.Random(seed)
    sizes = [draw.choice((1, 3, 8, 20)) for _ in range(draw.randint(1, 12))]
    spread = [draw.choice((0, 0, 1, 5, 30)) for _ in sizes]
    low: list[int] = []
    high: list[int] = []
    at = above = 0
    for size, gap in zip(sizes, spread, strict=True):
        above += gap
        low.append(at)
        high.append(above)
        at += size
        above += size
    memory = bytearray(draw.randbytes(above))
    wanted = [bytes(memory[h : h + s]) for h, s in zip(high, sizes, strict=True)]

    def play(moves):
        for target, source, size in moves:
            assert target + size <= source or source + size <= target
            memory[target : target + size] = memory[source : source + size]

    play(moved_down(list(zip(low, high, sizes, strict=True))))
    assert [bytes(memory[p : p + s]) for p, s in zip(low, sizes, strict=True)] == wanted
    play(moved_up(list(zip(high, low, sizes, strict=True))))
    assert [bytes(memory[p : p + s]) for p, s in zip(high, sizes, strict=True)] == wanted


def test_an_arena_holds_what_it_says_and_keeps_what_it_can(monkeypatch):
    monkeypatch.setattr(cuda_arena, "_LARGEST_PIECE_BYTES", 3 * 4096)
    monkeypatch.setattr(cuda_arena, "_PIECES", 4)
    calls = FakeCalls(total_bytes=40 * 4096)
    arena = Arena(calls, 100 * 4096)
    for pages in (0, 1, 7, 8, 20, 13, 12, 4, 0, 9):
        live = min(pages * 4096, arena.size_bytes)
        if not arena.can_resize(pages * 4096, live):
            live = 0
        arena.resize(pages * 4096)
        assert arena.size_bytes == pages * 4096 == sum(calls.held.values())
    # Pieces that the new end does not cut stay as they are.
    arena.resize(9 * 4096)
    assert arena.can_resize(6 * 4096, 6 * 4096)
    assert not arena.can_resize(7 * 4096, 7 * 4096)
    assert arena.can_resize(7 * 4096, 6 * 4096)
    with pytest.raises(HeadraceError, match="HR3013"):
        arena.resize(41 * 4096)
    assert not arena.fits(200 * 4096)
    arena.close()
    assert not calls.held


def test_an_arena_of_a_model_without_weights_has_an_address():
    calls = FakeCalls(total_bytes=4096)
    arena = Arena(calls, 0)
    arena.resize(0)
    assert arena.address
    assert not calls.held
    arena.close()
