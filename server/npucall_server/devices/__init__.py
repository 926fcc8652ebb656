"""The devices: ``open_device`` makes the one that the settings name."""

from __future__ import annotations

from typing import TYPE_CHECKING

from npucall.errors import NpucallError
from npucall_server.devices.cpu import CpuDevice
from npucall_server.settings import ascend_paths, tell_cann

if TYPE_CHECKING:
    from collections.abc import Callable

    from npucall_server.devices.base import Device
    from npucall_server.settings import ServerSettings


class NoDeviceError(Exception):
    """The device, or what it needs, is not there."""


def open_device(settings: ServerSettings, note: Callable[[str], None]) -> Device:
    """The device called ``cpu`` or ``cann:N``; ``note`` hears what the log should say of it.

    Raises NoDeviceError.
    """
    if settings.device == "cpu":
        return CpuDevice(settings.soc, settings.variant)
    return _open_npu(settings, note)


def _open_npu(settings: ServerSettings, note: Callable[[str], None]) -> Device:
    # Imported here: whoever runs the CPU reference needs nothing of it.
    from npucall_server.devices.cann.device import CannDevice  # noqa: PLC0415
    from npucall_server.devices.cann.library import LibraryError  # noqa: PLC0415

    tell_cann(settings)
    number = int(settings.device.removeprefix("cann:"))
    try:
        device = CannDevice(number, settings, ascend_paths(), note)
    except (LibraryError, NpucallError) as error:
        raise NoDeviceError(
            f"device {settings.device}: {error}\n`npucall-server doctor` looks for the cause."
        ) from error
    wanted = settings.variant if "variant" in settings.model_fields_set else device.default_variant
    if wanted != device.default_variant:
        device.close()
        raise NoDeviceError(
            f"variant: expected {device.default_variant or 'none'}, what the libraries of this "
            f"host have, found {wanted}"
        )
    return device
