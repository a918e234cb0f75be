"""`headrace compare`: which dispatch of a model does a device compute wrongly?

The model is compiled as ever. Beside its program a second one is made of the same code: a
function for each dispatch, whose buffers are inputs and outputs. The stream interpreter
then walks through the model; at every dispatch the device runs the same kernel on the same
buffers, and what it wrote is compared element by element. So a wrong value is found where
it arises, not where it shows, and an error of one dispatch does not hide the next.

Where no dispatch differs but the outputs do, the fault lies elsewhere: in what the plan
does with memory (`memory`), or before there were kernels (`meaning`: importer, passes).
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from xdsl.dialects.func import FuncOp

from headrace import api
from headrace.artifact import schema
from headrace.artifact.writer import write_artifact
from headrace.base.dtypes import UI8, from_numpy
from headrace.base.errors import error
from headrace.base.symbols import as_expr
from headrace.differences import Difference, Judge, coarsest_of
from headrace.given import given
from headrace.hal.interp import kernels_of
from headrace.inputs import read_inputs
from headrace.ir.locations import places
from headrace.kernel.buffers import unpack_operand
from headrace.kernel.description import Kernel
from headrace.runtime.module import Module, load_module
from headrace.stream.commands import DispatchOp
from headrace.stream.interp import Buffers, Machine, run_program
from headrace.tensor.interp import evaluate_source

if TYPE_CHECKING:
    from headrace.ir.model import Model

Progress = Callable[[int, int], None]


@dataclass(frozen=True)
class Request:
    """What to compare; see `api.compare`."""

    model: Path
    target: str
    against: str
    tolerance: float | None
    inputs: tuple[str, ...]
    seed: int
    level: int
    dims: Mapping[str, api.DimensionChoice]
    threads: int | None
    function: str | None


# -- the program of single dispatches ---------------------------------------------------


def _dispatches(block: schema.Block) -> Iterator[schema.Dispatch]:
    """The dispatches of a function, in the order of its text."""
    for command in block.commands:
        if isinstance(command, schema.Dispatch):
            yield command
        elif isinstance(command, schema.If):
            yield from _dispatches(command.then)
            yield from _dispatches(command.otherwise)
        elif isinstance(command, schema.Loop):
            yield from _dispatches(command.before)
            yield from _dispatches(command.body)


def _is_written(dispatch: schema.Dispatch, resource: int) -> bool:
    return any(b.resource == resource and b.access != "ro" for b in dispatch.bindings)


def _used(dispatch: schema.Dispatch) -> list[int]:
    """The resources of a dispatch, each once, by first use."""
    return list(dict.fromkeys(b.resource for b in dispatch.bindings))


def _single(
    name: str, function: schema.EntryFunction, dispatch: schema.Dispatch
) -> schema.EntryFunction:
    """A function that runs one dispatch: its buffers come in and, written, go out."""
    resources: list[schema.Resource] = []
    inputs: list[schema.TensorSignature] = []
    outputs: list[schema.TensorSignature] = []
    before: list[schema.Command] = []
    after: list[schema.Command] = []
    places_of: dict[int, int] = {}

    def add(label: str, lifetime: schema.Lifetime, size: Any) -> int:
        resources.append(schema.Resource(label, lifetime, size))
        return len(resources) - 1

    zero = as_expr(0)
    for used in _used(dispatch):
        size = function.resources[used].size_bytes
        given = add(f"in{used}", "external", size)
        inputs.append(schema.TensorSignature(f"in{used}", UI8, (size,), given))
        places_of[used] = given
        if _is_written(dispatch, used):
            places_of[used] = work = add(f"work{used}", "transient", size)
            made = add(f"out{used}", "external", size)
            outputs.append(schema.TensorSignature(f"out{used}", UI8, (size,), made))
            before.append(schema.Copy(given, zero, work, zero, size))
            after.append(schema.Copy(work, zero, made, zero, size))
    bindings = tuple(replace(b, resource=places_of[b.resource]) for b in dispatch.bindings)
    body = schema.Block((*before, replace(dispatch, bindings=bindings), *after))
    return schema.EntryFunction(name, tuple(inputs), tuple(outputs), tuple(resources), body)


def _single_name(function: str, number: int) -> str:
    return f"{function}/{number}"


def _write_singles(
    path: Path, made: api.Compiled, program: schema.Program, dims: Mapping[str, int]
) -> None:
    """The `.hrx` whose functions are the dispatches of `program`, at fixed sizes."""
    functions = tuple(
        _single(_single_name(function.name, number), function, dispatch)
        for function in program.functions
        for number, dispatch in enumerate(_dispatches(function.body))
    )
    ranges = tuple(schema.DimensionRange(name, size, size) for name, size in dims.items())
    parts = replace(
        made.parts,
        dimensions=ranges,
        programs=(replace(program, functions=functions),),
    )
    write_artifact(path, parts, (), evaluate_source)


# -- walking ----------------------------------------------------------------------------


class _Found(Exception):
    """Ends the walk at the first dispatch that differs."""

    def __init__(self, data: dict[str, Any]) -> None:
        super().__init__()
        self.data = data


@dataclass
class _Walk:
    """The state of a walk.

    Attributes:
        singles: the program of single dispatches on the device.
        numbers: of each dispatch: its function and its place in that function's text.
        done: dispatches compared.
    """

    singles: Module
    program: schema.Program
    numbers: dict[DispatchOp, tuple[str, int]]
    tolerance: float | None
    progress: Progress | None
    done: int = 0

    def run(
        self, model: Model, inputs: Mapping[str, Any], function: str
    ) -> tuple[dict[str, Any], dict[str, Any] | None]:
        """The interpreter's outputs (empty where stopped), and the first wrong dispatch."""
        walk = self

        class Comparing(Machine):
            """Runs every dispatch here and on the device."""

            def dispatch(self, op: DispatchOp, kernel: Kernel, buffers: Buffers) -> None:
                walk.compare(self, op, kernel, buffers, super().dispatch)

        try:
            outputs = run_program(model, kernels_of(model.ir), inputs, function, Comparing)
        except _Found as found:
            return {}, found.data
        return outputs, None

    def compare(
        self,
        machine: Machine,
        op: DispatchOp,
        kernel: Kernel,
        buffers: Buffers,
        interpret: Callable[[DispatchOp, Kernel, Buffers], None],
    ) -> None:
        """Runs a dispatch on the device, then in place here; raises `_Found`."""
        function, number = self.numbers[op]
        entry = next(f for f in self.program.functions if f.name == function)
        planned = list(_dispatches(entry.body))[number]
        used = _used(planned)
        by_resource = {
            b.resource: value for b, value in zip(planned.bindings, op.resources, strict=True)
        }
        given = {f"in{n}": buffers[by_resource[n]] for n in used}
        outputs = self.singles(**given, function=_single_name(function, number))
        actual: Buffers = {
            by_resource[n]: np.array(outputs[f"out{n}"])
            if _is_written(planned, n)
            else buffers[by_resource[n]]
            for n in used
        }
        interpret(op, kernel, buffers)
        self.done += 1
        if self.progress is not None:
            self.progress(min(self.done, len(self.numbers)), len(self.numbers))
        dims = machine.constants(op, kernel)
        expected_views = machine.views(op, kernel, buffers)
        actual_views = machine.views(op, kernel, actual)
        for index in kernel.outputs:
            operand = kernel.operands[index]
            left, right = expected_views[index], actual_views[index]
            if not operand.layout.has_halo:
                left = unpack_operand(left, operand, dims)
                right = unpack_operand(right, operand, dims)
            judge = Judge(self.tolerance, coarsest_of([kernel]))
            found = judge.difference(left, right, operand.dtype)
            if found.is_wrong:
                raise _Found(self._describe(op, planned, function, number, operand.name, found))

    def _describe(
        self,
        op: DispatchOp,
        planned: schema.Dispatch,
        function: str,
        number: int,
        operand: str,
        found: Difference,
    ) -> dict[str, Any]:
        executable = self.program.executables[planned.executable]
        variant = executable.variants[self.singles.code.variants[planned.executable]]
        launches = variant.entry_points[planned.entry_point][-1].launches
        return {
            "function": function,
            "dispatch": number,
            "dispatches": sum(f == function for f, _ in self.numbers.values()),
            "executable": executable.name,
            "target": variant.target,
            "families": [launch.family for launch in launches],
            "nodes": list(places(op)),
            "operand": operand,
            **found.data,
        }


