"""What to do about an error of the device."""

from __future__ import annotations

from npucall.errors import NpucallError
from npucall_server.commands.doctor.finding import Finding, fault
from npucall_server.devices.cann.advice import advice


def failed(error: NpucallError, of: str = "", *settles: str) -> Finding:
    """The fault for an error, with what to do about its status. ``of``: what was tried."""
    status = error.details.get("device_status")
    todo = advice(int(status)) if status else "report it, with all that stands above"
    return fault(f"{of}: {error}" if of else str(error), todo, *settles)


WRONG = (
    "wrong numbers: do not use this device. Run `npucall conform` for the extent of it, and send "
    "the report (--report)"
)
"""What to do about these errors."""
