"""Targets by the name a user spells; each loads when it is first asked for."""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from typing import cast

from headrace.base.errors import error
from headrace.kernel.target import NUMERICS, PRECISIONS, Target

_ROWS: dict[str, str] = {
    "cpu": "headrace.targets.cpu.target:make",
    "cuda": "headrace.targets.triton.target:make",
    "rocm": "headrace.targets.triton.target:make",
    "vulkan": "headrace.targets.vulkan.target:make",
}
"""Name before the colon -> `module:function`, called with the whole spelling."""

_SEVERAL: dict[str, tuple[str, ...]] = {"cuda": ("cuda:sm_80", "cuda:sm_90")}
"""What a plain name stands for in a file; any other one is one target."""

_COMPILED_ONLY = ("rocm",)
"""No driver here runs their code."""

_OPTIONS: dict[str, str] = {
    "cpu": "native, x86-64-v3 or generic",
    "cuda": "native, sm_80 or sm_90",
    "rocm": "gfx942 and the like",
    "vulkan": "1.3",
}


def target(spelled: str) -> Target:
    """The target a user names: `cpu`, `cpu:native`, `cuda:sm_90`, `vulkan`.

    Raises:
        HeadraceError HR0112: there is no such target; the message lists the known ones.
        HeadraceError HR01xx: the target does not know what stands after the colon.
    """
    name, _, _ = spelled.partition(":")
    row = _ROWS.get(name)
    if row is None:
        known = ", ".join(f"{n}[:{_OPTIONS[n]}]" for n in _ROWS)
        raise error("HR0112", f"there is no target '{spelled}'", helps=f"known are {known}")
    module_name, _, function = row.partition(":")
    make = getattr(importlib.import_module(module_name), function)
    return cast(Target, make(spelled))


def chosen_targets(names: Sequence[str], numerics: str, precision: str) -> tuple[Target, ...]:
    """The targets that a compilation is for, each once, with the numerics asked for.

    `cuda` alone stands for every architecture: a file's code runs on any of them.

    Raises:
        HeadraceError HR0105: none is named; HR0112: one is not known; HR0113, HR0123: one
            has no such numerics or precision; HR0114, HR0122: there are none.
    """
    if numerics not in NUMERICS:
        known = " or ".join(NUMERICS)
        raise error("HR0114", f"there are no numerics '{numerics}'", helps=f"say {known}")
    if precision not in PRECISIONS:
        known = " or ".join(PRECISIONS)
        raise error("HR0122", f"there is no precision '{precision}'", helps=f"say {known}")
    if not names:
        raise error("HR0105", "no target is given", helps="pass --target cpu")
    spelled = [one for name in names for one in _SEVERAL.get(name, (name,))]
    found = tuple(target(name).with_numerics(numerics) for name in dict.fromkeys(spelled))
    found = tuple({t.name: t for t in found}.values())
    lacking = [f"'{t.name}'" for t in found if precision not in t.precisions]
    if lacking:
        raise error(
            "HR0123",
            f"no products of precision '{precision}' on {', '.join(lacking)}",
            helps="compile for cuda or rocm alone, or without --precision",
        )
    return found


def compiled_only(names: Sequence[str]) -> list[str]:
    """Those of the targets whose code nothing here runs."""
    return [name for name in names if name.partition(":")[0] in _COMPILED_ONLY]


def for_device(device: str) -> str:
    """The target to compile for where the file is run here at once, on a device of this class.

    Raises:
        HeadraceError HR0124, HR0125: there is no GPU, or none that code is made for.
    """
    driver, _, stands_for = device.partition(":")
    if driver == "null":
        return target(stands_for or "cpu").name
    return target("cuda:native").name if driver == "cuda" else driver


_LISTINGS: dict[str, str] = {
    "elf-object": "headrace.targets.cpu.listing:list_object",
    "spirv": "headrace.targets.vulkan.disassembler:disassemble",
}
"""Format of code -> `module:function` that makes it readable."""


def disassemble(format: str, data: bytes) -> str:
    """Code in readable form: instructions for `spirv`, symbols and sizes for `elf-object`.

    For a format without a reader here (`cubin`, `hsaco`) one line that says so.

    Raises:
        HeadraceError HR9412, HR9413: the bytes are not of that format.
    """
    row = _LISTINGS.get(format)
    if row is None:
        return f"; {format}, {len(data)} bytes: headrace has no reader for its instructions\n"
    module_name, _, function = row.partition(":")
    return cast(str, getattr(importlib.import_module(module_name), function)(data))


def names() -> tuple[str, ...]:
    """Names that may stand before the colon."""
    return tuple(_ROWS)
