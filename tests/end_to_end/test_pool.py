"""A pool of servers: calls go on when one of them ends, and what belongs to one says so."""

import json
import time
import weakref
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import npucall_client
from npucall.errors import (
    HandleLostError,
    MixedPoolError,
    NoMemberError,
    OperatorUnknownError,
    ReservedError,
    ServerUnreachableError,
    SettingError,
    ShapeError,
    SharedMemoryError,
)
from npucall.operators.l1_loss_backward import l1_loss_backward
from npucall_client import Client
from npucall_client.commands.members import all_seen, listed, members
from npucall_client.pool import asking
from npucall_client.settings import ClientSettings
from npucall_server.serving import core

from . import wire

pytestmark = pytest.mark.usefixtures("sender_in_sweeps")

ONE = np.ones(1, np.float32)
X, Y = np.linspace(-1, 1, 1024, dtype=np.float32), np.zeros(1024, np.float32)
LARGE = np.linspace(-1, 1, 2**21, dtype=np.float32)
EXPECTED = np.sign(X) / 1024
NOBODY = "127.0.0.1:1"


def pool_of(*targets: str, **settings: Any) -> Client:
    return npucall_client.connect(
        "pool:" + ",".join(targets), **{"timeout": wire.PATIENCE, **settings}
    )


@contextmanager
def servers(count: int, **settings: Any) -> Iterator[list[str]]:
    """Servers of this process."""
    with ExitStack() as stack:
        found = [stack.enter_context(wire.server_here(**settings)) for _ in range(count)]
        yield [server.address for server in found]


