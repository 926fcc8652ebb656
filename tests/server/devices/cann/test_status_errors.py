"""What a status becomes: the class of the error, its sentence and its details."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from grpc import StatusCode

from npucall.errors import (
    ArgumentError,
    ArgumentMissingError,
    DeviceError,
    NpucallError,
    OperatorUnavailableError,
    OutOfMemoryError,
)
from npucall_server.devices.base import BrokenDeviceError
from npucall_server.devices.cann.runtime import _failure
from npucall_server.devices.cann.status_table import Fate
from npucall_server.devices.cann.statuses import error_of, status_of

HEARTBEAT = 507010


def failed(
    status: int,
    *,
    text: bytes | None = None,
    last_error: int = 0,
    function: str = "aclnnXGetWorkspaceSize",
) -> NpucallError:
    """The error of a function when the thread has this error text and last error."""
    acl = SimpleNamespace(
        aclGetRecentErrMsg=lambda: text, aclrtGetLastError=lambda level: last_error
    )
    return _failure(acl, function, status)


@pytest.mark.parametrize(
    ("status", "kind", "code"),
    [
        (161001, ArgumentMissingError, StatusCode.INVALID_ARGUMENT),
        (161002, ArgumentError, StatusCode.INVALID_ARGUMENT),
        (561003, OperatorUnavailableError, StatusCode.FAILED_PRECONDITION),
        (561112, OperatorUnavailableError, StatusCode.FAILED_PRECONDITION),
        (207000, OperatorUnavailableError, StatusCode.FAILED_PRECONDITION),
        (207001, OutOfMemoryError, StatusCode.RESOURCE_EXHAUSTED),
        (207018, OutOfMemoryError, StatusCode.RESOURCE_EXHAUSTED),
        (200000, OutOfMemoryError, StatusCode.RESOURCE_EXHAUSTED),
        (107002, DeviceError, StatusCode.INTERNAL),
        (207016, DeviceError, StatusCode.INTERNAL),
        (361001, DeviceError, StatusCode.INTERNAL),
        (507005, DeviceError, StatusCode.INTERNAL),
        (561000, DeviceError, StatusCode.INTERNAL),
        (107022, BrokenDeviceError, StatusCode.INTERNAL),
        (507015, BrokenDeviceError, StatusCode.INTERNAL),
        (507035, BrokenDeviceError, StatusCode.INTERNAL),
        (507046, BrokenDeviceError, StatusCode.INTERNAL),
        (507053, BrokenDeviceError, StatusCode.INTERNAL),
    ],
)
def test_a_status_is_sorted(status: int, kind: type[NpucallError], code: StatusCode) -> None:
    error = failed(status)
    assert (type(error), error.code) == (kind, code)


@pytest.mark.parametrize(
    ("status", "fate"),
    [
        (507098, Fate.BROKEN),
        (507199, Fate.CALL),
        (507998, Fate.CALL),
        (107999, Fate.CALL),
        (561999, Fate.CALL),
        (1, Fate.CALL),
        (-1, Fate.CALL),
    ],
)
def test_an_unknown_status_is_sorted_by_its_number(status: int, fate: Fate) -> None:
    assert status_of(status) == ("status unknown to npucall", fate)


@pytest.mark.parametrize("status", [361001, 561000, 561002, 561103, 561999])
def test_the_runtime_s_status_behind_an_aclnn_status_decides(status: int) -> None:
    error = failed(status, last_error=HEARTBEAT)
    assert type(error) is BrokenDeviceError
    assert f"found {status} (" in str(error)
    assert "the runtime's 507010 (ACL_ERROR_RT_LOST_HEARTBEAT) behind it" in str(error)
    assert (error.aclnn_status, error.details["device_status"]) == (status, "507010")


@pytest.mark.parametrize(("status", "kind"), [(161002, ArgumentError), (107002, DeviceError)])
def test_an_old_last_error_behind_any_other_status_does_not(
    status: int, kind: type[NpucallError]
) -> None:
    error = failed(status, last_error=HEARTBEAT)
    assert (type(error), error.details["device_status"]) == (kind, str(status))


def test_only_phases_of_operators_have_an_error_of_the_runtime_behind_theirs() -> None:
    error = failed(561103, last_error=HEARTBEAT, function="aclSetRawTensorAddr")
    assert (type(error), error.details["device_status"]) == (DeviceError, "561103")


def test_the_sentence_has_function_status_symbol_and_the_first_line_of_the_text() -> None:
    error = failed(161002, text=b"EZ1001: shape\nTraceBack: more\n")
    assert str(error) == (
        "aclnnXGetWorkspaceSize: expected status 0, found 161002 (ACLNN_ERR_PARAM_INVALID): "
        "EZ1001: shape"
    )
    assert error.details["driver_message"] == "EZ1001: shape\nTraceBack: more\n"


def test_without_a_text_the_sentence_ends_with_the_symbol() -> None:
    error = failed(507015)
    assert str(error).endswith("found 507015 (ACL_ERROR_RT_AICORE_EXCEPTION)")
    assert error.details["driver_message"] == ""


def test_a_text_that_is_not_utf_8_is_shown_all_the_same() -> None:
    assert failed(161002, text=b"EZ1001: \xff").details["driver_message"] == "EZ1001: \ufffd"


def test_only_functions_of_operators_have_an_aclnn_status() -> None:
    assert error_of("aclnnX", 161002, "").aclnn_status == 161002
    assert error_of("aclrtMalloc", 161002, "").aclnn_status is None
