"""Writing and reading a `.hrx`."""

from __future__ import annotations

import os
import resource
import subprocess
import sys
import textwrap

import numpy as np
import pytest
from artifact_parts import evaluate, module_parts, spec

from headrace.artifact.reader import open_artifact
from headrace.artifact.writer import write_artifact
from headrace.base.errors import HeadraceDefect, HeadraceError

RNG = np.random.default_rng(1)


def arrays(*counts):
    return [RNG.standard_normal(n).astype(np.float32) for n in counts]


def write(path, weights, **steps):
    specs = [spec(f"w{i}", w, **steps) for i, w in enumerate(weights)]
    return write_artifact(path, module_parts([w.nbytes for w in weights]), specs, evaluate)


def stored(artifact, index):
    weight = artifact.module.weights[index]
    with open(artifact.path, "rb") as file:
        file.seek(artifact.pool_offset_bytes + weight.offset_bytes)
        return np.frombuffer(file.read(weight.size_bytes), np.float32)


def test_what_is_written_is_read(tmp_path):
    weights = arrays(300_000, 7, 100_000, 64)
    module = write(tmp_path / "a.hrx", weights)
    artifact = open_artifact(tmp_path / "a.hrx")
    assert artifact.module == module
    assert artifact.code(0) == b"\x7fELF code"
    assert artifact.pool_offset_bytes % 4096 == 0
    assert artifact.pool_size_bytes == sum(x.size_bytes for x in module.segments)
    for index, weight in enumerate(weights):
        np.testing.assert_array_equal(stored(artifact, index), weight)
    artifact.verify_weights()


def test_the_same_module_gives_the_same_bytes(tmp_path):
    weights = arrays(300_000, 7, 100_000)
    (tmp_path / "other").mkdir()
    write(tmp_path / "a.hrx", weights)
    write(tmp_path / "other" / "b.hrx", weights)
    first = (tmp_path / "a.hrx").read_bytes()
    assert first == (tmp_path / "other" / "b.hrx").read_bytes()
    assert str(tmp_path).encode() not in first


def test_equal_weights_are_evaluated_and_stored_once(tmp_path):
    (weight,) = arrays(200_000)
    calls = []
    specs = [spec("a", weight), spec("b", weight), spec("c", weight.copy())]

    def counting(source):
        calls.append(source)
        return source.array

    module = write_artifact(tmp_path / "a.hrx", module_parts([800_000] * 3), specs, counting)
    assert len(calls) == 1
    assert len({w.offset_bytes for w in module.weights}) == 1
    assert [w.name for w in module.weights] == ["a", "b", "c"]
    open_artifact(tmp_path / "a.hrx")


def test_weights_of_equal_bytes_but_other_sources_are_stored_once(tmp_path):
    (weight,) = arrays(200_000)
    specs = [spec("a", weight), spec("b", weight.reshape(1000, 200))]
    module = write_artifact(tmp_path / "a.hrx", module_parts([800_000] * 2), specs, evaluate)
    assert len({w.offset_bytes for w in module.weights}) == 1


def test_a_file_is_little_more_than_its_weights(tmp_path):
    weights = arrays(*[9408 * 40] * 12, *[2048] * 12)
    write(tmp_path / "a.hrx", weights, step_bytes=9408)
    size = os.path.getsize(tmp_path / "a.hrx")
    assert size <= 1.02 * sum(w.nbytes for w in weights)


@pytest.mark.parametrize("problem", [KeyboardInterrupt, MemoryError, ValueError])
def test_nothing_is_left_when_a_weight_fails(tmp_path, problem):
    weights = arrays(300_000, 100_000)
    write(tmp_path / "a.hrx", weights)
    before = (tmp_path / "a.hrx").read_bytes()
    specs = [spec(f"w{i}", w) for i, w in enumerate(weights)]

    def failing(source):
        if source.array.size == 100_000:
            raise problem
        return source.array

    with pytest.raises(problem):
        write_artifact(tmp_path / "a.hrx", module_parts([1_200_000, 400_000]), specs, failing)
    assert (tmp_path / "a.hrx").read_bytes() == before
    assert os.listdir(tmp_path) == ["a.hrx"]


def test_a_weight_of_the_wrong_size_is_our_defect(tmp_path):
    specs = [spec("w", arrays(10)[0])]
    with pytest.raises(HeadraceDefect, match="has 36 bytes, not 40"):
        write_artifact(
            tmp_path / "a.hrx", module_parts([40]), specs, lambda source: source.array[1:]
        )
    assert os.listdir(tmp_path) == []


def test_a_folder_that_is_not_there(tmp_path):
    with pytest.raises(HeadraceError) as caught:
        write(tmp_path / "no" / "a.hrx", arrays(4))
    assert caught.value.diagnostics[0].code == "HR3101"


def test_progress_ends_at_the_total(tmp_path):
    weights = arrays(300_000, 100_000)
    seen = []
    specs = [spec(f"w{i}", w) for i, w in enumerate(weights)]
    write_artifact(
        tmp_path / "a.hrx",
        module_parts([1_200_000, 400_000]),
        specs,
        evaluate,
        lambda done, total: seen.append((done, total)),
    )
    assert seen[-1] == (1_600_000, 1_600_000)
    assert seen == sorted(seen)


def test_no_weights_at_all(tmp_path):
    write(tmp_path / "a.hrx", [])
    artifact = open_artifact(tmp_path / "a.hrx")
    assert artifact.pool_size_bytes == 0
    artifact.verify_weights()


def test_damaged_weights_are_found_on_demand(tmp_path):
    write(tmp_path / "a.hrx", arrays(300_000))
    artifact = open_artifact(tmp_path / "a.hrx")
    before = os.stat(artifact.path)
    with open(artifact.path, "r+b") as file:
        file.seek(artifact.pool_offset_bytes + 5)
        file.write(b"\x55\x55")
    os.utime(artifact.path, ns=(before.st_atime_ns, before.st_mtime_ns))
    open_artifact(artifact.path)
    with pytest.raises(HeadraceError) as caught:
        artifact.verify_weights()
    assert caught.value.diagnostics[0].code == "HR3106"
    os.utime(artifact.path)
    with pytest.raises(HeadraceError) as caught:
        artifact.verify_weights()
    assert caught.value.diagnostics[0].code == "HR3105"


def test_one_weight_is_in_memory_at_a_time(tmp_path):
    """A chain of 40 weights of 8 MB is written with little more than one of them."""
    script = textwrap.dedent(
        f"""
        import resource, sys
        sys.path.insert(0, {os.path.dirname(__file__)!r})
        import numpy as np
        from artifact_parts import module_parts
        from headrace.artifact.writer import WeightSpec, write_artifact
        from headrace.base.dtypes import F32
        from headrace.base.parameters import expression

        count, size = 40, 2_000_000
        specs = [
            WeightSpec(f"w{{i}}", expression("iota", (), F32, (size,), start=i), 4 * size, 4000,
                       F32, (size,)) for i in range(count)
        ]
        def evaluate(source):
            return np.arange(size, dtype=np.float32) + dict(source.attributes)["start"]
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        write_artifact({str(tmp_path / "a.hrx")!r}, module_parts([4 * size] * count), specs,
                       evaluate)
        print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
        """
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    assert int(done.stdout) * 1024 < 60_000_000
    assert os.path.getsize(tmp_path / "a.hrx") > 320_000_000
    assert resource.getpagesize() == 4096
