"""Writes that end at multiples of 2 MiB of the file."""

import io
from typing import Any

import numpy as np

from headrace.artifact.pool import HUGE_PAGE_BYTES
from headrace.artifact.whole_pages import WholePages


class Recorder(io.BytesIO):
    def __init__(self) -> None:
        super().__init__()
        self.writes: list[tuple[int, int]] = []

    def write(self, data: Any) -> int:
        self.writes.append((self.tell(), len(data)))
        return super().write(data)


def test_every_write_but_the_first_and_the_last_is_whole_pages() -> None:
    random = np.random.default_rng(0)
    file, begin, wanted = Recorder(), 4096, bytearray(4096)
    pages = WholePages(file, begin)
    for size in (10, 3 * HUGE_PAGE_BYTES + 5, 0, 700_000, HUGE_PAGE_BYTES, 7 * HUGE_PAGE_BYTES):
        gap = int(random.integers(0, 100_000))
        data = random.bytes(size)
        wanted += bytes(gap) + data
        pages.skip_to(len(wanted) - size)
        pages.write(memoryview(data))
    pages.flush()
    pages.flush()
    assert file.getvalue() == bytes(wanted)
    assert file.writes[0][0] == begin
    for (at, size), (following, _) in zip(file.writes, file.writes[1:], strict=False):
        assert at + size == following and following % HUGE_PAGE_BYTES == 0
    # What is whole already is written as it stands.
    assert max(size for _, size in file.writes) >= 2 * HUGE_PAGE_BYTES
