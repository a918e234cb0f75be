"""The values of an ONNX graph while it is imported.

A value is data (an SSA value), a weight that nobody used yet (a source), or a small
integer tensor whose elements are sizes (a numpy array of `Expr`). The last two become
operations only where they are used as data, so that shape arithmetic leaves no trace.
Sequences and optionals are resolved here: no operation ever sees one.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from xdsl.ir import SSAValue

from headrace.base.dtypes import DType
from headrace.base.parameters import Source
from headrace.base.symbols import Expr, as_expr

SMALL_ELEMENTS = 1024
"""The most elements of a constant in the IR, and of a tensor of sizes that is tracked."""


@dataclass(eq=False)
class Value:
    """One tensor of the graph.

    Attributes:
        name: the user's name, for messages.
        dtype, shape: of the tensor.
        ssa: the operation's result, once there is one.
        sizes: numpy object array of `Expr` with `shape`, where the elements are known
            as sizes (integers and booleans only).
        source: where a weight or constant comes from.
        compared: the two sizes of which this boolean says whether they are equal.
    """

    name: str
    dtype: DType
    shape: tuple[Expr, ...]
    ssa: SSAValue | None = None
    sizes: Any = None
    source: Source | None = None
    compared: tuple[Expr, Expr] | None = None

    @property
    def rank(self) -> int:
        return len(self.shape)

    def known(self) -> Any:
        """The elements as a numpy array where they are constants, else None."""
        if self.sizes is not None:
            flat = [e for e in self.sizes.reshape(-1)]
            if not all(e.is_constant for e in flat):
                return None
            import numpy as np

            values = np.array([e.value for e in flat], dtype=np.object_)
            return values.astype(self.dtype.numpy_dtype).reshape(self.sizes.shape)
        if self.source is not None:
            return read_source(self.source)
        return None


@dataclass(eq=False)
class SequenceValue(Value):
    """A sequence whose length is known; `dtype` is that of its elements, `shape` is empty.

    Attributes:
        items: its tensors.
    """

    items: tuple[Value, ...] = ()


@dataclass(eq=False)
class OptionalValue(Value):
    """An optional of which it is known whether it holds something.

    Attributes:
        item: what it holds: a tensor or a sequence; None where it is empty.
    """

    item: Value | None = None


def read_source(source: Source) -> Any:
    """The elements of a weight that stands in a file or in memory."""
    array = getattr(source, "array", None)
    return array if array is not None else source.read()  # type: ignore[union-attr]


def sizes_array(values: Any, shape: tuple[int, ...] | None = None) -> Any:
    """A numpy object array of `Expr` from expressions or integers.

    `shape` defaults to that of `values`; give it for flat lists of another shape.
    """
    import numpy as np

    if isinstance(values, Expr):
        flat: list[Any] = [values]
        result_shape: tuple[int, ...] = ()
    elif isinstance(values, np.ndarray):
        flat = list(values.reshape(-1))  # pyright: ignore
        result_shape = values.shape if shape is None else shape  # pyright: ignore
    else:
        flat = list(values)
        result_shape = (len(flat),) if shape is None else shape
    array = np.empty(len(flat), dtype=np.object_)
    for n, value in enumerate(flat):
        array[n] = value if isinstance(value, Expr) else as_expr(int(value))
    return array.reshape(result_shape)
