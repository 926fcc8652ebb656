"""An NPU of the simulator, opened in this process, and calls for it."""

from __future__ import annotations

import ctypes
import os
import sys
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from npucall.operators.kl_div_backward import kl_div_backward
from npucall.places import StepOutput
from npucall.wire import messages
from npucall.wire.calls import PreparedCalls
from npucall_client.calls import arguments
from npucall_server.access.identity import anybody
from npucall_server.devices import open_device
from npucall_server.devices.base import Ran, Step
from npucall_server.scheduling.call_turn import CallTurn
from npucall_server.scheduling.schedule import Schedule
from npucall_server.settings.server import ServerSettings

sys.path.append(str(Path(__file__).parents[1]))
from tests.simulator.build import build
from tests.simulator.control import Simulator

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from npucall.declare.prepare import Prepared
    from npucall.tensors import Buffer
    from npucall_server.devices.base import Device

_DEVICES = 4


class Simulated(NamedTuple):
    """The simulator in this process."""

    control: Simulator
    runtime: ctypes.CDLL
    """Its libascendcl."""


def use_simulator() -> Simulated:
    """Builds the simulator, and has this process and those that it starts use it: no kernels.

    And nobody looks at what the host does with memory that is copied, which takes time.
    """
    generation = build().generation("9.x")
    kernels = {"NPUCALL_SIM_KERNELS": "none", "NPUCALL_SIM_WATCH": "0"}
    os.environ.update({**generation.environment(), **kernels, "NPUCALL_SIM_DEVICES": str(_DEVICES)})
    runtime = ctypes.CDLL(str(generation.lib64 / "libascendcl.so"))
    return Simulated(Simulator(runtime), runtime)


class Case(NamedTuple):
    """A prepared call with its data."""

    call: Prepared
    storages: dict[str, Buffer]


class Npu:
    """A device, with turns as the server gives them."""

    def __init__(self, device: Device) -> None:
        self.device = device
        self._turns = Schedule(device.lanes)

    def kl_div_backward(self, size: int) -> Case:
        """A call with three float32 tensors of that many bytes, one of which is not read."""
        tensors = np.random.default_rng(1).random((3, size // 4), np.float32)
        request = arguments.bind(kl_div_backward, "", tuple(tensors), {}, {}, keep_layout=False)
        message = messages.join_request(request.call, list(request.storage.values()))
        split = messages.split_request(message)
        device = self.device
        calls = PreparedCalls(device.catalogue, device.product, device.default_variant)
        call = calls.of(split.call)
        return Case(call, call.storages(split.storage))

    def run(self, case: Case) -> Ran:
        """Runs it in a turn; waits until there is one."""
        turn = CallTurn(self._turns, _PatientCaller(), call_timeout=60.0)
        return Ran(*self.device.run([Step(case.call, case.storages)], turn))

    def chain(self, case: Case, steps: int) -> list[Step]:
        """A program: each step takes what the one before gave as its first input."""
        name, output = case.call.stored[0], next(iter(case.call.outputs))
        made = []
        for number in range(steps):
            storages: dict[str, Buffer | StepOutput] = {**case.storages}
            if number:
                storages[name] = StepOutput(number - 1, output)
            discarded = {output} if number < steps - 1 else set()
            made.append(Step(case.call, storages, discarded=frozenset(discarded)))
        return made

    def run_program(self, steps: Sequence[Step]) -> Ran:
        """Runs a program as ``run`` does a call."""
        turn = CallTurn(self._turns, _PatientCaller(), call_timeout=60.0)
        return Ran(*self.device.run(steps, turn))


@contextmanager
def opened(number: int = 0, **settings: object) -> Iterator[Npu]:
    """NPU ``number`` of the simulator, with these settings of the server."""
    values = {"device": f"cann:{number}", **settings}
    device = open_device(ServerSettings.model_validate(values), print)
    try:
        yield Npu(device)
    finally:
        device.close()


class _PatientCaller:
    """A caller that waits for ever."""

    peer = "bench"
    identity = anybody("bench")

    def time_remaining(self) -> float | None:
        return None

    def is_active(self) -> bool:
        return True

    def add_callback(self, callback: Callable[[], None]) -> bool:
        return callback is not None
