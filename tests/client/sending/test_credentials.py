"""What calls carry so that a server knows who calls, against fake servers."""

import base64
import http.server
import json
import math
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import grpc
import numpy as np
import pytest
from tests.client import fake_server as fake
from tests.client.fake_side_socket import SharingServer, side_socket
from tests.rows import each

import npucall_client
from npucall.errors import (
    CredentialExpiredError,
    CredentialInvalidError,
    CredentialMissingError,
    TenantUnknownError,
    UnauthenticatedError,
)
from npucall.v1 import shared_memory_pb2
from npucall.wire.status import to_status
from npucall_client.sending import credentials
from npucall_client.sending.credentials import ClientCredential, credential_of
from npucall_client.sending.proxy import is_local
from npucall_client.settings import ClientSettings

BOTH_SENDERS = pytest.mark.usefixtures("sender")
PAIR, LARGE = fake.numbers(8), fake.numbers(8 * fake.MIB)


class GuardedServer(fake.FakeServer):
    """Lets in who brings what ``accepted`` has."""

    def __init__(self, *accepted: str) -> None:
        super().__init__()
        self.accepted = {f"Bearer {token}" for token in accepted}
        self.seen: list[str] = []
        """What came, of every call and stream."""
        self.known: set[str] = set(self.accepted)
        """What was accepted at any time: else it is invalid."""
        self.details: dict[str, Any] = {}
        self.guard = self._check

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
        fake.fail(kind("who calls", **self.details))(b"", context)


