"""Files made to mislead the reader: each is refused with an error, never with a crash."""

from __future__ import annotations

import json
import os
import random
import struct
import sys
from dataclasses import replace
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from hrx_files import change_module, header_of, put_code, put_header, put_module, sound

from headrace.artifact import container
from headrace.artifact.container import Section
from headrace.artifact.reader import open_artifact
from headrace.base.errors import HeadraceError
from headrace.plan import planner
from headrace.plan.profile import Profile


def refused(path: Path, code: str = "HR3104", fact: str = "") -> None:
    with pytest.raises(HeadraceError) as caught:
        open_artifact(path)
    assert {d.code for d in caught.value.diagnostics} == {code}
    assert fact in str(caught.value)
    assert str(path) in str(caught.value)


@pytest.fixture
def hrx(tmp_path):
    return sound(tmp_path / "a.hrx")


def program(value):
    return value["programs"][0]


def function(value):
    return program(value)["functions"][0]


def dispatch(value):
    return function(value)["body"]["commands"][0]


def launch(value):
    return program(value)["executables"][0]["variants"][0]["entry_points"][0][0]["launches"][0]


def put(owner, **fields):
    owner.update(fields)


def codes(block, base=100, escapes=1):
    return {"block": block, "base": base, "escapes": escapes}


def nested(depth):
    block = {"commands": []}
    for _ in range(depth):
        command = {"is": "If", "condition": 0, "then": block, "otherwise": {"commands": []}}
        block = {"commands": [command]}
    return block


CHANGES = [
    (lambda v: v["segments"].pop(), "do not cover"),
    (lambda v: put(v["segments"][0], offset_bytes=4096), "gap or overlaps"),
    (lambda v: put(v["segments"][0], size_bytes=100), "whole pages"),
    (lambda v: put(v["segments"][0], size_bytes=-4096), "whole pages"),
    (lambda v: put(v["segments"][0], digest="00"), "not those the header names"),
    (lambda v: put(v["weights"][0], offset_bytes=1 << 40), "outside the pool"),
    (lambda v: put(v["weights"][0], offset_bytes=-64), "outside the pool"),
    (lambda v: put(v["weights"][0], size_bytes=-1), "outside the pool"),
    (lambda v: put(v["weights"][0], offset_bytes=1), "not aligned"),
    (lambda v: put(v["weights"][1], offset_bytes=v["weights"][0]["offset_bytes"]), "overlap"),
    (lambda v: put(v["weights"][0], step_bytes=-1), "negative"),
    (lambda v: put(v["weights"][0], shape=[-1]), "negative"),
    (lambda v: put(v["weights"][0], dtype="f31"), "no element type"),
    (lambda v: put(v["weights"][0], codes=codes(31)), "cannot be packed as it says"),
    (lambda v: put(v["weights"][0], codes=codes(1 << 40)), "cannot be packed as it says"),
    (lambda v: put(v["weights"][0], codes=codes(32, base=256)), "cannot be packed as it says"),
    (lambda v: put(v["weights"][0], codes=codes(32, escapes=257)), "packed as it says"),
    (lambda v: put(v["weights"][0], codes=codes(32), dtype="f16"), "packed as it says"),
    (lambda v: put(v["weights"][0], codes=codes(32, escapes=100)), "bytes, packed"),
    (lambda v: put(v["weights"][0], codes=codes(32)), "cut inside its blocks"),
    (lambda v: put(v["weights"][0], codes={"block": 32}), "lacks"),
    (lambda v: put(v["dimensions"][0], minimum=9, maximum=1), "empty range"),
    (lambda v: v["dimensions"].append(v["dimensions"][0]), "the same name"),
    (lambda v: v["programs"].append(v["programs"][0]), "the same device class"),
    (lambda v: function(v)["resources"][2].update(weight=99), "weight 99 does not exist"),
    (lambda v: function(v)["resources"][2].update(weight=-1), "weight -1 does not exist"),
    (lambda v: function(v)["resources"][2].update(weight=None), "has no weight"),
    (lambda v: function(v)["resources"][0].update(weight=0), "has a weight"),
    (lambda v: function(v)["resources"][2].update(size_bytes="4"), "has size 4, its weight"),
    (
        lambda v: function(v)["resources"][0].update(size_bytes="4*seq"),
        "unknown dimensions seq",
    ),
    (lambda v: function(v)["resources"][0].update(size_bytes="4*"), "no size expression"),
    (lambda v: function(v)["resources"][0].update(size_bytes="-8"), "negative"),
    (lambda v: function(v)["resources"][0].update(lifetime="forever"), "'forever' is none"),
    (lambda v: function(v)["inputs"][0].update(resource=7), "resource 7 does not exist"),
    (lambda v: function(v)["inputs"][0].update(resource=2), "its resource is constant"),
    (lambda v: dispatch(v).update(executable=5), "executable 5 does not exist"),
    (lambda v: dispatch(v).update(entry_point=-1), "entry point -1 does not exist"),
    (lambda v: dispatch(v)["bindings"].pop(), "do not fit the interface"),
    (lambda v: dispatch(v)["constants"].pop(), "do not fit the interface"),
    (lambda v: dispatch(v)["bindings"][0].update(resource=77), "resource 77 does not exist"),
    (lambda v: dispatch(v)["bindings"][1].update(access="wo"), "writes the weight"),
    (lambda v: dispatch(v)["bindings"][1].update(size_bytes="99999999"), "ends after"),
    (lambda v: dispatch(v)["bindings"][1].update(offset_bytes="64"), "ends after"),
    (lambda v: launch(v).update(workgroups=["1", "1"]), "2 values stand where 3"),
    (lambda v: launch(v).update(scratch_bytes="%d0"), "unknown dimensions %d0"),
    (
        lambda v: launch(v).update(slice={"binding": 9, "axis": 0, "step_bytes": "4"}),
        "slice binding 9",
    ),
    (
        lambda v: launch(v).update(slice={"binding": 1, "axis": 3, "step_bytes": "4"}),
        "slice axis 3",
    ),
    (
        lambda v: program(v)["executables"][0]["variants"][0].update(code=1),
        "code 1 does not exist",
    ),
    (
        lambda v: program(v)["executables"][0]["variants"][0]["entry_points"][0].pop(),
        "no case for all other sizes",
    ),
    (lambda v: program(v)["executables"][0].update(variants=[]), "has no variant"),
    (lambda v: function(v).update(body=nested(200)), "nested too deeply"),
    (lambda v: function(v).update(body={"commands": [{"is": "os.system"}]}), "is none of"),
    (
        lambda v: function(v)["body"]["commands"].append(
            {"is": "Call", "function": 0, "resources": [0, 1, 2, 3, 4]}
        ),
        "call in a circle",
    ),
    (
        lambda v: function(v)["body"]["commands"].append(
            {"is": "Call", "function": 3, "resources": []}
        ),
        "function 3 does not exist",
    ),
    (
        lambda v: function(v)["body"]["commands"].append(
            {
                "is": "Fill",
                "target": 2,
                "offset_bytes": "0",
                "size_bytes": "4",
                "pattern": 1,
                "pattern_bytes": 4,
            }
        ),
        "is a weight",
    ),
    (
        lambda v: function(v)["body"]["commands"].append(
            {
                "is": "Fill",
                "target": 1,
                "offset_bytes": "0",
                "size_bytes": "4",
                "pattern": 300,
                "pattern_bytes": 1,
            }
        ),
        "no such pattern",
    ),
    (lambda v: v.update(extra=1), "Module has no 'extra'"),
    (lambda v: v.pop("weights"), "Module lacks weights"),
    (lambda v: [v], "is no Module"),
]


