"""A member that is not who it says it is: no credential reaches it, and no tensor."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import grpc
import numpy as np
import pytest
from tests.certificates import Authority

import npucall_client
from npucall.errors import NpucallError
from npucall.operators.kl_div_backward import kl_div_backward
from npucall.v1 import directory_service_pb2 as pb
from npucall_client.testing import running_server

from .house import Announcing, member, running

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.certificates import Pair

TOKEN = "npc_of_alice"
SECONDS = 20.0


class Thief(grpc.GenericRpcHandler):
    """Takes whatever comes, from whoever trusts it."""

    def __init__(self, pair: Pair) -> None:
        self.tokens: list[str] = []
        self.bytes = 0
        self.server = grpc.server(ThreadPoolExecutor(8), handlers=[self])
        pem = pair.key.read_bytes(), pair.certificate.read_bytes()
        self.port = self.server.add_secure_port("127.0.0.1:0", grpc.ssl_server_credentials([pem]))
        self.server.start()

    def service(self, details: Any) -> Any:
        self.tokens += [
            value for key, value in details.invocation_metadata if key == "authorization"
        ]
        return grpc.stream_stream_rpc_method_handler(self._take)

    def _take(self, requests: Iterator[bytes], context: grpc.ServicerContext) -> Iterator[bytes]:
        for request in requests:
            self.bytes += len(request)
        context.abort(grpc.StatusCode.UNAVAILABLE, "thank you")
        yield b""


@contextmanager
def announced(channel: grpc.Channel, told: pb.Member) -> Iterator[None]:
    """A member that is in the table for as long as this lasts, idle and with many lanes."""
    ended = threading.Event()
    told.load.lanes = 8
    announcing = Announcing(channel)
    announcing.beat(told)

    def beat() -> None:
        while not ended.wait(0.5):
            announcing.beat(told)

    thread = threading.Thread(target=beat)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()
        announcing.end()


def run(client: npucall_client.Client) -> None:
    ones = np.ones(64, np.float32)
    client.run(kl_div_backward, ones, self=ones, target=ones, reduction=0, log_target=False)


@pytest.mark.more
@pytest.mark.parametrize(
    ("named", "is_robbed"),
    [("forger.lab", False), ("127.0.0.1", True)],
)
def test_who_has_no_certificate_of_the_announced_name_gets_nothing(
    tmp_path: Path, named: str, is_robbed: bool
) -> None:
    """Whoever has one gets both, so that the test can fail."""
    authority = Authority(tmp_path)
    pair = authority.server()
    thief = Thief(authority.server("thief", (named,)))
    tls = {"tls_certificate": pair.certificate, "tls_key": pair.key, "insecure_bind": True}
    with running(listen="plain:127.0.0.1:0,tls:127.0.0.1:0", **tls) as house:
        where = f"pool:directory:{house.addresses[1]}"
        with (
            announced(house.channel, member(f"127.0.0.1:{thief.port}", "thief")),
            pytest.raises(NpucallError),
            npucall_client.connect(
                where, ca=str(authority.ca), token=TOKEN, timeout=6, connect_timeout=6
            ) as client,
        ):
            run(client)
    thief.server.stop(None)
    assert thief.tokens == ([f"Bearer {TOKEN}"] * len(thief.tokens) if is_robbed else [])
    assert bool(thief.tokens) is is_robbed


@pytest.mark.more
def test_calls_go_on_at_honest_members_and_none_to_the_forger(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    pair = authority.server()
    thief = Thief(authority.server("thief", ("forger.lab",)))
    tls = {"tls_certificate": pair.certificate, "tls_key": pair.key, "insecure_bind": True}
    with (
        running(listen="plain:127.0.0.1:0,tls:127.0.0.1:0", **tls) as house,
        announced(house.channel, member(f"127.0.0.1:{thief.port}", "thief")),
        running_server(
            f"--announce=plain:{house.addresses[0]}", *pair.flags, "--insecure-bind",
            listen="tls:127.0.0.1:0",
        ),
    ):  # fmt: skip
        watching = house.watch()
        watching.until(lambda each: len(each.members) == 2, "both are members")
        where = f"pool:directory:{house.addresses[1]}"
        with npucall_client.connect(
            where, ca=str(authority.ca), token=TOKEN, timeout=SECONDS
        ) as client:
            for _ in range(20):
                run(client)
    thief.server.stop(None)
    assert thief.tokens == []
    assert thief.bytes == 0
