"""The phases and their passes, in order, with the reason beside each.

    input        as the importer made it
    tensor       whole-tensor operations, simplified
    flow         dispatches, outlined and shared; still one module
    stream       one module per device class: kernels, layouts, resources
    hal          executables with a variant per target, interfaces materialised
    executables  code in the variants (`api` translates; nothing here is left to do)

`compile_to` takes a model through them; `api` and `headrace opt` call it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from xdsl.context import Context
from xdsl.ir import Dialect

from headrace.base.errors import HeadraceError, error
from headrace.ir.context import make_context
from headrace.ir.model import Model
from headrace.ir.passes import Pass, make_pass
from headrace.kernel.target import Target

PHASES = ("input", "tensor", "flow", "stream", "hal", "executables")


@dataclass(frozen=True)
class Step:
    """One pass of the pipeline.

    Attributes:
        phase: the phase it belongs to.
        name: of the pass; `{level}` in its options is filled in.
        why: the reason it stands where it stands.
        levels: optimisation levels at which it runs.
        per_class: it is handed the targets: from stream on, it runs once per device class
            and is handed that class's.
        rounds: it changes how results are rounded; left out of `exact` numerics.
        factor_bits: it is for targets that multiply integers of so many bits fast
            (`Target.factor_bits`); left out where one of them does not. 0 for all.
    """

    phase: str
    name: str
    why: str
    levels: tuple[int, ...] = (0, 1, 2)
    per_class: bool = False
    rounds: bool = False
    factor_bits: int = 0


_OPTIMISED = (1, 2)

STEPS = (
    Step("tensor", "tensor-eliminate-dead-code", "importers leave shape arithmetic behind"),
    Step("tensor", "tensor-elide-copies", "copies hide producers from all that follows", _OPTIMISED),
    Step("tensor", "tensor-capture-invariants", "weights that a loop only carries are weights again", _OPTIMISED),
    Step("tensor", "tensor-inline-splats", "constants that importers spread out show their value", _OPTIMISED),
    Step("tensor", "tensor-raise-erfc", "it stands as JAX wrote it only before operands are sorted", _OPTIMISED, rounds=True),
    Step("tensor", "tensor-canonicalize", "one form for each meaning before patterns look", _OPTIMISED),
    Step("tensor", "tensor-eliminate-common-subexpressions", "importers repeat constants", _OPTIMISED),
    Step("tensor", "tensor-propagate-transposes", "moved together, transposes cancel; channels-last norms reach their weights", _OPTIMISED),
    Step("tensor", "tensor-fold-batch-norm{stored=true}", "queries are scaled behind heads: joined, their scale would be behind a slice", _OPTIMISED, rounds=True),
    Step("tensor", "tensor-join-products", "queries, keys and values of one operand are one product", _OPTIMISED),
    Step("tensor", "tensor-multiply-quantised", "quantised factors are multiplied as the integers they are", _OPTIMISED, rounds=True, factor_bits=16),
    Step("tensor", "tensor-fold-batch-norm", "scale and shift go into weights, but those of integers", _OPTIMISED, rounds=True),
    Step("tensor", "tensor-move-zero-points", "bytes stay bytes before products", _OPTIMISED, factor_bits=8),
    Step("tensor", "tensor-canonicalize", "what these left behind", _OPTIMISED),
    Step("tensor", "tensor-fold-constants", "weights become expressions of stored ones", _OPTIMISED),
    Step("tensor", "tensor-canonicalize", "known values show further simplifications", _OPTIMISED),
    Step("tensor", "tensor-eliminate-common-subexpressions", "folding makes equals", _OPTIMISED),
    Step("tensor", "tensor-split-reductions", "large ones to few values have work for all threads", _OPTIMISED, rounds=True),
    Step("tensor", "tensor-align-transposed-convolutions", "then each is one sum of products; stored kernels are known now", _OPTIMISED),
    Step("tensor", "tensor-eliminate-dead-code", "and leaves sources unused", _OPTIMISED),
    Step("flow", "flow-split-at-sizes", "a function is planned whole, so its sizes are known when it starts"),
    Step("flow", "flow-outline-control", "every function is one straight line from here"),
    Step("flow", "flow-sink-reshapes", "bias and activation stay with the product", _OPTIMISED),
    Step("flow", "flow-form-dispatches{level={level}}", "operations that run as one launch", per_class=True),
    Step("flow", "flow-outline-dispatches", "bodies leave the program, so that equals show"),
    Step("flow", "flow-deduplicate-executables", "one executable for equal bodies", _OPTIMISED),
    Step("stream", "flow-convert-to-kernels{precision={precision}}", "from here a body is one unscheduled kernel"),
    Step(
        "stream", "flow-assign-layouts{level={level} pack={pack}}",
        "how values stand in memory is a wish of the targets of a class", per_class=True,
    ),
    Step("stream", "flow-deduplicate-executables", "layouts made equals differ, and alike", _OPTIMISED),
    Step("stream", "stream-convert-from-flow", "tensors become resources with a lifetime"),
    Step("stream", "stream-materialize-copies", "first every copy that correctness needs"),
    Step("stream", "stream-elide-copies", "then those that nothing sees", _OPTIMISED),
    Step("stream", "stream-emplace-parts", "parts of a concatenation where it wants them", _OPTIMISED, per_class=True),
    Step("stream", "stream-emplace-results", "results in place of operands that die", _OPTIMISED),
    Step("stream", "stream-elide-copies{state=true}", "state that no dispatch could write over", _OPTIMISED),
    Step("stream", "stream-inline-calls", "branches and loops become blocks of their function"),
    Step("stream", "stream-carry-in-place", "a trip writes over what the one before left", _OPTIMISED),
    Step("stream", "stream-compile-loops", "a small loop is one dispatch, once what it carries stays in place", _OPTIMISED, per_class=True),
    Step("stream", "stream-pack-dispatch-operands", "interfaces take 32-bit constants only"),
    Step(
        "hal", "hal-materialize-interfaces",
        "executables with a variant per target, kernels without arguments", per_class=True,
    ),
)  # fmt: skip

Observer = Callable[[str, Model], None]
"""Called with the name of a pass or phase and the model after it."""


@dataclass(frozen=True)
class Options:
    """How to run the pipeline.

    Attributes:
        targets: what to compile for.
        level: 0 one dispatch per operation group as written, 2 everything.
        numerics: `fast` or `exact` (`kernel.target.NUMERICS`).
        pack: which weights are stored packed (`flow.layouts.packing.MODES`).
        precision: of products of f32 (`kernel.target.PRECISIONS`).
        after_pass, after_phase: called with each module as it stands then; once per
            device class where there are several, with `@class` behind the name.
    """

    targets: tuple[Target, ...]
    level: int = 2
    numerics: str = "fast"
    pack: str = "none"
    precision: str = "ieee"
    after_pass: Observer | None = None
    after_phase: Observer | None = None


def _load_tensor() -> Dialect:
    from headrace.tensor.dialect import TENSOR

    return TENSOR


def _load_hr() -> Dialect:
    from headrace.tensor.dialect import HR

    return HR


def _load_kernel() -> Dialect:
    from headrace.kernel.dialect import KERNEL

    return KERNEL


def _load_flow() -> Dialect:
    from headrace.flow.dialect import FLOW

    return FLOW


def _load_stream() -> Dialect:
    from headrace.stream.dialect import STREAM

    return STREAM


def _load_hal() -> Dialect:
    from headrace.hal.dialect import HAL

    return HAL


def _load_arith() -> Dialect:
    from xdsl.dialects.arith import Arith

    return Arith


def context() -> Context:
    """A context with every stage's dialect, each loaded on first use."""
    return make_context(
        [
            ("tensor", _load_tensor),
            ("hr", _load_hr),
            ("kernel", _load_kernel),
            ("flow", _load_flow),
            ("stream", _load_stream),
            ("hal", _load_hal),
            ("arith", _load_arith),
        ]
    )


