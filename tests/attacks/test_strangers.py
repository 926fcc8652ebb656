"""Strangers: who is nobody takes nothing that others need, whatever moves on its connections.

The figures of before are of 31bb2f97, with a memory_limit of 256 MiB.
"""

import shutil
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import grpc
import numpy as np
import pytest
from tests.certificates import Authority
from tests.end_to_end import wire

import npucall
from npucall.errors import NpucallError
from npucall.operators.l1_loss_backward import l1_loss_backward
from npucall.v1 import access_service_pb2 as pb
from npucall_client import Client

from .clients import health_of
from .http2 import HEALTH, Connections, answered, connected, pump, sent
from .servers import MIB, Start
from .test_tenants import tenants

ONE = np.float32(1)
HANDSHAKES, LEASE = 400, 2
_PRIORITY = 2
"""A frame that says nothing, which gRPC reads and forgets."""


@contextmanager
def kept_moving(made: Connections, pause: float = 0.5) -> Iterator[None]:
    """Each connection sends 14 bytes every now and then, and answers pings, meanwhile."""
    over = threading.Event()

    def move() -> None:
        while not over.is_set():
            for each in made:
                each._frame(_PRIORITY, 0, 1, bytes(5))
            pump(made, pause)

    mover = threading.Thread(target=move)
    mover.start()
    try:
        yield
    finally:
        over.set()
        mover.join()


@contextmanager
def callers(
    target: str, options: dict[str, str] | None = None, **given: Any
) -> Iterator[list[Client]]:
    """Over gRPC, where the strangers are, and by what carries calls elsewhere."""
    with ExitStack() as stack:
        yield [
            stack.enter_context(
                npucall.connect(
                    target, options=npucall.Options(carrier=carrier, **(options or {})), **given
                )
            )
            for carrier in ("grpc", "auto")
        ]


def answers(clients: list[Client], calls: int = 5) -> int:
    """How many calls of each are answered, of whom has fewest; each within three seconds."""
    found = dict.fromkeys(clients, 0)
    for client in clients * calls:
        try:
            client.options(timeout=3).run(l1_loss_backward, ONE, ONE, ONE)
        except NpucallError:
            continue
        found[client] += 1
    return min(found.values())


def asked(channel: grpc.Channel, request: Any) -> Any:
    """What the service of reservations answers, soon."""
    name = type(request).__name__.removesuffix("Request")
    method: Any = channel.unary_unary(f"/npucall.v1.AccessService/{name}")  # type: ignore[call-arg]
    answer = getattr(pb, f"{name}Response")
    return answer.FromString(method(request.SerializeToString(), timeout=3))


@pytest.mark.parametrize("known", [False, pytest.param(True, marks=pytest.mark.more)])
def test_requests_without_a_body_hold_no_room_that_others_need(
    start: Start, tmp_path: Path, known: bool
) -> None:
    """Before: 0 of 5 answered, BUSY for as long as they like. ``known``: a tenant does it."""
    flags, token_of = tenants(tmp_path, quiet="", greedy="") if known else ([], {})
    quiet = {"token": token_of["quiet"]} if known else {}
    with (
        start(*flags) as server,
        callers(server.target, **quiet) as clients,
        connected(server.target, 3) as made,
        kept_moving(made),
    ):
        for each in made:
            for _ in range(20):
                each.call("Execute", end=False, token=token_of.get("greedy", ""))
        time.sleep(1)
        assert answers(clients) == 5
        with callers(server.target, **quiet) as late:
            assert answers(late) == 5


def test_health_checks_that_never_come_keep_nobody_from_connecting_or_renewing(
    start: Start,
) -> None:
    """Before: connect() failed or took a minute, checks too, and the session's lease ended."""
    with (
        start(f"--session-lease={LEASE}") as server,
        callers(server.target) as clients,
        clients[0].session() as session,
        wire.bare_channel(server.target) as channel,
    ):
        kept = session.put(np.ones(4, np.float32))
        key = asked(channel, pb.ReserveRequest(seconds=60)).key
        with connected(server.target, 8) as made, kept_moving(made):
            for path in (HEALTH, "GetServerInfo") * 8:
                for each in made:
                    each.call(path, end=False)
            time.sleep(2 * LEASE)
            asked(channel, pb.RenewReservationRequest(key=key))
            asked(channel, pb.ReleaseReservationRequest(key=key))
            with callers(server.target) as late:
                assert answers([*clients, *late]) == 5
            assert [health_of(server.target) for _ in range(5)] == ["SERVING"] * 5
            assert kept.numpy().tolist() == [1] * 4


