"""What a user gives to compile: one model, or several with a name for the entry of each."""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias, Union

from headrace.base.errors import Diagnostic, Problems, error

if TYPE_CHECKING:
    from headrace.importers.options import DimensionChoice
    from headrace.ir.model import Model

PathLike: TypeAlias = Union[str, "os.PathLike[str]"]
Models: TypeAlias = "Union[PathLike, Model, Mapping[str, Union[PathLike, Model]]]"
"""A path, what `from_keras` returned, or one of these for each entry function."""

_CHUNK_BYTES = 32 << 20
"""What a file is hashed by. Another thread imports it meanwhile: after each chunk this one may
wait 5 ms for the interpreter."""


@dataclass(frozen=True)
class Given:
    """Models to compile into one file.

    Attributes:
        models: by the name of the entry function; empty for one whose functions keep theirs.
        aliases: names of inputs and of the outputs that take their place; `*` in both
            stands for the same text.
    """

    models: Mapping[str, Path | Model]
    aliases: tuple[tuple[str, str], ...] = ()

    @property
    def files(self) -> tuple[tuple[str, Path], ...] | None:
        """(entry, file) of every model; None where one is no file."""
        found = [(name, m) for name, m in self.models.items() if isinstance(m, Path)]
        return tuple(found) if len(found) == len(self.models) else None

    @property
    def source(self) -> str:
        """Names the models for people."""
        return ", ".join(m.name for m in self.models.values())

    def digest(self) -> str:
        """sha256 of the model; of several, of their entries and digests."""
        digests = [(name, _digest(model)) for name, model in self.models.items()]
        if len(digests) == 1:
            return digests[0][1]
        return hashlib.sha256(repr(digests).encode()).hexdigest()

    def load_hashed(self, dims: Mapping[str, DimensionChoice]) -> tuple[Model, str]:
        """`load` and `digest`. Of files at the same time, for hashing leaves the interpreter to
        the import; a model in memory is changed by it.

        Raises: as `load`.
        """
        with ThreadPoolExecutor(1) as thread:
            hashed = thread.submit(self.digest) if self.files is not None else None
            model = self.load(dims)
        return model, self.digest() if hashed is None else hashed.result()

    def load(self, dims: Mapping[str, DimensionChoice]) -> Model:
        """The models in the tensor stage, as one.

        Raises: as `importers/entries.py` and `importers/aliases.py`; HR0209: sizes are told of
            a model that was read before.
        """
        from headrace.importers.aliases import set_aliases
        from headrace.importers.entries import load_entries
        from headrace.importers.options import ImportOptions
        from headrace.importers.table import load

        self._check_dimensions(dims)
        options = ImportOptions(dims)
        only = self.models.get("")
        if only is None:
            model = load_entries(self.models, options)
        else:
            model = load(only, options) if isinstance(only, Path) else only
        set_aliases(model, self.aliases)
        return model

    def _check_dimensions(self, dims: Mapping[str, DimensionChoice]) -> None:
        problems = Problems()
        for entry, model in self.models.items():
            if isinstance(model, Path):
                continue
            # Of several models, another may have the name.
            names = dims.keys() & set(model.dimension_names) if entry else dims
            for name in sorted(names):
                fact = f"'{name}' cannot be told here: the model was read before"
                cure = (
                    "give dims= to from_onnx, from_torch or from_keras; from_jax takes sizes by "
                    "its arguments"
                )
                problems.add(Diagnostic("HR0209", fact, (model.name,), helps=(cure,)))
        problems.raise_if_any()


def given(model: Models, aliases: Mapping[str, str] | None = None) -> Given:
    """What `api.compile` was called with.

    Raises:
        HeadraceError HR0205: an entry's name is no identifier; HR0206: there is no model;
            HR0208: an alias has not as many `*` on both sides.
    """
    pairs = tuple((aliases or {}).items())
    _check_aliases(pairs)
    if not isinstance(model, Mapping):
        return Given({"": _one(model)}, pairs)
    if not model:
        raise error("HR0206", "no model is given")
    problems = Problems()
    for name, entry in model.items():
        _check_name(name, str(entry), problems)
    problems.raise_if_any()
    return Given({name: _one(entry) for name, entry in model.items()}, pairs)


def _one(model: PathLike | Model) -> Path | Model:
    return Path(model) if isinstance(model, (str, os.PathLike)) else model


def _check_aliases(aliases: Iterable[tuple[str, str]]) -> None:
    problems = Problems()
    for before, after in aliases:
        if not before or not after or before.count("*") != after.count("*"):
            cure = "write INPUT=OUTPUT, as past_*=present_*"
            fact = f"'{before}={after}' is no alias"
            problems.add(Diagnostic("HR0208", fact, helps=(cure,)))
    problems.raise_if_any()


def _check_name(name: str, where: str, problems: Problems) -> None:
    if not name.isidentifier():
        fact = f"'{name}' is no name for an entry function"
        cure = "a letter, then letters, digits and '_': write decode=FILE"
        problems.add(Diagnostic("HR0205", fact, (where,), helps=(cure,)))


def parse_entries(texts: Iterable[str]) -> dict[str, Path]:
    """Entry functions and their files, of `decode=path` and plain paths.

    A plain path names its entry by its stem, with `_` for what names cannot hold. A text
    that is a file as it stands is a path, whatever it holds.

    Raises:
        HeadraceError HR0205: a name is no identifier, or two entries have one name.
    """
    found: dict[str, Path] = {}
    problems = Problems()
    for text in texts:
        name, equals, rest = text.partition("=")
        if not equals or not rest or Path(text).is_file():
            name, rest = re.sub(r"\W", "_", Path(text).stem), text
        _check_name(name, rest, problems)
        if name in found:
            fact = f"two entry functions are named '{name}'"
            cure = "name them: prefill=FILE decode=FILE"
            problems.add(Diagnostic("HR0205", fact, (str(found[name]), rest), helps=(cure,)))
        found[name] = Path(rest)
    problems.raise_if_any()
    return found


def _digest(model: Path | Model) -> str:
    hashed = hashlib.sha256()
    if not isinstance(model, Path):
        hashed.update(str(model.ir).encode())
        for name, source in model.parameters.items():
            hashed.update(f"{name} {source.digest}".encode())
        return hashed.hexdigest()
    buffer = memoryview(bytearray(min(_CHUNK_BYTES, max(1, model.stat().st_size))))
    with open(model, "rb", buffering=0) as file:
        while count := file.readinto(buffer):
            hashed.update(buffer[:count])
    return hashed.hexdigest()
