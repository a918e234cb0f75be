"""PyTorch modules: exported to ONNX by `torch.onnx.export`, for the importer of ONNX.

Needs the extra `headrace[torch]`; loads on first use.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from headrace.base.errors import error

if TYPE_CHECKING:
    from onnx import ModelProto

_MOST_BYTES = 2 << 30
"""What a protobuf message may hold."""


def to_onnx(
    module: Any, arguments: Sequence[Any], dynamic_shapes: Any, source: str
) -> ModelProto:
    """A module in memory, exported for inference; it is left in the mode it was in.

    Args:
        module: a `torch.nn.Module`.
        arguments: tensors, as its `forward` takes them.
        dynamic_shapes: which sizes stay open, as `torch.export` takes them; None for none.
        source: names it in messages.

    Raises:
        HeadraceError HR1003: torch or onnxscript is missing; HR1011: PyTorch cannot export
            the module; HR1012: its weights are more than a model in memory may hold.
    """
    try:
        import onnxscript  # noqa: F401  # pyright: ignore[reportMissingImports, reportUnusedImport]
        import torch  # pyright: ignore[reportMissingImports]
    except ImportError as missing:
        raise error(
            "HR1003",
            f"reading PyTorch modules needs {missing.name}, which is not installed",
            at=source,
            helps="pip install 'headrace[torch]'",
        ) from missing
    held = [*module.parameters(), *module.buffers()]
    size_bytes = sum(tensor.numel() * tensor.element_size() for tensor in held)
    if size_bytes >= _MOST_BYTES:
        raise error(
            "HR1012",
            f"the module holds {size_bytes / 1e9:.1f} GB, and ONNX in memory at most 2 GiB",
            at=source,
            helps="export it to a file with external data (torch.onnx.export(..., "
            "external_data=True)) and compile that",
        )
    training = module.training
    module.eval()
    try:
        program = torch.onnx.export(
            module,
            tuple(arguments),
            dynamo=True,
            dynamic_shapes=dynamic_shapes,
            verbose=False,
        )
    except Exception as refused:
        raise error(
            "HR1011",
            "PyTorch cannot export this module",
            at=source,
            notes=str(refused).strip().splitlines()[:4],
        ) from refused
    finally:
        module.train(training)
    return program.model_proto
