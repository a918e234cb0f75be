"""One entry function of a module or a session, callable by itself."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Union

from headrace.runtime.outputs import Outputs
from headrace.runtime.signature import TensorInfo

if TYPE_CHECKING:
    from headrace.runtime.module import Module
    from headrace.runtime.session import Session


class Entry:
    """What `module.entry(name)` and `session.entry(name)` return.

    Attributes:
        name: of the entry function.
        inputs, outputs: name, dtype and shape of each.
    """

    def __init__(self, owner: Union[Module, Session], module: Module, name: str) -> None:
        """Raises HeadraceError HR4007: the module has no such function."""
        module.function_index(name)
        self._owner = owner
        self.name = name
        self.inputs: tuple[TensorInfo, ...] = module.inputs_of(name)
        self.outputs: tuple[TensorInfo, ...] = module.outputs_of(name)

    def __call__(
        self,
        *args: Any,
        out: Sequence[Any] | None = None,
        donate: bool | Sequence[str] = (),
        **kwargs: Any,
    ) -> Outputs:
        """Runs one step; see `Session.__call__`."""
        return self._owner(*args, function=self.name, out=out, donate=donate, **kwargs)

    def __repr__(self) -> str:
        return f"<entry function '{self.name}' of {self._owner!r}>"
