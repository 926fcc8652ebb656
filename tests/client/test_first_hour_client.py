"""What annoyed people who tried the client as new users would: a test a friction."""

from __future__ import annotations

import asyncio
import math
import socket
import threading
import traceback
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from functools import partial
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import TYPE_CHECKING, Any

import grpc
import numpy as np
import pytest
from tests import on_a_loop

import npucall_client
from npucall.errors import (
    ArgumentError,
    NpucallError,
    QueueFullError,
    QuotaError,
    ServerUnreachableError,
    SettingError,
)
from npucall.operators.kl_div_backward import kl_div_backward
from npucall.v1 import operator_service_pb2 as pb
from npucall.wire.messages import join_response
from npucall.wire.status import TRAILER, to_status
from npucall_client import aio
from npucall_client.settings import ClientSettings

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from npucall_client import Client

ONES = np.ones((2, 3), np.float32)
_OUT = pb.Argument(name="out", stored=True)
_OUT.tensor.dtype = 1  # type: ignore[assignment]
_OUT.tensor.shape.extend(ONES.shape)
ONE_REPLY = join_response(pb.Reply(outputs=[_OUT]).SerializeToString(), b"", [ONES.tobytes()])
CONNECTS = {"threads": npucall_client.connect, "asyncio": on_a_loop.connect}


@pytest.fixture(params=CONNECTS)
def connect(request: pytest.FixtureRequest) -> Any:
    return CONNECTS[request.param]


# --- Targets --------------------------------------------------------------------------------------

INSTEAD = {
    "local": "did you mean local:?",
    "LOCAL:": "did you mean local:?",
    "local:Ascend910B1": "did you mean local:?",
    "pool": "did you mean pool:HOST:PORT,HOST:PORT?",
    "unix": "did you mean unix:PATH?",
    "unix:": "did you mean unix:PATH?",
    "/run/npucall.sock": "the socket of a server is unix:/run/npucall.sock",
    "http://npu-host:50051": "a target has no http://; write npu-host:50051 (",
    "http://npu-host:50051/v1": "a target has no http://; write npu-host:50051 (",
    "grpc://npu-host": "a target has no grpc://; write npu-host:50051 (",
    "https://npu-host": "write npu-host:50051 and set tls (NPUCALL_TLS=true)",
    "http://ann:secret@npu-host": "found 'http://npu-host'",
    "npu-host:70000": "the port is a number from 1 to 65535",
    "npu-host:0": "the port is a number from 1 to 65535",
    "npu-host:grpc": "the port is a number from 1 to 65535",
    "npu-host:": "the port is a number from 1 to 65535",
    "npu-host:-1": "the port is a number from 1 to 65535",
    ":50051": "it names no host",
    "npu host": "'npu host' is no name or IP address of a host",
    "::1": "an IPv6 address has brackets, such as [::1]:50051",
    "": "write HOST:PORT of a server",
    "pool:npu-host": "expected HOST:PORT",
}


@pytest.mark.parametrize("target", INSTEAD)
def test_a_target_that_is_none_is_refused_at_once_and_the_error_says_what_to_write(
    connect: Any, target: str
) -> None:
    with pytest.raises(SettingError) as caught:
        connect(target)
    assert INSTEAD[target] in str(caught.value)
    assert "NPUCALL_TARGET" in str(caught.value)
    assert "secret" not in str(caught.value)
    assert isinstance(caught.value, ArgumentError)
    assert isinstance(caught.value, ValueError)


@pytest.mark.parametrize(
    ("target", "meant"),
    [
        ("npu-host", "npu-host:50051"),
        ("npu-host.lab", "npu-host.lab:50051"),
        ("10.0.0.7", "10.0.0.7:50051"),
        ("[::1]", "[::1]:50051"),
        ("[::1]:5", "[::1]:5"),
        ("npu-host:7", "npu-host:7"),
        ("local:7", "local:7"),  # a host of that name
        ("0.0.0.0:7", "0.0.0.0:7"),
        ("unix:/run/npucall.sock", "unix:/run/npucall.sock"),
        ("unix:///run/npucall.sock", "unix:///run/npucall.sock"),
        ("dns:///npu-host:7", "dns:///npu-host:7"),
        ("local:", "local:"),
        ("pool:a:1,b:2", "pool:a:1,b:2"),
    ],
)
def test_a_host_without_a_port_has_that_of_a_server_and_everything_else_is_as_it_was(
    monkeypatch: pytest.MonkeyPatch, target: str, meant: str
) -> None:
    assert ClientSettings.of(target=target).target == meant
    monkeypatch.setenv("NPUCALL_TARGET", target)
    assert ClientSettings.of().target == meant


