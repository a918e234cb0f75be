"""What is said of an operation that lanes lack."""

from __future__ import annotations

from headrace.base.errors import HeadraceError, error


def unknown_operation(operation: str, kind: str) -> HeadraceError:
    """The error for an operation that lanes lack on values of a kind."""
    return error(
        "HR2401",
        f"no lane code for '{operation}' on {kind} values",
        notes="known are the elementwise operations of the tensor stage",
    )
