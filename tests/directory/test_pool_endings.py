"""Whose calls ended processes of a pool: a directory adds up what members say, and tells them."""

import grpc
import pytest
from tests.server.fakes import FakeClock, until
from tests.server.people import BelievingGuard, Person, told
from tests.server.raw import channel_to
from tests.server.serving import serving

from npucall_server.directory.endings import PoolEndings
from npucall_server.directory.table import CallerEnds

from .directories import SERVING, running

ALICE, BOB = "vision", "speech"


def ends(tenant: str, processes: float) -> CallerEnds:
    return CallerEnds(tenant, "x", processes)


def test_the_living_member_of_which_a_caller_ended_most_takes_the_calls() -> None:
    clock = FakeClock()
    pool, living = PoolEndings(clock.monotonic), {"a:1", "b:1", "c:1"}

    def in_all() -> dict[str, tuple[float, str]]:
        found = pool.in_all(living.__contains__)
        return {each.tenant: (each.processes, member) for each, member in found.items()}

    assert in_all() == {}
    pool.hear("a:1", (ends(ALICE, 1.0), ends(BOB, 0.5)))
    assert in_all() == {}
    pool.hear("b:1", (ends(ALICE, 2.0), ends(BOB, 0.5)))
    assert in_all() == {ALICE: (3.0, "b:1")}
    pool.hear("a:1", (ends(ALICE, 2.0),))
    assert in_all() == {ALICE: (4.0, "a:1")}
    living.discard("a:1")
    assert in_all() == {ALICE: (4.0, "b:1")}
    living.clear()
    assert in_all() == {ALICE: (4.0, "")}
    pool.hear("b:1", ())
    assert in_all() == {ALICE: (2.0, "")}
    clock.advance(3601)
    assert in_all() == {}


def test_members_hear_it_and_refuse_the_calls_that_another_one_takes(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    """Two members of which alice has ended one process each; who has none refuses her, too."""
    folders = [tmp_path_factory.mktemp(f"state{number}") for number in range(3)]
    for folder in folders[:2]:
        (folder / "endings-fake.json").write_text(
            '{"undrained": 1, "people": {"vision/alice": [1.0, 1700000100.0]}}'
        )
    alice = "vision/alice/user"
    with running(listen=f"unix:{folders[0]}/directory.sock,127.0.0.1:0") as directory:
        given = {"announce": directory.addresses[0], "guard": BelievingGuard()}
        with (
            serving(state_folder=folders[0], **given) as one,
            serving(state_folder=folders[1], **given) as two,
            serving(state_folder=folders[2], **given) as three,
            channel_to(one.target) as first,
            channel_to(two.target) as second,
            channel_to(three.target) as third,
        ):
            takes = min(one.target, two.target)
            reasons = {}
            for served, channel in ((one, first), (two, second), (three, third)):
                person = Person(channel, alice)
                endings = served.core.endings
                assert endings is not None
                until(lambda known=endings: known._in_pool, "it has heard")
                try:
                    person.execute()
                    reasons[served.target] = "OK"
                except grpc.RpcError as error:
                    reasons[served.target] = told(error)[0]
            others = {one.target, two.target, three.target} - {takes}
            assert reasons == {takes: "OK", **dict.fromkeys(others, "QUEUE_FULL")}
            directory.watch().until_state(takes, SERVING)