# --- Something else answers -----------------------------------------------------------------------


class _Web(BaseHTTPRequestHandler):
    def log_message(self, *_: object) -> None:
        pass


def _say(connection: socket.socket) -> None:
    connection.sendall(b"SSH-2.0-OpenSSH_9\r\n")
    connection.recv(1)


@contextmanager
def accepting(serve: Callable[[socket.socket], object]) -> Iterator[str]:
    """The target of a server that does this with each connection."""

    def run() -> None:
        with suppress(OSError):
            while True:
                connection = listener.accept()[0]
                with connection, suppress(OSError):
                    serve(connection)

    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=run, daemon=True)
        thread.start()
        yield f"127.0.0.1:{listener.getsockname()[1]}"
        listener.shutdown(socket.SHUT_RDWR)
        thread.join()


@contextmanager
def other_grpc(credentials: grpc.ServerCredentials | None = None) -> Iterator[str]:
    server = grpc.server(ThreadPoolExecutor(1))
    if credentials is None:
        port = server.add_insecure_port("127.0.0.1:0")
    else:
        port = server.add_secure_port("127.0.0.1:0", credentials)
    server.start()
    try:
        yield f"127.0.0.1:{port}"
    finally:
        server.stop(0).wait()


LATE = 300.0
"""Nobody waits for it: what is there says at once what it is."""


def test_an_http_server_is_told_at_once(connect: Any) -> None:
    with HTTPServer(("127.0.0.1", 0), _Web) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        with pytest.raises(ServerUnreachableError, match="an HTTP/1 server answers at 127"):
            connect(f"127.0.0.1:{server.server_port}", connect_timeout=LATE)
        server.shutdown()


def test_so_is_what_speaks_no_http_at_all(connect: Any) -> None:
    with (
        accepting(_say) as target,
        pytest.raises(ServerUnreachableError, match=r"no gRPC server .* says 'SSH-2\.0-OpenSSH_9'"),
    ):
        connect(target, connect_timeout=LATE)


def test_a_grpc_server_that_is_no_npucall_is_told_at_once(connect: Any) -> None:
    with (
        other_grpc() as target,
        pytest.raises(ServerUnreachableError, match="is no npucall server") as caught,
    ):
        connect(target, connect_timeout=LATE)
    assert f"pool:directory:{target}" in str(caught.value)


@pytest.fixture
def authorities(tmp_path: Path) -> Callable[..., Any]:
    """Makes an authority, of the name that it is given."""
    pytest.importorskip("trustme")
    from tests.certificates import Authority

    return partial(Authority, tmp_path)


@pytest.fixture
def authority(authorities: Callable[..., Any]) -> Any:
    return authorities()


def _tls(pair: Any, ca: Path | None = None) -> grpc.ServerCredentials:
    """A server's; with ``ca``, which wants certificates of clients."""
    files = [(Path(pair.key).read_bytes(), Path(pair.certificate).read_bytes())]
    return grpc.ssl_server_credentials(files, ca and ca.read_bytes(), ca is not None)


def test_tls_where_none_was_asked_is_told_at_once(connect: Any, authority: Any) -> None:
    with (
        other_grpc(_tls(authority.server())) as target,
        pytest.raises(ServerUnreachableError, match=r"uses TLS; set tls \(NPUCALL_TLS=true\)"),
    ):
        connect(target, connect_timeout=LATE)


@pytest.mark.parametrize(
    ("hosts", "authority_is_known", "says"),
    [
        (("127.0.0.1",), False, r"does not trust the certificate .* \(NPUCALL_CA\)$"),
        (("npu.lab",), True, r"is for another host; say for which one \(NPUCALL_SERVER_NAME\)$"),
    ],
    ids=["authority", "name"],
)
def test_a_certificate_that_nobody_trusts_is_told_at_once(
    connect: Any, authority: Any, authorities: Callable[..., Any],
    hosts: tuple[str, ...], authority_is_known: bool, says: str,
) -> None:  # fmt: skip
    ca = authority.ca if authority_is_known else authorities("other").ca
    with (
        other_grpc(_tls(authority.server(hosts=hosts))) as target,
        pytest.raises(ServerUnreachableError, match=says),
    ):
        connect(target, ca=ca, connect_timeout=LATE)


