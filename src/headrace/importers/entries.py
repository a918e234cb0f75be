"""Several models as one: each becomes an entry function, weights equal by content are one.

Entries share the named dimensions: a name is one dimension in all of them, and its range
what all of them allow. Weights are compared by what they hold, not by what they are called:
two models exported apart seldom agree on names.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeAlias, Union

from xdsl.dialects.builtin import ArrayAttr, ModuleOp, StringAttr, SymbolRefAttr
from xdsl.dialects.func import FuncOp
from xdsl.ir import Block, Region

from headrace.base.errors import Diagnostic, Problems, error
from headrace.base.parameters import FileSource, Source
from headrace.importers.options import ImportOptions, check_choices
from headrace.importers.table import load
from headrace.ir.model import Model
from headrace.tensor.dialect import ParameterOp

Range: TypeAlias = "tuple[int, int | None]"
DIMENSION_NAMES = "hr.dimension_names"

_CHUNK_BYTES = 8 << 20


def load_entries(
    models: Mapping[str, Union[Path, Model]], options: ImportOptions | None = None
) -> Model:
    """Imports several models into one.

    Args:
        models: a file, or a model already imported, by the name of its entry function.
        options: for all files; a dimension must be one of at least one model.

    Raises:
        HeadraceError HR0xxx, HR1xxx: a file cannot be imported; HR0203: no model has a
            dimension; HR0204: the models do not fit together; HR1116: a model has several
            functions, and one name is given for them.
    """
    chosen = options or ImportOptions()
    partial = ImportOptions(chosen.dimensions, partial=True)
    imported = {
        name: load(given, partial) if isinstance(given, Path) else given
        for name, given in models.items()
    }
    known = {n for model in imported.values() for n in model.dimension_names}
    check_choices(chosen.dimensions, known, ", ".join(m.name for m in imported.values()))
    return merge(imported)


def merge(models: Mapping[str, Model]) -> Model:
    """One model of several, each an entry function of its own. Raises as `load_entries`."""
    merging = _Merging()
    for name, model in models.items():
        merging.add(name, model)
    return merging.model("+".join(models))


@dataclass
class _Merging:
    """What has been put together so far.

    Attributes:
        by_content: the parameter that holds each content.
        ranges, spellings: of dimensions, with the first model that has them.
    """

    block: Block = field(default_factory=Block)
    parameters: dict[str, Source] = field(default_factory=dict[str, Source])
    by_content: dict[str, str] = field(default_factory=dict[str, str])
    contents: _Contents = field(default_factory=lambda: _Contents())
    ranges: dict[str, tuple[str, Range]] = field(default_factory=dict[str, "tuple[str, Range]"])
    spellings: dict[str, str] = field(default_factory=dict[str, str])
    names: dict[str, None] = field(default_factory=dict[str, None])

    def add(self, entry: str, model: Model) -> None:
        """Puts a model's one function in under the entry's name."""
        functions = [op for op in model.ir.ops if isinstance(op, FuncOp)]
        if len(functions) != 1:
            listed = ", ".join(f.sym_name.data for f in functions)
            raise error(
                "HR1116",
                f"entry '{entry}' is one function, the model has {len(functions)}",
                at=model.name,
                notes=f"they are {listed}",
                helps="compile it alone: its functions keep their names",
            )
        renamed = self._parameters(entry, model)
        self._dimensions(entry, model)
        function = functions[0].clone()
        for op in function.walk():
            if isinstance(op, ParameterOp):
                op.parameter = SymbolRefAttr(renamed[op.parameter.root_reference.data])
        function.sym_name = StringAttr(entry)
        self.block.add_op(function)

    def _parameters(self, entry: str, model: Model) -> dict[str, str]:
        """Enters a model's parameters; what each is called now."""
        renamed: dict[str, str] = {}
        fresh: dict[str, str] = {}
        for name, source in model.parameters.items():
            content = self.contents.key(source)
            found = self.by_content.get(content)
            if found is None:
                found = name if name not in self.parameters else f"{entry}/{name}"
                fresh.setdefault(content, found)
                self.parameters[found] = source
            renamed[name] = found
        # Only now: equals within one model (biases of zeros) keep names of their own.
        self.by_content |= fresh
        return renamed

    def _dimensions(self, entry: str, model: Model) -> None:
        problems = Problems()
        self.names.update(dict.fromkeys(model.dimension_names))
        for name, (low, high) in model.dimension_ranges.items():
            first, (other_low, other_high) = self.ranges.get(name, (entry, (low, high)))
            highs = [h for h in (high, other_high) if h is not None]
            both = (max(low, other_low), min(highs, default=None))
            if both[1] is not None and both[0] > both[1]:
                fact = f"no size of dimension '{name}' fits both '{first}' and '{entry}'"
                notes = (
                    f"{first}: {_spelt(other_low, other_high)}",
                    f"{entry}: {_spelt(low, high)}",
                )
                problems.add(Diagnostic("HR0204", fact, (model.name,), notes))
            self.ranges[name] = (first, both)
        given = model.ir.attributes.get(DIMENSION_NAMES)
        for pair in given if isinstance(given, ArrayAttr) else ():
            assert isinstance(pair, ArrayAttr)
            name, text = (t.data for t in pair if isinstance(t, StringAttr))
            self.spellings.setdefault(name, text)
        problems.raise_if_any()

    def model(self, name: str) -> Model:
        module = ModuleOp(Region(self.block))
        if self.spellings:
            module.attributes[DIMENSION_NAMES] = ArrayAttr(
                [ArrayAttr([StringAttr(n), StringAttr(t)]) for n, t in self.spellings.items()]
            )
        ranges = {n: both for n, (_, both) in self.ranges.items()}
        return Model(module, self.parameters, name, ranges, tuple(self.names))


def _spelt(low: int, high: int | None) -> str:
    return f"{low} to {high}" if high is not None else f"{low} and more"


class _Contents:
    """Keys of sources that are equal where what they hold is equal.

    A source in a file is only read where another of its type and size is known: the first
    of a kind is keyed by its place until then.
    """

    def __init__(self) -> None:
        self._first: dict[tuple[str, tuple[int, ...]], Source] = {}
        self._hashed: dict[str, str] = {}

    def key(self, source: Source) -> str:
        """What tells a source from others of other content."""
        kind = (source.dtype.name, source.shape)
        first = self._first.setdefault(kind, source)
        if first.digest == source.digest:
            return source.digest
        key = self._content(source)
        return first.digest if key == self._content(first) else key

    def _content(self, source: Source) -> str:
        if not isinstance(source, FileSource):
            return source.digest
        if source.digest not in self._hashed:
            self._hashed[source.digest] = _content_digest(source)
        return self._hashed[source.digest]


def _content_digest(source: FileSource) -> str:
    """The digest that `array_source` would give the bytes at a place in a file."""
    hashed = hashlib.sha256()
    with open(source.path, "rb") as file:
        file.seek(source.offset_bytes)
        left = source.size_bytes
        while left:
            chunk = file.read(min(left, _CHUNK_BYTES))
            if not chunk:
                break
            hashed.update(chunk)
            left -= len(chunk)
    hashed.update(repr((source.dtype.name, source.shape)).encode())
    return hashed.hexdigest()
