"""Where a call's time on a device went: from the device to the response and the log."""

from __future__ import annotations

import pytest

from npucall.v1 import operator_service_pb2 as pb
from npucall_server.devices.base import Phases
from npucall_server.services.operators import NAME

from .fakes import FakeDevice, execute, executor, prepared
from .raw import call_of, channel_to
from .serving import serving

PHASES = Phases(copy_in_ns=11, plan_ns=12, run_ns=13, copy_out_ns=14)


@pytest.mark.parametrize("phases", [PHASES, Phases(0, 0, 0, 0), None])
def test_an_executor_passes_the_phases_of_a_device_on(phases: Phases | None) -> None:
    """On a device without phases all but the queue is run."""
    found = execute(executor(FakeDevice(phases=phases)), prepared()).phases
    assert found == phases or (phases is None and found.run_ns > 0)
    assert phases or found._replace(run_ns=0) == Phases(0, 0, 0, 0)


@pytest.mark.parametrize("phases", [PHASES, None])
def test_response_and_log_have_every_phase(phases: Phases | None) -> None:
    device = FakeDevice(phases=phases)
    device.result = bytes(8)
    request = pb.ExecuteRequest(call=call_of(2), storage=[{"data": bytes(8)}] * 3)
    with serving(device) as served, channel_to(served.target) as channel:
        answer = channel.unary_unary(f"/{NAME}/Execute")(request.SerializeToString())
    timings = pb.ExecuteResponse.FromString(answer).timings
    (line,) = served.events("call")
    for name in Phases._fields:
        assert getattr(timings, name) == line.get(name, 0)
    told = Phases(*(getattr(timings, name) for name in Phases._fields))
    assert told == phases or (phases is None and told == Phases(0, 0, told.run_ns, 0))
    assert told.run_ns > 0
