"""Inputs as the command line spells them: `name=@file.npy`, `@file.bin:1x3xf32`, `random`."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from headrace.base.dtypes import BY_NAME, DType
from headrace.base.errors import Diagnostic, HeadraceError, Problems, error
from headrace.base.symbols import as_expr

_RAW = re.compile(r"^(?P<path>.+):(?P<shape>(?:\d+x)*)(?P<dtype>[A-Za-z]\w*)$")


def read_inputs(
    given: Sequence[str],
    signature: Sequence[Any],
    dims: Mapping[str, int],
    seed: int = 0,
) -> dict[str, Any]:
    """The arrays for a call.

    Args:
        given: `[name=]value`, where value is `random`, `@file.npy`, `@file.npz` (every
            input by its name), `@file.bin:1x3x224x224xf32`, or a number for a scalar.
            Without a name, values go to the inputs in order. Inputs that are not given
            are an error; `random` alone stands for all.
        signature: the function's inputs: `name`, `dtype` (MLIR's name) and `shape` (ints, or
            texts of expressions).
        dims: named sizes, for random inputs.
        seed: of random inputs, drawn in the order of the signature.

    Raises:
        HeadraceError HR0301..HR0305, HR0309: unknown names, missing inputs, inputs given
            twice, unreadable files, missing sizes; all at once.
    """
    problems = Problems()
    texts = _by_name(given, [i.name for i in signature], problems)
    problems.raise_if_any()
    import numpy as np

    generator = np.random.default_rng(seed)
    arrays: dict[str, Any] = {}
    for info in signature:
        text = texts.get(info.name)
        if text is None:
            problems.add(
                Diagnostic(
                    "HR0302",
                    f"input '{info.name}' is not given",
                    helps=("pass --input NAME=@file.npy, or --input random for all",),
                )
            )
            continue
        try:
            arrays[info.name] = _value(text, info, dims, generator)
        except HeadraceError as wrong:
            for diagnostic in wrong.diagnostics:
                problems.add(diagnostic)
    problems.raise_if_any()
    return arrays


def _by_name(given: Sequence[str], names: Sequence[str], problems: Problems) -> dict[str, str]:
    found: dict[str, str] = {}
    free = iter(names)

    def turn(item: str) -> int:
        """Names first, then what goes by place, then `random` for the rest."""
        return 2 if item == "random" else int(item.partition("=")[0] not in names)

    for item in sorted(given, key=turn):
        name, equals, value = item.partition("=")
        if equals and name in names:
            if name in found:
                problems.add(Diagnostic("HR0309", f"input '{name}' is given twice"))
            found[name] = value
            continue
        if equals and not name.startswith("@"):
            problems.add(
                Diagnostic(
                    "HR0301",
                    f"there is no input named '{name}'",
                    notes=(f"the inputs are {', '.join(names)}",),
                )
            )
            continue
        if item == "random":
            for rest in names:
                found.setdefault(rest, item)
            continue
        if item.startswith("@") and item.endswith(".npz"):
            for key in _npz_names(item[1:]):
                if key in names:
                    found[key] = item
            continue
        position = next((n for n in free if n not in found), None)
        if position is None:
            problems.add(Diagnostic("HR0303", f"'{item}' is one input too many"))
            continue
        found[position] = item
    return found


def _npz_names(path: str) -> list[str]:
    with _opened(path, archive=True) as archive:
        return list(archive.files)


def _opened(path: str, archive: bool = False) -> Any:
    """The array in a `.npy`, or a `.npz` as numpy opens it."""
    from zipfile import BadZipFile

    import numpy as np

    try:
        found = np.load(path, allow_pickle=False)
    except (OSError, ValueError, EOFError, BadZipFile) as wrong:
        raise error(
            "HR0304",
            f"cannot read '{path}'",
            notes=str(wrong),
            helps="give a file that numpy.save or numpy.savez wrote, without Python objects",
        ) from wrong
    if isinstance(found, np.ndarray) == archive:
        what = "one array, and is named .npz" if archive else "several arrays: name it .npz"
        raise error("HR0304", f"cannot read '{path}'", notes=f"it holds {what}")
    return found


def _number(text: str, kind: DType) -> Any:
    """A scalar of exactly that type. Raises ValueError where it is none."""
    import numpy as np

    if not kind.is_integer:
        return np.asarray(float(text)).astype(kind.numpy_dtype)
    number = np.asarray(int(text)).astype(kind.numpy_dtype)
    if int(number) != int(text):
        raise ValueError(f"{text} does not fit {kind}")
    return number


def _value(text: str, info: Any, dims: Mapping[str, int], generator: Any) -> Any:
    if text == "random":
        return _random(info, dims, generator)
    if text.startswith("@"):
        return _file(text[1:], info)
    try:
        return _number(text, BY_NAME[info.dtype])
    except (ValueError, OverflowError) as wrong:
        raise error(
            "HR0305",
            f"'{text}' is no value for input '{info.name}'",
            notes=str(wrong),
            helps="use @file.npy, @file.npz, @file.bin:SHAPExTYPE, random, or a number",
        ) from wrong


def _file(path: str, info: Any) -> Any:
    raw = _RAW.match(path)
    if raw is not None and not Path(path).exists():
        return _raw_file(raw, info)
    if path.endswith(".npz"):
        with _opened(path, archive=True) as archive:
            if info.name not in archive.files:
                raise error(
                    "HR0304",
                    f"'{path}' holds no array named '{info.name}'",
                    notes=f"it holds {', '.join(archive.files) or 'none'}",
                )
            return archive[info.name]
    return _opened(path)


def _raw_file(raw: re.Match[str], info: Any) -> Any:
    import numpy as np

    kind = BY_NAME.get(raw["dtype"])
    if kind is None:
        raise error(
            "HR0305",
            f"'{raw['dtype']}' is no element type for input '{info.name}'",
            helps=f"one of {', '.join(BY_NAME)}",
        )
    shape = tuple(int(s) for s in raw["shape"].split("x") if s)
    try:
        flat = np.fromfile(raw["path"], dtype=kind.numpy_dtype)
    except OSError as wrong:
        raise error("HR0304", f"cannot read '{raw['path']}'", notes=str(wrong)) from wrong
    count = int(np.prod(shape, dtype=np.int64))
    if flat.size != count:
        raise error(
            "HR0305",
            f"'{raw['path']}' holds {flat.size} elements of {kind}, the shape has {count}",
        )
    return flat.reshape(shape)


def _random(info: Any, dims: Mapping[str, int], generator: Any) -> Any:
    sizes = [as_expr(s) for s in info.shape]
    missing = sorted({n for s in sizes for n in s.names} - set(dims))
    if missing:
        raise error(
            "HR0306",
            f"input '{info.name}' needs a size for {', '.join(missing)}",
            helps=" ".join(f"--dim {n}=SIZE" for n in missing),
        )
    shape = tuple(s.evaluate(dims) for s in sizes)
    kind = BY_NAME[info.dtype]
    if kind.kind == "bool":
        return generator.integers(0, 2, shape).astype(bool)
    if kind.is_integer:
        # Small and positive, so that they serve as indices, masks and counts.
        return generator.integers(0, 2, shape).astype(kind.numpy_dtype)
    return generator.standard_normal(shape).astype(kind.numpy_dtype)
