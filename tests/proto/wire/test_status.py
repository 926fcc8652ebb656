"""npucall.wire.status: errors as google.rpc.Status and back."""

import base64
import pickle
from typing import Any
from urllib.parse import quote

from google.rpc.error_details_pb2 import BadRequest, ErrorInfo, RetryInfo
from google.rpc.status_pb2 import Status
from grpc import StatusCode
from hypothesis import given
from hypothesis import strategies as st
from tests.rows import each

from npucall import errors
from npucall.errors import (
    BY_REASON,
    ArgumentError,
    CancelledError,
    DeadlineError,
    DeviceError,
    DrainingError,
    InternalError,
    MessageError,
    NpucallError,
    ServerUnreachableError,
    ShapeError,
    TooLargeError,
)
from npucall.wire.status import from_status, to_status

SOFT_LIMIT = 8192  # bytes of trailers, above which gRPC may drop them

DETAILS = {
    "operator": "aclnnKlDivBackward",
    "variant": "builtin",
    "phase": "run",
    "soc": "Ascend910B1",
    "limit": "12",
    "setting": "queue_length",
    "request_id": "abc-1",
    "driver_message": "EZ9999: inner error",
}
FACTS: dict[str, Any] = {
    "parameter": ("x", "y"), "aclnn_status": 161002, "retry_after": 0.25, **DETAILS
}  # fmt: skip
SEEN = ("code", "reason", "parameter", "parameters", "aclnn_status", "aclnn_name", "retry_after")


def sent(error: NpucallError) -> NpucallError:
    status = to_status(error)
    return from_status(error.code, status.message, status.SerializeToString())


def attributes(error: NpucallError) -> dict[str, Any]:
    facts = {name: getattr(error, name) for name in (*SEEN, "details")}
    return {"type": type(error), "message": str(error), **facts}


def told(code: StatusCode, status: Status, info: ErrorInfo, message: str = "") -> NpucallError:
    """What a client makes of a status with this as its first detail."""
    if not status.details:
        status.details.add()
    status.details[0].Pack(info)
    return from_status(code, message, status.SerializeToString())


@each("reason", BY_REASON)
@each("facts", [FACTS, {}])
def test_an_error_arrives_as_it_was_raised_pickled_too(reason: str, facts: dict[str, Any]) -> None:
    error = BY_REASON[reason]("x: expected 1, found ü", **facts)
    for found in sent(error), pickle.loads(pickle.dumps(sent(error))):
        assert attributes(found) == attributes(error)


def test_every_class_has_a_reason_of_its_own() -> None:
    """Of the contract; a server may tell kinds of one of them apart that travel alike."""
    contract = [found for found in vars(errors).values() if isinstance(found, type)]
    family = [found for found in contract if issubclass(found, NpucallError)]
    assert sorted(error.reason for error in family) == sorted(BY_REASON)


@each(
    ("kind", "reasons"),
    [
        (TimeoutError, ["DEADLINE", "STALLED"]),
        (ConnectionError, ["SERVER_UNREACHABLE", "CONNECTION_LOST"]),
        (MemoryError, ["HANDLE_MEMORY", "DEVICE_MEMORY"]),
        (TypeError, ["ARGUMENT_UNKNOWN", "ARGUMENT_MISSING", "DTYPE_UNSUPPORTED"]),
        (LookupError, ["OPERATOR_UNKNOWN", "NOT_RECORDED"]),
        (
            PermissionError,
            ["CREDENTIAL", "CREDENTIAL_MISSING", "CREDENTIAL_INVALID", "CREDENTIAL_EXPIRED",
             "TENANT_UNKNOWN", "PERMISSION_DENIED"],
        ),
        (
            ValueError,
            ["MESSAGE_MALFORMED", "TENSOR_LAYOUT", "ARGUMENT_INVALID", "DTYPE_UNSUPPORTED",
             "SHAPE_MISMATCH", "FORMAT_UNSUPPORTED", "ATTRIBUTE_INVALID", "SETTING_INVALID"],
        ),
    ],
)  # fmt: skip
def test_an_error_is_of_pythons_own_class_for_such_an_error(kind: type, reasons: list[str]) -> None:
    assert [reason for reason, error in BY_REASON.items() if issubclass(error, kind)] == reasons


def test_the_details_are_the_standard_ones_that_any_client_can_read() -> None:
    status = to_status(ShapeError("wrong", parameter="self", aclnn_status=161002, retry_after=1.5))
    info, violation, retry = ErrorInfo(), BadRequest(), RetryInfo()
    for detail, message in zip(status.details, (info, violation, retry), strict=True):
        assert detail.Unpack(message)
    assert (status.code, status.message) == (3, "wrong")  # INVALID_ARGUMENT
    assert (info.domain, info.reason) == ("npucall", "SHAPE_MISMATCH")
    assert dict(info.metadata) == {
        "aclnn_status": "161002",
        "aclnn_name": "ACLNN_ERR_PARAM_INVALID",
        "parameter": "self",
    }
    assert [field.field for field in violation.field_violations] == ["self"]
    assert retry.retry_delay.ToMilliseconds() == 1500


