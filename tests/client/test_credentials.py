"""What calls carry so that a server knows who calls, against servers that follow a script."""

from __future__ import annotations

import base64
import http.server
import json
import math
import threading
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import npucall_client
from npucall.errors import (
    CredentialExpiredError,
    CredentialInvalidError,
    CredentialMissingError,
    TenantUnknownError,
    UnauthenticatedError,
)
from npucall.v1 import operator_service_pb2 as pb
from npucall.v1 import shared_memory_pb2
from npucall.wire.status import TRAILER, to_status
from npucall_client.remote.credentials import Held, credential_of
from npucall_client.remote.ways import is_local
from npucall_client.settings import ClientSettings

from .side_script import ID, SharingScript, SideScript, side
from .stream_script import MIB, StreamScript, numbers, run, serving, until

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    import grpc

pytestmark = pytest.mark.usefixtures("sender")


class GuardedScript(StreamScript):
    """A server that lets in who brings what ``accepted`` has."""

    def __init__(self, *accepted: str) -> None:
        super().__init__()
        self.accepted = {f"Bearer {token}" for token in accepted}
        self.seen: list[str] = []
        """What came, of every call and stream."""
        self.renewals: list[str] = []
        """What streams were told."""
        self.known: set[str] = set(self.accepted)
        """What was accepted at any time: else it is invalid."""
        self.details: dict[str, str] = {}

    def rotate(self, token: str) -> None:
        """From now on this token alone is accepted."""
        self.known |= self.accepted
        self.accepted = {f"Bearer {token}"}

    def _check(self, context: grpc.ServicerContext) -> None:
        metadata = {key: str(value) for key, value in context.invocation_metadata()}
        brought = metadata.get("authorization", "")
        self.seen.append(brought)
        if brought in self.accepted:
            return
        kind: type[UnauthenticatedError] = CredentialMissingError
        if brought:
            kind = CredentialExpiredError if brought in self.known else CredentialInvalidError
        error = kind("who calls", **self.details)
        context.set_trailing_metadata(((TRAILER, to_status(error).SerializeToString()),))
        context.abort(error.code, str(error))

    def info(self, request: bytes, context: grpc.ServicerContext) -> bytes:
        self._check(context)
        return super().info(request, context)

    def execute(self, request: bytes, context: grpc.ServicerContext) -> bytes:
        self._check(context)
        return super().execute(request, context)

    def stream(self, messages: Iterator[bytes], context: grpc.ServicerContext) -> Iterator[bytes]:
        self._check(context)
        return super().stream(self._heard(messages), context)

    def _heard(self, messages: Iterator[bytes]) -> Iterator[bytes]:
        for message in messages:
            frame = pb.ExecuteStreamRequest.FromString(message)
            if frame.HasField("credential"):
                self.renewals.append(frame.credential.authorization)
            else:
                yield message


def jwt(seconds: float, name: str = "anna") -> str:
    """A token that says when it ends; nobody checks its signature here."""
    parts = {"alg": "RS256"}, {"sub": name, "exp": time.time() + seconds}, "signature"
    encoded = (base64.urlsafe_b64encode(json.dumps(part).encode()) for part in parts)
    return ".".join(part.rstrip(b"=").decode() for part in encoded)


@pytest.mark.parametrize("chunked", [False, True], ids=["one message", "in chunks"])
def test_a_token_travels_with_every_call(chunked: bool) -> None:
    script = GuardedScript("secret")
    array = numbers(8 * MIB if chunked else 8)
    with serving(script) as target, npucall_client.connect(target, token="secret") as client:
        assert np.array_equal(run(client, array), array)
        with client.pipeline() as pipeline:
            pipeline.submit("aclnnL1LossBackward", array, self=ONE, target=ONE).result(20)
    assert len(script.seen) >= 3
    assert set(script.seen) == {"Bearer secret"}


ONE = np.ones((), np.float32)


