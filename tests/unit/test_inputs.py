"""Inputs as the command line spells them."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from headrace.base.errors import HeadraceError
from headrace.inputs import read_inputs


@dataclass(frozen=True)
class Info:
    """What `read_inputs` asks of an input."""

    name: str
    dtype: str = "f32"
    shape: tuple[int | str, ...] = (2, 3)


X, Y = Info("x"), Info("y")
SIX = np.arange(6, dtype=np.float32).reshape(2, 3)


@pytest.fixture(autouse=True)
def _folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    np.save("six.npy", SIX)
    np.savez("both.npz", x=SIX, y=SIX + 1, z=SIX)
    SIX.tofile("six.bin")


def codes(given: list[str], *signature: Info, dims: dict[str, int] | None = None) -> list[str]:
    with pytest.raises(HeadraceError) as caught:
        read_inputs(given, signature, dims or {})
    return [d.code for d in caught.value.diagnostics]


def one(given: str, info: Info = X, dims: dict[str, int] | None = None) -> Any:
    return read_inputs([given], (info,), dims or {})[info.name]


@pytest.mark.parametrize(
    "spelled",
    ["x=@six.npy", "@six.npy", "@six.bin:2x3xf32", "x=@six.bin:2x3xf32", "x=@both.npz"],
)
def test_spellings_of_a_file(spelled: str) -> None:
    np.testing.assert_array_equal(one(spelled), SIX)


def test_names_go_before_places() -> None:
    found = read_inputs(["@six.npy", "x=@both.npz"], (X, Y), {})
    assert list(found) == ["x", "y"]
    np.testing.assert_array_equal(found["y"], SIX)


def test_an_archive_fills_what_it_names() -> None:
    found = read_inputs(["@both.npz"], (X, Y), {})
    np.testing.assert_array_equal(found["y"], SIX + 1)


def test_an_input_given_twice_is_an_error() -> None:
    assert codes(["x=random", "x=@six.npy"], X) == ["HR0309"]
    assert codes(["x=random", "x=@six.npy", "nope=1"], X) == ["HR0309", "HR0301"]
    # All of them by name in a file, and one of them otherwise, is no contradiction.
    assert read_inputs(["@both.npz", "x=@six.npy"], (X, Y), {}).keys() == {"x", "y"}


@pytest.mark.parametrize(
    ("text", "dtype", "value"),
    [
        ("1.5", "f32", 1.5),
        ("-2e3", "f64", -2000.0),
        ("nan", "f16", np.nan),
        ("9007199254740993", "i64", 9007199254740993),
        ("-128", "i8", -128),
        ("255", "ui8", 255),
        ("1", "i1", True),
    ],
)
def test_numbers_are_exact(text: str, dtype: str, value: object) -> None:
    got = one(text, Info("x", dtype, ()))
    assert got.shape == ()
    np.testing.assert_equal(got[()], value)


@pytest.mark.parametrize(
    ("text", "dtype"),
    [
        ("1.5", "i32"),
        ("300", "i8"),
        ("-1", "ui8"),
        ("pear", "f32"),
        ("", "f32"),
        ("9" * 30, "i64"),
    ],
)
def test_what_is_no_number(text: str, dtype: str) -> None:
    assert codes([f"x={text}"], Info("x", dtype, ())) == ["HR0305"]


def test_random_is_seeded_and_typed() -> None:
    info = (Info("x", "f32", ("n", 3)), Info("m", "i1", ("n",)), Info("i", "i64", ("2*n",)))
    first = read_inputs(["random"], info, {"n": 4}, seed=5)
    again = read_inputs(["random"], info, {"n": 4}, seed=5)
    other = read_inputs(["random"], info, {"n": 4}, seed=6)
    assert {k: (v.shape, str(v.dtype)) for k, v in first.items()} == {
        "x": ((4, 3), "float32"),
        "m": ((4,), "bool"),
        "i": ((8,), "int64"),
    }
    for name in first:
        np.testing.assert_array_equal(first[name], again[name])
    assert not np.array_equal(first["x"], other["x"])
    assert set(np.unique(first["i"])) <= {0, 1}


def test_random_beside_a_file() -> None:
    found = read_inputs(["random", "@six.npy"], (X, Y), {})
    np.testing.assert_array_equal(found["x"], SIX)
    assert found["y"].shape == (2, 3)


def test_everything_wrong_is_said_at_once() -> None:
    assert codes([], X, Y) == ["HR0302", "HR0302"]
    assert codes(["q=1", "r=1"], X) == ["HR0301", "HR0301"]
    assert codes(["x=@no.npy", "y=pear"], X, Y) == ["HR0304", "HR0305"]


def test_sizes_that_random_needs() -> None:
    assert codes(["random"], Info("x", "f32", ("a", "b + 1")), dims={"a": 1}) == ["HR0306"]


def test_one_too_many() -> None:
    assert codes(["@six.npy", "@six.npy"], X) == ["HR0303"]


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("empty.npy", b""),
        ("text.npy", b"no array"),
        ("cut.npy", b"\x93NUMPY\x01\x00"),
        ("text.npz", b"no archive"),
        ("cut.npz", b"PK\x03\x04" + bytes(40)),
    ],
)
def test_files_that_cannot_be_read(name: str, content: bytes) -> None:
    Path(name).write_bytes(content)
    assert codes([f"x=@{name}"], X) == ["HR0304"]
    assert codes([f"@{name}"], X) == ["HR0304"]


def test_names_that_lie() -> None:
    Path("array.npz").write_bytes(Path("six.npy").read_bytes())
    Path("archive.npy").write_bytes(Path("both.npz").read_bytes())
    assert codes(["x=@array.npz"], X) == ["HR0304"]
    assert codes(["@array.npz"], X) == ["HR0304"]
    assert codes(["@archive.npy"], X) == ["HR0304"]


def test_an_archive_without_the_name() -> None:
    assert codes(["w=@both.npz"], Info("w")) == ["HR0304"]


def test_objects_are_not_unpickled() -> None:
    np.save("object.npy", np.array([print], dtype=object), allow_pickle=True)
    assert codes(["@object.npy"], X) == ["HR0304"]


@pytest.mark.parametrize("spelled", ["@six.bin:2x2xf32", "@six.bin:2x3xf99", "@six.bin:f32"])
def test_raw_files_that_do_not_fit(spelled: str) -> None:
    assert codes([spelled], X) == ["HR0305"]


def test_a_raw_file_that_is_not_there() -> None:
    assert codes(["@no.bin:2x3xf32"], X) == ["HR0304"]
    assert codes(["@."], X) == ["HR0304"]
