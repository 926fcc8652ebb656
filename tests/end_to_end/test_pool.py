"""A pool of real servers: calls go on when one of them ends, and what belongs to one says so."""

from __future__ import annotations

import gc
import threading
import time
import weakref
from collections import Counter
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import npucall_client
from npucall.errors import (
    ConnectionLostError,
    HandleLostError,
    MixedPoolError,
    NoMemberError,
    OperatorUnknownError,
    ReservedError,
    ServerUnreachableError,
    ShapeError,
    SharedMemoryError,
)
from npucall.operators.l1_loss_backward import l1_loss_backward
from npucall_client.remote.channel import ChannelTransport
from npucall_client.senders import finished
from npucall_client.senders.threads import THREADS
from npucall_client.settings import ClientSettings
from npucall_client.testing import ServerProcess, running_server

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = pytest.mark.usefixtures("sender_in_sweeps")

PATIENCE = 30.0
ONE = np.ones(1, np.float32)
X, Y = np.linspace(-1, 1, 1024, dtype=np.float32), np.zeros(1024, np.float32)
LARGE = np.linspace(-1, 1, 2**21, dtype=np.float32)
EXPECTED = np.sign(X) / 1024


def pool_of(*servers: ServerProcess, **settings: Any) -> npucall_client.Client:
    target = "pool:" + ",".join(server.target for server in servers)
    return npucall_client.connect(target, **{"timeout": PATIENCE, **settings})


def run(client: npucall_client.Client) -> str:
    """Which server answered, rightly."""
    result = client.execute(l1_loss_backward, ONE, X, Y)
    assert np.allclose(result.value, EXPECTED)
    return result.server.instance


@pytest.fixture(scope="module")
def three() -> Iterator[list[ServerProcess]]:
    """Servers that no test ends."""
    with ExitStack() as stack:
        yield [stack.enter_context(running_server()) for _ in range(3)]


def test_calls_of_every_kind_go_to_all_members(three: list[ServerProcess]) -> None:
    with pool_of(*three) as client:
        unary = Counter(run(client) for _ in range(60))
        with client.pipeline() as pipeline:
            calls = [pipeline.submit(l1_loss_backward, ONE, X, Y) for _ in range(200)]
            streamed = Counter(call.answer().server.instance for call in calls)
        large = Counter(
            client.execute(l1_loss_backward, ONE, LARGE, LARGE).server.instance for _ in range(12)
        )
        assert len(unary) == len(streamed) == 3
        assert len(large) > 1
        assert client.plan(l1_loss_backward, ONE, X, Y).outputs["grad_input"].shape == (1024,)
        assert client.operator("aclnnL1LossBackward").name == "aclnnL1LossBackward"
        lines = {line.operator: line.calls for line in client.usage().lines}
        assert lines["aclnnL1LossBackward"] >= 272
        each = [npucall_client.connect(server.target) for server in three]
        assert client.activity().lanes == sum(one.activity().lanes for one in each)


def test_errors_of_the_call_are_not_repeated(three: list[ServerProcess]) -> None:
    with pool_of(*three) as client:

        def refused() -> int:
            return sum(line.refusals["SHAPE_MISMATCH"] for line in client.usage().lines)

        before = refused()
        with pytest.raises(ShapeError):
            client.run(l1_loss_backward, ONE, X, Y[:7])
        with pytest.raises(OperatorUnknownError):
            client.operator("aclnnNothing")
        assert refused() == before + 1


def test_an_error_that_is_forgotten_keeps_nothing_of_its_call(three: list[ServerProcess]) -> None:
    array = np.ones(1024, np.float32)
    known = weakref.ref(array)
    target = f"pool:127.0.0.1:1,{three[0].target}"
    with npucall_client.connect(target, timeout=PATIENCE) as client:
        gc.disable()
        try:
            for _ in range(5):  # each tries both members
                client.run(l1_loss_backward, ONE, array, Y)
            with pytest.raises(ShapeError):
                client.run(l1_loss_backward, ONE, array, Y[:7])
            del array
            assert known() is None
        finally:
            gc.enable()


@pytest.mark.more
def test_members_end_and_start_again_and_no_call_is_lost() -> None:
    """One by signal 9, one by signal 15, under calls of every kind."""
    wrong: list[BaseException] = []
    counts: Counter[str] = Counter()
    over = threading.Event()

    def work(client: npucall_client.Client, kind: str) -> None:
        try:
            while not over.is_set():
                if kind == "pipeline":
                    with client.pipeline() as pipeline:
                        calls = [pipeline.submit(l1_loss_backward, ONE, X, Y) for _ in range(20)]
                        assert all(np.allclose(call.result(), EXPECTED) for call in calls)
                elif kind == "large":
                    answer = client.run(l1_loss_backward, ONE, LARGE, LARGE)
                    assert not np.asarray(answer).any()
                else:
                    run(client)
                counts[kind] += 1
        except BaseException as error:  # noqa: BLE001  # told by the test
            wrong.append(error)

    with ExitStack() as stack:
        servers = [stack.enter_context(running_server()) for _ in range(3)]
        client = stack.enter_context(pool_of(*servers))
        kinds = ["unary", "unary", "pipeline", "large"]
        threads = [threading.Thread(target=work, args=(client, kind)) for kind in kinds]
        for thread in threads:
            thread.start()
        time.sleep(0.5)
        servers[0].process.kill()
        servers[0].process.wait()
        again = stack.enter_context(running_server(listen=servers[0].target))
        servers[1].stop()
        time.sleep(1.5)
        over.set()
        for thread in threads:
            thread.join(PATIENCE)
        assert wrong == []
        assert set(counts) == set(kinds)
        info = npucall_client.connect(again.target).server_info()
        ends = time.monotonic() + PATIENCE
        while run(client) != info.server.instance:  # it is called again
            assert time.monotonic() < ends


