"""A device with sessions in this process, and what runs calls and programs on it."""

from __future__ import annotations

from contextlib import contextmanager
from hashlib import sha256
from typing import TYPE_CHECKING, Any

import numpy as np
from tests.server.scripted import PATIENCE, ScriptedCaller, open_gate
from tests.server.sessions.held import Held, User

from npucall.dtypes import FLOAT
from npucall.errors import (
    CancelledError,
)
from npucall.places import HandlePart
from npucall.tensors import TensorSpec
from npucall.wire.calls import encode
from npucall.wire.messages import join_request, split_response
from npucall.wire.programs import StepRequest, join_program, split_program_response
from npucall.wire.replies import ServerIdentity
from npucall_server.devices.cpu import CpuDevice
from npucall_server.execution.executions import Executions
from npucall_server.execution.placed import Places
from npucall_server.executor import Executor, Limits
from npucall_server.kept_memory import KeptMemory
from npucall_server.log import Record
from npucall_server.sessions.digests import Digests
from npucall_server.sessions.sessions import Rules
from npucall_server.shared.regions import Regions

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from npucall.places import OutputPlace, Place
    from npucall.wire.messages import Response

COUNT = 64
SPEC = TensorSpec(FLOAT, (COUNT,))
NAMES = ("grad_output", "self", "target")
L1 = encode("aclnnL1LossBackward", "", {**dict.fromkeys(NAMES, SPEC), "reduction": 0}, NAMES)
RNG = np.random.default_rng(15)
GRAD, ONE, OTHER = (RNG.random(COUNT, np.float32) for _ in range(3))
BYTES = [memoryview(array.tobytes()) for array in (GRAD, ONE, OTHER)]
EXPECTED = np.where(ONE > OTHER, GRAD, -GRAD).astype(np.float32).tobytes()
SIZE = 4 * COUNT


class CountingDevice(CpuDevice):
    """Counts the calls that it computes; ``pause`` is what each waits for."""

    ran = 0
    pause: Callable[[], object] = staticmethod(bool)

    def run(self, *arguments: Any, **more: Any) -> Any:
        self.ran += 1
        self.pause()
        return super().run(*arguments, **more)

    def run_program(self, *arguments: Any) -> Any:
        self.ran += 1
        return super().run_program(*arguments)


class House:
    """A device with sessions, one of them open, and what runs calls on it."""

    def __init__(self) -> None:
        self.device = CountingDevice("Ascend910B1", "documented", 2)
        self.executor = Executor(self.device, Limits(32, 1 << 28, PATIENCE))
        rules = Rules(1 << 26, 1 << 20, 8, 60.0)
        device: Any = self.device
        self.held = Held(rules, device, self.executor.memory)
        self.regions = Regions(1 << 20, self.executor.memory)
        self.digests = Digests(1 << 20, self.executor.memory)
        self.session = self.held.open()
        self.user = User(self.session)
        self.executions = Executions(
            self.executor,
            ServerIdentity("0123456789ab", "cpu", "Ascend910B1"),
            Places(self.regions, self.held.sessions, self.digests),
            KeptMemory(1 << 40),
            open_gate(),
        )

    def run(
        self,
        storage: Sequence[Place],
        places: Mapping[str, OutputPlace] | None = None,
        call: bytes = L1,
        caller: ScriptedCaller | None = None,
    ) -> Response:
        """One call in one message."""
        message = join_request(call, storage, places or {})
        with self.executions.begin(caller or self.user, record()) as execution:
            execution.prepare(message)
            execution.admit()
            execution.run()
            return split_response(execution.reply_message())

    def keep(self, handle: bytes, data: bytes) -> None:
        filling = self.session.fill(handle, len(data), sha256(data).digest())
        filling.memory.write(0, data)
        filling.succeed()

    def read(self, handle: bytes, size: int = SIZE) -> bytes:
        reading = self.session.read(HandlePart(handle, 0, size), "x")
        try:
            part = reading.wait(self.user)
            return bytes(part.memory.read(part.offset, part.length))
        finally:
            reading.done()

    def program(self, *steps: StepRequest) -> list[Response]:
        with self.executions.begin_program(self.user, record()) as execution:
            execution.prepare(join_program(steps))
            execution.admit()
            execution.run()
            return split_program_response(execution.reply_message()).steps


def record() -> Record:
    return Record("Execute", "test", "test")


@contextmanager
def open_house() -> Iterator[House]:
    """At the end no handle holds anything, and no call is left."""
    house = House()
    yield house
    house.session.end(lambda: CancelledError("test: over"))
    assert house.held.memory.budget.held == 0
    assert house.executor.calls_in_flight == 0
    house.device.close()


def part(handle: bytes, offset: int = 0, length: int = SIZE) -> HandlePart:
    return HandlePart(handle, offset, length)


def step(
    storage: Sequence[Place] = BYTES,
    places: Mapping[str, OutputPlace] | None = None,
    call: bytes = L1,
) -> StepRequest:
    return StepRequest(call, storage, places or {})
