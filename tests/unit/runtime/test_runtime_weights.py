"""Weights in place: what is mapped is what the plan allows; files that change or end."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import textwrap

import numpy as np
import pytest
from runtime_models import Mlp

from headrace.artifact.reader import open_artifact
from headrace.base.errors import HeadraceError
from headrace.runtime.drivers.cpu_machine_layout import Context
from headrace.runtime.module import load_module
from headrace.runtime.ranges import covers, merged, without
from headrace.runtime.weights.mapping import PoolMapping


def file_pages() -> int:
    """Bytes of files that are mapped into this process now."""
    with open("/proc/self/status") as status:
        found = re.search(r"RssFile:\s+(\d+)", status.read())
    assert found is not None
    return int(found.group(1)) * 1024


def test_ranges_are_joined_cut_and_covered():
    assert merged([(4, 6), (0, 2), (2, 3), (5, 9), (7, 7)]) == [(0, 3), (4, 9)]
    assert without([(0, 10)], [(2, 3), (5, 7), (9, 20)]) == [(0, 2), (3, 5), (7, 9)]
    assert without([(0, 4)], []) == [(0, 4)] and without([(3, 4)], [(0, 9)]) == []
    assert covers([(0, 4), (4, 8)], 1, 8) and not covers([(0, 4), (5, 8)], 1, 8)


@pytest.fixture
def mapping(mlp_path):
    found = PoolMapping(open_artifact(mlp_path))
    yield found
    found.close()


def test_populating_maps_exactly_the_range_that_was_cut(mapping):
    """A page cache of 2 MiB folios would map a neighbour otherwise."""
    page = 4096
    begin, end = 37 * page, 37 * page + (1 << 20)
    mapping.cut_at([begin, end])
    mapping.drop(0, mapping.size_bytes)
    before = file_pages()
    mapping.populate(begin, end)
    assert file_pages() - before == end - begin
    mapping.drop(begin, end)
    assert file_pages() == before


RESIDENT = textwrap.dedent("""
    import re, sys
    sys.path.insert(0, sys.argv[1])
    import numpy as np
    from headrace.runtime.module import load_module
    def peak():
        return int(re.search(r"VmHWM:\\s+(\\d+)", open("/proc/self/status").read())[1]) * 1024
    module = load_module(sys.argv[2], weight_budget=sys.argv[3])
    x = np.ones((2, 1024), np.float32)
    for _ in range(4):
        y = module(x)[0]
    print(peak(), module.weight_budget, module.stored_bytes)
