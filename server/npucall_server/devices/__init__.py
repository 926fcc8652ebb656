"""The devices: ``open_device`` makes the one that the settings name.

Its modules, from the top::

    cann                      an NPU
    cpu                       the CPU reference as a device
    lanes, lane_thread, renewed  give calls to free lanes; a lane's thread; a lane opened again
    watchdog                  finds calls that never return
    one_by_one                programs of devices that run each step as a call
    stopwatch, cleanup        measures time by the device's clock; gives everything back
    memory_map, program_map   where the tensors of a call lie in memory; where those of a program
    host_memory, unwritten    handles in host memory; outputs that a kernel leaves as they are
    native_threads            whether the system's thread has ended
    base                      what a device has to implement
"""

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
    """Opens the device that the settings name. Calls ``note`` with texts for the log.

    Raises NoDeviceError.
    """
    device: Device = device_kinds.kind_of(settings.device).load()(settings, note)
    return device