def test_without_a_token_calls_carry_none() -> None:
    script = GuardedScript()
    script.accepted = {""}
    with serving(script) as target, npucall_client.connect(target) as client:
        run(client, numbers(8))
    assert set(script.seen) == {""}


def test_a_wrong_token_is_refused_at_once_by_its_reason() -> None:
    script = GuardedScript("right")
    with serving(script) as target, pytest.raises(CredentialInvalidError):
        npucall_client.connect(target, token="wrong")
    assert len(script.seen) == 1


class Tokens:
    """A function that answers tokens; counts how often it was asked."""

    def __init__(self, *tokens: str) -> None:
        self.tokens = list(tokens)
        self.asked = 0
        self.most_at_once = self._now = 0
        self._lock = threading.Lock()

    def __call__(self) -> str:
        with self._lock:
            self.asked += 1
            self._now += 1
            self.most_at_once = max(self.most_at_once, self._now)
        time.sleep(0.05)  # long enough for others to come meanwhile
        with self._lock:
            self._now -= 1
            return self.tokens.pop(0) if len(self.tokens) > 1 else self.tokens[0]


def test_a_function_is_asked_once_for_many_calls() -> None:
    script, tokens = GuardedScript("a"), Tokens("a")
    with serving(script) as target, npucall_client.connect(target, token=tokens) as client:
        for _ in range(5):
            run(client, numbers(8))
    assert tokens.asked == 1


