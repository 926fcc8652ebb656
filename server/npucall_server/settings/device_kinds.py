"""The kinds of devices: what ``--device`` may say, and what opens each.

There are only names here. A kind is imported when it is opened, so no kind needs the libraries of
another.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from importlib.metadata import entry_points
from pkgutil import resolve_name
from typing import Any, NamedTuple

_GROUP = "npucall_server.devices"
"""The entry points with which other distributions add kinds.

``echo = "npucall_echo.device:open_echo"``
makes ``echo:N`` a device.
"""


class DeviceKind(NamedTuple):
    """One kind of device."""

    form: str
    """What ``--device`` says. In a last part ``:N``, N is a number from 0 on."""
    meaning: str
    """A few words for ``--help``."""
    opener: str
    """``module:function``; ``open_device`` calls it."""

    def number_in(self, device: str) -> int | None:
        """The N of a device of this kind, 0 for a form without one; None for another kind."""
        name, numbered, _ = self.form.partition(":N")
        found = re.fullmatch(re.escape(name) + (":([0-9]+)" if numbered else "()"), device)
        return None if found is None else int(found[1] or 0)

    def load(self) -> Callable[..., Any]:
        """The function that opens such a device."""
        function: Callable[..., Any] = resolve_name(self.opener)
        return function


CPU = DeviceKind("cpu", "the CPU reference", "npucall_server.devices.cpu:open_cpu")
CANN = DeviceKind("cann:N", "the NPU number N", "npucall_server.devices.cann.device:open_cann")
KINDS = (CPU, CANN)
"""The kinds of this distribution."""


def kind_of(device: str) -> DeviceKind:
    """The kind of a device. Raises a ValueError with a sentence if there is no such kind."""
    for kind in KINDS:
        if kind.number_in(device) is not None:
            return kind
    others = _installed()
    for kind in others:
        if kind.number_in(device) is not None:
            return kind
    forms = ", ".join(kind.form for kind in (*KINDS, *others))
    raise ValueError(f"expected one of {forms} (N: a number), found {device!r}")


def _installed() -> list[DeviceKind]:
    return [
        DeviceKind(f"{entry.name}:N", "of an installed package", entry.value)
        for entry in entry_points(group=_GROUP)
    ]
