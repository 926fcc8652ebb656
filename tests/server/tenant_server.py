"""A server with tenants in this process, every way to know callers on, and who calls it."""

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import grpc
import pytest
from google.rpc.error_details_pb2 import ErrorInfo
from google.rpc.status_pb2 import Status
from tests.certificates import Authority, Pair
from tests.shared import Side

from npucall.v1 import operator_service_pb2 as pb
from npucall.v1 import shared_memory_pb2
from npucall_server.access import tokens
from npucall_server.serving import app
from npucall_server.settings.tenants import Role

from .fakes import PATIENCE
from .issuer import AUDIENCE, Issuer
from .serving import Served

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


class Refusal(NamedTuple):
    """What a refused caller was told."""

    reason: str
    fault: str
    details: Mapping[str, str]
    message: str


class TenantServer(Served):
    """The server, its files, and the means to call it."""

    def __init__(self, folder: Path, issuer: Issuer) -> None:
        self.issuer = issuer
        self.config, self.token_file = folder / "settings.toml", folder / "tokens"
        self.config.write_text(TENANTS)
        self.token_file.touch(mode=0o600)
        self.authority = Authority(folder)
        pair = self.authority.server()
        self.side, self.unix = folder / "side", f"unix:{folder}/s"
        super().__init__(
            config=self.config,
            listen=f"plain:127.0.0.1:0,mtls:127.0.0.1:0,{self.unix}",
            token_hashes=self.token_file,
            oidc_issuer=issuer.url,
            oidc_audience=AUDIENCE,
            tls_certificate=pair.certificate,
            tls_key=pair.key,
            tls_client_ca=self.authority.ca,
            shared_memory=self.side,
            frames_socket=folder / "f",
            frames_listen="mtls:127.0.0.1:0",
            reflection=True,
            memory_limit=1 << 26,
        )
        (serving,) = self.events("serving")
        where = [each.partition(":")[2] for each in serving["addresses"].split(", ")]
        self.plain, self.mtls = where[:2]

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
        put(self.token_file, "".join(kept))

    def channel(self, target: str = "", pair: Pair | None = None) -> grpc.Channel:
        options = [("grpc.use_local_subchannel_pool", 1)]
        if pair is None:
            return grpc.insecure_channel(target or self.plain, options)
        credentials = grpc.ssl_channel_credentials(
            self.authority.ca.read_bytes(), pair.key.read_bytes(), pair.certificate.read_bytes()
        )
        return grpc.secure_channel(self.mtls, credentials, options)

    def ask_side(self, **request: Any) -> shared_memory_pb2.SharedMemoryResponse:
        """What the side socket answers, over a connection of its own."""
        with Side(self.side) as side:
            message = shared_memory_pb2.SharedMemoryRequest(**request)
            side.send(message.SerializeToString())
            return shared_memory_pb2.SharedMemoryResponse.FromString(side.recv(4096))


@contextmanager
def tenant_server(folder: Path) -> Iterator[TenantServer]:
    """Looks after its files again and again, so that no test waits for the next second."""
    with Issuer() as issuer, pytest.MonkeyPatch.context() as patched:
        patched.setattr(app, "_LOOK_SECONDS", 0.05)
        server = TenantServer(folder, issuer)
        try:
            yield server
        finally:
            server.server.drain()
            server.streams.threads.shutdown()


def put(path: Path, text: str) -> None:
    """Puts a file in its place as a whole: the server may look at any moment."""
    draft = path.with_suffix(".draft")
    draft.write_text(text)
    draft.replace(path)


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


def refusal(error: Any) -> Refusal:
    """What is in the trailer of a refused call."""
    return refusal_in(dict(error.trailing_metadata() or ()).get("grpc-status-details-bin", b""))


def refusal_in(status: bytes) -> Refusal:
    """What google.rpc's own classes read in a status."""
    parsed, info = Status.FromString(status), ErrorInfo()
    assert parsed.details[0].Unpack(info)
    return Refusal(info.reason, info.metadata["fault"], info.metadata, parsed.message)
