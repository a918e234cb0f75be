"""The architecture of the GPU in this machine, asked of its driver."""

from __future__ import annotations

import ctypes

from headrace.base.errors import error

CUDA_ARCHITECTURES = ("sm_80", "sm_90")
_LIBRARY = "libcuda.so.1"
_MAJOR, _MINOR = 75, 76
"""`CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR` and `_MINOR`."""


def native_architecture() -> str:
    """The newest architecture whose code the first GPU here runs: `sm_90`.

    Raises:
        HeadraceError HR0124: there is no GPU; HR0125: code is made for none of its generation.
    """
    major, minor = _capability()
    fitting = [a for a in CUDA_ARCHITECTURES if a[:-1] == f"sm_{major}" and int(a[-1]) <= minor]
    if not fitting:
        raise error(
            "HR0125",
            f"code is not made for the GPU here, sm_{major}{minor}",
            helps=f"cuda:native stands for one of {', '.join(CUDA_ARCHITECTURES)}",
        )
    return fitting[-1]


def _capability() -> tuple[int, int]:
    found: list[int] = []
    try:
        driver = ctypes.CDLL(_LIBRARY)
        status = driver.cuInit(0)
        for attribute in (_MAJOR, _MINOR):
            value = ctypes.c_int()
            status = status or driver.cuDeviceGetAttribute(ctypes.byref(value), attribute, 0)
            found.append(value.value)
    except (OSError, AttributeError) as missing:
        raise _no_gpu(str(missing)) from None
    if status:
        raise _no_gpu(f"the driver answers {status}")
    return found[0], found[1]


def _no_gpu(why: str) -> Exception:
    return error(
        "HR0124",
        "target 'cuda:native' needs an NVIDIA GPU in this machine",
        notes=why,
        helps=f"name an architecture: {', '.join(f'cuda:{a}' for a in CUDA_ARCHITECTURES)}",
    )
