"""Round every method: what the wire shows, what the log shows."""

import io
import json
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import grpc
import pytest
from google.protobuf.message import Message
from google.rpc.error_details_pb2 import BadRequest, ErrorInfo, RetryInfo
from google.rpc.status_pb2 import Status
from tests.server.fakes import PATIENCE, ledger
from tests.server.raw import TRAILER

from npucall.errors import NpucallError, OperatorUnknownError, QueueFullError, ShapeError
from npucall.wire.replies import ServerIdentity
from npucall_server.access.guard import OpenGuard
from npucall_server.carriers.door import Door
from npucall_server.carriers.grpc_carrier import GrpcCarrier
from npucall_server.carriers.peers import Peers
from npucall_server.telemetry.log import Log, Record

IDENTITY = ServerIdentity("0123456789ab", "cpu", "Ascend910B1")


class Aborted(Exception):  # noqa: N818  # what gRPC's own context raises has no name either
    """Raised by ``abort``, as gRPC's context does."""


class Context:
    """The side of ``grpc.ServicerContext`` that a handler uses."""

    def __init__(self, *metadata: tuple[str, str | bytes]) -> None:
        self._metadata = metadata
        self.code = grpc.StatusCode.OK
        self.message = ""
        self.trailers: dict[str, bytes] = {}

    def invocation_metadata(self) -> tuple[tuple[str, str | bytes], ...]:
        return self._metadata

    def peer(self) -> str:
        return "ipv4:127.0.0.1:9"

    def time_remaining(self) -> None:
        return None

    def is_active(self) -> bool:
        return True

    def add_callback(self, _: object) -> bool:
        return True

    def cancel(self) -> None:
        raise AssertionError("nothing here is waited for")

    def set_trailing_metadata(self, trailers: tuple[tuple[str, bytes], ...]) -> None:
        self.trailers = dict(trailers)

    def abort(self, code: grpc.StatusCode, message: str) -> None:
        self.code, self.message = code, message
        raise Aborted

    def details(self) -> list[Message]:
        """The status details, read with google.rpc's own classes and nothing of npucall's."""
        status = Status.FromString(self.trailers[TRAILER])
        assert (status.code, status.message) == (self.code.value[0], self.message)
        kinds = {kind.DESCRIPTOR.full_name: kind for kind in (ErrorInfo, BadRequest, RetryInfo)}
        read = []
        for detail in status.details:
            message = kinds[detail.TypeName()]()
            assert detail.Unpack(message)
            read.append(message)
        return read


class Handled:
    """One call of a method, through the handler."""

    def __init__(
        self, method: Callable[[Record], bytes], *metadata: tuple[str, str | bytes]
    ) -> None:
        stream = io.StringIO()
        self.context = Context(*metadata)
        log = Log(stream=stream)
        carrier = GrpcCarrier(Door(IDENTITY, log, OpenGuard()), Peers(log, PATIENCE))
        handler: Any = carrier.unary("Execute", lambda _, record, __: method(record), ledger())
        self.response: bytes | None = None
        with suppress(Aborted):
            self.response = handler.stream_unary(iter([b"request"]), self.context)
        (line,) = stream.getvalue().splitlines()
        self.log: dict[str, Any] = json.loads(line)

    @property
    def info(self) -> ErrorInfo:
        info = self.context.details()[0]
        assert isinstance(info, ErrorInfo)
        return info


def fail(error: BaseException) -> Callable[[Record], bytes]:
    def method(record: Record) -> bytes:
        raise error

    return method


def answer(record: Record) -> bytes:
    record.operator = "aclnnKlDivBackward"
    record.run_ns = 7
    return b"response"


def test_what_a_caller_wrote_is_cut_before_it_is_kept_or_logged() -> None:
    name = "é" * 10_000
    error = OperatorUnknownError(f"found {name}", operator=name, driver_message="e" * 10_000)
    log = Handled(fail(error), ("npucall-request-id", "r" * 10_000)).log
    assert log["operator"] == "é" * 128  # 256 bytes
    assert len(log["message"].encode()) == 256
    assert (len(log["driver_message"]), len(log["request_id"])) == (2048, 128)


