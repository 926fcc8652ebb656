"""The device ``mortal:N``: the CPU with N lanes, where some calls end the process.

What a call does, the first dimension of its input ``self`` says.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Sequence

from npucall.declare.prepare import Prepared
from npucall_server.devices.base import DeviceTurn, Pieces, Ran, Step
from npucall_server.devices.cpu import CpuDevice
from npucall_server.settings.server import ServerSettings

KILLS, CRASHES, TAKES_LONG = 666, 667, 668
LONG_SECONDS = 1.0
_SIGNALS = {KILLS: signal.SIGKILL, CRASHES: signal.SIGSEGV}


def open_mortal(settings: ServerSettings, note: Callable[[str], None]) -> MortalDevice:
    del note
    return MortalDevice(settings)


class MortalDevice(CpuDevice):
    def __init__(self, settings: ServerSettings) -> None:
        super().__init__(settings.soc, "documented", int(settings.device.rpartition(":")[2]))
        self.name = settings.device

    def run(self, steps: Sequence[Step], turn: DeviceTurn, pieces: Pieces | None = None) -> Ran:
        for step in steps:
            with turn():
                _do(step.call)
        return super().run(steps, turn, pieces)


def _do(call: Prepared) -> None:
    shape = call.inputs["self"].shape
    what = shape[0] if shape else 0
    if what in _SIGNALS:
        os.kill(os.getpid(), _SIGNALS[what])
        time.sleep(60)  # another thread may get the signal: this one shall not answer meanwhile
    if what == TAKES_LONG:
        time.sleep(LONG_SECONDS)
