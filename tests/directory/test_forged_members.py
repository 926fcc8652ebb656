"""A member that is not who it says it is: no credential reaches it, and no tensor."""

import socket
import ssl
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import grpc
import numpy as np
import pytest
from tests.certificates import Authority, Pair
from tests.client import fake_server as fake
from tests.rows import each
from tests.server.fakes import PATIENCE, FakeDevice
from tests.server.serving import serving

import npucall_client

from .directories import Announcing, member, running

SECONDS = 6 * PATIENCE
"""In which a call ends, whatever happens meanwhile."""


class Thief:
    """Takes whatever comes, from whoever trusts its certificate."""

    def __init__(self, pair: Pair) -> None:
        self.taken, self.ended = b"", threading.Event()
        """What came over the first connection, which has ended."""
        self._context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self._context.load_cert_chain(pair.certificate, pair.key)
        self._context.set_alpn_protocols(["h2"])
        self._socket = socket.create_server(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self._socket.getsockname()[1]}"
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        while True:
            connection, _ = self._socket.accept()
            try:
                with self._context.wrap_socket(connection, server_side=True) as trusted:
                    self.taken += trusted.recv(1 << 16)
            except OSError:
                pass  # who came does not trust it
            self.ended.set()


def run_one(where: str, ca: str) -> Any:
    one = np.ones(1, np.float32)
    with npucall_client.connect(
        where, ca=ca, token="npc_of_alice", timeout=SECONDS, connect_timeout=SECONDS
    ) as client:
        return client.run("aclnnTanhBackward", one, one)


@each(("named", "is_robbed"), [("forger.lab", False), ("127.0.0.1", True)])
def test_who_has_no_certificate_of_the_announced_name_gets_nothing(
    tmp_path_factory: pytest.TempPathFactory, named: str, is_robbed: bool
) -> None:
    """Whoever has one is sent something, so that the test can fail. Calls go on at the others."""
    authority = Authority(tmp_path_factory.mktemp("ca"))
    pair, thief = authority.server(), Thief(authority.server("thief", (named,)))
    tls = {"tls_certificate": pair.certificate, "tls_key": pair.key, "insecure_bind": True}
    device = FakeDevice()
    device.result = bytes(4)
    with (
        running(listen="plain:127.0.0.1:0,tls:127.0.0.1:0", **tls) as directory,
        ThreadPoolExecutor(1) as threads,
    ):
        plain, secure = directory.addresses
        directory.announce(member(thief.address, "thief"))
        found = threads.submit(run_one, f"pool:directory:{secure}", str(authority.ca))
        assert thief.ended.wait(SECONDS)
        with serving(device, listen="tls:127.0.0.1:0", announce=f"plain:{plain}", **tls):
            assert found.result().tolist() == [0]
    assert bool(thief.taken) is is_robbed


@each(("secure", "sent"), [(False, ""), (True, "Bearer npc_of_alice")])
def test_a_member_that_a_directory_without_tls_names_gets_no_token(
    secure: bool, sent: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Before: 843 tokens of users of a host went to whoever announced himself, in four seconds."""
    authority = Authority(tmp_path_factory.mktemp("ca"))
    thief = fake.FakeServer()
    pair = authority.server()
    keys = (pair.key.read_bytes(), pair.certificate.read_bytes())
    credentials = grpc.ssl_server_credentials([keys]) if secure else None
    tls = {"tls_certificate": pair.certificate, "tls_key": pair.key} if secure else {}
    listen = "tls:127.0.0.1:0,plain:127.0.0.1:0" if secure else "127.0.0.1:0"
    given = {"ca": str(authority.ca)} if secure else {}
    with (
        fake.serving(thief, credentials=credentials) as address,
        running(listen=listen, **tls) as directory,
        grpc.insecure_channel(directory.addresses[-1]) as channel,
    ):
        Announcing(channel).beat(member(address, "thief"))
        where = f"pool:directory:{directory.addresses[0]}"
        with npucall_client.connect(where, token="npc_of_alice", **given) as client:
            fake.run(client, fake.numbers(8))
    assert {told.get("authorization", "") for told in thief.metadata} == {sent}