def _numbers(model: Model) -> dict[DispatchOp, tuple[str, int]]:
    found: dict[DispatchOp, tuple[str, int]] = {}
    for function in model.ir.ops:
        if isinstance(function, FuncOp):
            inside = [op for op in function.walk() if isinstance(op, DispatchOp)]
            found |= {op: (function.sym_name.data, n) for n, op in enumerate(inside)}
    return found


# -- the whole --------------------------------------------------------------------------


def compare_model(request: Request, progress: Progress | None = None) -> dict[str, Any]:
    """Compares; see `api.compare`. The result is what `--json` prints."""
    if request.model.suffix == ".hrx":
        raise error(
            "HR0120",
            "a .hrx holds code only, and nothing to compare it with",
            at=str(request.model),
            helps="give the model file that it was compiled from",
        )
    if request.against == "onnxruntime" and request.model.suffix != ".onnx":
        raise error("HR0121", "onnxruntime runs .onnx files only", at=str(request.model))
    made = api.compile_parts(
        given(request.model), targets=(request.target,), level=request.level, dims=request.dims
    )
    ((device_class, model),) = made.classes.items()
    options = {} if request.threads is None else {"threads": request.threads}
    with tempfile.TemporaryDirectory(prefix="headrace-compare-") as folder:
        whole = Path(folder) / "whole.hrx"
        write_artifact(whole, made.parts, made.weights, evaluate_source)
        with load_module(whole, device_class, **options) as module:
            function = module.functions[module.function_index(request.function)]
            # What has bounds stays open in the code, and runs at its least size.
            fixed = {n: s if isinstance(s, int) else s[0] for n, s in request.dims.items()}
            signature = module.inputs_of(function)
            arrays = read_inputs(request.inputs, signature, fixed, request.seed)
            outputs = dict(module(**arrays, function=function).items())
            dims = dict(module.report().dims)
            program = module.program
        data: dict[str, Any] = {
            "model": str(request.model),
            "target": request.target,
            "against": request.against,
            "function": function,
            "dims": dims,
            "agrees": True,
            "where": None,
            "compared": 0,
            "first": None,
            "outputs": {},
        }
        judge = Judge(request.tolerance, coarsest_of(kernels_of(model.ir).values()))
        reference: Mapping[str, Any] | None = None
        if request.against == "onnxruntime":
            reference = _run_onnxruntime(request.model, arrays, tuple(outputs))
            wrong = _compare_outputs(data, reference, outputs, judge)
            if not wrong:
                return data
        singles = Path(folder) / "singles.hrx"
        _write_singles(singles, made, program, dims)
        with load_module(singles, device_class, **options) as device:
            walk = _Walk(device, program, _numbers(model), request.tolerance, progress)
            interpreted, data["first"] = walk.run(model, arrays, function)
            data["compared"] = walk.done
    if data["first"] is not None:
        return {**data, "agrees": False, "where": "dispatch"}
    same_as_device = not _compare_outputs(data, interpreted, outputs, judge)
    if not same_as_device:
        return {**data, "agrees": False, "where": "memory"}
    if reference is not None:
        _compare_outputs(data, reference, outputs, judge)
        return {**data, "agrees": False, "where": "meaning"}
    return data


