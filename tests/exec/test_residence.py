"""Tensors that stay on a server: a program finds what it would find if each call were run alone."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import npucall_client
from npucall.errors import HandleLostError, NpucallError
from npucall_client import Client
from npucall_exec.calls import ProgramCalls, status_of
from npucall_exec.device_memory import Memory
from npucall_exec.launched import ByteRange, Launch
from npucall_exec.residence import Residence

STEP, SLOTS = 100 << 10, 8
"""Bytes from one tensor of the memory to the next: more than travels with a call."""
SIZES = (4, 1000, 20_000)
"""Elements; the last ones stay on the server."""


@pytest.fixture(scope="module")
def client() -> Iterator[Client]:
    with npucall_client.connect("local:") as made:
        yield made


class Device:
    """The memory of a program whose tensors stay elsewhere, and one where each call runs alone."""

    def __init__(self, client: Client) -> None:
        self.calls = ProgramCalls(client)
        self.memory, self.alone = (Memory.of_pages(STEP * SLOTS) for _ in range(2))
        self.residence = Residence(client, self.calls, self.memory, 256)
        self.launches: list[Launch] = []

    def close(self) -> None:
        self.residence.close()
        self.memory.close()
        self.alone.close()

    def write(self, begin: int, values: Any) -> None:
        data = np.asarray(values, np.float32).tobytes()
        self.residence.reach(ByteRange(begin, begin + len(data)), writes=True)
        for memory in (self.memory, self.alone):
            memory.bytes[begin : begin + len(data)] = data

    def launch(self, name: str, elements: int, *offsets: int, saturates: bool = True) -> None:
        """An operator of one or two inputs; the last offset is that of the output."""
        one = {
            "dtype": 0, "shape": [elements], "strides": [1], "offset": 0,
            "storage_shape": [elements], "format": 2,
        }  # fmt: skip
        names = ("self", "out") if len(offsets) == 2 else ("self", "other", "out")
        arguments = [
            {"name": n, "kind": "Tensor", "output": n == "out", "value": one} for n in names
        ]
        call = {"operator": f"aclnn{name}", "package": "builtin", "arguments": arguments}
        made = Launch(self.calls.planned(json.dumps(call)), offsets, saturates)
        made.run(self.calls, self.alone)
        self.launches.append(made)

    def synchronize(self) -> None:
        launches, self.launches = self.launches, []
        self.residence.run(launches)

    def check(self) -> None:
        self.residence.reach(ByteRange(0, self.memory.size), writes=False)
        assert self.memory.bytes == self.alone.bytes


@pytest.fixture
def device(client: Client) -> Iterator[Device]:
    made = Device(client)
    yield made
    made.close()


@pytest.mark.parametrize("seed", [0, 1])
def test_memory_is_as_if_each_call_ran_alone(device: Device, seed: int) -> None:
    chance = random.Random(seed)
    for slot in range(SLOTS):
        device.write(slot * STEP, np.linspace(-9, 9, STEP // 4))
    for _ in range(120):
        size = chance.choice(SIZES)
        places = [chance.randrange(SLOTS) * STEP + chance.choice((0, 0, 64)) for _ in range(2)]
        if chance.random() < 0.1:
            device.synchronize()
            device.write(places[0], np.linspace(1, 2, chance.choice(SIZES)))
        device.launch(chance.choice(("Sigmoid", "Log", "Exp", "Silu")), size, *places)
    device.synchronize()
    device.check()


def test_calls_between_two_synchronises_are_one_program(
    device: Device, monkeypatch: pytest.MonkeyPatch
) -> None:
    device.write(0, np.linspace(-9, 9, SIZES[-1]))
    for number in range(5):
        device.launch("Sigmoid", SIZES[-1], number * STEP, (number + 1) * STEP)
    monkeypatch.setattr(device.calls, "run", None)  # none of them runs alone
    device.synchronize()
    device.check()


def test_what_a_stream_that_saturates_would_change_runs_alone(device: Device) -> None:
    for saturates, found in ((True, np.finfo(np.float32).min), (False, -np.inf)):
        device.write(0, np.zeros(SIZES[-1]))
        device.launch("Log", SIZES[-1], 0, STEP, saturates=saturates)
        device.launch("Silu", SIZES[-1], STEP, 2 * STEP, saturates=saturates)
        device.synchronize()
        device.check()
        assert np.frombuffer(device.memory.bytes, np.float32, 1, STEP)[0] == found


def test_a_call_that_fails_leaves_the_others(device: Device) -> None:
    device.write(0, np.linspace(-9, 9, SIZES[-1]))
    device.launch("Sigmoid", SIZES[-1], 0, STEP)
    outside = Launch(device.launches[0].planned, (0, device.memory.size), saturates=True)
    device.launches.append(outside)
    device.launch("Exp", SIZES[-1], 0, 2 * STEP)
    with pytest.raises(ValueError, match="expected memory of the device"):
        device.synchronize()
    device.check()


def test_a_server_that_lost_its_tensors_is_a_lost_device(
    device: Device, monkeypatch: pytest.MonkeyPatch
) -> None:
    def lost(*_: object) -> None:
        raise HandleLostError("the server was started again")

    device.write(0, np.linspace(-9, 9, SIZES[-1]))
    device.launch("Sigmoid", SIZES[-1], 0, STEP)
    device.synchronize()
    monkeypatch.setattr("npucall_client.sessions.remote.Remote.numpy", lost)
    with pytest.raises(NpucallError) as raised:
        device.residence.reach(ByteRange(0, STEP * 2), writes=False)
    assert status_of(raised.value, launched=True) == 507010
