"""The devices: ``open_device`` makes the one that the settings name."""

from __future__ import annotations

from collections.abc import Callable

from npucall_server.devices.base import Device, NoDeviceError
from npucall_server.settings import device_kinds
from npucall_server.settings.server import ServerSettings

__all__ = ["NoDeviceError", "open_device"]


def open_device(settings: ServerSettings, note: Callable[[str], None]) -> Device:
    """Opens the device that the settings name. Calls ``note`` with texts for the log.

    Raises NoDeviceError.
    """
    device: Device = device_kinds.kind_of(settings.device).load()(settings, note)
    return device
