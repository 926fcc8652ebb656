"""npucall_client.remote.channel against scripted servers: what gRPC's own answers become."""

from __future__ import annotations

import gc
import threading
import weakref
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import grpc
import numpy as np
import pytest
from google.rpc.status_pb2 import Status

import npucall_client
from npucall.errors import (
    CancelledError,
    ConnectionLostError,
    DeadlineError,
    DeviceLostError,
    DrainingError,
    InternalError,
    NpucallError,
    PoisonedCallError,
    QueueFullError,
    ServerUnreachableError,
    TooLargeError,
)
from npucall.v1 import operator_service_pb2 as pb
from npucall.wire.messages import join_response
from npucall.wire.status import ALONE, BEGUN, NONE, TRAILER, to_status
from npucall_client import Client

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.usefixtures("sender")


Answer = Callable[[bytes, grpc.ServicerContext], bytes]

SERVICE = "npucall.v1.OperatorService"
ONES = np.ones((2, 3), np.float32)


class Script:
    """A server that answers GetServerInfo with ``limits``, and Execute with ``answer``."""

    def __init__(self) -> None:
        self.limits = pb.Limits()
        self.answer: Answer = lambda _, __: reply_of(ONES)
        self.requests: list[dict[str, Any]] = []
        self.asked = threading.Event()

    def info(self, _: bytes, __: grpc.ServicerContext) -> bytes:
        return pb.GetServerInfoResponse(limits=self.limits).SerializeToString()

    def execute(self, request: bytes, context: grpc.ServicerContext) -> bytes:
        self.requests.append(dict(context.invocation_metadata()))
        self.asked.set()
        return self.answer(request, context)


def reply_of(array: Any) -> bytes:
    out = pb.Argument(name="out", stored=True)
    out.tensor.dtype = 1  # type: ignore[assignment]
    out.tensor.shape.extend(array.shape)
    return join_response(pb.Reply(outputs=[out]).SerializeToString(), b"", [array.tobytes()])


def refuse(code: grpc.StatusCode, message: str = "refused") -> Answer:
    def answer(_: bytes, context: grpc.ServicerContext) -> bytes:
        context.abort(code, message)

    return answer


def fail(error: NpucallError) -> Answer:
    def answer(_: bytes, context: grpc.ServicerContext) -> bytes:
        status = to_status(error)
        context.set_trailing_metadata(((TRAILER, status.SerializeToString()),))
        context.abort(error.code, status.message)

    return answer


@contextmanager
def serving(script: Script | None, *options: tuple[str, int]) -> Iterator[str]:
    """The target of a server that follows the script; without one it knows no service."""
    server = grpc.server(ThreadPoolExecutor(4), options=options)
    if script is not None:
        methods = {"GetServerInfo": script.info, "Execute": script.execute}
        handlers = {name: grpc.unary_unary_rpc_method_handler(run) for name, run in methods.items()}
        server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(SERVICE, handlers),))
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    try:
        yield f"127.0.0.1:{port}"
    finally:
        server.stop(0).wait()


@pytest.fixture
def script() -> Script:
    return Script()


@pytest.fixture
def target(script: Script) -> Iterator[str]:
    with serving(script) as address:
        yield address


@pytest.fixture
def scripted(script: Script, target: str) -> Iterator[Client]:
    with npucall_client.connect(target) as client:
        yield client


def run(client: Client, array: Any = ONES) -> Any:
    return client.run("aclnnKlDivBackward", array, self=array, target=array)


def test_an_answer_arrives(scripted: Client) -> None:
    np.testing.assert_array_equal(run(scripted), ONES)


