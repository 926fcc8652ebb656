"""The devices: ``open_device`` makes the one that a setting names."""

from __future__ import annotations

from typing import TYPE_CHECKING

from npucall_server.devices.cpu import CpuDevice

if TYPE_CHECKING:
    from npucall_server.devices.base import Device


class NoDeviceError(Exception):
    """The device, or what it needs, is not there."""


def open_device(name: str, soc: str) -> Device:
    """The device called ``cpu``. Raises NoDeviceError for any other."""
    if name == "cpu":
        return CpuDevice(soc)
    raise NoDeviceError(f"device: expected cpu, the one this version has, found {name}")
