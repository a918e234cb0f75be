"""What was measured on a device: the rates that predictions are made from.

A profile is a small file per device and driver. A kernel's time is keyed by what decides
it: the executable's digest, the launch's symbol, the dimensions and the workgroups. What
has no measured time is estimated from its operations and bytes by the default rates.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from headrace.base.errors import error

PROFILE_VERSION = 1


def kernel_key(
    digest: str,
    symbol: str,
    dims: Mapping[str, int] | tuple[tuple[str, int], ...],
    workgroups: tuple[int, int, int],
) -> str:
    """The text under which a launch's time is kept.

    Args:
        digest: of the executable.
        dims: named sizes; the order does not matter.
        workgroups: of the whole launch, not of a slice.
    """
    pairs = sorted(dims.items() if isinstance(dims, Mapping) else dims)
    sizes = ",".join(f"{name}={size}" for name, size in pairs)
    return f"{digest}/{symbol}[{sizes}]({'x'.join(map(str, workgroups))})"


def rounded(value: float, digits: int) -> float:
    """`value` rounded to significant digits, so that noise makes no new plan."""
    if value <= 0 or not math.isfinite(value):
        return 0.0
    return float(f"{value:.{digits - 1}e}")


def two_digits(value: float) -> float:
    """`value` rounded to two significant digits."""
    return rounded(value, 2)


@dataclass(frozen=True)
class Profile:
    """Measured rates of a device.

    Attributes:
        device: for reports: the device and driver it was measured on.
        link_bytes_per_s: rate at which weights arrive.
        fetch_overhead_ns: what a transfer takes beside its bytes.
        launch_overhead_ns: what a launch takes beside its work.
        operations_per_s: default rate of scalar operations, of all threads together.
        memory_bytes_per_s: default rate of memory traffic.
        contention: how much of a transfer's time is lost to computing that runs beside
            it: 0 where a copy engine moves weights, up to 1 where cores do.
        kernel_ns: measured times of whole launches by `kernel_key`.
    """

    device: str = "default"
    link_bytes_per_s: float = 6e9
    fetch_overhead_ns: int = 20_000
    launch_overhead_ns: int = 3_000
    operations_per_s: float = 4e10
    memory_bytes_per_s: float = 1e10
    contention: float = 0.0
    kernel_ns: Mapping[str, int] = field(default_factory=dict[str, int])

    def to_json(self) -> str:
        """Text for a file; `from_json` gives an equal profile."""
        values: dict[str, Any] = {
            "version": PROFILE_VERSION,
            "device": self.device,
            "link_bytes_per_s": self.link_bytes_per_s,
            "fetch_overhead_ns": self.fetch_overhead_ns,
            "launch_overhead_ns": self.launch_overhead_ns,
            "operations_per_s": self.operations_per_s,
            "memory_bytes_per_s": self.memory_bytes_per_s,
            "contention": self.contention,
            "kernel_ns": dict(sorted(self.kernel_ns.items())),
        }
        return json.dumps(values, indent=1)

    @staticmethod
    def from_json(text: str, path: str = "profile") -> Profile:
        """Reads the text of a profile file.

        Raises:
            HeadraceError HR3301: it is no profile; calibrating again writes a new one.
        """
        try:
            values = json.loads(text)
            if values.pop("version") != PROFILE_VERSION:
                raise ValueError("it has another version")
            profile = Profile(**values)
            rates = (
                profile.link_bytes_per_s,
                profile.operations_per_s,
                profile.memory_bytes_per_s,
            )
            if not all(math.isfinite(rate) and rate > 0 for rate in rates):
                raise ValueError("a rate is not positive")
            if min(profile.fetch_overhead_ns, profile.launch_overhead_ns) < 0:
                raise ValueError("an overhead is negative")
            if not 0 <= profile.contention <= 1:
                raise ValueError("the contention is no share")
            kernels = {str(key): int(value) for key, value in profile.kernel_ns.items()}
        except (ValueError, TypeError, KeyError, AttributeError) as problem:
            raise error(
                "HR3301",
                "the device profile cannot be read",
                at=path,
                notes=str(problem),
                helps="run `headrace calibrate`, or delete the file",
            ) from problem
        return replace(profile, kernel_ns=kernels)
