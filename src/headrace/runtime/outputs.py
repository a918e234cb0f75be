"""What a call returns: a tuple of arrays that also answers to the outputs' names."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any


class Outputs(tuple[Any, ...]):
    """The outputs of one call, in signature order; `outputs["name"]` finds one by name.

    Attributes:
        names: of the outputs, in order.
    """

    names: tuple[str, ...] = ()

    def __getitem__(self, key: Any) -> Any:
        if isinstance(key, str):
            try:
                key = self.names.index(key)
            except ValueError:
                raise KeyError(key) from None
        return tuple.__getitem__(self, key)

    def keys(self) -> tuple[str, ...]:
        """The names: with `__getitem__`, `dict(outputs)` works."""
        return self.names

    def items(self) -> Iterator[tuple[str, Any]]:
        """Pairs of name and array."""
        return zip(self.names, self, strict=True)

    def __repr__(self) -> str:
        inner = ", ".join(f"{name}={value!r}" for name, value in self.items())
        return f"Outputs({inner})"


def outputs_type(names: tuple[str, ...]) -> type[Outputs]:
    """The type of one function's outputs."""
    return type("Outputs", (Outputs,), {"names": names, "__module__": __name__})
