"""What a status becomes: the class of the error, its sentence, its details; alone and in calls."""

from collections.abc import Callable
from functools import partial
from itertools import product
from types import SimpleNamespace
from typing import Any, NamedTuple

import pytest
from grpc import StatusCode

from npucall.errors import (
    ArgumentError,
    ArgumentMissingError,
    DeviceError,
    DeviceLostError,
    NpucallError,
    OperatorUnavailableError,
    OutOfMemoryError,
)
from npucall.statuses import Fate
from npucall_server.devices.base import BrokenDeviceError
from npucall_server.devices.cann.runtime import _failure
from npucall_server.devices.cann.statuses import status_of

from .calls import WAYS, Case, l1, unread
from .faults import HEARTBEAT, KERNEL_FAILED, OVERFLOW, SYNCHRONISE, failure, kind_of, statuses
from .opened import Open, Opened
from .test_programs import chain

PHASE_ONE = "aclnnXGetWorkspaceSize"
LAUNCH = "aclnnL1LossBackward"
PLAN = f"{LAUNCH}GetWorkspaceSize"
RUNTIME_ERROR, INNER_ERROR = 361001, 561000
SORTED: dict[type[NpucallError], tuple[StatusCode, tuple[int, ...]]] = {
    ArgumentMissingError: (StatusCode.INVALID_ARGUMENT, (161001,)),
    ArgumentError: (StatusCode.INVALID_ARGUMENT, (161002,)),
    OperatorUnavailableError: (StatusCode.FAILED_PRECONDITION, (561003, 561112, 207000)),
    OutOfMemoryError: (StatusCode.RESOURCE_EXHAUSTED, (207001, 207018, 200000)),
    DeviceError: (StatusCode.INTERNAL, (107002, 207016, 361001, 507005, 561000)),
    BrokenDeviceError: (StatusCode.INTERNAL, (107022, 507015, 507035, 507046, 507053)),
}


def failed(
    status: int, *, text: bytes | None = None, last_error: int = 0, function: str = PHASE_ONE
) -> NpucallError:
    """The error of a function when the thread has this error text and last error."""
    acl: Any = SimpleNamespace(
        aclGetRecentErrMsg=lambda: text, aclrtGetLastError=lambda level: last_error
    )
    return _failure(acl, function, status)


def test_a_status_is_sorted() -> None:
    found: dict[Any, Any] = {}
    for codes in SORTED.values():
        for status in codes[1]:
            error = failed(status)
            found.setdefault(type(error), (error.code, []))[1].append(status)
    assert found == {kind: (code, list(codes)) for kind, (code, codes) in SORTED.items()}


def test_an_unknown_status_is_sorted_by_its_number() -> None:
    fates = dict.fromkeys((507199, 507998, 107999, 561999, 1, -1), Fate.CALL)
    for status, fate in (fates | {507098: Fate.BROKEN}).items():
        assert status_of(status) == ("status unknown to npucall", fate)


def test_the_runtime_s_status_behind_an_aclnn_status_decides() -> None:
    for status in (361001, 561000, 561002, 561103, 561999):
        error = failed(status, last_error=HEARTBEAT)
        assert type(error) is BrokenDeviceError
        assert f"found {status} (" in str(error)
        assert "the runtime's 507010 (ACL_ERROR_RT_LOST_HEARTBEAT) behind it" in str(error)
        assert (error.aclnn_status, error.details["device_status"]) == (status, "507010")


@pytest.mark.parametrize(
    ("status", "function", "kind"),
    [(161002, PHASE_ONE, ArgumentError), (107002, PHASE_ONE, DeviceError),
     (561103, "aclSetRawTensorAddr", DeviceError)],
)  # fmt: skip
def test_an_old_last_error_behind_any_other_status_or_function_does_not(
    status: int, function: str, kind: type[NpucallError]
) -> None:
    error = failed(status, last_error=HEARTBEAT, function=function)
    assert (type(error), error.details["device_status"]) == (kind, str(status))


def test_the_sentence_has_function_status_symbol_and_the_first_line_of_the_text() -> None:
    error = failed(161002, text=b"EZ1001: \xff\nTraceBack: more\n")
    assert str(error) == (
        "aclnnXGetWorkspaceSize: expected status 0, found 161002 (ACLNN_ERR_PARAM_INVALID): "
        "EZ1001: \ufffd"
    )
    assert error.details["driver_message"] == "EZ1001: \ufffd\nTraceBack: more\n"
    error = failed(507015)
    assert str(error).endswith("found 507015 (ACL_ERROR_RT_AICORE_EXCEPTION)")
    assert error.details["driver_message"] == ""


