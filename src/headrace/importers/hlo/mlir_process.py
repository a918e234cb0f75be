"""The process that runs MLIR's own parser: turns any module into generic text.

jaxlib ends the process on some malformed input, so nothing of the user's is parsed beside
anything else: this module is run as `python -m headrace.importers.hlo.mlir_process`, by
`mlir_service.py` alone. It takes a job, answers, and takes the next one; before the first it
gives up writing files, starting programs, and more memory and time than a job may need.

A job is `JOB` and the bytes of the module; an answer is `ANSWER`, the text (or what is
wrong), and the elements of large constants as they lie in memory, each with its length.
"""

from __future__ import annotations

import os
import resource
import struct
import sys
from typing import Any, BinaryIO

JOB = struct.Struct("<Q")
"""Length of the module."""
ANSWER = struct.Struct("<BQQ")
"""Whether it was refused, length of the text, number of arrays."""
ARRAY = struct.Struct("<Q")
"""Length of one array."""
LARGE = 256
"""Constants of more elements travel beside the text."""
MEMORY_BYTES = 48 << 30
"""Of address space, of which the bindings reserve much more than they use."""
NARROW = ("bf16", "f8", "f6", "f4", "i4", "i2", "ui4", "ui2", "complex", "i1>")
"""Element types that the bindings hand out as text only."""


def give_up_rights() -> None:
    """No files are written, no programs started, no memory dumped from here on."""
    for limit, most in (
        (resource.RLIMIT_FSIZE, 0),
        (resource.RLIMIT_CORE, 0),
        (resource.RLIMIT_AS, MEMORY_BYTES),
    ):
        _, hard = resource.getrlimit(limit)
        most = most if hard == resource.RLIM_INFINITY else min(most, hard)
        resource.setrlimit(limit, (most, most))
    _deny_writes()


_LANDLOCK_CREATE, _LANDLOCK_RESTRICT = 444, 446
_PR_SET_NO_NEW_PRIVS = 38
_WRITES = 0b1_1111_1111_0010 | 0b1
"""Landlock's rights to execute, and to write, make and remove what is in files and folders
(version 1 of its interface), all but reading."""


def _deny_writes() -> None:
    """Landlock without a rule: the kernel refuses every write to a file system. Kernels
    before 5.13 have none, and the limits above stand alone."""
    import ctypes

    library = ctypes.CDLL(None, use_errno=True)
    handled = ctypes.c_uint64(_WRITES & ~(1 << 2) & ~(1 << 3))
    ruleset = library.syscall(
        ctypes.c_long(_LANDLOCK_CREATE), ctypes.byref(handled), ctypes.c_size_t(8), 0
    )
    if ruleset < 0:
        return
    library.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
    library.syscall(ctypes.c_long(_LANDLOCK_RESTRICT), ctypes.c_int(ruleset), 0)
    os.close(ruleset)


def new_context() -> Any:
    """A context of jaxlib with every dialect that it brings."""
    from jaxlib.mlir import ir
    from jaxlib.mlir._mlir_libs import _jax_mlir_ext
    from jaxlib.mlir.dialects import chlo, stablehlo

    context = ir.Context()
    stablehlo.register_dialect(context)
    chlo.register_dialect(context)
    registry = ir.DialectRegistry()
    _jax_mlir_ext.register_dialects(registry)
    context.append_dialect_registry(registry)
    context.load_all_available_dialects()
    return context


def generic_text(module: bytes) -> tuple[str, list[Any]]:
    """Generic text of a module, and the elements of its large constants in order.

    Raises:
        Exception: MLIR refuses it.
    """
    from jaxlib.mlir import ir

    context = new_context()
    with context:
        is_bytecode = module.startswith(b"ML\xefR")
        parsed = ir.Module.parse(module if is_bytecode else module.decode())
        arrays: list[Any] = []
        _collect(parsed.operation, arrays)
        text = parsed.operation.get_asm(
            print_generic_op_form=True, large_elements_limit=LARGE, enable_debug_info=True
        )
    return str(text), arrays


def _collect(operation: Any, arrays: list[Any]) -> None:
    """Elements of the constants that the printer leaves out, in the order of the text."""
    for region in operation.regions:
        for block in region.blocks:
            for inner in block.operations:
                if inner.operation.name.endswith(".constant"):
                    _take(inner.operation, arrays)
                else:
                    _collect(inner.operation, arrays)


def _take(operation: Any, arrays: list[Any]) -> None:
    import numpy as np
    from jaxlib.mlir import ir

    kind = operation.results[0].type
    if not isinstance(kind, ir.ShapedType) or not kind.has_static_shape:
        return
    count = int(np.prod(kind.shape, dtype=np.int64))
    if count <= LARGE:
        return
    if not any(name in str(kind) for name in NARROW):
        value = operation.attributes["value"]
        if not value.is_splat:
            arrays.append(np.ascontiguousarray(np.array(value, copy=False)).data.cast("B"))
        return
    text = operation.get_asm(large_elements_limit=None)
    begin = text.find('dense<"0x')
    if begin >= 0:
        begin += len('dense<"0x')
        arrays.append(bytes.fromhex(text[begin : text.index('"', begin)]))


def main() -> None:
    """The loop of the process."""
    jobs, answers = sys.stdin.buffer, os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # whatever a library prints must not stand between answers
    new_context()
    give_up_rights()
    while len(head := jobs.read(JOB.size)) == JOB.size:
        _answer(jobs.read(JOB.unpack(head)[0]), answers)


def _answer(module: bytes, answers: BinaryIO) -> None:
    try:
        text, arrays = generic_text(module)
        refused = False
    except Exception as wrong:
        text, arrays, refused = str(wrong), [], True
    data = text.encode(errors="replace")
    answers.write(ANSWER.pack(refused, len(data), len(arrays)))
    answers.write(data)
    for array in arrays:
        answers.write(ARRAY.pack(len(array)))
        answers.write(array)
    answers.flush()


if __name__ == "__main__":
    main()
