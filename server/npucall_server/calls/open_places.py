"""Calls whose storages or outputs are not in their message.

They are in memory that the caller shares with the server, in handles of its session, among the
bytes that the server keeps by their digests, or among the outputs of earlier steps of the program.
"""

from __future__ import annotations

from contextlib import ExitStack
from hashlib import sha256
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias, cast

from npucall.errors import (
    CancelledError,
    MessageError,
    MissingError,
    NpucallError,
    TensorLayoutError,
)
from npucall.places import (
    Digest,
    Discard,
    HandlePart,
    Keep,
    OutputPlace,
    Place,
    RegionPart,
    StepOutput,
)
from npucall_server.calls.region_checks import check_apart, check_length, is_addressed_with
from npucall_server.devices.base import Resident, Source, Step, Target
from npucall_server.sessions.session import Filling, OpenSession, Reading

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from npucall.declare.prepare import Prepared
    from npucall.programs import Program, ProgramStep
    from npucall.tensors import Buffer
    from npucall_server.access.callers import Caller, Waiting
    from npucall_server.sessions.digests import Digests
    from npucall_server.sessions.open_sessions import Sessions
    from npucall_server.shared.regions import Regions

    _Found: TypeAlias = "Source | Reading | StepOutput | None"
    """What is at a place; None: its bytes follow in chunks."""


class Places(NamedTuple):
    """Where bytes of calls can be, other than in messages."""

    regions: Regions
    sessions: Sessions
    digests: Digests


