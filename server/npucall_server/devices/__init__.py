"""The devices: ``open_device`` makes the one that the settings name."""

from __future__ import annotations

from typing import TYPE_CHECKING

from npucall_server import device_kinds
from npucall_server.devices.base import NoDeviceError

if TYPE_CHECKING:
    from collections.abc import Callable

    from npucall_server.devices.base import Device
    from npucall_server.settings import ServerSettings

__all__ = ["NoDeviceError", "open_device"]


def open_device(settings: ServerSettings, note: Callable[[str], None]) -> Device:
    """The device that the settings name; ``note`` hears what the log should say of it.

    Raises NoDeviceError.
    """
    device: Device = device_kinds.kind_of(settings.device).load()(settings, note)
    return device
