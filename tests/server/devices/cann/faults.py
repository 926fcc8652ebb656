"""C functions that are told to fail, one after the other, and the errors that come of it."""

from collections.abc import Callable
from typing import NamedTuple

from tests.simulator.control import Simulator

from npucall.errors import (
    ArgumentError,
    ArgumentMissingError,
    DeviceError,
    NpucallError,
    OperatorUnavailableError,
    OutOfMemoryError,
)
from npucall.statuses import STATUSES, Fate
from npucall_server.devices.base import BrokenDeviceError

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
SYNCHRONISE = "aclrtSynchronizeStreamWithTimeout"
NULL_POINTER, BAD_ALLOC = 161001, 200000
OVERFLOW, KERNEL_FAILED, HEARTBEAT, NO_MEMORY = 207016, 507015, 507010, 207001
"""Statuses of a call that fails, of devices that are broken, of too little memory."""
KINDS = {
    Fate.ARGUMENT: ArgumentError,
    Fate.UNAVAILABLE: OperatorUnavailableError,
    Fate.MEMORY: OutOfMemoryError,
    Fate.CALL: DeviceError,
    Fate.BROKEN: BrokenDeviceError,
}


def failure(work: Callable[[], object]) -> NpucallError | None:
    """The error that some work ends with."""
    try:
        work()
    except NpucallError as error:
        return error
    return None


def statuses(fate: Fate) -> list[int]:
    return [code for code, status in STATUSES.items() if status.fate is fate]


def kind_of(status: int) -> type[NpucallError]:
    return ArgumentMissingError if status == NULL_POINTER else KINDS[STATUSES[status].fate]


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

    def set(self, simulator: Simulator, times: int = 1) -> None:
        for _ in range(times):
            simulator.fail(self.function, self.nth, status=self.status)

    def misfits(self, error: NpucallError | None) -> list[str]:
        """What is wrong with the error that came of it."""
        if error is None:
            return [f"{self}: no error came of it"]
        symbol = STATUSES[self.found].symbol
        phase = "plan" if self.function.endswith("GetWorkspaceSize") else "run"
        text = f"[{self.function}] the simulator was told to fail here"
        sentence = f"{self.function}: expected status 0, found {self.found} ({symbol}): "
        details = error.details
        fits = {
            "class": type(error) is kind_of(self.found),
            "sentence": sentence in str(error),
            "function": details.get("function") == self.function,
            "status": details.get("device_status") == str(self.found),
            "driver_message": text in details.get("driver_message", ""),
            "phase": details.get("phase") == phase,
            "aclnn_status": (error.aclnn_status is not None) == self.function.startswith("aclnn"),
        }
        return [f"{self}: {what} of {error!r}" for what, fit in fits.items() if not fit]


def fault_of(fate: Fate, function: str, nth: int = 1) -> Fault:
    """With a status of this fate; all of them have their turn, one function or the other."""
    those = statuses(fate)
    return Fault(function, those[sum(function.encode()) % len(those)], nth)