""")


def test_the_peak_of_a_process_follows_the_budget(tmp_path_factory):
    """VmHWM at a budget is what it is at `max` less the weights that may not be there."""
    path = Mlp((1024,) * 17).write(tmp_path_factory.mktemp("peak") / "m.hrx")

    def peak(budget: str) -> tuple[int, int, int]:
        done = subprocess.run(
            [sys.executable, "-c", RESIDENT, os.path.dirname(__file__), str(path), budget],
            capture_output=True,
            text=True,
            timeout=60,
            check=True,
        )
        found, allowed, stored = map(int, done.stdout.split())
        return found, allowed, stored

    peak("max")  # fills page cache, machine and profile
    whole, _, _ = peak("max")
    for budget in ("50%", "min"):
        found, allowed, stored = peak(budget)
        assert allowed < stored
        assert found <= whole - (stored - allowed) + (8 << 20)


def test_a_smaller_budget_gives_memory_back_at_once(mlp_path):
    with load_module(mlp_path, weight_budget="max") as module:
        module(np.ones((1, 1024), np.float32))
        high = file_pages()
        module.weight_budget = "min"
        low = file_pages()
        freed = module.stored_bytes - module.weight_budget
        assert high - low >= freed - (1 << 20)
        module.weight_budget = "max"
        assert file_pages() >= high - (1 << 20)


def test_after_a_step_only_resident_weights_are_mapped(mlp_path):
    with load_module(mlp_path, weight_budget="min") as module:
        x = np.ones((1, 1024), np.float32)
        module(x)
        before = file_pages()
        for _ in range(5):
            module(x)
        assert abs(file_pages() - before) < 1 << 20


@pytest.mark.parametrize("budget", ["max", "min"])
def test_a_file_that_changes_is_noticed_before_a_step(mlp_path, tmp_path, budget):
    path = shutil.copy(mlp_path, tmp_path / "copy.hrx")
    x = np.ones((1, 1024), np.float32)
    with load_module(path, weight_budget=budget) as module:
        module(x)
        with open(path, "r+b") as file:
            file.truncate(os.path.getsize(path) // 2)
        with pytest.raises(HeadraceError, match="HR3105") as caught:
            module(x)
        assert "has changed" in str(caught.value)
        with pytest.raises(HeadraceError, match="HR3105"):
            module.weight_budget = "50%"


@pytest.mark.parametrize("budget", ["max", "min"])
def test_a_file_that_is_touched_is_noticed_and_so_is_that_it_is_as_before(
    mlp_path, tmp_path, budget
):
    path = shutil.copy(mlp_path, tmp_path / "copy.hrx")
    times = os.stat(path)
    x = np.ones((1, 1024), np.float32)
    with load_module(path, weight_budget=budget) as module:
        expected = module(x)[0]
        os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns + 1))
        with pytest.raises(HeadraceError, match="HR3105"):
            module(x)
        os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))
        assert (module(x)[0] == expected).all()


def test_a_file_that_is_replaced_by_another_goes_on(mlp_path, tmp_path):
    path = shutil.copy(mlp_path, tmp_path / "copy.hrx")
    x = np.ones((1, 1024), np.float32)
    with load_module(path, weight_budget="min") as module:
        y = module(x)[0]
        (tmp_path / "new").write_bytes(b"other")
        os.replace(tmp_path / "new", path)
        assert (module(x)[0] == y).all()


def test_a_file_cut_during_a_step_is_an_error_and_no_crash(mlp_path, tmp_path, monkeypatch):
    """The checks before the step pass; populating then finds nothing behind the end."""
    path = shutil.copy(mlp_path, tmp_path / "copy.hrx")
    x = np.ones((1, 1024), np.float32)
    with load_module(path, weight_budget="min") as module:
        module(x)
        monkeypatch.setattr(PoolMapping, "check_unchanged", lambda self: None)
        executor = module.session().executor()
        step = executor.prepare([x]).step
        step._words[Context.IDENTITY] = 0
        with open(path, "r+b") as file:
            file.truncate(8192)
        with pytest.raises(HeadraceError, match="HR3012") as caught:
            executor([x], {})
        assert "pool offset" in str(caught.value)


def test_a_file_written_to_before_loading_ends_is_refused(mlp_path, tmp_path):
    path = shutil.copy(mlp_path, tmp_path / "copy.hrx")
    artifact = open_artifact(path)
    os.utime(path, (1, 1))
    with pytest.raises(HeadraceError, match="HR3105"):
        PoolMapping(artifact)
    os.unlink(path)
    with pytest.raises(HeadraceError, match="HR3011"):
        PoolMapping(artifact)


def test_without_populate_pages_are_touched_and_the_report_says_so(mlp_path, monkeypatch):
    real = PoolMapping.__init__

    def old_kernel(self, artifact):
        real(self, artifact)
        self.populates = False

    x = np.ones((2, 1024), np.float32)
    with load_module(mlp_path, weight_budget="max") as module:
        expected = module(x)[0]
    monkeypatch.setattr(PoolMapping, "__init__", old_kernel)
    with load_module(mlp_path, weight_budget="min") as module:
        assert (module(x)[0] == expected).all()
        assert any("touched" in note for note in module.report().notes)


def test_a_forked_child_brings_its_own_weights(mlp_path):
    code = textwrap.dedent("""
        import os, sys
        import numpy as np
        from headrace.runtime.module import load_module
        module = load_module(sys.argv[1], weight_budget="50%")
        x = np.ones((2, 1024), np.float32)
        y = module(x)[0]
        child = os.fork()
        if child == 0:
            same = all((module(x)[0] == y).all() for _ in range(3))
            module.weight_budget = "min"
            os._exit(0 if same and (module(x)[0] == y).all() else 3)
        _, status = os.waitpid(child, 0)
        assert (module(x)[0] == y).all()
        sys.exit(os.waitstatus_to_exitcode(status))
    """)
    done = subprocess.run([sys.executable, "-c", code, str(mlp_path)], timeout=60, check=False)
    assert done.returncode == 0