def test_a_function_is_asked_again_where_the_server_says_that_its_token_has_ended() -> None:
    script, tokens = GuardedScript("a"), Tokens("a", "b")
    with serving(script) as target, npucall_client.connect(target, token=tokens) as client:
        script.rotate("b")
        threads = [threading.Thread(target=run, args=(client, numbers(8))) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert script.unary == 8
    assert (tokens.asked, tokens.most_at_once) == (2, 1)


@pytest.mark.parametrize("chunked", [False, True], ids=["one message", "in chunks"])
def test_a_call_is_repeated_once_with_the_new_token(chunked: bool) -> None:
    script, tokens = GuardedScript("a"), Tokens("a", "b", "c")
    array = numbers(8 * MIB if chunked else 8)
    with serving(script) as target, npucall_client.connect(target, token=tokens) as client:
        script.rotate("b")
        assert np.array_equal(run(client, array), array)
        script.rotate("never")
        script.known.add("Bearer c")
        with pytest.raises(CredentialExpiredError):
            run(client, array)
    assert script.seen[1:] == ["Bearer a", "Bearer b", "Bearer b", "Bearer c"]


def test_a_pipeline_whose_token_has_ended_goes_on_with_the_new_one() -> None:
    script, tokens = GuardedScript("a"), Tokens("a", "b")
    array = numbers(8)
    with serving(script) as target, npucall_client.connect(target, token=tokens) as client:
        script.rotate("b")
        with client.pipeline() as pipeline:
            call = pipeline.submit("aclnnL1LossBackward", array, self=ONE, target=ONE)
            assert np.array_equal(call.result(20), array)


def test_a_token_that_says_its_end_is_asked_again_before_it() -> None:
    tokens = Tokens(jwt(1.0), jwt(1000.0))
    script = GuardedScript(*tokens.tokens)
    with serving(script) as target, npucall_client.connect(target, token=tokens) as client:
        until(lambda: run(client, ONE) == 1 and tokens.asked == 2, "it is asked again")
        for _ in range(3):
            run(client, numbers(8))
    assert tokens.asked == 2
    assert all(seen in script.accepted for seen in script.seen)


def test_an_open_stream_is_told_of_a_new_token() -> None:
    tokens = Tokens(jwt(1.5, "a"), jwt(1000.0, "b"))
    second = f"Bearer {tokens.tokens[1]}"
    script = GuardedScript(*tokens.tokens)
    with (
        serving(script) as target,
        npucall_client.connect(target, token=tokens) as client,
        client.pipeline() as pipeline,
    ):
        pipeline.submit("aclnnL1LossBackward", ONE, self=ONE, target=ONE).result(20)
        until(lambda: script.renewals == [second], "the stream is told, without a call")
        pipeline.submit("aclnnL1LossBackward", ONE, self=ONE, target=ONE).result(20)
    assert script.renewals == [second]
    assert script.streams == 1


def test_a_token_is_asked_again_a_minute_before_its_end_or_when_a_fifth_is_left() -> None:
    now = time.time()
    hour, minute = Held.until("x", now + 3600), Held.until("x", now + 60)
    assert hour.renew == pytest.approx(now + 3540, abs=5)
    assert minute.renew == pytest.approx(now + 48, abs=5)
    assert Held.until("x", now - 10).renew == math.inf
    assert Held.until("x", math.inf).renew == math.inf


def test_what_cannot_be_renewed_is_used_while_it_is_good() -> None:
    answers: list[Any] = [jwt(1000.0)]

    def function() -> str:
        return str(answers.pop(0))  # IndexError from the second time on

    credential = credential_of(ClientSettings(token=function))
    first = credential.authorization()
    assert credential._held is not None
    credential._held = credential._held._replace(renew=0.0)
    assert credential.authorization() == first
    assert credential._held.renew > time.time()
    credential._held = credential._held._replace(renew=0.0, ends=0.0)
    with pytest.raises(CredentialMissingError, match="to return a token, found IndexError"):
        credential.authorization()


def test_a_file_is_read_again_when_it_changes(tmp_path: Path) -> None:
    path = tmp_path / "token"
    path.write_text("a\n")
    script = GuardedScript("a")
    with serving(script) as target, npucall_client.connect(target, token_file=path) as client:
        run(client, numbers(8))
        path.write_text("b\n")
        script.rotate("b")
        run(client, numbers(8))
    assert script.seen[-1] == "Bearer b"


def test_half_a_file_leaves_the_token_of_before(tmp_path: Path) -> None:
    path = tmp_path / "token"
    path.write_text("a")
    credential = credential_of(ClientSettings(token_file=str(path)))
    assert credential.authorization() == "Bearer a"
    assert credential._held is not None
    credential._held = credential._held._replace(renew=0.0)
    path.write_text("")
    assert credential.authorization() == "Bearer a"


class Issuer:
    """What answers tokens to CI jobs."""

    def __init__(self) -> None:
        self.answers: list[tuple[int, bytes]] = []
        self.asked_with: list[str] = []
        issuer = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                issuer.asked_with.append(self.headers.get("Authorization", ""))
                status, body = issuer.answers.pop(0)
                self.send_response(status)
                if status == 302:
                    self.send_header("Location", f"{issuer.url}&again")
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: object) -> None:
                pass

        self._server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_port}/token?audience=npucall"
        serve = threading.Thread(target=self._server.serve_forever, args=(0.01,), daemon=True)
        serve.start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()


@pytest.fixture
def issuer() -> Iterator[Issuer]:
    issuer = Issuer()
    yield issuer
    issuer.close()


def test_a_ci_job_is_known_by_the_token_of_its_own_address(issuer: Issuer) -> None:
    issuer.answers = [(200, json.dumps({"value": token}).encode()) for token in ("a", "b")]
    script = GuardedScript("a")
    asked: dict[str, Any] = {"token_url": issuer.url, "token_url_bearer": "job"}
    with serving(script) as target, npucall_client.connect(target, **asked) as client:
        run(client, numbers(8))
        script.rotate("b")
        run(client, numbers(8))
    assert issuer.asked_with == ["bearer job", "bearer job"]


@pytest.mark.parametrize(
    ("status", "body"), [(403, b""), (200, b"nonsense"), (200, b"{}"), (200, b'{"value": 7}')]
)
def test_an_address_that_answers_no_token_is_told(issuer: Issuer, status: int, body: bytes) -> None:
    issuer.answers = [(status, body)]
    credential = credential_of(ClientSettings(token_url=issuer.url))
    with pytest.raises(CredentialMissingError, match="token_url: expected"):
        credential.authorization()


