"""Budgets, profiles and dimensions."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import plan_chains as chains
import pytest

from headrace.artifact import schema as s
from headrace.base.errors import HeadraceError
from headrace.base.symbols import as_expr
from headrace.plan import planner
from headrace.plan.budget import format_bytes, parse_budget, parse_size
from headrace.plan.profile import Profile, kernel_key, two_digits


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("25MB", 25_000_000),
        ("2GiB", 2 << 30),
        ("1.5g", 1_500_000_000),
        ("0.1 kB", 100),
        ("4096", 4096),
        (4096, 4096),
        (np.int64(4096), 4096),
        ("50%", 500),
        ("12.5%", 125),
        ("3 MiB", 3 << 20),
    ],
)
def test_sizes(text, size):
    assert parse_size(text, 1000, of="weight budget") == size


@pytest.mark.parametrize(
    "text",
    [
        "",
        "MB",
        "-3",
        -3,
        "3 apples",
        "1e9",
        "50%%",
        True,
        "٣MB x",
        "0.5",
        0.5,
        "nan",
        "9" * 5000,
    ],
)
def test_what_is_no_size(text):
    with pytest.raises(HeadraceError) as caught:
        parse_size(text, 1000, of="weight budget")
    (found,) = caught.value.diagnostics
    assert found.code == "HR3201" and found.places == ("weight budget",)
    assert "50%" in found.helps[0] and len(found.fact) < 80


@pytest.mark.parametrize("text", ["50%", "max", "auto", "-5", "1e99GB"])
def test_what_is_a_budget_only_is_no_limit(text):
    with pytest.raises(HeadraceError, match="HR3201") as caught:
        parse_size(text, of="memory limit")
    (found,) = caught.value.diagnostics
    # No part of the weights, and no word, would do.
    assert found.places == ("memory limit",) and found.helps == ("write bytes: 25MB, 2GiB",)


def test_words():
    assert parse_budget("min", 1000, 100, 10**9) == 100
    assert parse_budget(0, 1000, 100, 10**9) == 100
    assert parse_budget("0", 1000, 100, 10**9) == 100
    assert parse_budget("MAX", 1000, 100, 10**9) == 1000
    assert parse_budget("auto", 1000, 100, 10**9) == 1000
    assert parse_budget("auto", 1000, 100, 500) == 450
    assert parse_budget("2GB", 1000, 100, 10**9) == 1000
    assert parse_budget(100, 1000, 100, 10**9) == 100


@pytest.mark.parametrize("value", [99, "99", "9.9%", "auto"])
def test_too_little_names_the_minimum(value):
    with pytest.raises(HeadraceError) as caught:
        parse_budget(value, 1000, 100, 100)
    assert caught.value.diagnostics[0].code == "HR3202"
    assert "100 bytes" in str(caught.value)
    # Who asked for nothing is told what was looked at.
    assert ("nine tenths of the 100 bytes" in str(caught.value)) == (value == "auto")


def test_large_sizes_are_shown_in_both_ways():
    assert format_bytes(999) == "999 bytes"
    assert format_bytes(25_165_824) == "25.2 MB (25165824 bytes)"


def test_a_profile_comes_back_equal():
    key = kernel_key("d0", "k", {"seq": 8, "batch": 1}, (3, 1, 1))
    assert key == "d0/k[batch=1,seq=8](3x1x1)"
    profile = Profile("cpu", 7e9, 10, 20, 3e9, 4e9, 0.5, {key: 1234})
    assert Profile.from_json(profile.to_json()) == profile
    assert two_digits(123456) == 120000.0
    assert two_digits(float("nan")) == 0.0


@pytest.mark.parametrize(
    "text",
    ["", "[]", "{}", '{"version": 9}', '{"version": 1, "speed": 3}']
    + [
        Profile().to_json().replace("6000000000.0", bad)
        for bad in ("0", "-1", "NaN", "Infinity", '"fast"', "null")
    ]
    + [Profile(kernel_ns={"k": 1}).to_json().replace('"k": 1', '"k": "x"')],
)
def test_what_is_no_profile(text):
    with pytest.raises(HeadraceError) as caught:
        Profile.from_json(text, "/p.json")
    assert caught.value.diagnostics[0].code == "HR3301"
    assert "/p.json" in str(caught.value)


def symbolic():
    module = chains.chain(4)
    program = module.programs[0]
    main = program.functions[0]
    resources = (
        replace(main.resources[0], size_bytes=as_expr("64*batch")),
        *main.resources[1:],
    )
    first, *rest = main.body.commands
    bindings = (replace(first.bindings[0], size_bytes=as_expr("64*batch")), *first.bindings[1:])
    body = s.Block((replace(first, bindings=bindings), *rest))
    executable = program.executables[0]
    (variant,) = executable.variants
    ((case,),) = variant.entry_points
    few = replace(
        case,
        conditions=(s.Condition(as_expr("batch"), None, 4),),
        launches=(replace(case.launches[0], symbol="few"),),
    )
    variant = replace(variant, entry_points=((few, case),))
    executables = (replace(executable, variants=(variant,)), *program.executables[1:])
    function = replace(main, resources=resources, body=body)
    return replace(
        module,
        dimensions=(s.DimensionRange("batch", 1, 16),),
        programs=(replace(program, functions=(function,), executables=executables),),
    )


def test_dimensions_choose_the_launch_and_nothing_else_does():
    module = symbolic()
    for batch, symbol in ((1, "few"), (4, "few"), (5, "k0")):
        prepared = planner.prepare(
            module, module.programs[0], 0, {"batch": batch}, Profile(), threads=1
        )
        for budget in (prepared.minimum_budget_bytes, prepared.stored_bytes):
            command = prepared.plan(budget).commands[0]
            assert command.symbol == symbol
            assert command.sizes_bytes[0] == 64 * batch


@pytest.mark.parametrize(
    ("dims", "fact"),
    [
        ({}, "has no size"),
        ({"batch": 17}, "out of range"),
        ({"batch": 0}, "out of range"),
        ({"batch": 1, "seq": 2}, "no dimension 'seq'"),
    ],
)
def test_dimensions_that_do_not_fit(dims, fact):
    module = symbolic()
    with pytest.raises(HeadraceError, match=fact) as caught:
        planner.prepare(module, module.programs[0], 0, dims, Profile(), threads=1)
    assert caught.value.diagnostics[0].code == "HR4101"


def test_measured_times_are_used():
    module = chains.chain(3)
    key = kernel_key("d1", "k1", {}, (1, 1, 1))
    profile = Profile(kernel_ns={key: 5_000_000})
    prepared = planner.prepare(module, module.programs[0], 0, {}, profile, threads=1)
    commands = prepared.plan(prepared.stored_bytes).commands
    assert [c.predicted_ns for c in commands][1] == 5_000_000
    assert commands[0].predicted_ns < 5_000_000