def test_a_deadline_that_ends_at_a_server_that_is_there_is_a_deadline_error(
    script: Script, scripted: Client
) -> None:
    ended = threading.Event()

    def wait(_: bytes, context: grpc.ServicerContext) -> bytes:
        context.add_callback(ended.set)
        ended.wait(10)
        return b""

    script.answer = wait
    with pytest.raises(DeadlineError, match=r"did not answer within 0\.3 s"):
        run(scripted.options(timeout=0.3))
    assert ended.wait(10)  # the server was told


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        (grpc.StatusCode.RESOURCE_EXHAUSTED, TooLargeError),
        (grpc.StatusCode.INTERNAL, InternalError),
        (grpc.StatusCode.UNIMPLEMENTED, NpucallError),
        (grpc.StatusCode.PERMISSION_DENIED, NpucallError),
    ],
)
def test_an_error_without_our_trailer_becomes_what_grpc_means_by_its_code(
    script: Script, scripted: Client, code: grpc.StatusCode, expected: type[NpucallError]
) -> None:
    script.answer = refuse(code, "by a proxy")
    with pytest.raises(expected, match="by a proxy") as caught:
        run(scripted)
    assert type(caught.value) is expected
    assert caught.value.code is code
    assert len(script.requests) == 1  # none of them is repeated


def test_a_message_above_the_limit_of_grpc_is_too_large(script: Script) -> None:
    with (
        serving(script, ("grpc.max_receive_message_length", 4096)) as target,
        npucall_client.connect(target) as client,
        pytest.raises(TooLargeError, match="larger than max"),
    ):
        run(client, np.ones(2000, np.float32))
    assert not script.requests


def test_a_server_that_is_no_npucall_server_is_told_apart() -> None:
    with serving(None) as target, pytest.raises(ServerUnreachableError, match="UNIMPLEMENTED"):
        npucall_client.connect(target)


def test_an_error_of_ours_arrives_with_its_facts(script: Script, scripted: Client) -> None:
    script.answer = fail(QueueFullError("busy", retry_after=0.5, limit="64"))
    with pytest.raises(QueueFullError, match="busy") as caught:
        run(scripted.options(wait=False))
    assert caught.value.retry_after == 0.5
    assert caught.value.details == {"limit": "64"}
    assert len(script.requests) == 1


def test_the_error_of_grpc_is_only_the_context(script: Script, scripted: Client) -> None:
    script.answer = fail(QueueFullError("busy"))
    with pytest.raises(QueueFullError) as caught:
        run(scripted)
    assert not isinstance(caught.value, grpc.RpcError)
    assert isinstance(caught.value.__context__, grpc.RpcError)


def test_a_call_is_repeated_while_the_server_is_unavailable(
    script: Script, scripted: Client
) -> None:
    def twice_lost(request: bytes, context: grpc.ServicerContext) -> bytes:
        if len(script.requests) < 3:
            return fail(DeviceLostError("restarting"))(request, context)
        return reply_of(ONES)

    script.answer = twice_lost
    np.testing.assert_array_equal(run(scripted), ONES)
    assert len(script.requests) == 3


