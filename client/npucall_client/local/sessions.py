"""Sessions with ``local:``: their arrays lie in this process, and end with it."""

from __future__ import annotations

import math
import secrets
import sys
import threading
import time
from typing import TYPE_CHECKING, Any, Protocol

from npucall.errors import HandleMemoryError, NpucallError, SessionUnknownError
from npucall.handles import Handle, Handles, HandleState, empty
from npucall.limits import HANDLE_BYTES, MAX_PROGRAM_STEPS
from npucall.places import Discard, HandlePart, Keep, OutputPlace, Place, StepOutput
from npucall.programs import prepare_program
from npucall.v1 import operator_service_pb2 as pb
from npucall.wire.messages import Response
from npucall_client.sending.attempts import Attempts
from npucall_client.sending.session_transport import HandleUpload, Opened

if TYPE_CHECKING:
    from collections.abc import Awaitable, Mapping, Sequence

    from npucall.declare.prepare import Prepared
    from npucall.tensors import Buffer
    from npucall_client.calls.arguments import BoundCall
    from npucall_client.calls.options import Progress
    from npucall_client.sending.request import Request
    from npucall_client.sending.senders import Sender


class Computer(Protocol):
    """Checks and computes calls."""

    def prepared(self, call: bytes) -> Prepared:
        """A call that has passed its checks."""

    def compute(self, call: Prepared, storages: Sequence[Buffer]) -> list[Buffer]:
        """The storages of its outputs."""

    def response(self, call: Prepared, storages: Sequence[Place], run_ns: int) -> Response:
        """The answer to it; ``run_ns``: how long the computation took."""

    def plan_of(self, call: Prepared) -> pb.PlanResponse:
        """What it would give."""


class _Here:
    """This process, as ``attempts.Where``: it is never away, and never full."""

    target = "local:"
    instance = ""

    @property
    def only(self) -> Any:
        return self


_HERE: Any = _Here()


class LocalSessions:
    """Their handles have the same states as a server's. There is no lease, and nothing is lost."""

    def __init__(self, computer: Computer, sender: Sender) -> None:
        self._computer = computer
        self._sender = sender
        self._lock = threading.RLock()
        self._open: dict[str, _Kept] = {}

    async def program_steps(self) -> int:
        return MAX_PROGRAM_STEPS

    async def remembers(self) -> bool:
        return False

    async def open(
        self, request: Request, lease: float, budget: int, *, refillable: bool
    ) -> Opened:
        del request, lease, refillable
        name = f"local-{secrets.token_hex(HANDLE_BYTES)}"
        budget = budget or sys.maxsize
        with self._lock:
            self._open[name] = _Kept(budget)
        return Opened(name, math.inf, budget)

    def lost(self, error: NpucallError) -> NpucallError:
        return error

    async def renew(self, request: Request) -> None:
        """Does nothing: there is no lease."""

    async def close(self, request: Request) -> None:
        with self._lock:
            self._open.pop(request.session_id, None)

    async def release(self, request: Request, handles: Sequence[bytes]) -> None:
        with self._lock:
            kept = self._of(request)
            for handle in handles:
                kept.release(handle)

    async def upload(
        self, request: Request, upload: HandleUpload, progress: Progress | None
    ) -> None:
        async def filled(*_: object) -> None:
            size = len(upload.data)
            if progress is not None:
                progress(size, 0, size)
            with self._lock:
                kept = self._of(request)
                kept.fill(kept.begin(upload.handle, size), bytes(upload.data))

        await Attempts(request).run(_HERE, filled)

    async def download(
        self, request: Request, part: HandlePart, memory: memoryview, progress: Progress | None
    ) -> None:
        async def read(*_: object) -> None:
            with self._lock:
                memory[:] = self._of(request).read(part, "download")
            if progress is not None:
                progress(0, len(memory), len(memory))

        await Attempts(request).run(_HERE, read)

    async def execute(self, request: Request) -> Response:
        """A call of a session; a program of one step."""
        try:
            return (await self.run_program(request, [request.call]))[0]
        except NpucallError as error:
            error.details.pop("step", None)
            raise

    async def run_program(self, request: Request, steps: Sequence[BoundCall]) -> list[Response]:
        """As a server: checks all steps before any of them runs, and keeps all results or none."""

        def computed(*_: object) -> Awaitable[list[Response]]:
            return self._sender.beside(lambda: self._computed(request, steps))

        return await Attempts(request).run(_HERE, computed)

    def _computed(self, request: Request, steps: Sequence[BoundCall]) -> list[Response]:
        calls = [(step.call, list(step.storage.values()), step.kept) for step in steps]
        program = prepare_program(calls, self._computer.prepared)
        with self._lock:
            kept = self._of(request)
            filling = [kept.begin_all(step.call, step.output_places) for step in program.steps]
        results: dict[StepOutput, Buffer] = {}
        times = []
        try:
            for number, step in enumerate(program.steps):
                start = time.perf_counter_ns()
                with program.at(number):
                    given = zip(step.call.stored, step.storage, strict=True)
                    storages = [self._bytes_of(kept, name, place, results) for name, place in given]
                    outputs = self._computer.compute(step.call, storages)
                times.append(time.perf_counter_ns() - start)
                for name, output in zip(step.call.outputs, outputs, strict=True):
                    results[StepOutput(number, name)] = memoryview(output).toreadonly()
        except NpucallError as error:
            with self._lock:
                kept.fail(filling, str(error))
            raise
        with self._lock:
            for number, handles in enumerate(filling):
                for name, handle in handles.items():
                    kept.fill(handle, results[StepOutput(number, name)])
        return [
            self._answer(step.call, number, step.output_places, results, times[number])
            for number, step in enumerate(program.steps)
        ]

    async def plan_program(
        self, request: Request, steps: Sequence[BoundCall]
    ) -> pb.PlanProgramResponse:
        if request.home is not None:
            await request.home.ready(request.timeout)
        calls = [(step.call, list(step.storage.values()), step.kept) for step in steps]
        program = prepare_program(calls, self._computer.prepared, planned=True)
        return pb.PlanProgramResponse(
            steps=[self._computer.plan_of(step.call) for step in program.steps],
            peak_device_bytes=program.bytes_in_flight,
        )

    def _of(self, request: Request) -> _Kept:
        kept = self._open.get(request.session_id)
        if kept is None:
            raise SessionUnknownError("session: expected an open session, found none with this id")
        return kept

    def _bytes_of(
        self, kept: _Kept, name: str, place: Place, results: Mapping[StepOutput, Buffer]
    ) -> Buffer:
        if isinstance(place, StepOutput):
            return results[place]
        if isinstance(place, HandlePart):
            with self._lock:
                return kept.read(place, name)
        assert isinstance(place, bytes | bytearray | memoryview)  # noqa: S101  # nothing else is bound
        return place

    def _answer(
        self,
        call: Prepared,
        number: int,
        places: Mapping[str, OutputPlace],
        results: Mapping[StepOutput, Buffer],
        run_ns: int,
    ) -> Response:
        storages: list[Place] = []
        for name in call.outputs:
            place, data = places.get(name), results[StepOutput(number, name)]
            if isinstance(place, Keep):
                storages.append(HandlePart(place.handle, 0, len(data)))
            else:
                storages.append(None if isinstance(place, Discard) else bytearray(data))
        return self._computer.response(call, storages, run_ns)


