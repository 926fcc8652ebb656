"""Where a call's time on a device went: from the device to the response and the log."""

from __future__ import annotations

import io
import json
from typing import Any

import numpy as np
import pytest

from npucall.dtypes import FLOAT
from npucall.tensors import TensorSpec
from npucall.v1 import operator_service_pb2 as pb
from npucall.wire.calls import encode
from npucall.wire.messages import join_request
from npucall.wire.replies import ServerIdentity
from npucall_server.budget import Budget
from npucall_server.devices.base import Phases
from npucall_server.execution.executions import Executions
from npucall_server.kept_memory import KeptMemory
from npucall_server.log import Log, Record
from npucall_server.services.operators import OperatorService
from npucall_server.settings import ServerSettings
from npucall_server.shared.regions import Regions

from .scripted import ScriptedCaller, ScriptedDevice, execute, executor, ledger, open_gate, prepared

PHASES = Phases(copy_in_ns=11, plan_ns=12, run_ns=13, copy_out_ns=14)
ONE = np.ones(1, np.float32).tobytes()


def answered(device: ScriptedDevice) -> tuple[pb.Timings, Record]:
    """The timings of a response, and the record of its call."""
    device.result = ONE
    identity = ServerIdentity("0123456789ab", device.name, device.soc)
    executions = Executions(
        executor(device), identity, Regions(1, ledger()), KeptMemory(1 << 40), open_gate()
    )
    settings = ServerSettings()
    service = OperatorService(executions, settings, Budget.of(settings, 64), identity)
    inputs = ("grad_output", "self", "target")
    call = encode("aclnnL1LossBackward", "", dict.fromkeys(inputs, TensorSpec(FLOAT, (1,))), inputs)
    record, caller = Record("Execute", "id", "peer"), ScriptedCaller()
    response = service.execute(join_request(call, [ONE] * 3), record, caller)
    return pb.ExecuteResponse.FromString(response).timings, record


def line_of(record: Record) -> dict[str, Any]:
    stream = io.StringIO()
    Log(stream=stream).call(record)
    line: dict[str, Any] = json.loads(stream.getvalue())
    return line


def test_an_executor_passes_the_phases_of_a_device_on() -> None:
    subject = executor(ScriptedDevice(phases=PHASES))
    assert execute(subject, prepared(), {}, ScriptedCaller()).phases == PHASES


def test_on_a_device_without_phases_all_but_the_queue_is_run() -> None:
    phases = execute(executor(ScriptedDevice()), prepared(), {}, ScriptedCaller()).phases
    assert phases.run_ns > 0
    assert phases._replace(run_ns=0) == Phases(0, 0, 0, 0)


def test_phases_that_a_device_could_not_time_stay_zero() -> None:
    subject = executor(ScriptedDevice(phases=Phases(0, 0, 0, 0)))
    assert execute(subject, prepared(), {}, ScriptedCaller()).phases == Phases(0, 0, 0, 0)


@pytest.mark.parametrize(
    ("name", "expected"),
    [("copy_in_ns", 11), ("plan_ns", 12), ("run_ns", 13), ("copy_out_ns", 14)],
)
def test_response_and_log_have_every_phase(name: str, expected: int) -> None:
    timings, record = answered(ScriptedDevice(phases=PHASES))
    assert getattr(timings, name) == expected
    assert line_of(record)[name] == expected


def test_the_response_of_a_device_without_phases_has_its_run_alone() -> None:
    timings, _ = answered(ScriptedDevice())
    assert timings.run_ns > 0
    assert (timings.copy_in_ns, timings.plan_ns, timings.copy_out_ns) == (0, 0, 0)
