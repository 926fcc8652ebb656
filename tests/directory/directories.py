"""A directory in this process, on a fake clock; who announces there, and who watches."""

from __future__ import annotations

import io
import json
import queue
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any, Self

import grpc
from tests.certificates import Authority, Pair
from tests.server.fakes import PATIENCE, FakeClock

from npucall.v1 import directory_service_pb2 as pb
from npucall.v1 import directory_service_pb2_grpc as stubs
from npucall.wire.status import TRAILER, from_status
from npucall_server.access import tokens
from npucall_server.directory.app import Directory
from npucall_server.directory.settings import DirectorySettings
from npucall_server.telemetry.log import Log

Metadata = list[tuple[str, str]] | None

SERVING, SUSPECT = pb.MEMBER_STATE_SERVING, pb.MEMBER_STATE_SUSPECT
DRAINING, GONE = pb.MEMBER_STATE_DRAINING, pb.MEMBER_STATE_GONE


def member(
    address: str = "a.lab:1", instance: str = "x", state: Any = SERVING, **more: Any
) -> pb.Member:
    """A member that says no more than it has to."""
    given = pb.Member(address=address, state=state, **more)
    given.server.instance = instance
    return given


class Announcing:
    """A stream of beats, sent as the test says."""

    def __init__(self, channel: grpc.Channel, metadata: Metadata = None) -> None:
        self._beats: queue.Queue[pb.AnnounceRequest | None] = queue.Queue()
        self.call = stubs.DirectoryServiceStub(channel).Announce(
            iter(self._beats.get, None), metadata=metadata or [], timeout=PATIENCE
        )
        self._sequence = 0

    def beat(self, given: pb.Member, sequence: int | None = None) -> int:
        """Sends a beat; answers the number that the directory answers."""
        self._sequence = self._sequence + 1 if sequence is None else sequence
        self._beats.put(pb.AnnounceRequest(member=given, sequence=self._sequence))
        return int(next(self.call).sequence)

    def end(self) -> None:
        self._beats.put(None)


class Watching:
    """One who watches, and the table as a client puts it together."""

    def __init__(self, channel: grpc.Channel, metadata: Metadata = None) -> None:
        self.members: dict[str, pb.Member] = {}
        self.messages: list[pb.WatchMembersResponse] = []
        self.ended = False
        self._changed = threading.Condition()
        self.call = stubs.DirectoryServiceStub(channel).WatchMembers(
            pb.WatchMembersRequest(), metadata=metadata or []
        )
        threading.Thread(target=self._read, daemon=True).start()

    def until(self, condition: Callable[[Watching], object], what: str) -> None:
        with self._changed:
            assert self._changed.wait_for(lambda: condition(self), PATIENCE), what

    def until_state(self, address: str, state: pb.MemberState.ValueType | None) -> None:
        """``None``: it is gone."""
        self.until(lambda each: each.state(address) == state, f"{address} is {state}")

    def state(self, address: str) -> pb.MemberState.ValueType | None:
        found = self.members.get(address)
        return None if found is None else found.state

    def _read(self) -> None:
        try:
            for message in self.call:
                with self._changed:
                    self.messages.append(message)
                    for address in message.gone:
                        self.members.pop(address, None)
                    self.members |= {each.address: each for each in message.changed}
                    self._changed.notify_all()
        except grpc.RpcError:
            pass
        with self._changed:
            self.ended = True
            self._changed.notify_all()


class RunningDirectory:
    """A directory that serves, and what it logged."""

    def __init__(self, **settings: Any) -> None:
        self._text, self._clock = io.StringIO(), FakeClock()
        told = {"listen": "127.0.0.1:0", "insecure_bind": True, **settings}
        given = DirectorySettings(**told)
        log = Log("all", self._text)
        self.directory = Directory(given, log, self._clock.monotonic)
        self.directory.start()
        self.addresses = self.directory._listener.addresses
        self.channel = grpc.insecure_channel(self.addresses[0])

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.channel.close()
        self.directory.drain()

    def announce(self, given: pb.Member) -> Announcing:
        """A stream with one beat."""
        announcing = Announcing(self.channel)
        announcing.beat(given)
        return announcing

    def watch(self) -> Watching:
        """One who has been told the table."""
        watching = Watching(self.channel)
        watching.until(lambda each: each.messages, "a message")
        return watching

    def pass_time(self, seconds: float) -> None:
        """And looks at its table then."""
        self._clock.advance(seconds)
        self.directory.feed.change(lambda table, _: setattr(table, "is_urgent", True))

    def events(self) -> list[dict[str, Any]]:
        """The lines of the log."""
        self.directory._log.flush()
        return [json.loads(line) for line in self._text.getvalue().splitlines()]


def refusal(error: Any) -> Any:
    """The error of the contract that a call ended with."""
    trailers = dict(error.trailing_metadata())
    return from_status(error.code(), error.details(), trailers.get(TRAILER))


_TENANTS = """
[tenants.servers]
role = "server"
certificates = ["*.npu.lab", "localhost"]
hosts = ["rack7-*.lab"]

[tenants.vision]
certificates = ["*.vision.lab"]
admins = ["root.vision.lab"]
"""


class TenantsDirectory(RunningDirectory):
    """A directory with tenants: with certificates at the first address, tokens at the second."""

    def __init__(self, folder: Path) -> None:
        self.authority, self.token_file = Authority(folder), folder / "tokens"
        config = folder / "settings.toml"
        config.write_text(_TENANTS)
        self.token_file.touch(mode=0o600)
        pair = self.authority.server()
        super().__init__(
            config=config,
            listen="mtls:127.0.0.1:0,tls:127.0.0.1:0",
            tls_certificate=pair.certificate,
            tls_key=pair.key,
            tls_client_ca=self.authority.ca,
            token_hashes=self.token_file,
        )

    def token(self, tenant: str) -> str:
        """A new one, which the directory knows."""
        text, token = tokens.new(tenant, "alice", None, 3600)
        tokens.append(self.token_file, token)
        self.directory.reload()
        return text

    def server_settings(self, folder: Path, *, token: bool = False) -> dict[str, Any]:
        """Of a server named localhost that announces itself by a certificate, or by a token."""
        own = self.authority.member("npu", ("localhost", "127.0.0.1"))
        settings: dict[str, Any] = {
            "listen": "plain:127.0.0.1:0",
            "announce": self.addresses[1 if token else 0],
            "announce_ca": self.authority.ca,
            "tls_certificate": own.certificate,
            "tls_key": own.key,
        }
        if token:
            settings["announce_token_file"] = folder / "token"
            (folder / "token").write_text(self.token("servers"))
        return settings

    def channel_of(self, pair: Pair | None = None) -> grpc.Channel:
        """With a certificate, or without one to the second address."""
        given = [None, None] if pair is None else [pair.key, pair.certificate]
        files = [path and path.read_bytes() for path in (self.authority.ca, *given)]
        where = self.addresses[0 if pair else 1]
        return grpc.secure_channel(where, grpc.ssl_channel_credentials(*files))

    def answer(self, pair: Pair | None, host: str, token: str = "") -> Any:
        """What a forger, or an honest server, is answered: its number, or the error."""
        metadata = [("authorization", f"Bearer {token}")] if token else []
        with self.channel_of(pair) as channel:
            try:
                return Announcing(channel, metadata).beat(member(f"{host}:50051"))
            except grpc.RpcError as error:
                return refusal(error)


running, running_with_tenants = RunningDirectory, TenantsDirectory
