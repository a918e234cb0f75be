"""State, several functions, control flow, tables and variants, end to end on the CPU."""

from __future__ import annotations

import numpy as np
import pytest
from runtime_programs import (
    ProgramBuilder,
    accumulator,
    doubling_loop,
    external,
    single_ir,
    table_lookup,
)
from test_runtime_weights import file_pages

from headrace.artifact import schema as s
from headrace.base.dtypes import F32
from headrace.base.errors import HeadraceError
from headrace.base.symbols import ONE, as_expr
from headrace.runtime.drivers.cpu_link import host_features, pick_variants
from headrace.runtime.module import load_module


def test_state_is_kept_between_steps_and_functions_and_belongs_to_a_session(tmp_path):
    x = np.arange(200, dtype=np.float32)
    with load_module(accumulator(tmp_path / "a.hrx")) as module:
        assert module.functions == ("add", "read")
        assert (module(function="read")[0] == 0).all()
        for step in range(1, 4):
            assert (module(x)[0] == step * x).all()
        assert (module(function="read")["y"] == 3 * x).all()
        with module.session() as other:
            assert (other(x)[0] == x).all()
        assert (module(x)[0] == 4 * x).all()


def test_loops_and_branches_follow_scalars(tmp_path):
    x = np.arange(100, dtype=np.float32)
    with load_module(doubling_loop(tmp_path / "l.hrx")) as module:
        for times in (0, 1, 2, 5, 0, 8):
            expected = x * 2.0**times + (1000 if times % 2 else 0)
            assert (module(x, times)[0] == expected).all()
            assert (module(x=x, times=np.int64(times))["y"] == expected).all()
        module.calibrate()
        assert (module(x, 3)[0] == x * 8 + 1000).all()


def test_weights_stream_inside_a_loop(tmp_path):
    n = 1 << 20
    path = doubling_loop(tmp_path / "s.hrx", n, weights=4)
    x = np.ones(n, np.float32)
    with load_module(path, weight_budget="min") as module:
        assert module.weight_budget < module.stored_bytes
        assert module.plan().fetches
        before = file_pages()
        for times in (2, 0, 3):
            y = module(x, times)[0]
            assert (y[1:] == 16.0**times + (1000 if times % 2 else 0)).all()
        assert file_pages() - before < 1 << 20


def test_rows_of_a_table_are_read_in_place_and_not_kept(tmp_path):
    rows = 1 << 16  # 16 MiB
    index = np.array([0, rows - 1, rows // 2, 7], np.int64)
    with load_module(table_lookup(tmp_path / "t.hrx", rows), weight_budget="min") as module:
        before = file_pages()
        for _ in range(3):
            y = module(index)[0]
            assert (y[:, 0] == (index * 64).astype(np.float32)).all()
            index = (index * 31 + 5) % rows
        assert module.weight_budget < 1 << 20
        assert file_pages() - before < 1 << 20


def feature_module(tmp_path, *features: str):
    """A module of one executable with a variant for each list of features."""
    b = ProgramBuilder()
    for number, _ in enumerate(features):
        text = single_ir(
            f"k{number}",
            1,
            f"  store float {float(number)}, ptr %p0\n  ret void",
        )
        b.kernel(f"k{number}", text, "wo")
    variants = tuple(
        s.Variant(
            f"cpu:v{number}",
            "elf-object",
            number,
            tuple(wanted.split()),
            b.executables[number].variants[0].entry_points,
        )
        for number, wanted in enumerate(features)
    )
    b.executables = [
        s.Executable("k", b.executables[0].entry_points, variants, digest="d"),
    ]
    resources = [s.Resource("y", "external", as_expr(4))]
    b.functions.append(
        s.EntryFunction(
            "main",
            (),
            (external("y", (ONE,), F32, 0),),
            tuple(resources),
            s.Block((b.dispatch(0, resources, [0]),)),
        )
    )
    return b.write(tmp_path / "f.hrx")


def test_the_first_variant_that_fits_the_host_runs(tmp_path):
    path = feature_module(tmp_path, "avx2 quantum", "sse2", "")
    with load_module(path) as module:
        assert module.code.variants == (1,)
        assert module()[0][0] == 1


def test_missing_features_are_named(tmp_path):
    path = feature_module(tmp_path, "avx2 quantum", "time-travel")
    with pytest.raises(HeadraceError, match="HR4002") as caught:
        load_module(path)
    text = str(caught.value)
    assert "cpu:v0 needs quantum" in text and "cpu:v1 needs time-travel" in text


def test_llvm_names_of_features_are_found_on_the_host():
    flags = host_features()
    assert "sse2" in flags
    for llvm_name, linux_name in (("sse4.1", "sse4_1"), ("avx512vnni", "avx512_vnni")):
        assert (llvm_name in flags) == (linux_name in flags)
    program = s.Program("cpu", (), ())
    assert pick_variants(program, flags) == ()


def test_a_symbol_that_the_code_lacks_is_an_error(tmp_path):
    b = ProgramBuilder()
    b.kernel("there", single_ir("elsewhere", 1, "  ret void"), "wo")
    resources = [s.Resource("y", "external", as_expr(4))]
    b.functions.append(
        s.EntryFunction(
            "main",
            (),
            (external("y", (ONE,), F32, 0),),
            tuple(resources),
            s.Block((b.dispatch(0, resources, [0]),)),
        )
    )
    with pytest.raises(HeadraceError, match="does not define 'there'"):
        load_module(b.write(tmp_path / "s.hrx"))


def test_a_module_for_another_class_of_device_is_refused(tmp_path):
    b = ProgramBuilder()
    resources = (s.Resource("y", "external", as_expr(4)),)
    b.functions.append(
        s.EntryFunction("main", (), (external("y", (ONE,), F32, 0),), resources, s.Block(()))
    )
    with pytest.raises(HeadraceError, match="HR4008") as caught:
        load_module(b.write(tmp_path / "g.hrx", "cuda"))
    assert "compiled for cuda" in str(caught.value)
