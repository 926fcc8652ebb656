"""The CANN device as tests open it, and the turns that they give it."""

from __future__ import annotations

from contextlib import suppress
from functools import cache
from typing import TYPE_CHECKING, Any, Self

from npucall.errors import NpucallError
from npucall_server.devices.cann.device import CannDevice
from npucall_server.settings import ServerSettings

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.simulator.control import Simulator

    from npucall_server.devices.base import Ran
    from npucall_server.npu_settings import AscendPaths

    from .asked import Asked


class FreeTurn:
    """A turn that is there at once; ``check`` is what the call is asked before its launch."""

    def __init__(self, check: Callable[[], object] = lambda: None, owner: str = "somebody") -> None:
        self.check, self.owner, self.pauses = check, owner, 0

    def __call__(self) -> Self:
        return self

    def __enter__(self) -> None:
        """Nobody else wants it."""

    def __exit__(self, *error: object) -> None:
        """Nobody waits for it."""

    def pause(self) -> None:
        self.pauses += 1
        self.check()


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
        self.device = CannDevice(0, settings_of(**settings), paths, self.notes.append)
        self.device.watch(self.lost.append)
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
        self.device._ending.wait(10)
        self.simulator.reset()

    def run(
        self, asked: Asked, check: Callable[[], object] = lambda: None, owner: str = "somebody"
    ) -> Ran:
        return self.device.run(asked.call, asked.storages, FreeTurn(check, owner))

    def runs_around(self, asked: Asked, work: Callable[[], object]) -> bool:
        """Whether a call is served that is about to be launched while some work is done."""
        todo = [work]
        outputs = self.run(asked, lambda: todo.pop()() if todo else None).outputs
        return [bytes(output) for output in outputs] == asked.answers

    def plan(self, asked: Asked) -> int:
        return self.device.plan(asked.call, FreeTurn())

    def answers(self, asked: Asked, owner: str = "somebody") -> list[bytes]:
        return [bytes(output) for output in self.run(asked, owner=owner).outputs]

    def serves(self, asked: Asked) -> bool:
        """Whether it answers what it should."""
        return self.answers(asked) == asked.answers

    def functions(self, work: Callable[[], object]) -> list[str]:
        """Names of the C functions that some work calls."""
        before = self.simulator.counters()["calls"]
        work()
        after = self.simulator.counters()["calls"]
        return [name for name, count in after.items() if count > before.get(name, 0)]