# --- Work that fails after it has been submitted: the synchronise says so -------------------------


@pytest.mark.parametrize("way", WAYS)
def test_a_failure_of_submitted_work_names_the_synchronise(open_device: Open, way: str) -> None:
    submit = ["aclnnKlDivBackward", "aclnnInplaceZero", "aclrtMemsetAsync", "aclrtMemcpyAsync"]
    for function in submit[:3] if way == "waiting" else submit:
        device = open_device(**WAYS[way])
        case = unread(device)
        device.simulator.fail(function, status=OVERFLOW, what="at_sync")
        error = failure(partial(device.run, case))
        assert error is not None
        told = (error.details["function"], error.details["device_status"])
        assert told == (SYNCHRONISE, str(OVERFLOW))
        assert "the simulator was told to fail here" in error.details["driver_message"]
        assert device.serves(case)
        device.close()


def test_a_kernel_that_fails_fails_one_call_or_runs_once_more(device: Opened) -> None:
    case, found = l1(device), {}
    rest = [status for fate in Fate if fate is not Fate.BROKEN for status in statuses(fate)]
    for status in rest:
        device.simulator.fail(LAUNCH, status=status, what="at_sync")
        found[status] = type(failure(partial(device.run, case)))
        assert device.serves(case)
    kinds = {s: type(None) if s in statuses(Fate.MEMORY) else kind_of(s) for s in rest}
    assert found == kinds


def test_a_kernel_that_fails_with_any_other_status_breaks_the_device(open_device: Open) -> None:
    found = {}
    for status in statuses(Fate.BROKEN):
        opened = open_device()
        opened.simulator.fail(LAUNCH, status=status, what="at_sync")
        error = failure(partial(opened.run, l1(opened)))
        found[status] = type(error), [lost.details["device_status"] for lost in opened.lost]
        opened.abandon()
    assert found == {status: (BrokenDeviceError, [str(status)]) for status in found}


def test_a_broken_device_runs_nothing_more(device: Opened) -> None:
    case = l1(device)
    device.simulator.fail(LAUNCH, status=KERNEL_FAILED, what="at_sync")
    with pytest.raises(BrokenDeviceError):
        device.run(case)

    def more() -> None:
        for again in (device.run, device.plan):
            with pytest.raises(DeviceLostError, match="repeat the call"):
                again(case)

    assert (device.functions(more), len(device.lost)) == ({}, 1)
    device.abandon()


class Tolerated(NamedTuple):
    """A function that leaves an error behind, and the one that fails later."""

    function: str
    then: str


EARLIER = [Tolerated("aclrtRecordEvent", PLAN), Tolerated(PLAN, LAUNCH), Tolerated(LAUNCH, PLAN)]


def twice(device: Opened, case: Case) -> None:
    for _ in range(2):
        device.run(case)


def in_a_program(device: Opened, case: Case) -> None:
    device.program(chain(case, 2))


@pytest.mark.parametrize("work", [twice, in_a_program])
def test_an_error_that_was_tolerated_is_not_the_cause_of_a_later_one(
    device: Opened, work: Callable[[Opened, Case], None]
) -> None:
    case = l1(device)
    assert device.serves(case)
    for earlier, status in product(EARLIER, (RUNTIME_ERROR, INNER_ERROR)):
        device.simulator.fail(earlier.function, status=HEARTBEAT, what="tolerated")
        device.simulator.fail(earlier.then, 1 + (earlier.function == LAUNCH), status=status)
        error = failure(partial(work, device, case))
        assert type(error) is DeviceError, earlier
        assert (error.details["device_status"], device.lost) == (str(status), []), earlier
        assert device.serves(case)


@pytest.mark.parametrize("function", [PLAN, LAUNCH])
def test_the_runtime_s_error_behind_that_of_a_phase_decides(
    open_device: Open, function: str
) -> None:
    for status in (RUNTIME_ERROR, INNER_ERROR):
        device = open_device()
        device.simulator.fail(function, status=HEARTBEAT, what="tolerated")
        device.simulator.fail(function, status=status)
        error = failure(partial(device.run, l1(device)))
        assert type(error) is BrokenDeviceError
        assert error.details["device_status"] == str(HEARTBEAT)
        told = error.details["driver_message"]
        assert f"[{function}] the simulator was told to fail here" in told
        assert len(device.lost) == 1
        device.abandon()