@pytest.mark.parametrize("number", range(len(CHANGES)))
def test_modules_that_contradict_themselves(hrx, number):
    change, fact = CHANGES[number]

    def apply(value):
        result = change(value)
        return result if isinstance(result, list) and result == [value] else None

    change_module(hrx, apply)
    refused(hrx, fact=fact)


def test_a_sound_file_passes(hrx):
    change_module(hrx, lambda v: None)
    open_artifact(hrx).verify_weights()


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"{",
        b"null",
        b"\xff\xfe",
        b"[" * 100_000,
        b'{"a":' * 100_000,
        b"NaN",
        b"1" * 10_000,
        b'{"name": 1e999}',
    ],
)
def test_modules_that_are_no_module(hrx, text):
    put_module(hrx, text)
    refused(hrx)


def test_expressions_nested_too_deeply(hrx):
    def deep(value):
        text = "(" * 9000 + "1" + ")" * 9000
        function(value)["resources"][0]["size_bytes"] = text

    change_module(hrx, deep)
    refused(hrx)


def test_an_expression_that_grows_beyond_measure(hrx):
    def large(value):
        text = "*".join(["(batch + batch*batch + 1)"] * 700)
        function(value)["resources"][0]["size_bytes"] = text

    change_module(hrx, large)
    refused(hrx, fact="grows beyond measure")


def test_sizes_beyond_the_file(hrx):
    header = header_of(hrx)
    for size in (1 << 40, 1 << 62, (1 << 64) - 1):
        put_header(hrx, replace(header, code=replace(header.code, size_bytes=size)))
        refused(hrx)
        put_header(hrx, replace(header, module=replace(header.module, size_bytes=size)))
        refused(hrx)
        put_header(hrx, replace(header, pool=replace(header.pool, size_bytes=size & ~4095)))
        refused(hrx)
        put_header(hrx, replace(header, pool=replace(header.pool, offset_bytes=size)))
        refused(hrx)


