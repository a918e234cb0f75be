"""Drivers by the name the user spells; each loads on first use."""

from __future__ import annotations

import importlib
from typing import Any

from headrace.base.errors import error

_DRIVERS = {
    "cpu": ("headrace.runtime.drivers.cpu", "CpuDevice"),
    "cuda": ("headrace.runtime.drivers.cuda", "CudaDevice"),
    "null": ("headrace.runtime.drivers.null", "NullDevice"),
}
"""Name: module and class; a class takes the driver's options by keyword."""


def device_names() -> tuple[str, ...]:
    """All names that `open_device` takes."""
    return tuple(_DRIVERS)


def open_device(name: str, **options: Any) -> Any:
    """Opens a device: a `drivers.api.Device`.

    Args:
        name: `cpu`, `null`, ...
        options: of that driver (`threads` for `cpu`); those that are None are left out.

    Raises:
        HeadraceError HR4013: no such device. The driver's own errors.
    """
    found = _DRIVERS.get(name)
    if found is None:
        raise error(
            "HR4013",
            f"there is no device '{name}'",
            notes=f"there are {', '.join(_DRIVERS)}",
        )
    module, kind = found
    given = {key: value for key, value in options.items() if value is not None}
    return getattr(importlib.import_module(module), kind)(**given)
