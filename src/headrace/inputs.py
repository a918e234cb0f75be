"""Inputs as the command line spells them: `name=@file.npy`, `@file.bin:1x3xf32`, `random`."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from headrace.base.dtypes import BY_NAME
from headrace.base.errors import Diagnostic, HeadraceError, Problems, error

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
        signature: the function's inputs, with `name`, `dtype` and `shape`.
        dims: named sizes, for random inputs.
        seed: of random inputs, drawn in the order of the signature.

    Raises:
        HeadraceError HR0301..HR0305: unknown names, missing inputs, unreadable files,
            missing sizes; all at once.
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
    for item in given:
        name, equals, value = item.partition("=")
        if equals and name in names:
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
    with _opened(path) as archive:
        return list(archive.files)


def _opened(path: str) -> Any:
    import numpy as np

    try:
        return np.load(path, allow_pickle=False)
    except (OSError, ValueError, EOFError) as wrong:
        raise error("HR0304", f"cannot read '{path}'", notes=str(wrong)) from wrong


def _value(text: str, info: Any, dims: Mapping[str, int], generator: Any) -> Any:
    if text == "random":
        return _random(info, dims, generator)
    if text.startswith("@"):
        return _file(text[1:], info)
    import numpy as np

    try:
        return np.asarray(float(text)).astype(info.dtype.numpy_dtype)
    except ValueError as wrong:
        raise error(
            "HR0305",
            f"'{text}' is no value for input '{info.name}'",
            helps="use @file.npy, @file.npz, @file.bin:SHAPExTYPE, random, or a number",
        ) from wrong


def _file(path: str, info: Any) -> Any:
    raw = _RAW.match(path)
    if raw is not None and not Path(path).exists():
        return _raw_file(raw, info)
    if path.endswith(".npz"):
        with _opened(path) as archive:
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
    missing = sorted({n for s in info.shape for n in s.names} - set(dims))
    if missing:
        raise error(
            "HR0306",
            f"input '{info.name}' needs a size for {', '.join(missing)}",
            helps=" ".join(f"--dim {n}=SIZE" for n in missing),
        )
    shape = tuple(s.evaluate(dims) for s in info.shape)
    if info.dtype.kind == "bool":
        return generator.integers(0, 2, shape).astype(bool)
    if info.dtype.is_integer:
        # Small and positive, so that they serve as indices, masks and counts.
        return generator.integers(0, 2, shape).astype(info.dtype.numpy_dtype)
    return generator.standard_normal(shape).astype(info.dtype.numpy_dtype)
