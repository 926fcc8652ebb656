"""The door: every call of every method comes in here, and nothing behind it knows what carried it.

One place finds out who calls, makes an exception an error of the contract, logs, and counts.
"""

from __future__ import annotations

import itertools
import traceback
from time import perf_counter_ns
from typing import TYPE_CHECKING, Protocol, Self

from npucall.errors import CancelledError, InternalError, NpucallError, OutOfMemoryError
from npucall.limits import (
    MAX_NAME_BYTES,
    MAX_REQUEST_ID_CHARACTERS,
    MAX_TEXT_BYTES,
    MAX_TRACEBACK_CHARACTERS,
)
from npucall.texts import cut, middle_cut
from npucall.wire.status import TRACEPARENT, to_status
from npucall_server.access.guard import check_method
from npucall_server.telemetry.log import Record

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterator, Sequence

    from npucall.wire.replies import ServerIdentity
    from npucall_server.access.callers import Caller
    from npucall_server.access.guard import Guard
    from npucall_server.carriers.peers import Visitor
    from npucall_server.telemetry.log import Log

_TRACEPARENT_CHARACTERS = 55
_NO_REFUSALS = {"OK", CancelledError.reason}


class Method(Protocol):
    """A method of a service: bytes of the request in, bytes of the response out."""

    def __call__(self, request: bytes, record: Record, caller: Caller, /) -> bytes:
        """Raises NpucallError; anything else that it raises is a bug."""


class Exchange(Protocol):
    """A method of a service whose bytes travel in many messages, in and out."""

    def __call__(
        self, messages: Iterator[bytes], record: Record, caller: Visitor, /
    ) -> Generator[bytes, None, None]:
        """Raises NpucallError; anything else that it raises is a bug."""


class Door:
    """What every call passes: who may come in, and who is told once it has left.

    ``watchers`` get the record of every call. They must not raise.
    """

    def __init__(
        self,
        identity: ServerIdentity,
        log: Log,
        guard: Guard,
        watchers: Sequence[Callable[[Record], object]] = (),
    ) -> None:
        self.identity, self.guard = identity, guard
        self.watchers = (log.call, *watchers)
        self.numbers = itertools.count(1)


class Outcome:
    """What becomes of a call: its record, and the error that its caller gets."""

    def __init__(self, door: Door, method: str, caller: Caller) -> None:
        """If the caller gave no request id, this process makes one."""
        self._door, self._caller = door, caller
        self.begun_ns = perf_counter_ns()
        """Since when the time of the call counts."""
        name = caller.request_id[:MAX_REQUEST_ID_CHARACTERS]
        who, span = caller.identity, str(caller.metadata.get(TRACEPARENT, ""))
        self.record = Record(
            method, name or f"{door.identity.instance}-{next(door.numbers)}", caller.peer,
            who.tenant, who.name, carrier=caller.carrier,
            traceparent=span[:_TRACEPARENT_CHARACTERS],
        )  # fmt: skip

    def failure(self, error: Exception) -> NpucallError:
        """The error that the caller gets for an exception. The record gets it too."""
        record = self.record
        if isinstance(error, MemoryError) and not isinstance(error, NpucallError):
            error = OutOfMemoryError(
                "the server's process has too little memory for this call and its answer; send "
                "smaller calls, or lower memory_limit, so that the server refuses them earlier",
                phase="run",
                setting="memory_limit",
            )
        elif not isinstance(error, NpucallError):
            trace = "".join(traceback.format_exception(error))
            record.traceback = middle_cut(trace, MAX_TRACEBACK_CHARACTERS)
            error = InternalError(
                "a bug in the server; its log has the traceback under the request id of this call"
            )
        record.reason, record.message = error.reason, cut(str(error), MAX_NAME_BYTES)
        record.driver_message = cut(error.details.get("driver_message", ""), MAX_TEXT_BYTES)
        operator = record.operator or error.details.get("operator", "")
        record.operator = cut(operator, MAX_NAME_BYTES)
        error.details.setdefault("soc", self._door.identity.soc)
        error.details.setdefault("request_id", record.request_id)
        return error

    def status(self, error: Exception) -> bytes:
        """The status that the caller gets for an exception: a ``google.rpc.Status``."""
        return to_status(self.failure(error)).SerializeToString()

    def end(self) -> None:
        """The call has been answered: writes its line, and gives its record to the watchers."""
        record = self.record
        record.total_ns = perf_counter_ns() - self.begun_ns
        for watcher in self._door.watchers:
            watcher(record)


class Visit(Outcome):
    """A method from the credential of its caller to its line in the log. A context manager.

    An exception inside refuses the caller.
    """

    _caller: Visitor
    is_quiet = False
    """Whether only a refusal has a line."""

    def __enter__(self) -> Self:
        if self._door.guard.asks:
            try:
                self._identify()
            except Exception as error:  # noqa: BLE001  # as those of what is inside
                self.__exit__(None, error)
        return self

    def __exit__(self, _: object, error: BaseException | None, __: object = None) -> None:
        record, refusal = self.record, None
        if isinstance(error, Exception):  # the one place where a bug becomes an answer
            refusal = self.failure(error)
        elif isinstance(error, GeneratorExit):
            record.reason = CancelledError.reason
            record.message = f"the caller of {record.method} disconnected"
        if not self.is_quiet or record.reason not in _NO_REFUSALS:
            self.end()
        if refusal is not None:
            self._caller.refuse(refusal)

    def _identify(self) -> None:
        caller, record = self._caller, self.record
        who = self._door.guard.identify(caller.peer, caller.metadata, caller.connection)
        caller.identity, caller.owner = who, who.owner
        record.tenant, record.caller = who.tenant, who.name
        check_method(who, record.method)