def test_a_call_is_repeated_while_its_timeout_allows_and_raises_what_the_server_said_last(
    script: Script, scripted: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("npucall_client.remote.retry.PAUSES", (0.0, 0.0, 1000.0, 0.0))
    script.answer = fail(DeviceLostError("restarting"))
    with pytest.raises(DeviceLostError, match="restarting"):
        run(scripted.options(timeout=900.0))
    assert len(script.requests) == 3


def test_a_call_that_had_the_device_alone_when_it_was_lost_again_is_not_sent_again(
    script: Script, scripted: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("npucall_client.remote.retry.PAUSES", (0.0,))
    script.answer = fail(DeviceLostError("restarting", **{BEGUN: ALONE}))
    with pytest.raises(PoisonedCallError, match="each server that ran this call ended") as caught:
        run(scripted)
    assert isinstance(caught.value.__cause__, DeviceLostError)
    assert len(script.requests) == 2


@pytest.mark.parametrize(
    "answer",
    [
        fail(DeviceLostError("it broke", **{BEGUN: NONE})),
        refuse(grpc.StatusCode.UNAVAILABLE, "it broke"),  # the server lives on
    ],
)
def test_a_call_that_ended_no_server_is_repeated_as_long_as_its_timeout_allows(
    script: Script, scripted: Client, monkeypatch: pytest.MonkeyPatch, answer: Answer
) -> None:
    monkeypatch.setattr("npucall_client.remote.retry.PAUSES", (*[0.0] * 20, 1000.0))
    script.answer = answer
    with pytest.raises((ConnectionLostError, DeviceLostError), match="it broke") as caught:
        run(scripted.options(timeout=900.0))
    assert isinstance(caught.value.__context__, grpc.RpcError)
    assert len(script.requests) == 21


def test_a_call_that_a_server_goes_on_refusing_is_repeated_until_its_timeout_ends(
    script: Script, scripted: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A server may take longer to drain than a few attempts take."""
    monkeypatch.setattr("npucall_client.remote.retry.PAUSES", (0.0,))

    def draining(request: bytes, context: grpc.ServicerContext) -> bytes:
        if len(script.requests) < 50:
            return fail(DrainingError("going down"))(request, context)
        return reply_of(ONES)

    script.answer = draining
    np.testing.assert_array_equal(run(scripted), ONES)
    monkeypatch.setattr("npucall_client.remote.retry.PAUSES", (0.0, 0.0, 1000.0))
    script.answer = fail(DrainingError("going down"))
    with pytest.raises(DrainingError, match="going down"):
        run(scripted.options(timeout=900.0))
    assert len(script.requests) == 50 + 3


def test_a_call_that_the_server_ended_without_a_word_is_repeated(
    script: Script, scripted: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So gRPC answers calls that a server had not begun when it went down."""
    monkeypatch.setattr("npucall_client.remote.retry.PAUSES", (0.0, 0.0, 0.0, 1000.0))

    def undispatched(request: bytes, context: grpc.ServicerContext) -> bytes:
        if len(script.requests) < 3:
            return refuse(grpc.StatusCode.CANCELLED)(request, context)
        return reply_of(ONES)

    script.answer = undispatched
    np.testing.assert_array_equal(run(scripted), ONES)
    script.answer = refuse(grpc.StatusCode.CANCELLED)
    with pytest.raises(ServerUnreachableError, match="ended the call without an answer"):
        run(scripted.options(timeout=900.0))
    assert len(script.requests) == 3 + 4


def test_a_details_trailer_that_no_npucall_server_wrote_says_nothing(
    script: Script, scripted: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("npucall_client.remote.retry.PAUSES", (0.0,))

    def of_a_proxy(request: bytes, context: grpc.ServicerContext) -> bytes:
        if len(script.requests) > 1:
            return reply_of(ONES)
        context.set_trailing_metadata(((TRAILER, Status(code=1).SerializeToString()),))
        return refuse(grpc.StatusCode.CANCELLED)(request, context)

    script.answer = of_a_proxy
    np.testing.assert_array_equal(run(scripted), ONES)
    assert len(script.requests) == 2


@pytest.mark.parametrize(
    "code",
    [
        grpc.StatusCode.INTERNAL,
        grpc.StatusCode.RESOURCE_EXHAUSTED,
        grpc.StatusCode.UNAVAILABLE,
        grpc.StatusCode.CANCELLED,
    ],
)
def test_a_call_that_a_peer_has_reset_is_repeated(
    script: Script, scripted: Client, monkeypatch: pytest.MonkeyPatch, code: grpc.StatusCode
) -> None:
    """So gRPC says it of HTTP/2's INTERNAL_ERROR, ENHANCE_YOUR_CALM, REFUSED_STREAM, CANCEL."""
    monkeypatch.setattr("npucall_client.remote.retry.PAUSES", (0.0,))
    text = "Stream removed (RST_STREAM (Received RST_STREAM with error code 11))"

    def reset(request: bytes, context: grpc.ServicerContext) -> bytes:
        if len(script.requests) < 3:
            return refuse(code, text)(request, context)
        return reply_of(ONES)

    script.answer = reset
    np.testing.assert_array_equal(run(scripted), ONES)
    assert len(script.requests) == 3


def test_a_call_that_the_server_says_was_cancelled_is_not_repeated(
    script: Script, scripted: Client
) -> None:
    script.answer = fail(CancelledError("by somebody"))
    with pytest.raises(CancelledError, match="by somebody"):
        run(scripted)
    assert len(script.requests) == 1


@pytest.mark.parametrize(
    ("error", "raised"),
    [
        (DeviceLostError("restarting", **{BEGUN: ALONE}), PoisonedCallError),
        (QueueFullError("busy"), QueueFullError),
    ],
)
def test_an_error_that_is_forgotten_keeps_nothing_of_its_call(
    script: Script,
    scripted: Client,
    monkeypatch: pytest.MonkeyPatch,
    error: NpucallError,
    raised: type[NpucallError],
) -> None:
    monkeypatch.setattr("npucall_client.remote.retry.PAUSES", (0.0,))
    script.answer = fail(error)
    array = np.ones((2, 3), np.float32)
    known = weakref.ref(array)
    gc.disable()
    try:
        with pytest.raises(raised):
            scripted.run("aclnnKlDivBackward", array, self=array, target=array)
        del array
        assert known() is None
    finally:
        gc.enable()


def test_a_client_that_is_closed_between_two_attempts_makes_no_further_one(
    script: Script, target: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("npucall_client.remote.retry.PAUSES", (1000.0,))
    script.answer = fail(DeviceLostError("restarting"))
    client = npucall_client.connect(target, timeout=2000.0)
    with ThreadPoolExecutor(1) as pool:
        answer = pool.submit(run, client)
        assert script.asked.wait(20)
        client.close()
        with pytest.raises(CancelledError, match="closed"):
            answer.result(20)
    assert len(script.requests) == 1


def test_the_request_id_goes_along(script: Script, scripted: Client) -> None:
    run(scripted.options(request_id="mine-7"))
    run(scripted)
    assert [request.get("npucall-request-id") for request in script.requests] == ["mine-7", None]


@pytest.mark.parametrize("setting", ["max_message_bytes", "memory_limit"])
def test_a_request_above_a_limit_of_the_server_is_not_sent(script: Script, setting: str) -> None:
    setattr(script.limits, setting, 2_000_000)
    small, large = np.ones(10, np.float32), np.ones(600_000, np.float32)
    with (
        serving(script) as target,
        npucall_client.connect(target) as client,
        pytest.raises(TooLargeError, match=f"2000000 bytes .setting {setting} of the server") as it,
    ):
        client.run("aclnnKlDivBackward", small, self=small, target=large)
    assert it.value.parameter == "target"
    assert it.value.details == {"limit": "2000000", "setting": setting}
    assert not script.requests


USES: dict[str, Callable[[Client], Any]] = {
    "run": run,
    "execute": lambda client: client.execute("aclnnKlDivBackward", ONES, self=ONES, target=ONES),
    "plan": lambda client: client.plan("aclnnKlDivBackward", ONES, self=ONES, target=ONES),
    "options": lambda client: run(client.options(timeout=5.0)),
    "pipeline": lambda client: client.pipeline(),
    "shared": lambda client: client.shared(64),
    "operators": lambda client: client.operators(),
    "operator": lambda client: client.operator("aclnnKlDivBackward"),
    "server_info": lambda client: client.server_info(),
}


@pytest.mark.parametrize("use", USES.values(), ids=USES)
@pytest.mark.parametrize("where", ["a server", "local:"])
def test_a_client_that_is_closed_refuses_every_use(
    target: str, where: str, use: Callable[[Client], Any]
) -> None:
    client = npucall_client.connect("local:" if where == "local:" else target)
    client.close()
    with pytest.raises(CancelledError, match="the client is closed"):
        use(client)


def test_a_call_under_way_is_cancelled_when_the_client_is_closed(
    script: Script, target: str
) -> None:
    client = npucall_client.connect(target)
    ended = threading.Event()

    def close_meanwhile(_: bytes, context: grpc.ServicerContext) -> bytes:
        context.add_callback(ended.set)
        client.close()
        ended.wait(10)
        return b""

    script.answer = close_meanwhile
    with pytest.raises(CancelledError):
        run(client)


def test_a_server_that_is_gone_is_unreachable(script: Script) -> None:
    with serving(script) as target:
        client = npucall_client.connect(target, timeout=0.5)
    with client, pytest.raises(ServerUnreachableError, match=f"expected a server at {target}"):
        run(client)
