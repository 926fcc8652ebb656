"""Frames over TCP: plain, with TLS, and with certificates on both sides."""

import socket
import ssl
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.certificates import Authority, Pair
from tests.server.fakes import device_that_answers, until
from tests.server.raw import channel_to
from tests.server.serving import Served, serving
from tests.server.tenant_server import SERVICE, TenantServer
from tests.summary import figures

import npucall_client
from npucall.v1 import operator_service_pb2 as pb
from npucall_server.settings.server import ServerSettings

from .peer import EXECUTE, FramePeer, QuickDevice, request

MIB = 2**20


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("authority"))


def trusting(authority: Authority, pair: Pair | None = None) -> ssl.SSLContext:
    """How a client of an authority comes in."""
    context = ssl.create_default_context(cafile=str(authority.ca))
    if pair is not None:
        context.load_cert_chain(pair.certificate, pair.key)
    return context


def files(authority: Authority) -> dict[str, Any]:
    pair = authority.server()
    return {"tls_certificate": pair.certificate, "tls_key": pair.key}


def port_of(served: Served) -> int:
    return served.parts.methods.operators.frames_port


@pytest.fixture(scope="module")
def encrypted(authority: Authority) -> Iterator[Served]:
    given = {"frames_listen": "tls:127.0.0.1:0", **files(authority)}
    with serving(device_that_answers(5 * MIB), **given) as served:
        yield served


def test_a_plain_port_serves_and_takes_no_credential() -> None:
    with serving(QuickDevice(), frames_listen="127.0.0.1:0") as served:
        with channel_to(served.target) as channel:
            answer: Any = channel.unary_unary(f"{SERVICE}/GetServerInfo")(b"")
        info = pb.GetServerInfoResponse.FromString(answer)
        assert (info.frames_port, info.frames_tls) == (port_of(served), False)
        with FramePeer(port=info.frames_port) as peer:
            assert peer.enter().kind == 3
            peer.execute()
            assert peer.receive().response
            peer.send(10, b"\x08\x10", 2)  # memory
            assert peer.reason() == "MESSAGE_MALFORMED"
        with FramePeer(port=info.frames_port) as peer:
            assert peer.enter("Bearer of somebody").reason == "MESSAGE_MALFORMED"
            assert peer.is_closed()


def test_connections_of_one_process_are_one_caller() -> None:
    with serving(QuickDevice(), frames_listen="127.0.0.1:0") as served, ExitStack() as open_:
        for client in (7, 7, 8, 0, 0):
            peer = open_.enter_context(FramePeer(port=port_of(served)))
            assert peer.enter(client=client).kind == 3
        known = list(served.parts.methods.frames._connections)
        owners = [each.identity.owner for each in known]
        assert len(set(owners)) == 4
        assert owners[0] == owners[1]
        assert {each.identity.name for each in known} == {"ipv4:127.0.0.1"}


def test_the_clients_of_a_process_are_one_caller() -> None:
    one = np.ones(64, np.float32)
    with (
        serving(
            device_that_answers(256), frames_listen="127.0.0.1:0", frames_socket="off"
        ) as served,
        npucall_client.connect(served.target) as first,
        npucall_client.connect(served.target) as second,
    ):
        for client in (first, second):
            client.run("aclnnL1LossBackward", one, one, one)
        known = served.parts.methods.frames._connections
        until(lambda: sum(each.place is not None for each in known.copy()) == 2, "both are known")
        assert len({each.identity.owner for each in known}) == 1


def test_the_port_is_told_as_clients_see_it(authority: Authority) -> None:
    given = {"frames_listen": "tls:127.0.0.1:0", "frames_advertise": 7, **files(authority)}
    with serving(**given) as served:
        assert port_of(served) == 7


def test_calls_of_all_sizes_pass_encrypted(encrypted: Served, authority: Authority) -> None:
    with FramePeer(port=port_of(encrypted), tls=trusting(authority)) as peer:
        assert peer.enter("Bearer of a client that calls other servers too").kind == 3
        for elements in (1, 5000, MIB):
            peer.send(EXECUTE, request(elements), 1)
            (storage,) = peer.receive().response.storage
            assert storage.data == encrypted.device.result