def test_an_answer_goes_through_and_is_logged() -> None:
    handled = Handled(answer)
    assert handled.response == b"response"
    assert handled.context.code is grpc.StatusCode.OK
    assert handled.log["reason"] == "OK"
    assert handled.log["operator"] == "aclnnKlDivBackward"
    assert (handled.log["request_bytes"], handled.log["response_bytes"]) == (7, 8)
    assert handled.log["run_ns"] == 7
    assert handled.log["total_ns"] > 0


def test_a_bug_is_an_answer_without_its_traceback_which_is_in_the_log() -> None:
    """Under its request id, with beginning and end whatever its length."""
    for bug in ZeroDivisionError("secret"), ValueError("secret" + "x" * 100_000):
        handled = Handled(fail(bug))
        assert handled.context.code is grpc.StatusCode.INTERNAL
        assert handled.info.reason == handled.log["reason"] == "INTERNAL"
        assert handled.info.metadata["request_id"] == handled.log["request_id"] != ""
        wire = handled.context.trailers[TRAILER] + handled.context.message.encode()
        for told in (b"secret", b"Traceback", type(bug).__name__.encode()):
            assert told not in wire
        trace = handled.log["traceback"]
        assert trace.startswith("Traceback")
        assert "in method" in trace
        assert len(trace) < 17_000
    assert (
        "ZeroDivisionError: secret" in Handled(fail(ZeroDivisionError("secret"))).log["traceback"]
    )


def test_an_error_travels_as_details_of_google_rpc() -> None:
    error = ShapeError("self: no", parameter="self", aclnn_status=161002, operator="aclnnX")
    handled = Handled(fail(error))
    info, violations = handled.context.details()
    assert isinstance(info, ErrorInfo)
    assert (info.domain, info.reason) == ("npucall", "SHAPE_MISMATCH")
    assert dict(info.metadata) == {
        "operator": "aclnnX",
        "parameter": "self",
        "aclnn_status": "161002",
        "aclnn_name": "ACLNN_ERR_PARAM_INVALID",
        "soc": "Ascend910B1",
        "request_id": "0123456789ab-1",  # the process's own name, then the number of the call
    }
    assert isinstance(violations, BadRequest)
    assert [violation.field for violation in violations.field_violations] == ["self"]
    told = handled.log["message"], handled.log["reason"], handled.log["operator"]
    assert told == ("self: no", "SHAPE_MISMATCH", "aclnnX")
    assert "traceback" not in handled.log


def test_a_refusal_for_now_says_when_to_come_back_a_lack_of_memory_what_helps() -> None:
    handled = Handled(fail(QueueFullError("full", retry_after=0.25)))
    assert handled.context.code is grpc.StatusCode.RESOURCE_EXHAUSTED
    retry = handled.context.details()[-1]
    assert isinstance(retry, RetryInfo)
    assert retry.retry_delay.ToMilliseconds() == 250
    handled = Handled(fail(MemoryError()))
    assert handled.context.code is grpc.StatusCode.RESOURCE_EXHAUSTED
    told = handled.info.reason, handled.info.metadata["setting"]
    assert told == ("DEVICE_MEMORY", "memory_limit")


def test_the_callers_request_id_stands_in_log_and_error() -> None:
    """One that is none is replaced."""
    for sent, kept in (
        ("mine", "mine"),
        ("x" * 129, "x" * 128),  # _MAX_REQUEST_ID
        ('"}\\', '"}\\'),
        ("", "0123456789ab-1"),
        (b"bytes", "0123456789ab-1"),
    ):
        metadata = ("user-agent", "x"), ("npucall-request-id", sent)
        handled = Handled(fail(NpucallError("no")), *metadata)
        assert handled.log["request_id"] == handled.info.metadata["request_id"] == kept


@pytest.mark.parametrize("error", [KeyboardInterrupt(), SystemExit()])
def test_what_ends_the_process_is_no_bug(error: BaseException) -> None:
    with pytest.raises(type(error)):
        Handled(fail(error))
