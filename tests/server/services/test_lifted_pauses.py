"""Somebody whose calls end the server's process is slowed by the next one, until an admin lifts it.

A process that ends is played by one that goes on while the next one starts beside it.
"""

from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import grpc
import pytest
from tests.server.fakes import BlockingDevice, until
from tests.server.people import BelievingGuard, Person, told
from tests.server.raw import channel_to
from tests.server.serving import Served, serving

from npucall.v1 import access_service_pb2 as pb

ANNA, BERT, ROOT = "a/anna/user", "b/bert/user", "ops/root/admin"


def reason(call: Callable[..., Any], *arguments: Any) -> str:
    with pytest.raises(grpc.RpcError) as raised:
        call(*arguments)
    return told(raised.value)[0]


def activity(person: Person) -> dict[str, float]:
    """The pause of each caller of whom the person may know."""
    data = person.begin("GetActivity", pb.GetActivityRequest()).result()
    lines = pb.GetActivityResponse.FromString(data).callers
    return {each.caller.name: each.pause_seconds for each in lines}


def lift(person: Person) -> None:
    person.begin("LiftPause", pb.LiftPauseRequest(tenant="a", name="anna")).result()


def test_who_ends_two_processes_makes_one_call_at_a_time_until_an_admin_lifts_it(
    tmp_path: Path,
) -> None:
    def started(device: BlockingDevice) -> tuple[Served, Callable[[str], Person]]:
        served = stack.enter_context(serving(device, BelievingGuard(), state_folder=tmp_path))
        channel = stack.enter_context(channel_to(served.target))
        stack.callback(device.let_all_go)
        return served, lambda who: Person(channel, who)

    calls: list[Any] = []
    with ExitStack() as stack:
        for _ in range(2):
            dying = BlockingDevice()
            _, person = started(dying)
            calls.append(person(ANNA).begin_execute())
            until(lambda device=dying: device.running, "her call has the device")
        device = BlockingDevice()
        served, person = started(device)
        anna, bert, root = map(person, (ANNA, BERT, ROOT))
        assert len(served.events("ended without drain")) == 1
        assert (
            "calls of a/anna had the device" in served.events("ended without drain")[0]["message"]
        )
        first = anna.begin_execute()
        until(lambda: device.running, "it runs")
        assert reason(anna.execute) == "QUOTA"
        others = bert.begin_execute()
        device.let_all_go()
        first.result()
        others.result()
        assert reason(anna.execute) == "QUOTA"  # its pause
        assert activity(root) == {"anna": 1.0, "bert": 0.0}
        assert reason(lift, anna) == "PERMISSION_DENIED"
        lift(root)
        assert activity(root)["anna"] == 0.0
        anna.execute()
        anna.execute()
