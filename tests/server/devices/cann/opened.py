"""The CANN device as tests open it, and the fake turns that they give it."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import cache
from typing import Any, Self, TypeAlias

from tests.simulator.control import Simulator

from npucall.compute.evaluate import NO_TARGETS
from npucall.errors import NpucallError
from npucall_server.devices.base import Ran, ResidentPart, Step, is_resident
from npucall_server.devices.cann.device import CannDevice
from npucall_server.devices.cann.resident import DeviceResident
from npucall_server.settings.npu import AscendPaths
from npucall_server.settings.server import ServerSettings

from .calls import Case


class FakeTurn:
    """A turn that is there at once; ``check`` and ``pause`` are called where the device asks."""

    def __init__(
        self,
        check: Callable[[], object] = lambda: None,
        owner: str = "somebody",
        pause: Callable[[], object] | None = None,
    ) -> None:
        self.check, self.owner, self.pause = check, owner, pause or check

    def __call__(self) -> Self:
        return self

    def __enter__(self) -> None:
        """Nobody else wants it."""

    def __exit__(self, *error: object) -> None:
        """Nobody waits for it."""


@cache
def settings_of(**settings: Any) -> ServerSettings:
    """One lane if nothing else is said. Kept, since a device is opened often."""
    return ServerSettings(**{"lanes": 1, **settings})


class Opened:
    """A CannDevice, and what it said; closed by ``with``."""

    def __init__(self, simulator: Simulator, paths: AscendPaths, **settings: Any) -> None:
        self.simulator = simulator
        self.notes: list[str] = []
        self.lost: list[NpucallError] = []
        self.device: Any = CannDevice(0, settings_of(**settings), paths, self.notes.append)
        self.device.watch(self.lost.append)
        self.catalogue, self.product = self.device.catalogue, self.device.product
        self._close = self.device.close

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        """Closes it, if that has not been done."""
        close, self._close = self._close, lambda: None
        close()

    def abandon(self) -> None:
        """Ends a broken device as a process ends: whatever it still holds is gone."""
        self.simulator.clear_faults()
        with suppress(NpucallError):
            self.close()
        self.device._ending.wait(20)
        self.simulator.reset()

    def end(self) -> None:
        """Closes it; executors that CANN refused to destroy are all that may be left."""
        self.close()
        assert {*self.simulator.live_objects()} <= {"aclOpExecutor"}
        assert self.simulator.violations() == []
        self.simulator.reset()

    def run(
        self, case: Case, check: Callable[[], object] = lambda: None, owner: str = "somebody",
        targets: Mapping[str, Any] = NO_TARGETS,
    ) -> Ran:  # fmt: skip
        return self.device.run([Step(case.call, case.storages, targets)], FakeTurn(check, owner))

    def answers(self, case: Case, *given: Any, **more: Any) -> list[bytes]:
        return [bytes(output) for output in self.run(case, *given, **more).outputs[0]]  # type: ignore[arg-type]

    def serves(self, case: Case) -> bool:
        """Whether it answers what it should."""
        return self.answers(case) == case.answers

    def runs_around(self, case: Case, work: Callable[[], object]) -> bool:
        """Whether a call is served that is about to be launched while some work is done."""
        todo = [work]
        return self.answers(case, lambda: todo.pop()() if todo else None) == case.answers

    def plan(self, case: Case) -> int:
        return self.device.plan(case.call, FakeTurn())

    def program(self, steps: Sequence[Step], turn: FakeTurn | None = None) -> list[list[Any]]:
        """The outputs of each step: bytes, a handle's memory, or None where it is discarded."""
        outputs = self.device.run(steps, turn or FakeTurn()).outputs
        return [
            [each if each is None or is_resident(each) else bytes(each) for each in step]
            for step in outputs
        ]

    def filled(self, data: bytes, before: int = 0) -> DeviceResident:
        """A handle with this content behind so many zeros."""
        memory = self.device.allocate(before + len(data))
        memory.write(0, bytes(before) + data)
        return memory

    def in_handles(self, case: Case, offset: int = 0) -> dict[str, Any]:
        """The storages of a call, each in a handle of its own."""
        return {
            name: ResidentPart(self.filled(data, offset), offset, len(data))
            for name, data in case.storages.items()
        }

    def functions(self, work: Callable[[], object]) -> dict[str, int]:
        """The C functions that some work calls, and how often."""
        before = self.simulator.counters()["calls"]
        work()
        after = self.simulator.counters()["calls"]
        return {n: c - before.get(n, 0) for n, c in after.items() if c > before.get(n, 0)}


Open: TypeAlias = Callable[..., Opened]


def release(storages: Mapping[str, Any]) -> None:
    """Gives back the handles that ``in_handles`` made."""
    for part in storages.values():
        part.memory.free()


def bytes_of(memory: DeviceResident) -> bytes:
    return bytes(memory.read(0, memory.nbytes))
