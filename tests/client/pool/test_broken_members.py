"""Members that are dead, silent, broken or of another kind cost the calls of others nothing."""

import socket
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

import pytest
from tests.client import fake_server as fake
from tests.client.pool.fake_directories import fake_directory, member
from tests.rows import each

import npucall_client
from npucall.errors import InternalError, NpucallError, ProtocolError
from npucall.products import DEFAULT_SOC
from npucall.v1 import directory_service_pb2 as directory
from npucall.v1 import operator_service_pb2 as pb
from npucall_client import Client

EIGHT = fake.numbers(8)


class Server(fake.FakeServer):
    """Says what it is."""

    def __init__(self, soc: str = "X", answer: fake.Answer = fake.echo_once) -> None:
        super().__init__()
        self.soc, self.answer = soc, answer
        self.limits.max_message_bytes = 2**20

    def info(self, request: bytes, context: object) -> bytes:
        identity = pb.ServerIdentity(instance=f"{id(self)}", device="cpu", soc=self.soc)
        return pb.GetServerInfoResponse(server=identity, limits=self.limits).SerializeToString()


@contextmanager
def serving(*servers: Server) -> Iterator[list[str]]:
    with ExitStack() as stack:
        yield [stack.enter_context(fake.serving(server)) for server in servers]


def failures(client: Client, calls: int) -> list[NpucallError]:
    """Of so many calls."""
    found = []
    for _ in range(calls):
        try:
            assert fake.run(client, EIGHT).tolist() == EIGHT.tolist()
        except NpucallError as error:
            found.append(error)
    return found


def announced(address: str, soc: str) -> directory.Member:
    found = member(address)
    found.server.soc = soc
    return found


@contextmanager
def silent(count: int) -> Iterator[list[str]]:
    """Addresses that accept connections, and say nothing."""
    with socket.create_server(("", 0), backlog=1024) as listener:
        port = listener.getsockname()[1]
        yield [f"127.0.0.{2 + number}:{port}" for number in range(count)]


def nobody(count: int) -> list[str]:
    """Addresses at which nothing listens."""
    return [f"127.1.{number // 250}.{1 + number % 250}:1" for number in range(count)]


def test_a_dead_member_of_another_kind_that_somebody_announces_stops_no_call() -> None:
    """Before: MixedPoolError, from each call of each client, and from connect()."""
    with serving(Server(), Server()) as living, fake_directory() as directory:
        for address in living:
            directory.say(announced(address, "X"))
        with npucall_client.connect(f"pool:directory:{directory.address}") as client:
            directory.say(*(announced(address, "Y") for address in nobody(20)))
            assert failures(client, 50) == []
            with npucall_client.connect(f"pool:directory:{directory.address}") as another:
                assert failures(another, 50) == []


@pytest.mark.parametrize("refuse", [150, pytest.param(990, marks=pytest.mark.more)])
def test_a_client_connects_whatever_the_number_of_dead_members(refuse: int) -> None:
    """Before: a pydantic error after 8 s."""
    with serving(Server(), Server()) as living, silent(50) as quiet:
        target = "pool:" + ",".join([*nobody(refuse), *quiet, *living])
        with npucall_client.connect(target, connect_timeout=fake.PATIENCE) as client:
            assert failures(client, 50) == []


def test_a_member_that_only_makes_errors_of_its_own_gets_few_calls() -> None:
    """Before: a third of all calls failed for ever (981 of 2,937)."""
    broken = Server(answer=fake.fail(InternalError("a bug")))
    with (
        serving(broken, Server(), Server()) as targets,
        npucall_client.connect("pool:" + ",".join(targets)) as client,
    ):
        found = failures(client, 300)
    assert len(found) <= 10  # five in a row, then one for each time it comes back
    assert {type(each) for each in found} <= {InternalError}
    assert broken.unary == len(found)


def test_another_member_answers_where_one_gives_no_answer_to_the_call() -> None:
    odd = Server(answer=lambda *_: b"")
    with (
        serving(odd, Server(), Server()) as targets,
        npucall_client.connect("pool:" + ",".join(targets)) as client,
    ):
        assert failures(client, 100) == []
    assert 1 <= odd.unary <= 10


ODD_REPLIES = {
    "nothing": pb.ExecuteResponse(),
    "no storage": fake.reply_of(bytes(8), inline=False),
    "too short": pb.ExecuteResponse(
        reply=fake.reply_of(bytes(8)).reply, storage=fake.reply_of(bytes(4)).storage
    ),
    "no output": pb.ExecuteResponse(reply=pb.Reply(variant="x")),
}


@each("name", list(ODD_REPLIES))
def test_a_reply_that_does_not_fit_the_call_is_no_answer_whatever_carried_it(name: str) -> None:
    """Before: an empty reply was an answer without outputs."""
    reply = ODD_REPLIES[name]

    def odd(frames: fake.Frames, _: object) -> fake.Answers:
        yield fake.answer(fake.complete(frames), reply=reply)
        if name == "no storage":  # it may follow
            yield fake.answer(1, end=pb.End())
        for _ in frames:
            pass

    server = Server(answer=lambda *_: reply.SerializeToString())
    server.behaviours = [odd, odd]
    with fake.connected(server) as client:
        with pytest.raises(ProtocolError):
            fake.run(client, EIGHT)
        with pytest.raises(ProtocolError):
            fake.run(client.options(), fake.numbers(2**23))  # in chunks
        with client.pipeline() as pipeline, pytest.raises(ProtocolError):
            fake.submit(pipeline, EIGHT).result(fake.PATIENCE)


def test_a_wish_for_any_soc_as_callers_of_a_pool_set_it_means_nothing_to_this_process(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Before: ArgumentError from ``local:``, where NPUCALL_SOC=any was set for a pool."""
    monkeypatch.setenv("NPUCALL_SOC", "any")
    with npucall_client.connect("local:") as client:
        assert client.server_info().server.soc == DEFAULT_SOC
