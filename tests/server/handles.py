"""Calls and programs on the handles of one session, of a server without its network."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from npucall.dtypes import FLOAT
from npucall.errors import CancelledError
from npucall.operators import DEFAULT_VARIANT
from npucall.places import HandlePart
from npucall.products import DEFAULT_SOC
from npucall.tensors import TensorSpec
from npucall.wire.calls import encode
from npucall.wire.programs import StepRequest
from npucall_server.devices.cpu import CpuDevice

from . import serving
from .fakes import INPUTS, FakeCaller

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from npucall.places import OutputPlace, Place
    from npucall.wire.messages import Response

COUNT = 64
SIZE = 4 * COUNT
SPEC = TensorSpec(FLOAT, (COUNT,))
L1 = encode("aclnnL1LossBackward", "", {**dict.fromkeys(INPUTS, SPEC), "reduction": 0}, INPUTS)
GRAD, ONE, OTHER = np.random.default_rng(15).random((3, COUNT), np.float32)
BYTES = [memoryview(array.tobytes()) for array in (GRAD, ONE, OTHER)]
EXPECTED = np.where(ONE > OTHER, GRAD, -GRAD).astype(np.float32).tobytes()


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


class OnHandles(serving.Offline):
    """Its calls are those of one session."""

    def __init__(self) -> None:
        device = CountingDevice(DEFAULT_SOC, DEFAULT_VARIANT, 2)
        super().__init__(device, memory_limit=1 << 28, session_memory=1 << 20)
        self.session = self.open()
        self.caller = FakeCaller(session=self.session)

    def run_l1(
        self,
        storage: Sequence[Place],
        places: Mapping[str, OutputPlace] | None = None,
        caller: FakeCaller | None = None,
    ) -> Response:
        return self.run(L1, storage, places, caller or self.caller)

    def program(self, *steps: StepRequest) -> list[Response]:
        return self.run_program(steps, self.caller)

    def keep(self, handle: bytes, data: bytes) -> None:
        serving.filled(self.session, handle, data)

    def read(self, handle: bytes) -> bytes:
        return serving.read(self.session, handle, SIZE)


@pytest.fixture
def server() -> Iterator[OnHandles]:
    """At the end no handle holds anything, and no call is left."""
    server = OnHandles()
    yield server
    server.session.end(lambda: CancelledError("test: over"))
    assert server.handle_bytes == 0
    assert server.executor.calls_in_flight == 0
    server.device.close()


def part(handle: bytes, offset: int = 0, length: int = SIZE) -> HandlePart:
    return HandlePart(handle, offset, length)


def step(
    storage: Sequence[Place] = BYTES,
    places: Mapping[str, OutputPlace] | None = None,
    call: bytes = L1,
) -> StepRequest:
    return StepRequest(call, storage, places or {})
