"""Code kept on disk: found by content, checked when read, the same for every model."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from headrace import code_cache, translation
from headrace.base.errors import HeadraceError, error
from headrace.kernel.description import Kernel
from headrace.kernel.target import Code
from headrace.kernel.text import parse_kernel
from headrace.targets.cpu.target import CpuTarget, make
from headrace.translation import Task, translate

TEXT = """
kernel(%d0 = n) dims(n) {
  ro x : f32[n]
  wo y : f32[n]
  map() {
    %v0 = load x[%d0]
    %v1 = negate(%v0) : f32
    store %v1 to y[%d0]
  }
}
"""


def kernel(operation: str = "negate") -> Kernel:
    return parse_kernel(TEXT.replace("negate", operation))


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("HEADRACE_CACHE_DIR", str(tmp_path / "cache"))
    return tmp_path / "cache" / "code"


@pytest.fixture
def translated(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of the kernels that the CPU target is asked to translate."""
    names: list[str] = []
    real = CpuTarget.translate

    def counting(self: CpuTarget, name: str, given: Kernel) -> Code:
        names.append(name)
        return real(self, name, given)

    monkeypatch.setattr(CpuTarget, "translate", counting)
    return names


def task(given: Kernel, entry_point: str = "f") -> Task:
    return Task("e", entry_point, 0, given, "node 'a'")


def test_a_kernel_is_translated_once(cache: Path, translated: list[str]) -> None:
    (first,) = translate([task(kernel())], [make("cpu")])
    (second,) = translate([task(kernel(), "other_model")], [make("cpu")])
    assert first == second
    assert translated == [code_cache.kernel_symbol(kernel())]
    assert first.specialisations[0].launches[0].symbol.startswith(translated[0])
    assert [p.name for p in cache.iterdir()] == [code_cache.code_key(kernel(), make("cpu"))]


def test_of_equal_kernels_one_is_translated(translated: list[str]) -> None:
    seen: list[tuple[int, int]] = []
    tasks = [task(kernel()), task(kernel("abs")), task(kernel(), "again")]
    codes = translate(tasks, [make("cpu")], progress=lambda *counts: seen.append(counts))
    assert len(translated) == 2
    assert codes[0] is codes[2]
    assert codes[0].data != codes[1].data
    assert seen == [(0, 3), (2, 3), (3, 3)]


def test_a_key_hangs_on_all_that_decides_the_code(monkeypatch: pytest.MonkeyPatch) -> None:
    def key(operation: str = "negate", target: str = "cpu") -> str:
        return code_cache.code_key(kernel(operation), make(target))

    keys = [key(), key("abs"), key(target="cpu:generic"), key(target="cpu:native")]
    monkeypatch.setattr("headrace.__version__", "0.0.0")
    keys.append(key())
    monkeypatch.undo()
    monkeypatch.setattr(code_cache, "_emitter_digest", lambda kind: f"another {kind}")
    keys.append(key())
    monkeypatch.undo()
    monkeypatch.setattr(code_cache, "_library_versions", lambda: ("llvmlite 0",))
    keys.append(key())
    monkeypatch.undo()
    assert len(set(keys)) == len(keys)
    assert key() == keys[0]


def test_damage_is_written_over(cache: Path, translated: list[str]) -> None:
    (good,) = translate([task(kernel())], [make("cpu")])
    (path,) = cache.iterdir()
    whole = path.read_bytes()
    damaged = [b"", whole[:7], whole[:45], whole[:-1], whole + b"x"]
    damaged += [whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :] for at in (0, 9, 41, 60)]
    for number, data in enumerate(damaged):
        path.write_bytes(data)
        assert code_cache.read_code(path.name) is None
        (again,) = translate([task(kernel())], [make("cpu")])
        assert again == good
        assert path.read_bytes() == whole
        assert len(translated) == number + 2


def test_what_does_not_fit_is_absent_though_its_hash_is_right(cache: Path) -> None:
    import hashlib

    translate([task(kernel())], [make("cpu")])
    (path,) = cache.iterdir()
    for body in (b"\xff\xff\xff\xff{}", b"\x02\0\0\0{}", b"\x02\0\0\0{{", b"\x01\0\0\0\xff"):
        path.write_bytes(b"HRCODE1\n" + hashlib.sha256(body).digest() + body)
        assert code_cache.read_code(path.name) is None


def test_a_cache_that_cannot_be_written_is_no_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("HEADRACE_CACHE_DIR", str(tmp_path / "file"))
    (code,) = translate([task(kernel())], [make("cpu")])
    assert code.data


def test_a_refusal_names_the_nodes_and_is_not_kept(
    cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> Code:
        raise error("HR2432", "this target has no code for it")

    monkeypatch.setattr(CpuTarget, "translate", refuse)
    with pytest.raises(HeadraceError) as caught:
        translate([task(kernel())], [make("cpu")])
    assert caught.value.diagnostics[0].places == ("node 'a'",)
    assert not cache.exists()


@pytest.mark.parametrize(
    ("serial", "kernels", "workers"), [(12, 12, 0), (12, 13, 2), (3, 3, 0), (3, 5, 5)]
)
def test_workers_by_what_a_kernel_costs(
    serial: int, kernels: int, workers: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    started: list[int] = []

    def in_workers(tasks: Any, targets: Any, count: int, finished: Any) -> None:
        started.append(count)
        for number, one in enumerate(tasks):
            finished(number, translation._translate_one(targets[0], one))

    monkeypatch.setattr(translation, "_in_workers", in_workers)
    monkeypatch.setattr(CpuTarget, "serial_kernels", serial)
    tasks = [
        task(
            parse_kernel(
                TEXT.replace("f32[n]", f"f32[{n}]").replace("%d0 = n) dims(n)", f"%d0 = {n})")
            )
        )
        for n in range(8, 8 + kernels)
    ]
    translate(tasks, [make("cpu")], jobs=16)
    assert started == ([workers] if workers else [])