class Clock:
    """Stands still until it is moved, in seconds since 1970."""

    now = 1_700_000_000.0

    def time(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(credentials, "time", clock)
    monkeypatch.setattr(credentials, "_AGAIN_SECONDS", 0.02)  # a stream looks again so soon
    return clock


def jwt(seconds: float, name: str = "anna") -> str:
    """A token that says when it ends; nobody checks its signature here."""
    parts = {"alg": "RS256"}, {"sub": name, "exp": Clock.now + seconds}, "signature"
    encoded = (base64.urlsafe_b64encode(json.dumps(part).encode()) for part in parts)
    return ".".join(part.rstrip(b"=").decode() for part in encoded)


class Tokens:
    """A function that answers tokens; counts how often it was asked."""

    def __init__(self, *tokens: str) -> None:
        self.tokens = list(tokens)
        self.asked = 0

    def __call__(self) -> str:
        self.asked += 1
        return self.tokens[min(self.asked, len(self.tokens)) - 1]


def credential(**settings: Any) -> ClientCredential:
    return credential_of(ClientSettings(**settings))


@BOTH_SENDERS
def test_a_token_travels_with_every_call_and_a_function_is_asked_once() -> None:
    server, tokens = GuardedServer("secret"), Tokens("secret")
    with fake.connected(server, token=tokens) as client:
        for array in PAIR, LARGE:
            assert np.array_equal(fake.run(client, array), array)
            with client.pipeline() as pipeline:
                fake.submit(pipeline, array).result(fake.PATIENCE)
    assert len(server.seen) == 5
    assert set(server.seen) == {"Bearer secret"}
    assert tokens.asked == 1


def test_a_wrong_token_is_refused_at_once_by_its_reason_and_none_is_sent_where_none_is() -> None:
    server = GuardedServer("right")
    with fake.serving(server) as target:
        with pytest.raises(CredentialInvalidError):
            npucall_client.connect(target, token="wrong")
        with pytest.raises(CredentialMissingError):
            npucall_client.connect(target)
    assert server.seen == ["Bearer wrong", ""]


def test_a_function_is_asked_once_by_all_whose_token_has_ended() -> None:
    server, asked = GuardedServer("a"), []

    def token() -> str:
        asked.append(threading.get_ident())
        if len(asked) > 1:
            fake.until(lambda: server.seen.count("Bearer a") == 1 + 8, "all are refused")
        return "a" if len(asked) == 1 else "b"

    with fake.connected(server, token=token) as client:
        server.rotate("b")
        with ThreadPoolExecutor(8) as threads:
            list(threads.map(fake.run, [client] * 8, [PAIR] * 8))
    assert server.unary == 8
    assert len(asked) == 2


@BOTH_SENDERS
@each("array", [PAIR, LARGE])
def test_a_call_is_repeated_once_with_the_new_token(array: Any) -> None:
    server = GuardedServer("a")
    with fake.connected(server, token=Tokens("a", "b", "c", "d")) as client:
        server.rotate("b")
        assert np.array_equal(fake.run(client, array), array)
        server.rotate("c")
        with client.pipeline() as pipeline:
            assert np.array_equal(fake.submit(pipeline, array).result(fake.PATIENCE), array)
        server.rotate("never")
        server.known.add("Bearer d")
        with pytest.raises(CredentialExpiredError):
            fake.run(client, array)
    assert server.seen[1:] == [f"Bearer {token}" for token in "abbccd"]


@each(
    ("ends", "renew"),
    [(3600, 3540), (100, 80), (-10, math.inf), (math.inf, math.inf)],  # a minute, or a fifth
)
def test_a_token_that_says_its_end_is_asked_again_before_it(
    clock: Clock, ends: float, renew: float
) -> None:
    clock.now = Clock.now
    tokens = Tokens(jwt(ends) if ends != math.inf else "opaque", jwt(90_000.0))
    server = GuardedServer(*tokens.tokens)
    with fake.connected(server, token=tokens) as client:
        for seconds in 0.0, 79.0, 81.0, 3539.0, 3541.0, 9999.0:
            clock.now = Clock.now + seconds
            fake.run(client, PAIR)
            assert tokens.asked == 1 + (seconds > renew)
    assert server.accepted.issuperset(server.seen)


@BOTH_SENDERS
def test_an_open_stream_is_told_of_a_new_token(clock: Clock) -> None:
    tokens = Tokens(jwt(0.25, "a"), jwt(1000.0, "b"))
    second = f"Bearer {tokens.tokens[1]}"
    server = GuardedServer(*tokens.tokens)
    with fake.connected(server, token=tokens) as client, client.pipeline() as pipeline:
        fake.submit(pipeline, fake.ONE).result(fake.PATIENCE)
        clock.now += 1.0
        fake.until(lambda: server.renewals == [second], "the stream is told, without a call")
        fake.submit(pipeline, fake.ONE).result(fake.PATIENCE)
    assert server.renewals == [second]
    assert server.streams == 1


def test_what_cannot_be_renewed_is_used_while_it_is_good(clock: Clock) -> None:
    answers: list[Any] = [jwt(100.0)]
    asked = credential(token=lambda: str(answers.pop(0)))  # IndexError from the second time on
    first = asked.authorization()
    clock.now += 90
    assert asked.authorization() == first
    assert asked.at_hand() == first  # it is not asked at once again
    clock.now += 20
    with pytest.raises(CredentialMissingError, match="to return a token, found IndexError"):
        asked.authorization()


def test_a_file_that_changes_is_read_again_unless_it_is_half(tmp_path: Path, clock: Clock) -> None:
    path = tmp_path / "token"
    path.write_text("a\n")
    server = GuardedServer("a")
    with fake.connected(server, token_file=path) as client:
        for text, token in ("a", "a"), ("", "a"), ("b\n", "b"):
            path.write_text(text)
            clock.now += 1
            server.rotate(token)
            fake.run(client, PAIR)
        path.write_text("c")
        server.rotate("c")  # before it is looked at again
        fake.run(client, PAIR)
    assert server.seen[-5:] == [f"Bearer {token}" for token in "aabbc"]


@pytest.fixture
def issuer() -> Iterator[Any]:
    """What answers tokens to CI jobs: in order, and notes what it was asked with."""

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

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        url = f"http://127.0.0.1:{server.server_port}/token?audience=npucall"
        issuer = SimpleNamespace(url=url, answers=[], asked_with=[])
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        yield issuer
        server.shutdown()


def test_a_ci_job_is_known_by_the_token_of_its_own_address(issuer: Any) -> None:
    a, b = (json.dumps({"value": token}).encode() for token in "ab")
    issuer.answers = [(200, a), (302, b""), (200, b)]
    server = GuardedServer("a")
    with fake.connected(server, token_url=issuer.url, token_url_bearer="job") as client:
        fake.run(client, PAIR)
        server.rotate("b")
        fake.run(client, PAIR)
    # What proves the job is sent to no address to which it is redirected.
    assert issuer.asked_with == ["bearer job", "bearer job", ""]


@each("answer", [(403, b""), (200, b"nonsense"), (200, b"{}"), (200, b'{"value": 7}')])
def test_an_address_that_answers_no_token_is_told(issuer: Any, answer: tuple[int, bytes]) -> None:
    issuer.answers = [answer]
    with pytest.raises(CredentialMissingError, match="token_url: expected"):
        credential(token_url=issuer.url).authorization()


@each(
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


FAR = {"target": "10.0.0.5:50051"}
PLAIN = "expected TLS to 10.0.0.5:50051, found none; the client sends a token"


@each(
    ("given", "said"),
    [
        ({"token": "secret", **FAR}, PLAIN),
        ({"token_file": "/x", **FAR}, PLAIN),
        ({"token_url": "https://x/", **FAR}, PLAIN),
        ({"token": "a", "token_file": "b"}, "token_file: expected only one of token"),
        ({"token_url": "http://10.0.0.5/"}, "token_url: expected https://..., found http://..."),
        ({"token_url": "file:///etc/passwd"}, "token_url: expected https://..., found file"),
        ({"ca": "ca.pem", "tls": True, "key": "x"}, "certificate: expected a file, since key"),
        ({"certificate": "x"}, "key: expected a file, since certificate is set"),
        ({"ca": "/missing", "tls": True}, "ca: expected a file that can be read, found: "),
    ],
)
def test_settings_that_cannot_be_are_refused(given: dict[str, Any], said: str) -> None:
    with pytest.raises(ValueError, match=said) as raised:
        npucall_client.connect(**{"target": "127.0.0.1:1", "connect_timeout": 0.1, **given})
    assert "secret" not in str(raised.value)


@each("token", ["two words", "line\nbreak", "é", "x" * 2**14])
def test_a_token_that_no_metadata_can_hold_is_refused_and_not_told(token: str) -> None:
    with pytest.raises(CredentialMissingError) as raised:
        npucall_client.connect("127.0.0.1:1", connect_timeout=0.1, token=token)
    assert token not in str(raised.value)
    assert token not in repr(ClientSettings(token=token, token_url_bearer=token))


def test_an_argument_puts_other_tokens_aside(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NPUCALL_TOKEN_FILE", "/x")
    monkeypatch.setenv("NPUCALL_CERTIFICATE", "/y")
    settings = ClientSettings.of(token="a")
    assert (settings.token, settings.token_file, settings.certificate) == ("a", "", "/y")


@each(
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


# Users of the server's host.


def handed_out(connection: Any, request: bytes, *, token: str, seconds: float = 1000.0) -> None:
    """A credential, on the side socket."""
    assert shared_memory_pb2.SharedMemoryRequest.FromString(request).credential
    local = shared_memory_pb2.LocalCredential(
        authorization=f"Bearer {token}", expires_seconds=seconds
    )
    answer = shared_memory_pb2.SharedMemoryResponse(local_credential=local)
    connection.send(answer.SerializeToString())


@contextmanager
def host(
    tmp_path: Path, *behaviours: Callable[[Any, bytes], Any]
) -> Iterator[tuple[GuardedServer, str]]:
    """A server of this host that knows users by its side socket; and its target."""
    with side_socket(tmp_path / "side.sock") as socket:
        socket.behaviours = list(behaviours)
        server = GuardedServer("a")
        server.details = {"credential_socket": socket.path}
        with fake.serving(server) as target:
            yield server, target


@BOTH_SENDERS
def test_a_credential_of_the_side_socket_is_renewed_before_its_end_and_where_it_is_none(
    tmp_path: Path, clock: Clock
) -> None:
    credentials = [partial(handed_out, token=token, seconds=100.0) for token in "abcd"]
    with host(tmp_path, *credentials) as (server, target), npucall_client.connect(target) as client:
        server.accepted.add("Bearer b")
        for seconds in 0, 79, 2:
            clock.now += seconds
            fake.run(client, PAIR)
        server.rotate("c")  # the server was started again
        fake.run(client, PAIR)
        server.known.clear()
        server.rotate("d")
        server.known.clear()
        fake.run(client, PAIR)
    assert server.seen == ["", *(f"Bearer {token}" for token in "aaabbccd")]


def test_where_the_side_socket_gives_none_it_is_told(tmp_path: Path) -> None:
    status = to_status(TenantUnknownError("user 7 has no tenant")).SerializeToString()
    refusal = shared_memory_pb2.SharedMemoryResponse(error=status).SerializeToString()
    with host(tmp_path, lambda connection, _: connection.send(refusal)) as (server, target):
        with pytest.raises(TenantUnknownError, match="user 7"):
            npucall_client.connect(target)
        with pytest.raises(CredentialInvalidError):  # a token of the settings is not replaced
            npucall_client.connect(target, token="wrong")
        server.details = {"credential_socket": str(tmp_path / "elsewhere")}
        with pytest.raises(CredentialMissingError):
            npucall_client.connect(target)


def test_shared_memory_is_asked_for_with_the_token(tmp_path: Path) -> None:
    with (
        side_socket(tmp_path / "side.sock") as socket,
        fake.connected(SharingServer(socket), token="a") as client,
        client.shared(4096) as memory,
    ):
        assert memory.shared
        assert socket.authorizations == ["Bearer a"]
