from __future__ import annotations

import pytest

from headrace.base.bundle import join_code, split_code


@pytest.mark.parametrize("pieces", [[b"one"], [b"a" * 17, b"", b"ccc"], [b"x", b"y" * 32]])
def test_pieces_come_back(pieces: list[bytes]) -> None:
    assert split_code(join_code(pieces)) == pieces


def test_a_single_piece_is_itself() -> None:
    assert join_code([b"\x7fELF"]) == b"\x7fELF"


@pytest.mark.parametrize("keep", [9, 17, 20, 40])
def test_what_is_cut_off_is_refused(keep: int) -> None:
    with pytest.raises(ValueError):
        split_code(join_code([b"a" * 20, b"b" * 20])[:keep])
