"""Headrace as an ONNX backend: what `onnx.backend.test` and other tools of ONNX drive.

Interface: https://onnx.ai/onnx/api/backend.html. `prepare` compiles for a device and loads;
the result's `run` takes the inputs in the graph's order.

An ONNX graph may leave to an input's *contents* what a compiler wants to know beforehand: the
axes of a `ReduceSum`, the number of tensors in a sequence. Where the importer asks for that,
the model is compiled at the first `run` with the contents given there, once for each
different contents; `HeadraceRep.specialised` says so.
"""

from __future__ import annotations

import hashlib
import shutil
import tempfile
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx.backend.base import Backend, BackendRep

from headrace import api
from headrace.backend_strings import StringRep
from headrace.base.errors import HeadraceError
from headrace.from_memory import from_onnx
from headrace.importers.onnx.strings.split import split_at_strings
from headrace.importers.onnx.structures import gathered, is_structured
from headrace.runtime.module import Module
from headrace.runtime.report import Report
from headrace.targets.table import for_device

_DEVICES = {"CPU": "cpu", "CUDA": "cuda", "VULKAN": "vulkan"}
_DATA_DECIDES = ("HR1204", "HR1205", "HR1206")
"""Errors that contents of inputs may cure."""

_LOAD_OPTIONS = ("weight_budget", "memory_limit", "threads")
_MOST_KEPT = 16


@dataclass
class _Loaded:
    """A module with the file it stands in.

    Attributes:
        inputs: names of its inputs.
        specialised: whether contents of inputs are compiled in.
    """

    module: Module
    inputs: tuple[str, ...]
    folder: str
    specialised: bool

    def call(self, given: Mapping[str, Any]) -> dict[str, Any]:
        """The tensors of the outputs, by name."""
        tensors = dict(_tensors(given))
        return dict(self.module(*[tensors[n] for n in self.inputs]).items())

    def close(self) -> None:
        self.module.close()
        shutil.rmtree(self.folder, ignore_errors=True)


