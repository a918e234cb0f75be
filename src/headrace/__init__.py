"""Headrace compiles models ahead of time and runs them inside a memory budget.

`compile` a model file into a `.hrx`, `load` it on a device, call it. Everything loads on
first use: importing this package costs nothing.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from headrace.api import compile, load
    from headrace.base.errors import HeadraceError
    from headrace.from_memory import from_jax, from_keras, from_onnx, from_torch

__version__ = "0.1.0"
__all__ = [
    "HeadraceError",
    "__version__",
    "compile",
    "from_jax",
    "from_keras",
    "from_onnx",
    "from_torch",
    "load",
]

_HOME = {
    "compile": "headrace.api",
    "from_jax": "headrace.from_memory",
    "from_keras": "headrace.from_memory",
    "from_onnx": "headrace.from_memory",
    "from_torch": "headrace.from_memory",
    "load": "headrace.api",
    "HeadraceError": "headrace.base.errors",
}


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'headrace' has no attribute '{name}'")
    return getattr(import_module(_HOME[name]), name)