def test_idle_and_unfinished_connections_keep_nobody_out(start: Start) -> None:
    """Before: with 256 of them nobody else connected, if a byte came from each now and then."""
    with (
        start("--max-connections=64") as server,
        connected(server.target, 64) as made,
        kept_moving(made, 0.2),
    ):
        wire.until(lambda: health_of(server.target) == "SERVING", "a place is free")
        with callers(server.target) as clients:
            assert answers(clients) == 5


def test_handshakes_without_an_end_keep_nobody_out(
    start: Start, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Before: with 300 of them nobody else connected."""
    authority = Authority(tmp_path_factory.mktemp("ca"))
    pair, own = authority.server(), authority.client("anna")
    options = {"certificate": str(own.certificate), "key": str(own.key)}
    flags = *pair.flags, f"--tls-client-ca={authority.ca}", "--max-connections=64"
    with start(*flags) as server, ExitStack() as stack:
        host, _, port = server.target.rpartition(":")
        for _ in range(HANDSHAKES):
            made = stack.enter_context(socket.create_connection((host, int(port)), timeout=10))
            made.sendall(b"\x16\x03\x01")  # of a ClientHello
        time.sleep(1)
        with callers(server.target, options, ca=authority.ca) as clients:
            assert answers(clients) == 5
        server.note(f"{server.descriptors()} descriptors")


def test_listings_that_nobody_reads_count(start: Start) -> None:
    """Before: 22 MiB a connection, of which 64 are open at a time."""
    with start() as server, connected(server.target, 10, window=0) as made:
        for each in made:
            for _ in range(64):
                each.call("ListOperators", b"\0\0\0\0\0")
        pump(made, 20, lambda all_: sent(all_) and answered(all_))
        server.note(f"+{(server.peak() - server.resident_at_start) / MIB:.0f} MiB")
        assert server.peak() - server.resident_at_start < 120 * MIB
        assert health_of(server.target) == "SERVING"


@pytest.mark.more  # ten seconds
def test_headers_without_an_end_cost_their_connection(start: Start) -> None:
    """Before: 1,538 MiB after a minute, where the promise is 640."""
    field = (b"\x00\x01x\x7d" + b"y" * 125) * 120  # a name whose value grows with each
    frame = len(field).to_bytes(3) + bytes([9, 0]) + (1).to_bytes(4) + field
    with start() as server, connected(server.target) as (made,):
        made.socket.settimeout(10)
        made._frame(1, 0, 1, b"\x00\x01x\x01y")
        pump([made], 0.5, sent)
        closed_after, begun = 0, time.monotonic()
        try:
            while time.monotonic() - begun < 60:
                made.socket.sendall(frame)
                closed_after += len(frame)
                time.sleep(0.005)  # at full speed it takes what the machine has
        except (TimeoutError, OSError):
            pass
        server.note(f"closed after {closed_after / MIB:.0f} MiB, {time.monotonic() - begun:.0f} s")
        assert time.monotonic() - begun < 60
        wire.until(lambda: "stray connections closed" in server.log.read_text(), "its line")


def test_the_rule_of_the_page_limits_each_address(tmp_path: Path) -> None:
    """In a network of its own: 64 of 100 connections are open."""
    nft, unshare = shutil.which("nft"), shutil.which("unshare")
    if nft is None or unshare is None:
        pytest.skip("nftables is not installed")
    page = (Path(__file__).parents[2] / "docs/operations.md").read_text()
    rule = page[page.index("table inet npucall {") :]
    (tmp_path / "rule").write_text(rule[: rule.index("```")])
    script = f"""ip link set lo up && {nft} -f rule && exec {sys.executable} -c '
import socket
listener, opened = socket.create_server(("127.0.0.1", 50051), backlog=200), []
for _ in range(100):
    try:
        opened.append(socket.create_connection(("127.0.0.1", 50051), timeout=5))
    except ConnectionError:
        pass
print(len(opened))'"""
    done = subprocess.run(
        [unshare, "-rn", "sh", "-c", script], cwd=tmp_path, capture_output=True, text=True,
        check=False,
    )  # fmt: skip
    if "Operation not permitted" in done.stderr:
        pytest.skip("this user makes no network of its own")
    assert done.stdout == "64\n", done.stderr