class HeadraceRep(BackendRep):
    """A model made ready on a device; made by `prepare`.

    Attributes:
        specialised: whether it had to be compiled with contents of inputs.
    """

    def __init__(self, model: onnx.ModelProto, device: str, options: Mapping[str, Any]) -> None:
        """See `HeadraceBackend.prepare`."""
        self._model = model
        self._device = device
        self._options = dict(options)
        self._loaded: dict[str, _Loaded] = {}
        self._last: _Loaded | None = None
        self.specialised = False
        weights = {t.name for t in model.graph.initializer}
        self.input_names = tuple(v.name for v in model.graph.input if v.name not in weights)
        self.specialised = is_structured(model.graph.input)
        if not self.specialised:
            try:
                self._load("", {}, {}, {})
            except HeadraceError as refused:
                if not _curable(refused) or not self.input_names:
                    raise
                self.specialised = True
        weakref.finalize(self, _close_all, self._loaded)

    def run(self, inputs: Any, **kwargs: Any) -> tuple[Any, ...]:
        """Computes all outputs.

        Args:
            inputs: arrays in the graph's order, or by name; one array alone will do.

        Raises:
            HeadraceError HR4001: inputs do not fit; HR1xxx, HR2xxx: the model cannot be
                compiled with the contents given.
        """
        given = self._named(inputs)
        none = self._empty_dimensions(given)
        loaded = None if none else self._loaded.get("")
        loaded = loaded or self._specialise(given, none)
        self._last = loaded
        try:
            results = loaded.call(given)
        except HeadraceError as refused:
            # Sizes read back are never negative; other axes or ends may be compiled in.
            if refused.diagnostics[0].code != "HR4015" or loaded.specialised:
                raise
            self.specialised = True
            self._last = loaded = self._with_contents(given)
            results = loaded.call(given)
        return tuple(gathered(o.type, o.name, results) for o in self._model.graph.output)

    def report(self) -> Report | None:
        """What the last run measured; None where none was."""
        return None if self._last is None else self._last.module.report()

    def close(self) -> None:
        """Gives everything back."""
        _close_all(self._loaded)

    def _named(self, inputs: Any) -> dict[str, Any]:
        if isinstance(inputs, Mapping):
            return dict(inputs)
        if not isinstance(inputs, (list, tuple)):
            inputs = [inputs]
        return dict(zip(self.input_names, inputs, strict=False))

    def _empty_dimensions(self, given: Mapping[str, Any]) -> dict[str, int]:
        """Named dimensions that are 0 here: a model is compiled for sizes from 1."""
        found: dict[str, int] = {}
        for value in self._model.graph.input:
            array = given.get(value.name)
            if array is None or not value.type.HasField("tensor_type"):
                continue
            sizes = np.asarray(array).shape
            for axis, size in zip(value.type.tensor_type.shape.dim, sizes, strict=False):
                if size == 0 and axis.dim_param:
                    found[axis.dim_param] = 0
        return found

    def _specialise(self, given: Mapping[str, Any], dims: Mapping[str, int]) -> _Loaded:
        """The module for these contents, compiled where they are new."""
        structured = [v for v in self._model.graph.input if is_structured([v])]
        examples = {v.name: given.get(v.name) for v in structured}
        if examples or dims:
            try:
                return self._kept({}, examples, dims)
            except HeadraceError as refused:
                if not _curable(refused):
                    raise
        return self._with_contents(given)

    def _with_contents(self, given: Mapping[str, Any]) -> _Loaded:
        """The module with every input compiled in that may decide about shapes."""
        structured = [v for v in self._model.graph.input if is_structured([v])]
        examples = {v.name: given.get(v.name) for v in structured}
        tensors = {n: a for n, a in given.items() if n not in examples}
        constants = {n: np.asarray(a) for n, a in tensors.items() if _decides_shapes(a)}
        left = {n: a for n, a in given.items() if n not in constants}
        return self._kept(constants, examples, self._empty_dimensions(left))

    def _kept(
        self,
        constants: Mapping[str, Any],
        examples: Mapping[str, Any],
        dims: Mapping[str, int],
    ) -> _Loaded:
        shapes = [(n, _shapes(e)) for n, e in sorted(examples.items())]
        key = _digest(constants) + repr((shapes, sorted(dims.items())))
        found = self._loaded.get(key)
        if found is None:
            while len(self._loaded) >= _MOST_KEPT:
                self._loaded.pop(next(iter(self._loaded))).close()
            found = self._load(key, constants, examples, dims)
        return found

    def _load(
        self,
        key: str,
        constants: Mapping[str, Any],
        examples: Mapping[str, Any],
        dims: Mapping[str, int],
    ) -> _Loaded:
        imported = from_onnx(self._model, constants=constants, examples=examples, dims=dims)
        folder = tempfile.mkdtemp(prefix="headrace-backend-")
        try:
            path = Path(folder) / "model.hrx"
            api.compile(imported, path, targets=(for_device(self._device),), jobs=1)
            module = api.load(path, self._device, **self._options)
        except BaseException:
            shutil.rmtree(folder, ignore_errors=True)
            raise
        names = tuple(info.name for info in module.inputs)
        made = self._loaded[key] = _Loaded(module, names, folder, bool(constants))
        return made