def test_a_member_that_is_not_there_costs_nobody_a_call(three: list[ServerProcess]) -> None:
    nobody = "127.0.0.1:1"
    target = f"pool:{nobody},{three[0].target}"
    with npucall_client.connect(target, timeout=PATIENCE) as client:
        assert len({run(client) for _ in range(20)}) == 1


def test_a_server_that_refuses_connections_has_lost_no_call() -> None:
    settings = ClientSettings.of(target="127.0.0.1:1", connect_timeout=PATIENCE)
    with pytest.raises(ServerUnreachableError, match="expected a server at 127") as caught:
        finished(ChannelTransport(settings, THREADS, once=True).open())
    assert not isinstance(caught.value, ConnectionLostError)


def test_where_nobody_answers_the_error_names_the_pool_and_why() -> None:
    with pytest.raises(ServerUnreachableError, match=r"pool:127\.0\.0\.1:1 .*1 members.*127"):
        npucall_client.connect("pool:127.0.0.1:1", connect_timeout=0.5)


def test_a_session_is_on_one_member_and_its_loss_says_so() -> None:
    with ExitStack() as stack:
        servers = [stack.enter_context(running_server()) for _ in range(2)]
        client = stack.enter_context(pool_of(*servers))
        with client.session() as session, client.session(refill=True) as again:
            held, refilled = session.put(X), again.put(X)
            for _ in range(5):
                assert np.allclose(session.run(l1_loss_backward, ONE, held, Y).numpy(), EXPECTED)
                assert np.allclose(again.run(l1_loss_backward, ONE, refilled, Y).numpy(), EXPECTED)
            with session.program() as program:
                result = program.run(l1_loss_backward, ONE, held, Y)
            assert np.allclose(result.numpy(), EXPECTED)
            for server in servers:  # wherever it is
                server.process.kill()
                server.process.wait()
            for server in servers:
                stack.enter_context(running_server(listen=server.target))
            with pytest.raises(HandleLostError):
                session.run(l1_loss_backward, ONE, held, Y)
            assert np.allclose(again.run(l1_loss_backward, ONE, refilled, Y).numpy(), EXPECTED)


def test_a_reservation_over_a_pool_has_its_members_alone(three: list[ServerProcess]) -> None:
    with pool_of(*three) as client, pool_of(*three) as other:
        with client.reserve(PATIENCE, wait=PATIENCE, count=2) as quiet:  # behind another test's
            own = {run(quiet) for _ in range(40)}
            rest = {run(other) for _ in range(40)}
            assert len(own) == 2
            assert len(rest) == 1
            assert not own & rest
            with pytest.raises(ReservedError, match="expected 2 members"):
                other.reserve(PATIENCE, count=2)
            with pool_of(*three, reservation=quiet.key) as child:
                assert {run(child) for _ in range(20)} <= own
        with other.reserve(PATIENCE, wait=PATIENCE, count=3) as everything:
            assert len({run(everything) for _ in range(60)}) == 3


def test_memory_of_a_member_on_this_host_is_shared_with_that_member(
    tmp_path: Path, three: list[ServerProcess]
) -> None:
    with (
        running_server("--shared-memory", str(tmp_path / "side")) as sharing,
        pool_of(three[0], sharing) as client,
        client.shared(2**20) as memory,
    ):
        here = client.run(l1_loss_backward, ONE, memory.array(X), Y)
        assert np.allclose(here, EXPECTED)
        instances = {
            client.execute(l1_loss_backward, ONE, memory.array(X), Y).server.instance
            for _ in range(10)
        }
        assert instances == {npucall_client.connect(sharing.target).server_info().server.instance}
        with client.pipeline() as pipeline:
            call = pipeline.submit(l1_loss_backward, ONE, memory.array(X), Y)
            assert call.answer().server.instance in instances
    with pool_of(*three) as client, pytest.raises(SharedMemoryError, match="none of the 3 members"):
        client.shared(2**20)


def test_members_of_two_socs_need_a_wish(three: list[ServerProcess]) -> None:
    with running_server("--soc=Ascend310P3") as other:
        with pytest.raises(MixedPoolError, match="Ascend310P3 on cpu"):
            _call_often(pool_of(three[0], other))
        with pool_of(three[0], other, soc="Ascend310P3") as client:
            assert client.execute(l1_loss_backward, ONE, X, Y).server.soc == "Ascend310P3"
        with pool_of(three[0], other, soc="any") as client:
            assert len({run(client) for _ in range(40)}) == 2
        with pytest.raises(NoMemberError, match="soc Ascend910_9391"):
            pool_of(three[0], other, soc="Ascend910_9391")


def _call_often(client: npucall_client.Client) -> None:
    with client:
        for _ in range(40):
            run(client)