def test_what_proves_a_ci_job_is_sent_nowhere_else(issuer: Issuer) -> None:
    issuer.answers = [(302, b""), (200, b'{"value": "a"}')]
    settings = ClientSettings(token_url=issuer.url, token_url_bearer="job")
    assert credential_of(settings).authorization() == "Bearer a"
    assert issuer.asked_with == ["bearer job", ""]


PLAIN = "expected TLS to 10.0.0.5:50051, found none; the client sends a token"


@pytest.mark.parametrize(
    "given", [{"token": "secret"}, {"token_file": "/x"}, {"token_url": "https://x/"}]
)
def test_a_token_never_travels_without_tls(given: dict[str, str]) -> None:
    with pytest.raises(ValueError, match=PLAIN) as raised:
        npucall_client.connect("10.0.0.5:50051", connect_timeout=0.1, **given)  # type: ignore[arg-type]
    assert "secret" not in str(raised.value)


@pytest.mark.parametrize(
    ("target", "local"),
    [
        ("127.0.0.1:1", True),
        ("[::1]:1", True),
        ("localhost:1", True),
        ("unix:/run/x", True),
        ("unix-abstract:x", True),
        ("10.0.0.5:1", False),
        ("node7.lab:1", False),
        ("dns:///localhost:1", True),
        ("0.0.0.0:1", False),
        ("127.0.0.1.evil.lab:1", False),
        (":1", False),
    ],
)
def test_what_stays_on_this_machine(target: str, local: bool) -> None:
    assert is_local(target) is local


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"token": "a", "token_file": "b"}, "token_file: expected only one of token"),
        ({"token_url": "http://10.0.0.5/"}, "token_url: expected https://..., found http://..."),
        ({"token_url": "file:///etc/passwd"}, "token_url: expected https://..., found file"),
        (
            {"ca": "ca.pem", "tls": True, "key": "x"},
            "certificate: expected a file, since key",
        ),
        ({"certificate": "x"}, "key: expected a file, since certificate is set"),
        ({"ca": "/missing", "tls": True}, "ca: expected a file that can be read, found: "),
    ],
)
def test_settings_that_cannot_be_are_refused(given: dict[str, Any], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        npucall_client.connect("127.0.0.1:1", connect_timeout=0.1, **given)


@pytest.mark.parametrize("token", ["two words", "line\nbreak", "é"])
def test_a_token_that_no_metadata_can_hold_is_refused_and_not_told(token: str) -> None:
    with pytest.raises(CredentialMissingError) as raised:
        npucall_client.connect("127.0.0.1:1", connect_timeout=0.1, token=token)
    assert token not in str(raised.value)


def test_a_token_is_not_shown() -> None:
    assert "secret" not in repr(ClientSettings(token="secret", token_url_bearer="secret"))


def test_an_argument_puts_the_other_tokens_of_the_environment_aside(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("NPUCALL_TOKEN_FILE", "/x")
    monkeypatch.setenv("NPUCALL_CERTIFICATE", "/y")
    settings = ClientSettings.of(token="a")
    assert (settings.token, settings.token_file, settings.certificate) == ("a", "", "/y")


@pytest.mark.parametrize(
    ("given", "encrypts"),
    [
        ({}, False),
        ({"ca": "x"}, True),
        ({"certificate": "x"}, True),
        ({"tls": True}, True),
        ({"ca": "x", "tls": False}, False),
        ({"ca": "x", "target": "unix:/run/x"}, False),
        ({"tls": True, "target": "unix:/run/x"}, True),
    ],
)
def test_files_of_certificates_mean_tls(given: dict[str, Any], encrypts: bool) -> None:
    assert ClientSettings(**given).encrypts is encrypts


# --- Users of the server's host -------------------------------------------------------------------


def credentials(*tokens: str, seconds: float = 1000.0) -> list[Callable[[Any, bytes], None]]:
    """A side socket hands these out, one after the other."""

    def hand_out(token: str) -> Callable[[Any, bytes], None]:
        def behave(connection: Any, request: bytes) -> None:
            assert shared_memory_pb2.SharedMemoryRequest.FromString(request).credential
            local = shared_memory_pb2.LocalCredential(
                authorization=f"Bearer {token}", expires_seconds=seconds
            )
            answer = shared_memory_pb2.SharedMemoryResponse(local_credential=local)
            connection.send(answer.SerializeToString())

        return behave

    return [hand_out(token) for token in tokens]


@contextmanager
def host(tmp_path: Path, *accepted: str) -> Iterator[tuple[GuardedScript, SideScript, str]]:
    """A server of this host that knows users by its side socket; and its target."""
    with side(tmp_path / "side.sock") as socket:
        script = GuardedScript(*accepted)
        script.details = {"credential_socket": socket.path}
        with serving(script) as target:
            yield script, socket, target


def test_a_user_of_the_host_gets_a_credential_of_the_side_socket(tmp_path: Path) -> None:
    with host(tmp_path, "a") as (script, socket, target):
        socket.behaviours = credentials("a")
        with npucall_client.connect(target) as client:
            run(client, numbers(8))
    assert script.seen == ["", "Bearer a", "Bearer a"]


def test_a_credential_of_the_side_socket_is_renewed_before_its_end(tmp_path: Path) -> None:
    with host(tmp_path, "a", "b") as (script, socket, target):
        socket.behaviours = [*credentials("a", seconds=0.5), *credentials("b")]
        with npucall_client.connect(target) as client:
            until(lambda: bool(run(client, ONE)) and script.seen[-1] == "Bearer b", "it is renewed")
    assert script.seen.count("") == 1


@pytest.mark.parametrize("known", [True, False])
def test_a_credential_of_a_server_that_is_gone_is_replaced(tmp_path: Path, known: bool) -> None:
    with host(tmp_path, "a") as (script, socket, target):
        socket.behaviours = credentials("a", "b")
        with npucall_client.connect(target) as client:
            script.rotate("b")
            if not known:
                script.known.clear()
            run(client, numbers(8))
    assert script.seen[-2:] == ["Bearer a", "Bearer b"]


def test_where_the_side_socket_gives_none_its_reason_is_told(tmp_path: Path) -> None:
    with host(tmp_path, "a") as (_, socket, target):
        status = to_status(TenantUnknownError("user 7 has no tenant")).SerializeToString()
        answer = shared_memory_pb2.SharedMemoryResponse(error=status).SerializeToString()
        socket.behaviours = [lambda connection, _: connection.send(answer)]
        with pytest.raises(TenantUnknownError, match="user 7"):
            npucall_client.connect(target)


def test_where_the_side_socket_is_out_of_reach_the_server_s_error_is_told(tmp_path: Path) -> None:
    with host(tmp_path, "a") as (script, _, target):
        script.details = {"credential_socket": str(tmp_path / "elsewhere")}
        with pytest.raises(CredentialMissingError):
            npucall_client.connect(target)


def test_a_token_of_the_settings_is_not_replaced_by_the_side_socket(tmp_path: Path) -> None:
    with host(tmp_path, "a") as (_, socket, target):
        socket.behaviours = credentials("a")
        with pytest.raises(CredentialInvalidError):
            npucall_client.connect(target, token="wrong")


def test_shared_memory_is_asked_for_with_the_token(tmp_path: Path) -> None:
    asked: list[str] = []
    with side(tmp_path / "side.sock") as socket:

        def grant(connection: Any, request: bytes) -> None:
            wanted = shared_memory_pb2.SharedMemoryRequest.FromString(request)
            asked.append(wanted.authorization)
            socket.grant(connection, request)

        socket.behaviours = [grant]
        with (
            serving(SharingScript(socket)) as target,
            npucall_client.connect(target, token="a") as client,
            client.shared(4096) as memory,
        ):
            assert memory.shared
            assert ID in socket.memories
    assert asked == ["Bearer a"]