def test_a_large_sparse_file_does_not_fill_memory(hrx):
    """A module of a terabyte of zeros is refused before it is read."""
    header = header_of(hrx)
    at = header.module.offset_bytes
    put_header(hrx, replace(header, module=Section(at, 1 << 40, bytes(32))))
    os.truncate(hrx, at + (1 << 40))
    refused(hrx, fact="more than is allowed")


def test_overlapping_sections(hrx):
    header = header_of(hrx)
    put_header(hrx, replace(header, code=header.module))
    refused(hrx, fact="overlaps")


@pytest.mark.parametrize(
    "code",
    [
        b"",
        struct.pack("<Q", 1),
        struct.pack("<Q", 1 << 60),
        struct.pack("<QQQ", 1, 0, 4),
        struct.pack("<QQQ", 1, 24, 1 << 40),
        struct.pack("<QQQ", 1, (1 << 64) - 8, 16),
    ],
)
def test_tables_of_code_that_do_not_fit(hrx, code):
    put_code(hrx, code)
    refused(hrx, fact="table of code")


def test_other_versions_are_named(hrx):
    data = hrx.read_bytes()
    for version, word in ((99, "newer"), (0, "older")):
        hrx.write_bytes(data[:8] + struct.pack("<I", version) + data[12:])
        refused(hrx, "HR3103", word)
    header = header_of(Path(sound(hrx)))
    put_header(hrx, replace(header, flags=1))
    refused(hrx, "HR3103", "flags")


def test_what_is_no_hrx(tmp_path):
    path = tmp_path / "a.hrx"
    for data in (b"", b"\x89HR", b"PK\x03\x04" * 100, container.MAGIC):
        path.write_bytes(data)
        code = "HR3104" if data == container.MAGIC else "HR3103"
        refused(path, code)
    with pytest.raises(HeadraceError) as caught:
        open_artifact(tmp_path / "none.hrx")
    assert caught.value.diagnostics[0].code == "HR3102"
    with pytest.raises(HeadraceError):
        open_artifact(tmp_path)


def test_every_truncation_is_refused(hrx):
    data = hrx.read_bytes()
    rng = random.Random(3)
    for cut in [0, 7, 100, 207, 4095, 4096, len(data) - 1, *rng.sample(range(len(data)), 20)]:
        hrx.write_bytes(data[:cut])
        with pytest.raises(HeadraceError):
            open_artifact(hrx)


def test_random_bytes_outside_the_pool_are_always_noticed(hrx):
    data = hrx.read_bytes()
    header = header_of(hrx)
    places = list(range(container.HEADER_BYTES))
    places += range(header.code.offset_bytes, header.code.offset_bytes + header.code.size_bytes)
    places += range(header.module.offset_bytes, len(data))
    rng = random.Random(4)
    for place in rng.sample(places, 150):
        changed = bytearray(data)
        changed[place] ^= 1 << rng.randrange(8)
        hrx.write_bytes(bytes(changed))
        with pytest.raises(HeadraceError):
            open_artifact(hrx)


def test_random_changes_of_values_never_crash_reader_or_plan(hrx):
    """Whatever a field says, the answer is a plan or a HeadraceError."""
    header, data = header_of(hrx), hrx.read_bytes()
    at = header.module.offset_bytes
    text = data[at : at + header.module.size_bytes]
    rng = random.Random(5)
    odd = [-1, 0, 1, 3, 64, 4096, 1 << 31, 1 << 61, "", "batch", "0", "-4", "batch*batch", None]
    odd += ["1 floordiv 0", "batch mod 0", "1 floordiv (batch - batch)", [], {}, True, 1.5]
    for _ in range(150):
        value = json.loads(text)
        _change_somewhere(value, rng, odd)
        put_module(hrx, json.dumps(value).encode())
        try:
            module = open_artifact(hrx).module
            for batch in (1, 4, 64):
                planner.plan(
                    module,
                    module.programs[0],
                    0,
                    {"batch": batch},
                    1 << 40,
                    None,
                    Profile(),
                    threads=2,
                )
        except HeadraceError as problem:
            assert problem.exit_status == 2


def _change_somewhere(value, rng, odd):
    while True:
        keys = list(value) if isinstance(value, dict) else list(range(len(value)))
        key = rng.choice(keys)
        inner = value[key]
        if isinstance(inner, (dict, list)) and inner and rng.random() < 0.95:
            value = inner
            continue
        value[key] = rng.choice(odd)
        return
