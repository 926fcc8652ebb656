"""The same calls through each source of a pool's members, and whose certificate is checked."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import grpc
import numpy as np
import pytest
from tests.client import fake_server as fake
from tests.client.pool.fake_directories import fake_directory, member
from tests.client.pool.heard import threads_named

import npucall_client
from npucall.errors import ServerUnreachableError
from npucall.operators.l1_loss_backward import l1_loss_backward
from npucall_client import Client
from npucall_client.pool.sources import names

from . import wire

if TYPE_CHECKING:
    from tests.certificates import Authority

pytestmark = pytest.mark.usefixtures("sender_in_sweeps")

CALL = (l1_loss_backward, np.ones(1, np.float32), np.ones(4, np.float32), np.ones(4, np.float32))


@pytest.fixture(scope="module")
def targets() -> Iterator[list[str]]:
    """Two servers: one port at two addresses."""
    with wire.server_here() as first:
        port = first.address.rpartition(":")[2]
        with wire.server_here(f"127.0.0.2:{port}") as second:
            yield [first.address, second.address]


def resolver_of(addresses: list[str]) -> Any:
    def resolve(name: str, port: int, **_: Any) -> list[Any]:
        assert name == "npu.lab"
        return [
            (socket.AF_INET, socket.SOCK_STREAM, 6, "", (address, port)) for address in addresses
        ]

    return resolve


@contextmanager
def pool_from(kind: str, targets: list[str], folder: Path, patch: Any) -> Iterator[str]:
    """The target of a pool of these servers, by a source of that kind."""
    with ExitStack() as stack:
        if kind == "static":
            yield f"pool:{','.join(targets)}"
        elif kind == "dns":
            patch.setattr(names.socket, "getaddrinfo", resolver_of(["127.0.0.1", "127.0.0.2"]))
            yield f"pool:dns:npu.lab:{targets[0].rpartition(':')[2]}"
        elif kind == "file":
            path = folder / "members.json"
            path.write_text(json.dumps({"members": [{"address": each} for each in targets]}))
            yield f"pool:file:{path}"
        elif kind == "folder":
            (folder / "ready").mkdir()
            for number, target in enumerate(targets):
                (folder / "ready" / str(number)).write_text(target)
            yield f"pool:file:{folder}/ready"
        else:
            directory = stack.enter_context(fake_directory())
            directory.say(*(said(each) for each in targets))
            yield f"pool:directory:{directory.address}"


def said(target: str) -> Any:
    announced = member(target)
    announced.server.soc = "Ascend910B1"
    return announced


def called(client: Client) -> str:
    """Which server answered."""
    result = client.execute(*CALL)
    assert not result.value.any()
    return result.server.instance


def test_the_same_calls_go_to_all_members_whatever_lists_them(
    targets: list[str], tmp_path: Path
) -> None:
    for kind in ("static", "dns", "file", "folder", "directory"):
        with (
            pytest.MonkeyPatch.context() as patch,
            pool_from(kind, targets, tmp_path, patch) as target,
            npucall_client.connect(target, timeout=wire.PATIENCE) as client,
        ):
            one = called(client)
            wire.until(lambda: called(client) != one, f"{kind}: another one answers too")  # noqa: B023  # now


def test_the_name_that_is_resolved_is_the_one_that_members_have_to_have(
    authority: Authority, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(names.socket, "getaddrinfo", resolver_of(["127.0.0.1"]))
    for name, host in ("right", "npu.lab"), ("wrong", "127.0.0.1"):
        pair = authority.server(name, (host,))
        files = {"tls_certificate": pair.certificate, "tls_key": pair.key}
        with wire.server_here(**files) as server, ExitStack() as stack:
            target = f"pool:dns:npu.lab:{server.address.rpartition(':')[2]}"
            seconds = wire.PATIENCE
            if name == "wrong":
                seconds = 0.5
                stack.enter_context(pytest.raises(ServerUnreachableError))
            client = npucall_client.connect(target, ca=authority.ca, connect_timeout=seconds)
            assert called(stack.enter_context(client))


def test_a_token_goes_where_the_name_that_the_user_wrote_leads(
    authority: Authority, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(names.socket, "getaddrinfo", resolver_of(["127.0.0.1"]))
    pair, server = authority.server("npu", ("npu.lab",)), fake.FakeServer()
    keys = (pair.key.read_bytes(), pair.certificate.read_bytes())
    with fake.serving(server, credentials=grpc.ssl_server_credentials([keys])) as address:
        target = f"pool:dns:npu.lab:{address.rpartition(':')[2]}"
        with npucall_client.connect(target, ca=authority.ca, token="npc_of_alice") as client:
            fake.run(client, fake.numbers(8))
    assert {told["authorization"] for told in server.metadata} == {"Bearer npc_of_alice"}


def test_a_client_hears_of_members_that_come_later_and_of_those_that_go(
    targets: list[str],
) -> None:
    first, second = targets
    with fake_directory() as directory:
        directory.say(said(first))
        target = f"pool:directory:{directory.address}"
        with npucall_client.connect(target, timeout=wire.PATIENCE) as client:
            one = called(client)
            directory.say(said(second), gone=(first,))
            wire.until(lambda: called(client) != one, "the other is called")
            directory.say(said(first), gone=(second,))
            wire.until(lambda: called(client) == one, "the first is called again")
    wire.until(lambda: not threads_named("npucall-directory"), "no thread is left")
