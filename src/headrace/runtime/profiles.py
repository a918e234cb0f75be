"""The profile of a module on a device: one file of the cache, measured where it lacks."""

from __future__ import annotations

import hashlib
from typing import Any

from headrace.base.errors import HeadraceError
from headrace.plan.profile import Profile
from headrace.runtime.cache import read_cached, write_cached
from headrace.runtime.drivers.api import Device


def profile_name(artifact: Any, device: Device) -> str:
    """The file's name: of device, driver, workers and module together."""
    properties = device.properties
    text = "\0".join(
        (
            device.name,
            properties.name,
            properties.driver,
            str(properties.workers),
            artifact.digest,
        )
    )
    digest = hashlib.sha256(text.encode()).hexdigest()
    return f"profile-{device.name}-{digest[:24]}.json"


def open_profile(artifact: Any, device: Device) -> Profile:
    """The profile kept for this module and device; measured and kept where there is none."""
    name = profile_name(artifact, device)
    kept = read_cached(name)
    if kept is not None:
        try:
            return Profile.from_json(kept.decode("utf-8", "replace"), name)
        except HeadraceError:
            pass  # A damaged or older file of the cache is measured again.
    profile = device.measure(artifact)
    keep_profile(artifact, device, profile)
    return profile


def keep_profile(artifact: Any, device: Device, profile: Profile) -> None:
    """Keeps it for the next time the module is opened."""
    write_cached(profile_name(artifact, device), profile.to_json().encode())