def _tensors(given: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """The arrays that inputs hold, with the names of the signature."""
    for name, value in given.items():
        if isinstance(value, (list, tuple)):
            yield from _tensors({f"{name}.{n}": element for n, element in enumerate(value)})
        elif value is not None:
            yield name, np.asarray(value)


def _shapes(example: Any) -> Any:
    if isinstance(example, (list, tuple)):
        return [_shapes(e) for e in example]
    return None if example is None else np.shape(example)


def _close_all(loaded: dict[str, _Loaded]) -> None:
    while loaded:
        loaded.popitem()[1].close()


def _curable(refused: HeadraceError) -> bool:
    return refused.diagnostics[0].code in _DATA_DECIDES


def _decides_shapes(array: Any) -> bool:
    """Whether an input may hold sizes, axes, scales or a condition."""
    array = np.asarray(array)
    return array.dtype.kind in "iub" or (array.dtype.kind == "f" and array.ndim <= 1)


def _digest(arrays: Mapping[str, Any]) -> str:
    hashed = hashlib.sha256()
    for name, array in sorted(arrays.items()):
        hashed.update(f"{name} {array.dtype} {array.shape}".encode())
        hashed.update(np.ascontiguousarray(array).tobytes())
    return hashed.hexdigest()


class HeadraceBackend(Backend):
    """The backend; its functions also stand in this module by their own names."""

    @classmethod
    def is_compatible(cls, model: onnx.ModelProto, device: str = "CPU", **kwargs: Any) -> bool:
        """Whether `prepare` may be tried: it says itself what it does not take."""
        return cls.supports_device(device)

    @classmethod
    def prepare(
        cls, model: onnx.ModelProto, device: str = "CPU", **kwargs: Any
    ) -> HeadraceRep | StringRep:
        """Compiles a model and loads it; what it does with strings runs on the host.

        Args:
            model: the protobuf, weights within.
            device: `CPU`, `CUDA` or `VULKAN`.
            kwargs: as `headrace.load` takes them: `weight_budget`, `memory_limit`, `threads`.

        Raises:
            HeadraceError: as `headrace.compile` and `headrace.load`.
        """
        options = {k: v for k, v in kwargs.items() if k in _LOAD_OPTIONS}
        target = _DEVICES.get(device, device.lower())
        parts = split_at_strings(model)
        if parts is not None:
            return StringRep(parts, lambda rest: HeadraceRep(rest, target, options))
        return HeadraceRep(model, target, options)

    @classmethod
    def run_model(
        cls, model: onnx.ModelProto, inputs: Any, device: str = "CPU", **kwargs: Any
    ) -> tuple[Any, ...]:
        """Compiles a model and runs it once."""
        made = cls.prepare(model, device, **kwargs)
        try:
            return made.run(inputs)
        finally:
            made.close()

    @classmethod
    def run_node(
        cls,
        node: onnx.NodeProto,
        inputs: Any,
        device: str = "CPU",
        outputs_info: Sequence[tuple[Any, tuple[int, ...]]] | None = None,
        **kwargs: Any,
    ) -> tuple[Any, ...]:
        """Runs one node; types and shapes of inputs are those of the arrays.

        Args:
            kwargs: `opset_version`, and as `prepare`.
        """
        names = [n for n in dict.fromkeys(node.input) if n]
        given = inputs if isinstance(inputs, Mapping) else dict(zip(names, inputs, strict=True))
        arrays = {n: np.asarray(a) for n, a in given.items()}
        infos = [
            onnx.helper.make_tensor_value_info(
                n, onnx.helper.np_dtype_to_tensor_dtype(arrays[n].dtype), arrays[n].shape
            )
            for n in names
        ]
        outputs = [onnx.ValueInfoProto(name=n) for n in node.output if n]
        graph = onnx.helper.make_graph([node], "node", infos, outputs)
        version = kwargs.pop("opset_version", None) or onnx.defs.onnx_opset_version()
        opsets = [onnx.helper.make_opsetid(node.domain, version)]
        model = onnx.helper.make_model(graph, opset_imports=opsets)
        return cls.run_model(model, [arrays[n] for n in names], device, **kwargs)

    @classmethod
    def supports_device(cls, device: str) -> bool:
        """Whether models run on the device in this process."""
        name = _DEVICES.get(device.partition(":")[0])
        if name == "cpu" or name is None:
            return name == "cpu"
        from headrace.runtime.drivers.table import open_device

        try:
            open_device(name).close()
        except HeadraceError:
            return False
        return True


is_compatible: Callable[..., bool] = HeadraceBackend.is_compatible
prepare: Callable[..., HeadraceRep | StringRep] = HeadraceBackend.prepare
run_model: Callable[..., tuple[Any, ...]] = HeadraceBackend.run_model
run_node: Callable[..., tuple[Any, ...]] = HeadraceBackend.run_node
supports_device: Callable[[str], bool] = HeadraceBackend.supports_device
