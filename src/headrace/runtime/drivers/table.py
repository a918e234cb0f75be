"""Drivers by the name the user spells; each loads on first use."""

from __future__ import annotations

import importlib
from typing import Any

from headrace.base.errors import error

_DRIVERS = {
    "cpu": ("headrace.runtime.drivers.cpu", "CpuDevice"),
    "cuda": ("headrace.runtime.drivers.cuda", "CudaDevice"),
    "null": ("headrace.runtime.drivers.null", "NullDevice"),
    "vulkan": ("headrace.runtime.drivers.vulkan", "VulkanDevice"),
}
"""Name: module and class; a class takes the driver's options by keyword."""

_WITH_THREADS = ("cpu", "null")
_CLASSES = ("cpu", "cuda", "vulkan")


def device_names() -> tuple[str, ...]:
    """All names that `open_device` takes."""
    return tuple(_DRIVERS)


def open_device(name: str, **options: Any) -> Any:
    """Opens a device: a `drivers.api.Device`.

    Args:
        name: `cpu`, `cuda`, `vulkan`, ...; `vulkan:NAME` picks the device whose name holds it,
            `null:cuda` takes programs for cuda and checks their plans.
        options: of that driver (`threads` for `cpu`); those that are None are left out.

    Raises:
        HeadraceError HR4013: no such device; HR4035, HR4037: it takes no threads, no host limit. The driver's
            own errors.
    """
    driver, _, wanted = name.partition(":")
    found = _DRIVERS.get(driver)
    stands_for = driver == "null" and wanted in _CLASSES
    if found is None or (wanted and driver != "vulkan" and not stands_for):
        raise error(
            "HR4013",
            f"there is no device '{name}'",
            notes=f"there are {', '.join(_DRIVERS)}, vulkan:NAME and "
            + ", ".join(f"null:{c}" for c in _CLASSES),
        )
    module, kind = found
    given = {key: value for key, value in options.items() if value is not None}
    if "threads" in given and driver not in _WITH_THREADS:
        raise error(
            "HR4035",
            f"device '{driver}' has no threads to set",
            helps=f"leave them out; {' and '.join(_WITH_THREADS)} take them",
        )
    if "host_limit" in given and driver != "cuda":
        raise error(
            "HR4037",
            f"device '{driver}' pins no host memory that could be limited",
            helps="leave the host limit out; cuda takes one",
        )
    if wanted:
        given["device_class" if stands_for else "wanted"] = wanted
    return getattr(importlib.import_module(module), kind)(**given)
