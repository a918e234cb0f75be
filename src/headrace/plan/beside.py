"""What a memory limit must leave room for beside one plan's weights, values and state."""

from __future__ import annotations

from dataclasses import dataclass

from headrace.plan.budget import format_bytes


@dataclass(frozen=True)
class Beside:
    """Bytes of device memory by what takes them.

    Attributes:
        context_bytes: the driver's own, for this process.
        code_bytes: machine code of the module.
        staging_bytes: what inputs and outputs are copied through.
        session_bytes: the module's other sessions.
    """

    context_bytes: int = 0
    code_bytes: int = 0
    staging_bytes: int = 0
    session_bytes: int = 0

    @property
    def total_bytes(self) -> int:
        """All together."""
        return self.context_bytes + self.code_bytes + self.staging_bytes + self.session_bytes

    def __str__(self) -> str:
        parts = (
            (self.context_bytes, "the driver's context"),
            (self.code_bytes, "code"),
            (self.staging_bytes, "inputs and outputs"),
            (self.session_bytes, "other sessions"),
        )
        return ", ".join(f"{format_bytes(size)} {name}" for size, name in parts if size)


NOTHING = Beside()