def _compare_outputs(
    data: dict[str, Any], expected: Mapping[str, Any], actual: Mapping[str, Any], judge: Judge
) -> bool:
    """Notes the errors of all outputs; True where one is too large."""
    wrong = False
    for name, array in actual.items():
        other = np.asarray(expected[name])
        if other.shape != array.shape:
            found = Difference(float("inf"), 0.0, (), f"{other.shape}", f"{array.shape}")
        else:
            found = judge.difference(other, array, from_numpy(array.dtype))
        data["outputs"][name] = {**found.data, "wrong": found.is_wrong}
        wrong = wrong or found.is_wrong
    return wrong


def _run_onnxruntime(
    path: Path, arrays: Mapping[str, Any], names: Sequence[str]
) -> dict[str, Any]:
    try:
        import onnxruntime
    except ImportError as missing:
        raise error(
            "HR0121", "onnxruntime is not installed", helps="pip install onnxruntime"
        ) from missing
    try:
        session: Any = onnxruntime.InferenceSession(
            str(path), providers=["CPUExecutionProvider"]
        )
        known = [o.name for o in session.get_outputs()]
        found = session.run(known, {i.name: arrays[i.name] for i in session.get_inputs()})
    except Exception as refused:
        # Its exceptions have no common base but this.
        raise error(
            "HR0121",
            "onnxruntime cannot run the model",
            at=str(path),
            notes=str(refused).splitlines()[0],
        ) from refused
    return {n: a for n, a in zip(known, found, strict=True) if n in names}


_WHERE = {
    "memory": "every dispatch alone is right, and the outputs are wrong: what the plan or the"
    " run time does with memory is at fault",
    "meaning": "the device does what the kernels say, and that differs: an importer or a pass"
    " of the compiler is at fault",
}


def comparison_text(data: Mapping[str, Any]) -> str:
    """What people read."""
    dims = ", ".join(f"{k}={v}" for k, v in data["dims"].items())
    lines = [f"{data['model']}: {data['function']}({dims}) on {data['target']}"]
    lines += [
        f"  output {name}: max abs error {_short(o['max_abs_error'])},"
        f" {_short(o['allowed'])} allowed{', WRONG' if o['wrong'] else ''}"
        for name, o in data["outputs"].items()
    ]
    if data["compared"]:
        lines.append(f"  {data['compared']} dispatches compared with the interpreter")
    first = data["first"]
    if first is not None:
        index = ", ".join(map(str, first["index"]))
        lines += [
            f"  the first that differs is dispatch {first['dispatch']} of"
            f" {first['dispatches']} in {first['function']}: {first['executable']}"
            f" ({', '.join(first['families'])}, {first['target']})",
            *(f"    --> {node}" for node in first["nodes"]),
            f"    {first['operand']}[{index}] is {first['actual']}, not {first['expected']}:"
            f" max abs error {_short(first['max_abs_error'])},"
            f" {_short(first['allowed'])} allowed",
        ]
    if data["where"] in _WHERE:
        lines.append(f"  {_WHERE[data['where']]}")
    if data["agrees"]:
        lines.append(f"  agrees with {data['against']}")
    return "\n".join(lines)


def _short(value: float | str) -> str:
    return value if isinstance(value, str) else f"{value:.3g}"
