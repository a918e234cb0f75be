"""LLVM IR text to an ELF object, by llvmlite: always the same bytes for the same text.

The kernels are already in the shape they should have, so only a light pipeline runs:
instruction combining and control-flow clean-up. Full `-O3` was measured to bring 0 to 3 % for twice the compile time (notes/cpu_codegen).
"""

from __future__ import annotations

from functools import cache, lru_cache
from typing import Any

from headrace.base.errors import error
from headrace.targets.cpu.machine import TRIPLE, Machine


@cache
def _initialise() -> None:
    from llvmlite import binding

    binding.initialize_all_targets()
    binding.initialize_all_asmprinters()


@lru_cache(maxsize=8)
def _target_machine(machine: Machine) -> Any:
    from llvmlite import binding

    _initialise()
    target: Any = binding.Target.from_triple(TRIPLE)
    return target.create_target_machine(
        cpu=machine.llvm_name,
        features=machine.llvm_features,
        opt=3,
        reloc="pic",
        codemodel="default",
    )


def compile_ir(text: str, machine: Machine, *, listing: bool = False) -> tuple[bytes, str]:
    """The ELF object of a module, and its assembly where asked for.

    Raises:
        HeadraceDefect HR9431: LLVM rejects the text.
    """
    from llvmlite import binding

    target_machine = _target_machine(machine)
    try:
        module: Any = binding.parse_assembly(text)
        module.triple = TRIPLE
        module.data_layout = str(target_machine.target_data)
        module.verify()
    except RuntimeError as failure:
        raise error(
            "HR9431", "LLVM rejects a kernel of ours", notes=str(failure)[:400]
        ) from None
    _optimise(module, target_machine)
    data: bytes = target_machine.emit_object(module)
    return data, target_machine.emit_assembly(module) if listing else ""


def _optimise(module: Any, target_machine: Any) -> None:
    from llvmlite import binding

    tuning: Any = binding.create_pipeline_tuning_options(speed_level=2)
    builder: Any = binding.create_pass_builder(target_machine, tuning)
    passes: Any = binding.create_new_module_pass_manager()
    passes.add_instruction_combine_pass()
    passes.add_simplify_cfg_pass()
    passes.run(module, builder)