def test_a_status_of_cann_without_a_name_arrives_as_a_number() -> None:
    error = sent(DeviceError("failed", aclnn_status=507015))
    assert (error.aclnn_status, error.aclnn_name) == (507015, None)


@each("character", ["a", "ü", "中", "😀"])  # 1, 2, 3, 4 bytes in UTF-8
def test_the_text_of_the_driver_is_cut_between_characters_to_2_kib(character: str) -> None:
    error = sent(DeviceError("failed", driver_message="E" + character * 3000))
    text = error.details["driver_message"]
    assert text == "E" + character * (2047 // len(character.encode()))


def test_the_sentence_of_an_error_is_one_that_a_terminal_may_show() -> None:
    error = sent(MessageError("name: expected x, found \x1b[2J\u202e\n"))
    assert str(error) == r"name: expected x, found \x1b[2J\u202e\n"


@each("character", ["a", "%", "中"])
@each("parameters", [0, 1, 4])
def test_the_trailers_stay_below_the_limit_of_grpc_whatever_an_error_says(
    character: str, parameters: int
) -> None:
    """As gRPC sends them at worst: binary ones in base64, other than ASCII in percent signs."""
    long = character * 60_000  # a call may be 64 KiB and its names are quoted
    facts = {**FACTS, **dict.fromkeys(DETAILS, long), "parameter": (long,) * parameters}
    error = ArgumentError(long, **facts)
    status = to_status(error)
    trailers = base64.b64encode(status.SerializeToString()).decode() + quote(status.message)
    assert len(trailers) < SOFT_LIMIT
    assert type(sent(error)) is ArgumentError


CODES = {
    StatusCode.UNAVAILABLE: ServerUnreachableError,
    StatusCode.DEADLINE_EXCEEDED: DeadlineError,
    StatusCode.CANCELLED: CancelledError,
    StatusCode.RESOURCE_EXHAUSTED: TooLargeError,
    StatusCode.INTERNAL: InternalError,
}


@each("code", CODES)
@each("trailer", [None, b"", b"\xff\xff"])
def test_without_a_trailer_of_ours_the_code_decides(
    code: StatusCode, trailer: bytes | None
) -> None:
    error = from_status(code, "said gRPC", trailer)
    assert (type(error), str(error), error.code) == (CODES[code], "said gRPC", code)


def test_a_code_that_no_npucall_server_sends_is_kept_for_this_error_alone() -> None:
    error = from_status(StatusCode.UNIMPLEMENTED, "Method not found!", None)
    assert (type(error), error.code) == (NpucallError, StatusCode.UNIMPLEMENTED)
    assert str(error) == "UNIMPLEMENTED: Method not found!"
    assert NpucallError.code is StatusCode.UNKNOWN


def test_a_trailer_of_somebody_else_does_not_count() -> None:
    status = to_status(DrainingError("going down"))
    info = ErrorInfo(domain="example.com", reason="DRAINING")
    error = told(StatusCode.DEADLINE_EXCEEDED, status, info, "by a proxy")
    assert (type(error), str(error)) == (DeadlineError, "by a proxy")


def test_a_reason_of_a_newer_server_becomes_the_closest_class_with_all_its_facts() -> None:
    status = to_status(DeviceError("new trouble", parameter="x", aclnn_status=1, soc="Ascend310"))
    info = ErrorInfo(domain="npucall", reason="INVENTED_LATER", metadata={"soc": "Ascend310"})
    error = told(StatusCode.INTERNAL, status, info, "new trouble")
    assert (type(error), str(error)) == (InternalError, "new trouble")
    assert (error.parameter, error.details) == ("x", {"soc": "Ascend310"})


def test_a_reason_of_a_newer_server_keeps_a_code_that_no_class_has() -> None:
    code = StatusCode.UNAUTHENTICATED
    info = ErrorInfo(domain="npucall", reason="INVENTED_LATER")
    error = told(code, Status(code=code.value[0], message="who are you?"), info)
    assert (error.code, str(error)) == (code, "UNAUTHENTICATED: who are you?")


STRANGE = [("aclnn_status", "many"), ("aclnn_status", ""), ("retry_after", "soon")]


@each(("key", "value"), [*STRANGE, ("message", "x"), ("self", "x"), ("parameter", "x")])
def test_metadata_that_no_server_of_ours_sends_does_no_harm(key: str, value: str) -> None:
    info = ErrorInfo(domain="npucall", reason="INTERNAL", metadata={key: value})
    error = told(StatusCode.INTERNAL, Status(message="sentence"), info)
    assert (type(error), str(error)) == (InternalError, "sentence")
    assert (error.aclnn_status, error.retry_after) == (None, None)


def test_a_detail_that_cannot_be_read_does_no_harm() -> None:
    status = to_status(InternalError("sentence"))
    status.details.add(type_url="type.googleapis.com/google.rpc.RetryInfo", value=b"\xff")
    error = from_status(StatusCode.INTERNAL, "", status.SerializeToString())
    assert (type(error), str(error)) == (InternalError, "sentence")


@given(st.sampled_from(list(StatusCode)), st.text(), st.binary())
def test_any_trailer_gives_an_error_of_ours(code: StatusCode, message: str, data: bytes) -> None:
    assert isinstance(from_status(code, message, data), NpucallError)