def test_a_server_that_wants_another_certificate_of_the_client_is_told(
    connect: Any, authority: Any, authorities: Callable[..., Any]
) -> None:
    stranger = authorities("other").client("anna")
    with other_grpc(_tls(authority.server(), authority.ca)) as target:
        for given, wanted in (
            ({}, "wants a certificate"),
            ({"certificate": stranger.certificate, "key": stranger.key}, "another certificate"),
        ):
            with pytest.raises(ServerUnreachableError, match=f"{wanted} of the client"):
                connect(target, ca=authority.ca, connect_timeout=0.3, **given)


def test_no_tls_where_it_was_asked_is_told_at_once(connect: Any) -> None:
    with (
        other_grpc() as target,
        pytest.raises(ServerUnreachableError, match="does not use TLS; set tls=False"),
    ):
        connect(target, tls=True, connect_timeout=LATE)


# --- Timeouts -------------------------------------------------------------------------------------

NO_TIMEOUTS = [-1, 0, 0.0, math.nan, math.inf, -math.inf, 1e12, 10**400, "5", True, [1], 1j]
SECONDS = [pytest.param(each, id=str(each)[:8]) for each in NO_TIMEOUTS]


def _in_session(client: Client, timeout: Any, use: Callable[[Any, Any], Any]) -> None:
    with client.session() as session:
        use(session, timeout)


def _pipelined(client: Client, timeout: Any) -> None:
    with client.pipeline() as pipeline:
        pipeline.submit("aclnnKlDivBackward", ONES, self=ONES, target=ONES, timeout=timeout)


def _by_name(method: str, client: Client, timeout: Any) -> None:
    call = getattr(client, method)
    call("aclnnKlDivBackward", ONES, self=ONES, target=ONES, timeout=timeout)


WAYS: dict[str, Callable[[Client, Any], object]] = {
    "connect": lambda _, timeout: npucall_client.connect("local:", timeout=timeout),
    "connect_timeout": lambda _, it: npucall_client.connect("local:", connect_timeout=it),
    "options": lambda client, timeout: client.options(timeout=timeout),
    "run": partial(_by_name, "run"),
    "execute": partial(_by_name, "execute"),
    "plan": partial(_by_name, "plan"),
    "pipeline": _pipelined,
    "lease": lambda client, it: client.session(lease=it),
    "put": partial(_in_session, use=lambda session, it: session.put(ONES, timeout=it)),
    "numpy": partial(_in_session, use=lambda session, it: session.put(ONES).numpy(timeout=it)),
    "program": partial(_in_session, use=lambda session, it: session.program(timeout=it)),
    "session options": partial(_in_session, use=lambda session, it: session.options(timeout=it)),
    "reserve": lambda client, it: client.reserve(it),
}


@pytest.mark.parametrize("timeout", SECONDS)
@pytest.mark.parametrize("way", WAYS)
def test_a_timeout_that_cannot_be_is_refused_alike_everywhere(
    connect: Any, way: str, timeout: Any
) -> None:
    with connect("local:") as client, pytest.raises(SettingError) as caught:
        WAYS[way](client, timeout)
    assert "expected seconds, more than 0, and up to 1000000000, found" in str(caught.value)


def test_so_is_one_of_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for text in "-1", "0", "nan", "inf", "1e12", "soon", "":
        monkeypatch.setenv("NPUCALL_TIMEOUT", text)
        with pytest.raises(SettingError, match="timeout: expected seconds, more than 0"):
            ClientSettings.of()


def test_no_wait_at_all_is_one_that_a_reservation_takes() -> None:
    with npucall_client.connect("local:") as client:
        with client.reserve(1.0, wait=0):
            pass
        with pytest.raises(SettingError, match="wait: expected seconds, from 0 up to"):
            client.reserve(1.0, wait=-1)


