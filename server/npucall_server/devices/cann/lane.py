"""A lane: a stream with memory of its own, on which one call runs at a time.

It belongs to the thread that opens it. Only that thread uses it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from ctypes import byref, c_void_p
from typing import NamedTuple

from npucall.declare.prepare import Prepared
from npucall.errors import NpucallError, OutOfMemoryError
from npucall_server.devices.base import BrokenDeviceError, device_lost
from npucall_server.devices.cann import functions as c
from npucall_server.devices.cann.clearing import Clearing
from npucall_server.devices.cann.copies import Copies
from npucall_server.devices.cann.descriptors import KeptDescriptors
from npucall_server.devices.cann.launch import Launcher
from npucall_server.devices.cann.operators import OpApi
from npucall_server.devices.cann.program import SLICE_NS, ProgramRun, learn, pace_of
from npucall_server.devices.cann.runtime import DeviceContext
from npucall_server.devices.cann.scratch import Scratch
from npucall_server.devices.cann.stopwatch import Stopwatch
from npucall_server.devices.cann.transfer import Transfer
from npucall_server.devices.cleanup import Cleanup

_START, _COPIED_IN, _PLANNED, _RUN, _COPIED_OUT, _MARKS = range(6)
"""The marks of a call on the stream, and how many there are."""
SYNCHRONISE = "aclrtSynchronizeStreamWithTimeout"
"""The function that answers whether the queued work succeeded."""


class LaneLimits(NamedTuple):
    """What a lane may take and keep. Each is a setting of the server."""

    device_timeout: float
    """Seconds that a launched call may take."""
    staging_limit: int
    """Bytes of pinned memory. Larger calls go through it in pieces. 0: copies are synchronous."""
    kept_memory: int
    """Bytes of device memory kept for the next calls."""
    kept_calls: int
    """Calls whose descriptors are kept."""
    busy_wait: bool
    """Wait for the device without sleeping."""

    @property
    def milliseconds(self) -> int:
        """``device_timeout`` for C functions, whose timeout must not be 0."""
        return max(round(self.device_timeout * 1000), 1)


class Lane:
    """Runs calls. Opened and closed in the thread that uses it.

    ``note`` is called with texts for the log, about things that make no call fail.
    """

    def __init__(
        self,
        device: DeviceContext,
        operators: OpApi,
        limits: LaneLimits,
        note: Callable[[str], None],
    ) -> None:
        self._operators, self._limits = operators, limits
        acl, base, _ = device.libraries
        self._acl = acl
        self.broken: NpucallError | None = None
        """Why the device will not work again in this process."""
        self._owner: str | None = None
        """The owner of the last call; None if that is not known, or if the call failed."""
        device.bind()
        with Cleanup() as opening:
            self._stream = self._create_stream()
            opening.callback(acl.aclrtDestroyStream, self._stream)
            self._launcher = Launcher(base, self._stream)
            self._copies = Copies(acl, self._stream, limits.milliseconds)
            opening.callback(self._copies.close)
            self._clearing = Clearing(acl, self._stream, self._launch, note)
            self._transfer = self._new_transfer()
            self._empty: Transfer | None = None
            """Without memory, for the time in which a program has the other one."""
            self._scratch = Scratch(acl, self._clearing)
            self._descriptors = KeptDescriptors(base, limits.kept_calls)
            opening.callback(self.empty)
            self._stopwatch = Stopwatch(acl, self._stream, _MARKS, note)
            opening.callback(self._stopwatch.close)
            self._open = opening.pop_all()

    @property
    def spent(self) -> bool:
        """Whether a launch ended between its phases: later launches of this thread may not run."""
        return self._launcher.left_unrun

    def close(self) -> None:
        """Gives everything back. Tries all steps, then raises the first failure."""
        self._open.close()

    def empty(self) -> None:
        """Gives back everything that is kept for later calls."""
        with self._unbroken(), Cleanup() as every:
            every.callback(self._transfer.give_back)
            every.callback(self._scratch.give_back)
            every.callback(self._descriptors.close)

    def go_on(self, program: ProgramRun, check: Callable[[], None]) -> bool:
        """Runs a call, or the next steps of a program for a few ms; whether the program has ended.

        When this returns or raises, the device no longer works on the program. After an error the
        program begins again. ``check`` is called before each first phase. The program keeps its
        memory on the device until it ends, or until ``let_go``.
        """
        with self._unbroken():
            self._begin_for(program.owner)
            if program.transfer is None:
                own = self._transfer
                self._transfer, self._empty = self._empty or self._new_transfer(), None
                program.transfer = own
            program.transfer.on(self._copies, self._clearing)
            first = program.next
            try:
                self._go_on(program, program.transfer, check)
                if program.has_ended:
                    self._take_back(program)
            except BaseException as error:
                if program.careful and isinstance(error, NpucallError):
                    program.name_step(first, error)
                self._begin_again(program, error)
                raise
            self._owner = program.owner
            return program.has_ended

    def clear(self, address: int, length: int) -> None:
        """Fills device memory with zeros, as the lane does with its own, and waits for that."""
        with self._unbroken(), self._settled():
            self._clearing.clear(address, length)

    def let_go(self, program: ProgramRun) -> None:
        """Takes back the memory of a program that will not go on."""
        with self._unbroken():
            self._owner = None  # of the memory that comes back
            self._take_back(program)

    def _go_on(self, program: ProgramRun, transfer: Transfer, check: Callable[[], None]) -> None:
        first, mark, between = program.next, self._stopwatch.mark, self._stopwatch.between
        zeros = self._scratch.reserve_zeros(program.map.zeros)
        if not first:
            program.reserve(transfer)
        with self._settled():
            self._scratch.clear()
            if not first:
                program.stage(transfer)
            mark(_START)
            if not first:
                program.send(transfer)
            mark(_COPIED_IN)
            planned = self._queue(program, transfer, zeros, check)
            mark(_RUN)
            if program.has_ended:
                program.end(transfer)
            mark(_COPIED_OUT)
        ran = between(_PLANNED, _RUN)
        copies = between(_START, _COPIED_IN), between(_RUN, _COPIED_OUT)
        program.spend(copies[0], planned, ran, copies[1])
        if len(program.steps) > 1:
            learn(program.steps[first : program.next], ran)
        if program.has_ended:
            program.collect(transfer)

    def _queue(
        self, program: ProgramRun, transfer: Transfer, zeros: int, check: Callable[[], None]
    ) -> int:
        """Launches steps for one slice of time; answers the nanoseconds of their first phases."""
        steps, is_first, planned, expected = program.steps, True, 0, 0.0

        def ready(workspace_size: int) -> int | None:
            nonlocal is_first
            call = steps[program.next].call
            workspace = self._scratch.reserve_workspace(call, workspace_size)
            if is_first:
                mark(_PLANNED)
                is_first = False
            return workspace

        mark = self._stopwatch.mark
        limit = 0.0 if program.careful else SLICE_NS
        while True:
            number = program.next
            call = steps[number].call
            try:
                check()
                self._scratch.expect(call)
                addresses = program.prepare(number, transfer, zeros)
                planned += self._launch(call, addresses, ready)
            except NpucallError as error:
                program.name_step(number, error)
                raise
            program.next += 1
            expected += pace_of(call).nanoseconds
            if program.has_ended or expected >= limit:
                break
        self._descriptors.trim()
        return planned

    def _launch(
        self, call: Prepared, addresses: Mapping[str, int], ready: Callable[[int], int | None]
    ) -> int:
        """Nanoseconds of phase one. After phase two the descriptors are not needed any more."""
        function, launch = self._operators.needed(call.operator), self._launcher.launch
        if self._descriptors.keeps(call):
            return launch(function, self._descriptors.arguments(call, addresses), ready)
        with self._descriptors.of(call, addresses) as arguments:
            return launch(function, arguments, ready)

    def _begin_again(self, program: ProgramRun, error: BaseException) -> None:
        """Resets a program, whose work has ended; not if the device is broken."""
        program.begin_again()
        if self.broken is None and not isinstance(error, BrokenDeviceError):
            with suppress(NpucallError):
                self._take_back(program)

    def _take_back(self, program: ProgramRun) -> None:
        """Keeps the larger one of two: the program's memory, or the memory that this lane has."""
        transfer, program.transfer = program.transfer, None
        if transfer is None:
            return
        if transfer.kept >= self._transfer.kept:
            transfer, self._transfer = self._transfer, transfer
            self._transfer.on(self._copies, self._clearing)
        if not transfer.is_empty:
            transfer.give_back()
        self._empty = transfer
        self._keep_no_more_than_allowed()

    def _new_transfer(self) -> Transfer:
        return Transfer(self._acl, self._copies, self._clearing, self._limits.staging_limit)

    def _begin_for(self, owner: str) -> None:
        """Marks data of other owners for clearing. After a failed call the owner is unknown."""
        before, self._owner = self._owner, None
        for memory in (self._transfer, self._scratch):
            if before is None:
                memory.distrust()
            elif owner != before:
                memory.disown()

    @contextmanager
    def _unbroken(self) -> Iterator[None]:
        """Refuses the block if the device is broken, since its memory may still be in use.

        Also notices if the block breaks the device.
        """
        if self.broken is not None:
            raise device_lost()
        try:
            yield
        except BrokenDeviceError as error:
            self.broken = error
            raise

    @contextmanager
    def _settled(self) -> Iterator[None]:
        """Waits until the stream has done all work of the block, even if the block raises.

        Until then the memory of the call must not be used for anything else. If waiting fails, the
        stream may use the memory for ever, and only a new process helps.
        """
        try:
            yield
            self._synchronise()
        except BrokenDeviceError:
            raise
        except BaseException as first:
            try:
                self._synchronise()  # in CONTINUE mode CANN answers an error only once
            except NpucallError as error:
                self.broken = error
                if isinstance(first, OutOfMemoryError):
                    raise  # the call must not be tried again
            raise

    def _synchronise(self) -> None:
        self._copies.synchronise()
        self._scratch.settle()

    def _create_stream(self) -> c_void_p:
        stream = c_void_p()
        flags = c.ACL_STREAM_FAST_LAUNCH | (c.ACL_STREAM_FAST_SYNC if self._limits.busy_wait else 0)
        self._acl.aclrtCreateStreamWithConfig(byref(stream), 0, flags)
        return stream

    def _keep_no_more_than_allowed(self) -> None:
        if self._transfer.kept + self._scratch.kept > self._limits.kept_memory:
            self.empty()