@pytest.fixture(scope="module")
def three() -> Iterator[list[str]]:
    """Servers that no test ends."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(core, "GAP_SECONDS", 0.0)
        # All of them are alive: a client hears all, however busy the machine.
        patched.setattr(asking, "PATIENCE_SECONDS", wire.PATIENCE)
        with servers(3) as targets:
            yield targets


def run(client: Client) -> str:
    """Which server answered, rightly."""
    result = client.execute(l1_loss_backward, ONE, X, Y)
    assert np.allclose(result.value, EXPECTED)
    return result.server.instance


def instance_of(target: str) -> str:
    with npucall_client.connect(target) as client:
        return client.server_info().server.instance


def test_calls_of_every_kind_go_to_all_members(three: list[str]) -> None:
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
        lanes = 0
        for target in three:
            with npucall_client.connect(target) as one:
                lanes += one.activity().lanes
        assert client.activity().lanes == lanes


def test_errors_of_the_call_are_not_repeated(three: list[str]) -> None:
    with pool_of(*three) as client:

        def refused() -> int:
            return sum(line.refusals["SHAPE_MISMATCH"] for line in client.usage().lines)

        before = refused()
        with pytest.raises(ShapeError):
            client.run(l1_loss_backward, ONE, X, Y[:7])
        with pytest.raises(OperatorUnknownError):
            client.operator("aclnnNothing")
        wire.until(lambda: refused() > before, "it is counted")  # behind its answer
        assert refused() == before + 1


@pytest.mark.usefixtures("no_collector")
def test_a_member_that_is_not_there_costs_no_call_and_an_error_keeps_nothing_of_its_call(
    three: list[str],
) -> None:
    array = np.ones(1024, np.float32)
    known = weakref.ref(array)
    with pool_of(NOBODY, three[0]) as client:
        for _ in range(5):  # each tries both members
            client.run(l1_loss_backward, ONE, array, Y)
        with pytest.raises(ShapeError):
            client.run(l1_loss_backward, ONE, array, Y[:7])
        del array
        assert known() is None
        assert {run(client) for _ in range(20)} == {instance_of(three[0])}


def test_where_nobody_answers_the_error_names_the_pool_and_why() -> None:
    with pytest.raises(ServerUnreachableError, match=r"pool:127\.0\.0\.1:1 .*1 members.*127"):
        npucall_client.connect(f"pool:{NOBODY}", connect_timeout=0.3)


def test_a_session_is_on_one_member_and_its_loss_says_so() -> None:
    with ExitStack() as later:
        with servers(2) as targets:
            client = later.enter_context(pool_of(*targets))
            session = later.enter_context(client.session())
            again = later.enter_context(client.session(refill=True))
            held, refilled = session.put(X), again.put(X)
            for _ in range(5):
                assert np.allclose(session.run(l1_loss_backward, ONE, held, Y).numpy(), EXPECTED)
            with session.program() as program:
                result = program.run(l1_loss_backward, ONE, held, Y)
            assert np.allclose(result.numpy(), EXPECTED)
        for target in targets:  # whichever had it is another server now
            later.enter_context(wire.server_here(target))
        with pytest.raises(HandleLostError):
            session.run(l1_loss_backward, ONE, held, Y)
        assert np.allclose(again.run(l1_loss_backward, ONE, refilled, Y).numpy(), EXPECTED)
        client.close()


def test_a_reservation_over_a_pool_has_its_members_alone(three: list[str]) -> None:
    with pool_of(*three) as client, pool_of(*three) as other:
        with client.reserve(60, wait=wire.PATIENCE, count=2) as quiet:  # behind another test's
            own = {run(quiet) for _ in range(40)}
            rest = {run(other) for _ in range(40)}
            assert len(own) == 2
            assert len(rest) == 1
            assert not own & rest
            with pytest.raises(ReservedError, match="expected 2 members"):
                other.reserve(60, count=2)
            with pool_of(*three, reservation=quiet.key) as child:
                assert {run(child) for _ in range(20)} <= own
        with other.reserve(60, wait=wire.PATIENCE, count=3) as everything:
            assert len({run(everything) for _ in range(60)}) == 3


def test_memory_of_a_member_on_this_host_is_shared_with_that_member(
    tmp_path: Path, three: list[str]
) -> None:
    with (
        servers(1, shared_memory=tmp_path / "side") as (sharing,),
        pool_of(three[0], sharing) as client,
        client.shared(2**20) as memory,
    ):
        array, there = memory.array(X), set()
        assert np.allclose(client.run(l1_loss_backward, ONE, array, Y), EXPECTED)
        for _ in range(10):
            there.add(client.execute(l1_loss_backward, ONE, array, Y).server.instance)
        with client.pipeline() as pipeline:
            call = pipeline.submit(l1_loss_backward, ONE, array, Y)
            there.add(call.answer().server.instance)
        assert there == {instance_of(sharing)}
    with pool_of(*three) as client, pytest.raises(SharedMemoryError, match="none of the 3 members"):
        client.shared(2**20)


def test_members_of_two_socs_need_a_wish(three: list[str]) -> None:
    with servers(1, soc="Ascend310P3") as (other,):
        with pytest.raises(MixedPoolError, match="Ascend310P3 on cpu"):
            call_often(pool_of(three[0], other))
        with pool_of(three[0], other, soc="Ascend310P3") as client:
            assert client.execute(l1_loss_backward, ONE, X, Y).server.soc == "Ascend310P3"
        with pool_of(three[0], other, soc="any") as client:
            assert len({run(client) for _ in range(40)}) == 2
        with pytest.raises(NoMemberError, match="soc Ascend910_9391"):
            pool_of(three[0], other, soc="Ascend910_9391")


def test_the_odd_member_is_left_out_and_members_shows_it(three: list[str]) -> None:
    with servers(1, soc="Ascend310P3") as (other,), pool_of(*three, other) as client:
        assert {client.execute(l1_loss_backward, ONE, X, Y).server.soc for _ in range(40)} == {
            "Ascend910B1"
        }
        told = ClientSettings(target=f"pool:{','.join([*three, other, NOBODY])}")
        for wish, odd in (("", "left out"), ("any", "serving")):
            states = [
                each.state
                for each in all_seen(listed(told)[0], told.model_copy(update={"soc": wish}))
            ]
            assert Counter(states) == Counter(["serving"] * 3 + [odd, "unreachable"])


def test_calls_pipelines_and_sessions_of_a_pool_travel_in_frames() -> None:
    with servers(2) as two, pool_of(*two) as client:
        while len({run(client) for _ in range(10)}) < len(two):
            pass
        with client.pipeline() as pipeline:
            for _ in range(10):
                pipeline.submit(l1_loss_backward, ONE, X, Y)
        with client.session() as session:
            kept = session.put(X)
            session.run(l1_loss_backward, ONE, kept, Y)
            with session.program() as program:
                program.run(l1_loss_backward, ONE, kept, Y)
        lines = {each.operator: each for each in client.usage().lines if each.operator}
    assert set(lines) == {"aclnnL1LossBackward", "program"}
    assert all(line.calls_in_frames == line.calls > 0 for line in lines.values())


def call_often(client: Client) -> None:
    with client:
        for _ in range(1000):
            run(client)


def test_members_shows_whose_calls_ended_processes_and_lifts_their_pauses(
    tmp_path: Path, three: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    told = {"undrained": 3, "people": {"vision/alice": [3.0, time.time()]}}
    file = tmp_path / "endings-cpu.json"
    file.write_text(json.dumps(told))
    with servers(1, state_folder=tmp_path) as (one,):
        members(f"pool:{three[0]},{one}", as_json=False)
        shown = f"{one}: calls of vision/alice ended 3 processes and go one at a time, 2 s apart"
        assert shown in capsys.readouterr().out
        members(f"pool:{three[0]},{one}", as_json=True, lift="vision/alice")
        assert [each["slowed"] for each in json.loads(capsys.readouterr().out)] == [[], []]
        assert json.loads(file.read_text())["people"] == {}
        with pytest.raises(SettingError, match="TENANT/NAME"):
            members(one, lift="alice")
