"""Turns every failure of a C function into an error of npucall, by its status [src:statuses]."""

from __future__ import annotations

from npucall.errors import (
    PARAM_NULLPTR,
    ArgumentError,
    ArgumentMissingError,
    DeviceError,
    NpucallError,
    OperatorUnavailableError,
    OutOfMemoryError,
)
from npucall.statuses import STATUSES, Fate, Status
from npucall_server.devices.base import BrokenDeviceError

HIDING = range(561000, 562000)
"""Statuses of aclnn functions for which the runtime may have a more exact one; so has 361001."""
RUNTIME_ERROR = 361001

_BROKEN_BY_DEFAULT = range(507000, 507100)


def status_of(code: int) -> Status:
    """The row of a status. A status that is not in the table is sorted by its number's class."""
    known = STATUSES.get(code)
    if known is not None:
        return known
    return Status(
        "status unknown to npucall", Fate.BROKEN if code in _BROKEN_BY_DEFAULT else Fate.CALL
    )


def error_of(function: str, code: int, driver_message: str, hidden: int = 0) -> NpucallError:
    """The error for a C function that answered a status other than 0.

    ``hidden``: the runtime's own status, if it is the cause of an aclnn function's, or 0. If it is
    not 0, it decides.
    """
    symbol, fate = status_of(code)
    found = f"{code} ({symbol})"
    if hidden:
        inner = status_of(hidden)
        found, fate = f"{found}, the runtime's {hidden} ({inner.symbol}) behind it", inner.fate
    kind = ArgumentMissingError if code == PARAM_NULLPTR else _KINDS[fate]
    first_line = driver_message.strip().partition("\n")[0]
    said = f": {first_line}" if first_line else ""
    return kind(
        f"{function}: expected status 0, found {found}{said}",
        aclnn_status=code if function.startswith("aclnn") else None,
        phase="run",
        function=function,
        device_status=str(hidden or code),
        driver_message=driver_message,
    )


_KINDS: dict[Fate, type[NpucallError]] = {
    Fate.ARGUMENT: ArgumentError,
    Fate.UNAVAILABLE: OperatorUnavailableError,
    Fate.MEMORY: OutOfMemoryError,
    Fate.CALL: DeviceError,
    Fate.BROKEN: BrokenDeviceError,
}