def test_it_reads_while_nobody_reads_its_answers(encrypted: Served, authority: Authority) -> None:
    with FramePeer(port=port_of(encrypted), tls=trusting(authority)) as peer:
        peer.enter()
        for call in range(1, 11):
            peer.send(EXECUTE, request(MIB // 4), call)
        assert {peer.receive().call for _ in range(10)} == set(range(1, 11))


def test_who_does_not_speak_tls_is_closed(encrypted: Served) -> None:
    with FramePeer(port=port_of(encrypted)) as peer:
        peer.socket.sendall(b"\0" * 100)
        until(peer.is_closed, "it is closed")
    until(lambda: not encrypted.parts.methods.frames._connections, "nobody is there")
    with socket.create_connection(("127.0.0.1", port_of(encrypted))):
        until(lambda: encrypted.parts.methods.frames._connections, "it is there")
        encrypted.clock.advance(6.0)
        encrypted.look()
        until(lambda: not encrypted.parts.methods.frames._connections, "it is closed")


def test_a_port_with_certificates_lets_in_whom_they_name(
    authority: Authority, tmp_path: Path
) -> None:
    stranger = Authority(tmp_path, "stranger")
    given = {"frames_listen": "127.0.0.1:0", "tls_client_ca": authority.ca, **files(authority)}
    with serving(QuickDevice(), **given) as served:
        anna = trusting(authority, authority.client("anna"))
        with FramePeer(port=port_of(served), tls=anna) as peer:
            assert peer.enter().kind == 3
        for pair in (None, stranger.client("eve"), authority.server("another")):
            tls = trusting(authority, pair)
            peer = FramePeer(port=port_of(served), tls=tls)
            with peer, pytest.raises((OSError, EOFError)):  # TLS 1.3 tells it afterwards
                peer.hello()


def test_a_new_certificate_counts_for_new_connections(tmp_path: Path) -> None:
    own = Authority(tmp_path)
    with (
        serving(QuickDevice(), frames_listen="127.0.0.1:0", **files(own)) as served,
        FramePeer(port=port_of(served), tls=trusting(own)) as peer,
    ):
        peer.enter()
        own.server()
        before = peer.socket.getpeercert(binary_form=True)
        with FramePeer(port=port_of(served), tls=trusting(own)) as another:
            another.enter()
            assert another.socket.getpeercert(binary_form=True) != before
        peer.execute()
        assert peer.receive().response


ROTATIONS = [20, pytest.param(1000, marks=pytest.mark.long)]


@pytest.mark.parametrize("rotations", ROTATIONS)
def test_nobody_fails_while_certificates_are_rotated(tmp_path: Path, rotations: int) -> None:
    """Certificate and key are replaced one after the other, while others connect."""
    own = Authority(tmp_path)
    anna = trusting(own, own.client("anna"))
    given = {"frames_listen": "127.0.0.1:0", "tls_client_ca": own.ca, **files(own)}
    with (
        serving(QuickDevice(), **given) as served,
        FramePeer(port=port_of(served), tls=anna) as lasting,
        ThreadPoolExecutor(1) as threads,
    ):
        lasting.enter()
        shown = set()
        rotated = threads.submit(lambda: [own.server() for _ in range(rotations)])
        while not rotated.done() or not shown:
            with FramePeer(port=port_of(served), tls=anna) as peer:
                assert peer.enter().kind == 3
                shown.add(peer.socket.getpeercert(binary_form=True))
                for each in (peer, lasting):
                    each.execute()
                    assert each.receive().response
        assert len(rotated.result()) == rotations
    figures(f"{rotations} rotations", f"{len(shown)} certificates were seen, nobody failed")


def test_handshakes_that_never_end_take_no_place_of_who_is_known(
    encrypted: Served, authority: Authority
) -> None:
    connections = encrypted.parts.methods.frames._connections
    with ExitStack() as open_:
        for _ in range(200):
            address = ("127.0.0.1", port_of(encrypted))
            open_.enter_context(socket.create_connection(address))
        with FramePeer(port=port_of(encrypted), tls=trusting(authority)) as peer:
            assert peer.enter().kind == 3
            until(lambda: len(connections) <= 1 + 64, "the oldest are closed")
            assert encrypted.parts.methods.frames.places.used == 1
            peer.execute()
            assert peer.receive().response


ABOVE = {
    "127.0.0.1:50051": "plain:127.0.0.1:51051",
    "unix:/run/s,plain:[::1]:7,127.0.0.1:1": "plain:[::1]:1007",
    "127.0.0.1:0": "plain:127.0.0.1:0",
    "unix:/run/s": "None",
}


@pytest.mark.parametrize("listen", ABOVE)
def test_a_port_may_be_told_by_that_of_grpc(listen: str) -> None:
    given = ServerSettings(listen=listen, frames_listen="+1000")
    assert str(given.frames_address) == ABOVE[listen]


FAULTS = {
    "unix:/run/frames": "expected HOST:PORT",
    "0.0.0.0:1": "expected a loopback address or TLS",
    "tls:127.0.0.1:1": "expected tls_certificate",
    "nowhere": "expected HOST:PORT or unix:PATH",
    "+one": r"expected HOST:PORT or \+NUMBER, found '\+one'",
    "+60000": "expected a port up to 65535, found 110051",
}


@pytest.mark.parametrize("address", FAULTS)
def test_an_address_that_cannot_be_is_refused_by_its_name(address: str) -> None:
    with pytest.raises(ValueError, match=f"frames_listen: {FAULTS[address]}"):
        ServerSettings(frames_listen=address)


def test_a_tenants_certificate_is_who_calls(server: TenantServer) -> None:
    pair = server.authority.client("ida.vision.lab")
    tls = trusting(server.authority, pair)
    with FramePeer(port=port_of(server), tls=tls) as peer:
        assert peer.enter().kind == 3
        peer.execute(1, request_id="by certificate")
        assert peer.receive().response
    until(lambda: "by certificate" in server.log.getvalue(), "its line")
    (line,) = [each for each in server.lines() if each.get("request_id") == "by certificate"]
    assert (line["tenant"], line["caller"]) == ("vision", "ida.vision.lab")