def target_classes(targets: Iterable[Target]) -> dict[str, tuple[Target, ...]]:
    """Targets by device class, in the order given."""
    found: dict[str, tuple[Target, ...]] = {}
    for target in targets:
        found[target.device_class] = (*found.get(target.device_class, ()), target)
    return found


@dataclass
class Compilation:
    """A model on its way.

    Attributes:
        whole: up to flow, the one module.
        classes: from stream on, a module per device class.
    """

    whole: Model
    classes: dict[str, Model] = field(default_factory=dict[str, Model])

    def modules(self) -> Mapping[str, Model]:
        """The modules as they stand, by device class; `""` names the one of all."""
        return self.classes or {"": self.whole}


def compile_to(model: Model, phase: str, options: Options) -> Compilation:
    """Takes a model from the importer to the end of a phase, in place.

    Raises:
        HeadraceError HR0103: there is no such phase; HR2xxx: the model cannot be compiled;
            HR9xxx: a pass left the module in a state its stage forbids.
    """
    if phase not in PHASES:
        raise error(
            "HR0103", f"there is no phase '{phase}'", helps=f"one of: {', '.join(PHASES)}"
        )
    made = Compilation(model)
    classes = target_classes(options.targets)
    for current in PHASES[: PHASES.index(phase) + 1]:
        if current == "stream":
            made.classes = {name: _clone(model) for name in classes}
        for step in STEPS:
            if step.phase != current or options.level not in step.levels:
                continue
            if step.rounds and options.numerics == "exact":
                continue
            if step.factor_bits and not all(
                step.factor_bits in target.factor_bits for target in options.targets
            ):
                continue
            for name, module in made.modules().items():
                targets = classes.get(name, options.targets)
                run_pass(_pass(step, options, targets), module)
                _tell(options.after_pass, step.name.partition("{")[0], name, module)
        for name, module in made.modules().items():
            verify(current, module)
            _tell(options.after_phase, current, name, module)
    return made


