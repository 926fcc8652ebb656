"""C functions that are told to fail, and the errors that have to come of it."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from npucall.errors import (
    ArgumentError,
    ArgumentMissingError,
    DeviceError,
    NpucallError,
    OperatorUnavailableError,
    OutOfMemoryError,
)
from npucall_server.devices.base import BrokenDeviceError
from npucall_server.devices.cann.status_table import STATUSES, Fate

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.simulator.control import Simulator

TIMING = {
    "aclrtCreateEventExWithFlag", "aclrtRecordEvent", "aclrtEventElapsedTime",
    "aclrtSynchronizeEvent",
}  # fmt: skip
"""Without these nothing is timed, and all the same everything runs."""
OF_PIECES = {"aclrtSynchronizeEventWithTimeout"}
"""Without it copies in pieces wait for the stream."""
CLEARING = {"aclnnInplaceZeroGetWorkspaceSize", "aclnnInplaceZero"}
"""Where it is refused memory is cleared without a kernel."""
CANNOT_FAIL = {"aclrtGetLastError"}
"""What it answers is no status of its own."""
EXECUTOR = "aclDestroyAclOpExecutor"
"""Of one that never ran; CANN may refuse it, and nobody's call fails by that."""
NULL_POINTER, BAD_ALLOC = 161001, 200000
KINDS = {
    Fate.ARGUMENT: ArgumentError,
    Fate.UNAVAILABLE: OperatorUnavailableError,
    Fate.MEMORY: OutOfMemoryError,
    Fate.CALL: DeviceError,
    Fate.BROKEN: BrokenDeviceError,
}


class Fault(NamedTuple):
    """A C function that fails with a status at its nth next call."""

    function: str
    status: int
    nth: int = 1

    @property
    def found(self) -> int:
        """The status that the error is made of; one that answers a null pointer tells none."""
        return BAD_ALLOC if self.function.startswith("aclCreate") else self.status

    @property
    def fate(self) -> Fate:
        return STATUSES[self.found].fate

    @property
    def tolerated(self) -> bool:
        """Whether no call fails by it: what only helps, an executor that is left behind."""
        helps = self.function in TIMING | OF_PIECES and self.fate is not Fate.BROKEN
        clears = self.function in CLEARING and self.fate not in (Fate.BROKEN, Fate.MEMORY)
        return helps or clears or self.function == EXECUTOR

    @property
    def kind(self) -> type[NpucallError]:
        return ArgumentMissingError if self.found == NULL_POINTER else KINDS[self.fate]

    def set(self, simulator: Simulator) -> None:
        simulator.fail(self.function, self.nth, status=self.status)

    def misfits(self, error: NpucallError | None) -> list[str]:
        """What is wrong with the error that came of it."""
        if error is None:
            return [f"{self}: no error came of it"]
        symbol = STATUSES[self.found].symbol
        phase = "plan" if self.function.endswith("GetWorkspaceSize") else "run"
        text = f"[{self.function}] the simulator was told to fail here"
        details = error.details
        wanted = {
            "class": type(error) is self.kind,
            "sentence": f"{self.function}: expected status 0, found {self.found} ({symbol}): "
            in str(error),
            "function": details.get("function") == self.function,
            "status": details.get("device_status") == str(self.found),
            "driver_message": text in details.get("driver_message", ""),
            "phase": details.get("phase") == phase,
            "aclnn_status": (error.aclnn_status is not None) == self.function.startswith("aclnn"),
        }
        return [f"{self}: {what} of {error!r}" for what, fits in wanted.items() if not fits]


def status_for(fate: Fate, function: str) -> int:
    """A status of this fate; all of them have their turn, one function or the other."""
    statuses = [code for code, status in STATUSES.items() if status.fate is fate]
    return statuses[sum(function.encode()) % len(statuses)]


def failure(work: Callable[[], object]) -> NpucallError | None:
    """The error that some work ends with."""
    try:
        work()
    except NpucallError as error:
        return error
    return None