def test_numbers_of_numpy_are_timeouts_too() -> None:
    with npucall_client.connect("local:", timeout=np.float32(3)) as client:
        client.options(timeout=np.int64(2)).run(kl_div_backward, ONES, self=ONES, target=ONES)


def test_a_setting_that_cannot_be_says_its_variable_and_no_page_of_pydantic() -> None:
    with pytest.raises(SettingError, match=r"stream_from.*NPUCALL_STREAM_FROM") as caught:
        npucall_client.connect("local:", stream_from=-1)
    assert "pydantic" not in str(caught.value)
    with pytest.raises(SettingError) as caught:
        npucall_client.connect("local:", token=["secret"])  # type: ignore[arg-type]
    assert "secret" not in str(caught.value)


# --- Options of calls of objects ------------------------------------------------------------------


@pytest.mark.parametrize("method", ["run", "execute", "plan"])
@pytest.mark.parametrize("name", ["timeout", "outputs", "request_id", "keep_layout", "progress"])
def test_an_option_among_the_arguments_of_an_object_is_told_where_it_goes(
    connect: Any, method: str, name: str
) -> None:
    with connect("local:") as client, pytest.raises(TypeError) as caught:
        getattr(client, method)(kl_div_backward, ONES, self=ONES, target=ONES, **{name: 5})
    assert f"use client.options({name}=...)" in str(caught.value)


def test_a_variant_of_an_object_is_told_that_the_object_is_one(connect: Any) -> None:
    with connect("local:") as client, pytest.raises(TypeError, match="call it by name"):
        client.run(kl_div_backward, ONES, self=ONES, target=ONES, variant="builtin")


# --- Tracebacks -----------------------------------------------------------------------------------


@contextmanager
def answering(answers: list[Any]) -> Iterator[str]:
    """The target of a server that answers calls so, the last one for ever; None: with ones."""

    def info(_: bytes, __: grpc.ServicerContext) -> bytes:
        return pb.GetServerInfoResponse().SerializeToString()

    def execute(_: bytes, context: grpc.ServicerContext) -> bytes:
        error = answers.pop(0) if len(answers) > 1 else answers[0]
        if error is not None:
            status = to_status(error)
            context.set_trailing_metadata(((TRAILER, status.SerializeToString()),))
            context.abort(error.code, status.message)
        return ONE_REPLY

    methods = {"GetServerInfo": info, "Execute": execute}
    handlers = {name: grpc.unary_unary_rpc_method_handler(run) for name, run in methods.items()}
    server = grpc.server(ThreadPoolExecutor(4))
    server.add_generic_rpc_handlers(
        (grpc.method_handlers_generic_handler("npucall.v1.OperatorService", handlers),)
    )
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    try:
        yield f"127.0.0.1:{port}"
    finally:
        server.stop(0).wait()


def _run(target: str) -> None:
    with npucall_client.connect(target) as client:
        client.run(kl_div_backward, ONES, self=ONES, target=ONES)


def _future(target: str) -> None:
    with npucall_client.connect(target) as client, client.pipeline() as pipeline:
        pipeline.submit(kl_div_backward, ONES, self=ONES, target=ONES).result()


def _awaited(target: str) -> None:
    async def run() -> None:
        async with aio.connect(target) as client:
            await client.run(kl_div_backward, ONES, self=ONES, target=ONES)

    on_a_loop.loop()
    asyncio.run(run())


@pytest.mark.parametrize(
    ("way", "most"), [(_run, 12), (_future, 16), (_awaited, 24)], ids=["run", "future", "awaited"]
)
def test_a_traceback_is_short_and_the_error_of_grpc_is_not_in_it(
    way: Callable[[str], None], most: int
) -> None:
    with (
        answering([QueueFullError("the queue is full")]) as target,
        pytest.raises(QueueFullError) as caught,
    ):
        way(target)
    printed = "".join(traceback.format_exception(caught.value))
    assert len(printed.splitlines()) <= most, printed
    assert "Rpc" not in printed
    assert "debug_error_string" not in printed
    assert isinstance(caught.value.__context__, grpc.RpcError)


def test_what_is_not_printed_is_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    with (
        answering([QueueFullError("the queue is full")]) as target,
        caplog.at_level("DEBUG", logger="npucall_client"),
        pytest.raises(QueueFullError),
    ):
        _run(target)
    assert "send_once" in caplog.text


# --- A full server --------------------------------------------------------------------------------


