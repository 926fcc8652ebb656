"""The versions of toolkit, runtime and driver, and whether they fit together."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from npucall_server.commands.doctor.finding import Finding, ok, warning

if TYPE_CHECKING:
    from npucall_server.devices.base import DeviceFacts

_OLDEST_RUNTIME = (1, 13)
"""The interface of CANN 8.1."""
_OLDEST_DRIVER = (((8, 5), (25, 0)), ((8, 2), (24, 1)))
"""Pairs, newest first: from this CANN on, this is the oldest driver in the vendor's tables."""


def check_versions(facts: DeviceFacts) -> list[Finding]:
    """Checks the versions that the software reports."""
    return [_runtime(facts), _pair(facts)]


def _runtime(facts: DeviceFacts) -> Finding:
    said = f"CANN {facts.cann_version or 'of unknown version'}"
    if not facts.runtime_version:
        return warning(
            f"{said}; the runtime does not report its version", "npucall expects CANN 8.1 or newer"
        )
    said = f"{said}, runtime interface {facts.runtime_version}"
    if _numbers(facts.runtime_version) < _OLDEST_RUNTIME:
        return warning(
            f"{said}: older than every version that npucall supports", "install CANN 8.1 or newer"
        )
    return ok(said)


def _pair(facts: DeviceFacts) -> Finding:
    if not facts.driver_version:
        return warning(
            "the driver does not report its version",
            "check `npu-smi info` on the host; in a container mount the driver's version.info. A "
            "driver older than the toolkit answers 207000 to functions that it does not know",
        )
    oldest = _oldest_driver(facts.cann_version)
    if oldest and _numbers(facts.driver_version) < oldest:
        return warning(
            f"CANN {facts.cann_version} needs driver {'.'.join(map(str, oldest))} or newer, and "
            f"this one is {facts.driver_version}: functions that it does not know answer 207000",
            "update the driver, or use an older toolkit; the release notes of CANN name the pairs",
        )
    return ok(f"driver {facts.driver_version}")


def _oldest_driver(cann: str) -> tuple[int, ...]:
    """The oldest driver for a CANN; empty if no table is known."""
    version = _numbers(cann)
    return next((driver for toolkit, driver in _OLDEST_DRIVER if version >= toolkit), ())


def _numbers(version: str) -> tuple[int, ...]:
    """The first two numbers: (8, 1) of ``8.1.RC1``; empty if it does not begin with two."""
    found = re.match(r"\D?(\d+)\.(\d+)", version)
    return (int(found[1]), int(found[2])) if found else ()