class _Kept:
    """The handles of one session. Use them with the lock held."""

    def __init__(self, budget: int) -> None:
        self._handles: Handles[Buffer] = Handles()
        self._budget = budget

    def begin(self, handle: bytes, size: int) -> Handle[Buffer]:
        """Makes a handle for so many bytes. No call repeats here, so each one is a new filling."""
        held = sum(each.size for each in self._handles)
        if held + size > self._budget:
            raise HandleMemoryError(
                f"the session holds {held} bytes and this handle needs {size} more (budget = "
                f"{self._budget}); release some",
                limit=str(self._budget),
                held=str(held),
                wanted=str(size),
                setting="budget",
            )
        return self._handles.begin(handle, size, secrets.token_bytes(HANDLE_BYTES), lambda: b"")[1]

    def begin_all(
        self, call: Prepared, places: Mapping[str, OutputPlace]
    ) -> dict[str, Handle[Buffer]]:
        """The handles that hold outputs of a call."""
        return {
            name: self.begin(place.handle, call.outputs[name].storage_bytes)
            for name, place in places.items()
            if isinstance(place, Keep)
        }

    def fill(self, handle: Handle[Buffer], data: Buffer) -> None:
        """Stores the bytes of a handle."""
        if self._handles.fill(handle):
            handle.value = data

    def fail(self, filling: Sequence[Mapping[str, Handle[Buffer]]], why: str) -> None:
        """Marks handles that cannot be filled."""
        for handles in filling:
            for handle in handles.values():
                self._handles.fail(handle, why)

    def release(self, handle: bytes) -> None:
        """Releases a handle: later calls cannot use it."""
        self._handles.release(handle)

    def read(self, part: HandlePart, name: str) -> memoryview:
        """The bytes of a part of a handle."""
        handle = self._handles.read(part, name)
        if handle.state is not HandleState.FILLED:
            raise empty(name, part.id, handle.failure)
        return memoryview(handle.value)[part.offset : part.offset + part.length]
