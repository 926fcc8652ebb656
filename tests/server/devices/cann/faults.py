"""C functions that are told to fail, one after the other, and the errors that come of it."""

from collections.abc import Callable, Iterable
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
from npucall_server.devices.base import BrokenDeviceError
from npucall_server.devices.cann.status_table import STATUSES, Fate

from .calls import Case, Situation
from .opened import Open, Opened

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
SOME_TIMES = 3
"""After which a function that some work uses has been called twice, or will never be."""


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


class Sweep(NamedTuple):
    """One work in one situation, done on a fresh device for each fault."""

    open_device: Open
    situation: Situation
    serves: Callable[[Opened, Case], bool]
    """Does the work, and says whether its answer is right."""

    def ready(self) -> tuple[Opened, Case]:
        """A device to which all has happened that comes before, and the call."""
        opened = self.open_device(**self.situation.settings)
        for ask in self.situation.before:
            assert opened.serves(ask(opened))
        return opened, self.situation.then(opened)

    def functions(self) -> list[str]:
        """The C functions that the work uses."""
        opened, case = self.ready()
        functions = opened.functions(lambda: self.serves(opened, case))
        opened.close()
        return list(functions)

    def faults(self, fates: Iterable[Fate], *occurrences: int) -> list[Fault]:
        """Each function that fails at each of these calls of it."""
        functions = [name for name in self.functions() if name not in CANNOT_FAIL]
        return [fault_of(f, name, nth) for f in fates for name in functions for nth in occurrences]

    def misfits(self, faults: Iterable[Fault], *, times: int = 1) -> list[str]:
        """What goes wrong when one function fails; so many times in a row."""
        found = []
        for fault in faults:
            opened, case = self.ready()
            fault.set(opened.simulator, times)
            wrong = self._meet(opened, case, fault, mended=times == 1)
            if wrong is not None:
                found += wrong or self._after(opened, case, fault)
            opened.abandon()
        return found

    def _meet(self, opened: Opened, case: Case, fault: Fault, *, mended: bool) -> list[str] | None:
        """Does the work until the fault is met; None if it never calls that function so often."""
        last = opened.simulator.call_count(fault.function) + fault.nth
        for _ in range(SOME_TIMES):
            served: list[bool] = []
            error = failure(lambda served=served: served.append(self.serves(opened, case)))  # type: ignore[misc]
            if served == [False]:
                return [f"{fault}: another answer"]
            if opened.simulator.call_count(fault.function) >= last:
                opened.simulator.clear_faults()
                if fault.tolerated or (mended and fault.fate is Fate.MEMORY):
                    return [f"{fault}: expected no error, found {error!r}"] if error else []
                return fault.misfits(error)
            if error is not None:
                return [f"{fault}: found {error!r} too soon"]
        return None

    def _after(self, opened: Opened, case: Case, fault: Fault) -> list[str]:
        """What is wrong once the work has failed."""
        found = opened.simulator.violations()
        breaks = fault.fate is Fate.BROKEN and not fault.tolerated
        if len(opened.lost) != breaks:
            found.append(f"lost {opened.lost}")
        if not breaks:
            if not self.serves(opened, case):
                found.append("the next time the answer was another one")
            opened.close()
            live = opened.simulator.live_objects()
            found += [f"left {live}"] if live else []
            found += opened.simulator.violations()
        return [f"{fault}: {what}" for what in found]
