"""A server with tenants in this process, every way to know callers on, and who calls it."""

from __future__ import annotations

import io
import json
import os
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NamedTuple

import grpc
from google.rpc.error_details_pb2 import ErrorInfo
from google.rpc.status_pb2 import Status
from tests.certificates import Authority

from npucall.v1 import operator_service_pb2 as pb
from npucall_server.access import tokens
from npucall_server.access.identity import Role
from npucall_server.app import Server
from npucall_server.devices import open_device
from npucall_server.log import Log
from npucall_server.settings import ServerSettings

from .issuer import AUDIENCE, Issuer
from .scripted import PATIENCE, until

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from tests.certificates import Pair

SERVICE = "/npucall.v1.OperatorService"
US = os.geteuid()
TENANTS = f"""
[tenants.vision]
users = [{US}]
certificates = ["*.vision.lab"]
claims = ["repo:lab/vision:*"]
admins = ["root.vision.lab"]
bench = ["carol"]

[tenants.speech]
class = "batch"
claims = ["repo:lab/speech:*", "repo:lab/shared:*"]
shared_memory = "64KiB"

[tenants.other]
claims = ["repo:lab/shared:*"]
"""


class Answer(NamedTuple):
    """What a caller was told."""

    reason: str
    fault: str
    details: Mapping[str, str]
    message: str


class Lab:
    """The server, its files, and the means to call it."""

    def __init__(self, folder: Path, issuer: Issuer, **settings: Any) -> None:
        self.folder, self.issuer = folder, issuer
        self.config, self.token_file = folder / "settings.toml", folder / "tokens"
        self.config.write_text(TENANTS)
        self.token_file.touch(mode=0o600)
        self.authority = Authority(folder)
        pair = self.authority.server()
        self.side, self.unix = folder / "side", f"unix:{folder}/s"
        given = ServerSettings(
            config=self.config,
            listen=f"plain:127.0.0.1:0,mtls:127.0.0.1:0,{self.unix}",
            token_hashes=self.token_file,
            oidc_issuer=issuer.url,
            oidc_audience=AUDIENCE,
            tls_certificate=pair.certificate,
            tls_key=pair.key,
            tls_client_ca=self.authority.ca,
            shared_memory=self.side,
            reflection=True,
            memory_limit=1 << 26,
            **settings,
        )
        self._text = io.StringIO()
        device = open_device(given, lambda _: None)
        self.server = Server(given, device, Log(stream=self._text))
        self.server.start()
        (serving,) = self.events("serving")
        self.plain, self.mtls = [
            each.partition(":")[2] for each in serving["addresses"].split(", ")
        ][:2]

    def events(self, name: str) -> list[dict[str, Any]]:
        lines = map(json.loads, self._text.getvalue().splitlines())
        return [line for line in lines if line["event"] == name]

    def token(
        self,
        name: str = "alice",
        tenant: str = "vision",
        role: Role | None = None,
        seconds: float = 600,
    ) -> str:
        """A new one, that the server knows by now."""
        text, token = tokens.new(tenant, name, role, seconds)
        tokens.append(self.token_file, token)
        self.server.reload()
        return text

    def revoke(self, token: str) -> None:
        """Deletes its line; the server finds out by itself."""
        lines = self.token_file.read_text().splitlines(keepends=True)
        kept = [line for line in lines if not line.startswith(tokens.hash_of(token))]
        assert len(kept) == len(lines) - 1
        self.token_file.write_text("".join(kept))

    def channel(self, target: str = "", pair: Pair | None = None) -> grpc.Channel:
        options = [("grpc.use_local_subchannel_pool", 1)]
        if pair is None:
            return grpc.insecure_channel(target or self.plain, options)
        credentials = grpc.ssl_channel_credentials(
            self.authority.ca.read_bytes(), pair.key.read_bytes(), pair.certificate.read_bytes()
        )
        return grpc.secure_channel(self.mtls, credentials, options)


@contextmanager
def lab_in(folder: Path, **settings: Any) -> Iterator[Lab]:
    with Issuer() as issuer:
        lab = Lab(folder, issuer, **settings)
        try:
            yield lab
        finally:
            lab.server.drain()


def bearer(token: str) -> tuple[tuple[str, str], ...]:
    """Metadata of calls."""
    return (("authorization", f"Bearer {token}"),)


def ask(
    channel: grpc.Channel,
    method: str = "GetServerInfo",
    request: bytes = b"",
    metadata: tuple[tuple[str, str], ...] = (),
) -> bytes:
    """The answer's bytes; raises grpc.RpcError."""
    call: Any = channel.unary_unary(f"{SERVICE}/{method}")  # type: ignore[call-arg]
    answer: bytes = call(request, metadata=metadata, timeout=PATIENCE)
    return answer


def who(channel: grpc.Channel, metadata: tuple[tuple[str, str], ...] = ()) -> pb.CallerInfo:
    """Who the server takes a caller for."""
    return pb.GetServerInfoResponse.FromString(ask(channel, metadata=metadata)).caller


def refusal(error: Any) -> Answer:
    """What is in the trailer of a refused call."""
    trailer = dict(error.trailing_metadata() or ()).get("grpc-status-details-bin", b"")
    return refusal_in(trailer)


def refusal_in(status: bytes) -> Answer:
    """What google.rpc's own classes read in a status."""
    parsed, info = Status.FromString(status), ErrorInfo()
    assert parsed.details[0].Unpack(info)
    return Answer(info.reason, info.metadata["fault"], info.metadata, parsed.message)


def expired_credential(lab: Lab, monkeypatch: Any) -> str:
    """Of a local user, whose time has ended."""
    users = lab.server._access.users
    assert users is not None
    long_ago = time.time() - 3600
    with monkeypatch.context() as past:
        past.setattr(time, "time", lambda: long_ago)
        return users.credential(US)


def wait_until_gone(lab: Lab) -> None:
    """No call is left, and no stream."""
    executor, streams = lab.server._executor, lab.server._streams
    until(lambda: not executor.calls_in_flight and not streams._streams, "all is settled")