def full(times: int, kind: type[NpucallError] = QueueFullError) -> list[Any]:
    """What a server answers that is full so often."""
    return [*[kind("the queue is full", retry_after=0.01)] * times, None]


@pytest.mark.parametrize("kind", [QueueFullError, QuotaError])
@pytest.mark.parametrize("by", ["run", "execute", "pipeline", "pool"])
def test_a_full_server_is_waited_for(connect: Any, by: str, kind: type[NpucallError]) -> None:
    with answering(full(3, kind)) as target, connect(f"{POOLED.get(by, '')}{target}") as client:
        if by == "pipeline":
            with client.pipeline() as pipeline:
                found = pipeline.submit(kl_div_backward, ONES, self=ONES, target=ONES).result(30)
        else:
            call = client.execute if by == "execute" else client.run
            found = call(kl_div_backward, ONES, self=ONES, target=ONES)
    np.testing.assert_array_equal(getattr(found, "value", found), ONES)


POOLED = {"pool": "pool:"}


@pytest.mark.parametrize("kind", [QueueFullError, QuotaError])
@pytest.mark.parametrize("pooled", ["", "pool:"])
@pytest.mark.parametrize("how", ["connect", "options", "environment"])
def test_who_does_not_want_to_wait_is_refused_at_once(
    connect: Any,
    how: str,
    pooled: str,
    kind: type[NpucallError],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    answers = full(3, kind)
    if how == "environment":
        monkeypatch.setenv("NPUCALL_WAIT", "false")
    settings = {"wait": False} if how == "connect" else {}
    with answering(answers) as target, connect(f"{pooled}{target}", **settings) as client:
        asked = client.options(wait=False) if how == "options" else client
        with pytest.raises(kind, match="the queue is full") as caught:
            asked.run(kl_div_backward, ONES, self=ONES, target=ONES)
        assert caught.value.retry_after == 0.01
        assert len(answers) == 3  # one of them was given
        patient = asked.options(wait=True)
        patient.run(kl_div_backward, ONES, self=ONES, target=ONES)


def test_a_delay_that_ends_after_the_timeout_is_told_now(connect: Any) -> None:
    error = QueueFullError("the queue is full", retry_after=1000.0)
    with answering([error]) as target, connect(target) as client, pytest.raises(QueueFullError):
        client.run(kl_div_backward, ONES, self=ONES, target=ONES)


# --- Environment variables ------------------------------------------------------------------------


def test_an_unknown_variable_warns_once_and_says_what_was_meant(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("npucall_client.settings._warned", set())
    monkeypatch.setenv("NPUCALL_TIMOUT", "5")
    with pytest.warns(
        UserWarning, match=r"NPUCALL_TIMOUT .*did you mean NPUCALL_TIMEOUT\?"
    ) as told:
        npucall_client.connect("local:").close()
    assert told[0].filename == __file__
    npucall_client.connect("local:").close()  # a warning would be an error here


@pytest.mark.parametrize(
    "name",
    [
        "NPUCALL_LISTEN",
        "NPUCALL_DIRECTORY_STORE",
        "NPUCALL_DIRECTORY",
        "NPUCALL_LISTEN_HOST",
        "NPUCALL_SIM_SOC",
        "NPUCALL_SERVICE_HOST",
        "NPUCALL_DIRECTORY_PORT_50050_TCP_ADDR",
        "NPUCALLER",
    ],
)
def test_variables_of_the_other_programs_and_of_kubernetes_are_no_news(
    monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setattr("npucall_client.settings._warned", set())
    monkeypatch.setenv(name, "1")
    npucall_client.connect("local:").close()


# --- asyncio.wrap_future --------------------------------------------------------------------------


def test_futures_of_pipelines_can_be_awaited() -> None:
    async def gradients(client: Client) -> list[Any]:
        with client.pipeline() as pipeline:
            calls = [
                pipeline.submit(kl_div_backward, ONES, self=ONES, target=factor * ONES)
                for factor in range(1, 4)
            ]
            return await asyncio.gather(*map(asyncio.wrap_future, calls))

    with npucall_client.connect("local:") as client:
        for factor, found in enumerate(asyncio.run(gradients(client)), 1):
            np.testing.assert_allclose(found, -factor * ONES / ONES.size)