def _pass(step: Step, options: Options, targets: Sequence[Target]) -> Pass:
    name = step.name.replace("{level}", str(options.level)).replace("{pack}", options.pack)
    name = name.replace("{precision}", options.precision)
    made = make_pass(name)
    if not step.per_class:
        return made
    return type(made)(**{**vars(made), "targets": tuple(targets)})


def _tell(observer: Observer | None, name: str, device_class: str, model: Model) -> None:
    if observer is not None:
        observer(f"{name}@{device_class}" if device_class else name, model)


def _clone(model: Model) -> Model:
    return replace(
        model,
        ir=model.ir.clone(),
        parameters=dict(model.parameters),
        dimension_ranges=dict(model.dimension_ranges),
    )


def run_pass(step: Pass, model: Model) -> None:
    """Runs one pass; a crash in it becomes a defect that names the pass.

    Raises:
        HeadraceError: the pass's own; HR9101 where it failed unexpectedly.
    """
    try:
        step.run(model)
    except HeadraceError:
        raise
    except Exception as crash:
        raise error(
            "HR9101",
            f"pass '{step.pass_name()}' failed: {type(crash).__name__}: {crash}",
            at=model.name,
            notes="this is a bug in headrace, not in your model",
            helps="HEADRACE_DEBUG=1 prints the traceback",
        ) from crash


def verify(phase: str, model: Model) -> None:
    """Checks the module against its stage's table of legal operations.

    Raises:
        HeadraceError HR2xxx, HR9xxx: every operation that breaks it, with its place.
    """
    if phase in ("input", "tensor"):
        # The whole model: names of parameters must be in its table.
        from headrace.tensor.verify import verify as verify_model

        verify_model(model)
        return
    if phase == "flow":
        from headrace.flow.verify import verify as check
    elif phase == "stream":
        from headrace.stream.verify import verify as check
    else:
        from headrace.hal.verify import verify as check
    check(model.ir)
