"""The Ascend device: gives each call to a free lane."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from npucall.declare.declaration import Operator
from npucall.declare.prepare import Prepared
from npucall.dtypes import DType
from npucall.errors import DeviceError, NpucallError
from npucall.products import taken_for
from npucall.programs import Program
from npucall_server.devices.base import (
    BrokenDeviceError,
    DeviceFacts,
    DeviceTurn,
    NoDeviceError,
    Pieces,
    Ran,
    Step,
    device_lost,
)
from npucall_server.devices.cann import values
from npucall_server.devices.cann.device_memory import piece_bytes
from npucall_server.devices.cann.host import HostCatalogue
from npucall_server.devices.cann.lane import SYNCHRONISE, Lane, LaneLimits
from npucall_server.devices.cann.library import LibraryError
from npucall_server.devices.cann.planner import Planner, Plans
from npucall_server.devices.cann.program import ProgramRun
from npucall_server.devices.cann.resident import (
    DeviceResident,
    HandleMemory,
    handle_bytes,
    in_use,
    is_aligned,
    residents,
)
from npucall_server.devices.cann.runtime import DeviceContext, open_libraries
from npucall_server.devices.cleanup import Cleanup
from npucall_server.devices.lane_pool import Lanes, with_room
from npucall_server.devices.native_threads import EndingThreads
from npucall_server.devices.program_map import program_map_of
from npucall_server.devices.renewed import Renewed
from npucall_server.devices.watchdog import Visitors, Watchdog, Watched
from npucall_server.settings import device_kinds
from npucall_server.settings.npu import AscendPaths, ascend_paths, tell_cann
from npucall_server.settings.server import ServerSettings

_SOON_SECONDS, _LATEST_SECONDS = 1.0, 10.0
"""How long to wait until threads have ended. CANN may wait for 60 s in a thread that has left
executors. Whatever stops a server gives it about 15 s more than ``drain_timeout``."""


def open_cann(settings: ServerSettings, note: Callable[[str], None]) -> CannDevice:
    """Opens the device ``cann:N``, with the variant of the settings. Raises NoDeviceError."""
    tell_cann(settings)
    number = device_kinds.CANN.number_in(settings.device) or 0
    try:
        device = CannDevice(number, settings, ascend_paths(), note)
    except (LibraryError, NpucallError) as error:
        raise NoDeviceError(
            f"device {settings.device}: {error}\n`npucall-server doctor` looks for the cause."
        ) from error
    wanted = settings.variant or device.default_variant
    if wanted != device.default_variant:
        device.close()
        raise NoDeviceError(
            f"variant: expected {device.default_variant or 'none'}, as the libraries of this host "
            f"have it, found {wanted}"
        )
    return device


class CannDevice:
    """Device ``number`` of this host. Made and closed in the main thread.

    Raises LibraryError, NpucallError for failures of CANN, and ArgumentError if no product of
    npucall has the SoC. ``note`` is called with texts for the log.
    """

    def __init__(
        self, number: int, settings: ServerSettings, paths: AscendPaths, note: Callable[[str], None]
    ) -> None:
        self.name = f"cann:{number}"
        self.lanes, self._careful = settings.lanes, settings.careful
        self._note = note
        self._lost: Callable[[NpucallError], None] = lambda error: note(str(error))
        self._libraries = libraries = open_libraries(paths)
        self._operators, self._visitors = libraries.operators(paths), Visitors()
        self._ending = EndingThreads()
        with Cleanup() as opening:
            self._context = DeviceContext(libraries, number, deterministic=settings.deterministic)
            opening.callback(self._give_back)
            self.soc = self._context.soc
            self.product, self.guess = taken_for(self.soc)
            self.catalogue = HostCatalogue(self._operators, paths)
            self.memory_for_handles = self._context.free_memory() // 2
            """Half of the memory that is free when the device is opened."""
            self._handles = HandleMemory(
                self._context, self._visitors, self._report_lost, self._make_room
            )
            self._lanes = self._open_lanes(settings)
            opening.callback(self._lanes.close)
            planners = [self._new_planner() for _ in range(self.lanes)]
            self._plans = Plans(planners, keeps=settings.kept_calls > 0)
            watched: list[Watched] = [self._visitors, *planners]
            watchdog = Watchdog(watched, settings.device_timeout, self._report_lost)
            opening.callback(watchdog.close)
            opening.callback(self._plans.close)
            self._open = opening.pop_all()
        for line in filter(None, (self.guess, *self._operators.notes)):
            note(line)

    runs_in_calling_thread = False
    """Lanes have threads of their own."""

    @property
    def default_variant(self) -> str:
        """The variant in the libraries of this host."""
        return self.catalogue.variant

    def unavailable_because(self, operator: Operator[..., object]) -> str:
        """Why this host cannot run an operator; empty if it can."""
        return self.catalogue.unavailable_because(operator)

    def plan(self, call: Prepared, turn: DeviceTurn) -> int:
        """Bytes of workspace: runs the first phase, in a thread that runs no calls."""
        with turn():
            if self._handles.broken:
                raise device_lost()
            return with_room(lambda: self._plans.plan(call), self._make_room)

    def run(self, steps: Sequence[Step], turn: DeviceTurn, pieces: Pieces | None = None) -> Ran:
        """Runs a call on a free lane, several steps on free lanes, a few ms on each.

        The calling thread waits, even if its caller no longer does.
        """
        del pieces  # it takes none
        program = ProgramRun(steps, turn.owner, careful=self._careful)
        with in_use(program.residents):
            return self._run(program, turn)

    def program_bytes(self, steps: Sequence[Step]) -> int:
        """The bytes of its tensors and of the handles that it fills, without workspace."""
        kept = [target.nbytes for step in steps for target in residents((), step.targets.values())]
        placed = program_map_of(steps, piece_bytes, is_aligned)
        return placed.size + placed.zeros + sum(map(handle_bytes, kept))

    def allocate(self, nbytes: int, dtype: DType | None = None) -> DeviceResident:
        """Allocates device memory for one handle. Raises OutOfMemoryError."""
        return self._handles.allocate(nbytes, dtype)

    def working_bytes(self, call: Prepared | Program) -> int:
        """0: each lane has its own staging, and values are checked one block at a time."""
        del call
        return 0

    def takes_pieces(self, call: Prepared) -> bool:
        """False: a kernel needs complete inputs."""
        del call
        return False

    def facts(self) -> DeviceFacts:
        """What the device and its software say about themselves now."""
        with self._visitors.visit():
            return replace(self._context.facts(), product_guess=self.guess)

    def watch(self, lost: Callable[[NpucallError], None]) -> None:
        """Calls ``lost`` when the device is broken, or a lane hangs."""
        self._lost = lost

    def close(self) -> None:
        """Closes the lanes, then the device. All handles must have been given back."""
        self._open.close()

    def _run(self, program: ProgramRun, turn: DeviceTurn) -> Ran:
        for number, step in enumerate(program.steps):
            if step.call.checked_inputs:
                try:
                    values.check(step.call, step.storages, turn.check)
                except NpucallError as error:
                    program.name_step(number, error)
                    raise
        with turn():
            try:
                while not self._goes_on(program, turn):
                    turn.pause()
            finally:
                if program.transfer is not None and not self._handles.broken:
                    self._lanes.do(lambda lane: lane.let_go(program))
            turn.check()
        return Ran(program.outputs(), program.phases)

    def _goes_on(self, program: ProgramRun, turn: DeviceTurn) -> bool:
        """Runs the next steps; whether all have run.

        If a synchronise fails, a second, careful try finds the step that failed.
        """
        try:
            return self._lanes.do(lambda lane: lane.go_on(program, turn.check))
        except BrokenDeviceError:
            raise
        except DeviceError as error:
            if program.careful or error.details.get("function") != SYNCHRONISE:
                raise
            program.careful = True
            return False

    def _open_lanes(self, settings: ServerSettings) -> Lanes[Lane]:
        limits = LaneLimits(
            settings.device_timeout, settings.staging_limit, settings.kept_device_memory,
            settings.kept_calls, settings.busy_wait,
        )  # fmt: skip
        return Lanes(
            lambda: Lane(self._context, self._operators, limits, self._note),
            self.lanes, settings.device_timeout, self._report_lost, self._ending,
        )  # fmt: skip

    def _new_planner(self) -> Renewed[Planner]:
        return Renewed(
            lambda: Planner(self._context, self._operators), self._report_lost, self._ending
        )

    def _make_room(self) -> None:
        self._lanes.empty_idle()

    def _report_lost(self, error: NpucallError) -> None:
        if not self._handles.broken:
            self._handles.broken = True
            self._lost(error)

    def _give_back(self) -> None:
        """Waits for the lanes' threads to end, so that CANN frees their data before the device."""
        most = f"{_LATEST_SECONDS:g} s"
        if left := self._ending.wait(_SOON_SECONDS):
            self._note(f"threads of lanes that still run: {left}; the server waits {most} for them")
            if left := self._ending.wait(_LATEST_SECONDS):
                raise DeviceError(
                    f"threads of the device's lanes that did not end within {most}: {left}"
                )
        self._context.close()