class OpenPlaces:
    """The bytes at the places of a program. A call is a program of one step.

    It holds them until it gives them back: it maps regions, pins the handles that it reads, and
    reserves the handles that it fills. ``message``: what was received. Its SHA-256 tells a retry
    from another request.

    A client can write to an input in a region while the call runs. Then the outputs may have any
    value, but nothing worse may happen. Most inputs are only computed with, so they are read where
    they are. But values that a formula or a kernel uses as *addresses* must not change after they
    were checked. So some inputs are copied first: those that the formula takes as they are, such
    as labels, and all inputs of an operator that checks values before a device runs it.

    Raises MessageError, TensorLayoutError, SharedMemoryError, MissingError, and the errors of
    sessions.
    """

    def __init__(
        self,
        places: Places,
        caller: Caller,
        program: Program,
        message: bytes,
        *,
        is_known: bool = False,
    ) -> None:
        """``is_known``: it was opened before, so it is checked but for what others may change."""
        self._places, self._caller, self.program = places, caller, program
        self._held: list[Callable[[], object]] = []
        self._sources: list[dict[str, _Found]] = []
        self._targets: list[dict[str, Target]] = []
        self._fillings: dict[bytes, Filling] = {}
        self.copied_bytes = 0
        """Bytes of regions that are copied before the call runs."""
        try:
            self._open(message)
            if not is_known:
                check_apart(program)
        except NpucallError as error:
            self.fail(error)
            self.give_back()
            raise

    @property
    def runs(self) -> bool:
        """Whether it has to run: not if other calls fill or filled the handles of all outputs."""
        is_retry = bool(self._fillings) and not any(f.is_new for f in self._fillings.values())
        return not is_retry or any(
            len(step.output_places) < len(step.call.outputs) for step in self.program.steps
        )

    @property
    def may_wait(self) -> bool:
        """Whether it reads handles, or fills some, so that it may have to wait for other calls."""
        return bool(self._fillings) or any(
            isinstance(found, Reading) for sources in self._sources for found in sources.values()
        )

    def wait(self, caller: Waiting) -> None:
        """Waits for handles that others fill: those that it reads, and those that it fills too.

        Raises HandleEmptyError, the error of the other call, CancelledError, DeadlineError.
        """
        for filling in self._fillings.values():
            if not filling.is_new:
                filling.wait(caller)
        for number, sources in enumerate(self._sources) if self.runs else ():
            with self.program.at(number):
                for name, found in sources.items():
                    if isinstance(found, Reading):
                        sources[name] = found.wait(caller)

    def steps(self, chunks: Mapping[str, Buffer]) -> list[Step]:
        """The steps for the device. To be called after ``wait``.

        ``chunks``: the storages that followed in chunks.
        """
        return [self._ready(number, step, chunks) for number, step in enumerate(self.program.steps)]

    def replied(self, number: int, outputs: Sequence[Buffer | Resident | None]) -> list[Place]:
        """The outputs of a step as the response gives them: their places, or their bytes."""
        step = self.program.steps[number]
        return [
            _replied(step.output_places.get(name), spec.storage_bytes, output)
            for (name, spec), output in zip(step.call.outputs.items(), outputs, strict=True)
        ]

    def succeed(self) -> None:
        """All steps have run, so its handles are filled."""
        for filling in self._fillings.values():
            filling.succeed()

    def fail(self, error: BaseException) -> None:
        """It failed, and will not fill the handles that are not filled yet."""
        reason = error if isinstance(error, Exception) else CancelledError("the call was ended")
        for filling in self._fillings.values():
            filling.fail(reason)

    def give_back(self) -> None:
        """Lets go of all places. A second time does nothing."""
        self.fail(CancelledError("the call ended before it ran"))
        while self._held:
            self._held.pop()()

    # --- What is named ----------------------------------------------------------------------------

    def _open(self, message: bytes) -> None:
        """Opens what is read first, so that two calls never wait for each other."""
        session = self._session()
        unread: NpucallError | None = None
        try:
            self._read_all(session)
        except NpucallError as error:
            unread = error
        self._fill(session, message)
        if unread is not None and self.runs:  # a retry that need not run reads nothing
            try:
                raise unread
            finally:
                del unread  # its traceback has this frame, and with it memory of the client
        for number, step in enumerate(self.program.steps):
            with self.program.at(number):
                self._targets.append(self._targets_of(step))

    def _session(self) -> OpenSession | None:
        """The session, if the message names handles. Its lease does not end meanwhile."""
        read, kept = self._handles()
        if not read and not kept:
            return None
        if len(set(kept)) < len(kept):
            raise MessageError(
                "output_places: expected another handle for each output, found one twice"
            )
        if both := set(read).intersection(kept):
            raise MessageError(
                f"handle: expected one that is filled already, found {min(both).hex()}, which the "
                "same request fills; a later step takes it as `result`"
            )
        session = self._places.sessions.of(self._caller, (*read, *kept))
        with ExitStack() as using:
            using.enter_context(session.use())
            self._held.append(using.pop_all().close)
        return session

    def _handles(self) -> tuple[list[bytes], list[bytes]]:
        """The handles that are read, and the handles that are filled."""
        steps = self.program.steps
        read = [p.id for step in steps for p in step.storage if isinstance(p, HandlePart)]
        places = (place for step in steps for place in step.output_places.values())
        return read, [place.handle for place in places if isinstance(place, Keep)]

    def _read_all(self, session: OpenSession | None) -> None:
        missing: list[bytes] = []
        first = len(self.program.steps)
        for number, step in enumerate(self.program.steps):
            with self.program.at(number):
                before = len(missing)
                self._sources.append(self._read(step, session, missing))
                if before < len(missing):
                    first = min(first, number)
        if missing:
            with self.program.at(first):
                raise _missing(missing)

    def _read(
        self, step: ProgramStep, session: OpenSession | None, missing: list[bytes]
    ) -> dict[str, _Found]:
        call = step.call
        found: dict[str, _Found] = {}
        for name, place, size in zip(call.stored, step.storage, call.stored_bytes, strict=True):
            if isinstance(place, RegionPart):
                found[name] = self._view(call, name, place)
            elif isinstance(place, HandlePart):
                assert session is not None  # noqa: S101  # a handle is named
                found[name] = reading = session.read(place, name)
                self._held.append(reading.give_back)
            elif isinstance(place, Digest):
                found[name] = self._remembered(place, name, size, missing)
            else:
                found[name] = place
        return found

    def _view(self, call: Prepared, name: str, place: RegionPart) -> memoryview:
        if is_addressed_with(call, name):
            self.copied_bytes += place.length
        return self._places.regions.view(place, name, self._caller.identity.person)

    def _remembered(
        self, digest: Digest, name: str, size: int, missing: list[bytes]
    ) -> Buffer | None:
        found = self._places.digests.find(self._caller.identity.tenant, digest.sha256)
        if found is None:
            missing.append(digest.sha256)
        elif len(found) != size:
            raise TensorLayoutError(
                f"{name}: expected {size} bytes of storage, found a digest of {len(found)} bytes",
                parameter=name,
            )
        return found

    def _fill(self, session: OpenSession | None, message: bytes) -> None:
        if session is None:
            return
        identity = b""
        for number, step in enumerate(self.program.steps):
            for name, place in step.output_places.items():
                if isinstance(place, Keep):
                    identity = identity or sha256(message).digest()
                    size = step.call.outputs[name].storage_bytes
                    with self.program.at(number):
                        self._fillings[place.handle] = session.fill(place.handle, size, identity)

    def _targets_of(self, step: ProgramStep) -> dict[str, Target]:
        """Memory for outputs. A retry computes again only the outputs that go into the answer."""
        person = self._caller.identity.person
        targets: dict[str, Target] = {}
        for name, place in step.output_places.items():
            if isinstance(place, RegionPart):
                check_length(step.call, name, place)
                targets[name] = self._places.regions.view(place, name, person)
            elif isinstance(place, Keep) and (filling := self._fillings[place.handle]).is_new:
                targets[name] = filling.memory
        return targets

    # --- What a device gets -----------------------------------------------------------------------

    def _ready(self, number: int, step: ProgramStep, chunks: Mapping[str, Buffer]) -> Step:
        storages: dict[str, Any] = {}
        for (name, found), place in zip(self._sources[number].items(), step.storage, strict=True):
            if found is None:
                storages[name] = chunks[name]
            elif isinstance(place, RegionPart) and is_addressed_with(step.call, name):
                storages[name] = bytes(found)  # type: ignore[arg-type]  # a view of the region
            else:
                storages[name] = found
        targets = self._targets[number]
        unanswered = frozenset(
            name
            for name, place in step.output_places.items()
            if isinstance(place, Discard | Keep) and name not in targets
        )
        return Step(step.call, storages, targets, unanswered)


def _replied(place: OutputPlace | None, size: int, output: Buffer | Resident | None) -> Place:
    if isinstance(place, Keep):
        return HandlePart(place.handle, 0, size)
    if place is not None:
        return place if isinstance(place, RegionPart) else None
    return cast("Buffer", output)


def _missing(digests: Sequence[bytes]) -> MissingError:
    listed = ", ".join(digest.hex() for digest in dict.fromkeys(digests))
    return MissingError(
        f"the server does not have the bytes of {len(digests)} of the digests; upload them, or "
        "send them in the call",
        digests=listed,
    )
