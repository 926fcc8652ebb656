"""``pool:directory:HOST:PORT``: a directory to which servers announce themselves is watched."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from random import random

from npucall.errors import (
    NpucallError,
    Repeat,
    ServerUnreachableError,
    UnauthenticatedError,
)
from npucall.membership import QUIET_SECONDS
from npucall_client.pool.members import Update
from npucall_client.pool.sources.changes import read
from npucall_client.pool.sources.known_members import KnownMembers
from npucall_client.pool.sources.poller import heard_by
from npucall_client.sending.attempts import Attempts
from npucall_client.sending.link import Link
from npucall_client.sending.request import Request
from npucall_client.sending.senders import MessageStream, finished
from npucall_client.sending.threads import THREADS
from npucall_client.settings import ClientSettings

FIRST_SECONDS = 5.0
"""Time for the first message of a stream."""
PATIENCE_SECONDS = 1.5 * QUIET_SECONDS
"""After so long without a message, a directory counts as hanging."""
_SOONEST_SECONDS, _LONGEST_SECONDS = 0.2, 5.0
"""Between two attempts if all directories have failed; twice as long each time."""
_DOUBLINGS = 5
_GUARD_SECONDS = 0.5


def opened(settings: ClientSettings, told: Sequence[str]) -> DirectorySource:
    """The members that have announced themselves to directories."""
    return DirectorySource(settings, told)


class DirectorySource:
    """Watches one of the directories, and the next one if that fails or hears of no members.

    While none of them answers, the last table counts. Raises ValueError for invalid credentials.
    """

    def __init__(self, settings: ClientSettings, directories: Sequence[str]) -> None:
        self._directories = [_Directory(settings, address) for address in directories]
        self._told = KnownMembers()
        self._stop = threading.Event()
        self._wake = threading.Event()

    def start(self, update: Update) -> None:
        """Watches from here on, in threads of its own."""
        update_of = heard_by(update)
        name = "npucall-directory"
        threading.Thread(target=self._run, args=(update_of,), name=name, daemon=True).start()
        threading.Thread(target=self._guard, name=name, daemon=True).start()

    def look(self) -> None:
        """Makes it try again at once if no directory answers."""
        self._wake.set()

    def why_empty(self) -> str:
        """Why each of the directories lists no members."""
        if not all(each.failure for each in self._directories):
            return ""
        return "; ".join(f"directory {each.address}: {each.failure}" for each in self._directories)

    def refusal(self) -> NpucallError | None:
        """The error if all directories refuse this client, as for its credential; else None."""
        refusals = [each.refusal for each in self._directories]
        return refusals[0] if all(refusals) else None

    def close(self) -> None:
        """Ends the streams, and the threads."""
        self._stop.set()
        self._wake.set()
        for each in self._directories:
            finished(each.link.close())

    def _run(self, update_of: Callable[[], Update | None]) -> None:
        count = len(self._directories)
        at, vain = 0, 0
        while not self._stop.is_set():
            if self._heard(self._directories[at], update_of):
                vain = 0
            else:
                at, vain = (at + 1) % count, vain + 1
            if vain % count:
                continue  # the next one may answer
            if vain:
                self._told.forget_loads()
                self._tell(update_of)
            self._pause(_SOONEST_SECONDS * 2 ** min(vain // count, _DOUBLINGS))

    def _heard(self, directory: _Directory, update_of: Callable[[], Update | None]) -> bool:
        """Passes on what a directory says, until it ends. Returns whether to ask it again first."""
        heard, sent = False, ""
        try:
            sent = finished(directory.link.authorization())
            for message in directory.messages(sent):
                changes = read(message)
                if not heard:
                    self._told.begin()
                    heard, directory.refusal = True, None
                self._told.hear(changes)
                directory.failure = "" if self._told.members else "it lists no members"
                self._tell(update_of)
                if self._told.hears_nobody and len(self._directories) > 1:
                    directory.failure = "no member has announced itself there for a while"
                    return False
        except NpucallError as error:
            directory.failure = str(error)
            directory.refusal = error if error.repeat is Repeat.NEVER else None
            return heard or (
                isinstance(error, UnauthenticatedError)
                and finished(directory.link.has_another(error, sent))
            )
        return heard

    def _tell(self, update_of: Callable[[], Update | None]) -> None:
        update = update_of()
        if update is None:
            self.close()
        elif not self._stop.is_set() and (self._told.members or self._told.complete):
            update(self._told.members, complete=self._told.complete)

    def _pause(self, seconds: float) -> None:
        """Waits for a random time, so that the clients do not all come back at once."""
        seconds = min(seconds, _LONGEST_SECONDS) * (0.5 + random())  # noqa: S311  # no secret
        self._wake.clear()
        if not self._stop.wait(min(seconds, _SOONEST_SECONDS)):
            self._wake.wait(seconds)

    def _guard(self) -> None:
        """Cuts streams on which no messages come any longer."""
        while not self._stop.wait(_GUARD_SECONDS):
            for each in self._directories:
                each.cut_if_late()


class _Directory:
    """One directory and the stream from it."""

    def __init__(self, settings: ClientSettings, address: str) -> None:
        self.address = address
        self.link = Link(settings.model_copy(update={"target": address}), THREADS, waits=False)
        self.failure = "it has not answered yet"
        """Why it gives no members; empty if it does."""
        self.refusal: NpucallError | None = None
        """The error if it refused and asking again does not help."""
        self._stream: MessageStream | None = None
        self._expected = 0.0
        """The time by which the next message must come."""
        self._is_late = False

    def messages(self, authorization: str) -> Iterator[bytes]:
        """The messages of its stream. Raises the error that ends the stream."""
        self._is_late = False
        try:
            with self.link.errors(FIRST_SECONDS):
                yield from self._stream_of(authorization)
        except NpucallError as error:
            if self._is_late:
                raise ServerUnreachableError("it was reached, and then said nothing") from error
            raise

    def _stream_of(self, authorization: str) -> Iterator[bytes]:
        self._expected = time.monotonic() + FIRST_SECONDS
        attempts = Attempts(Request(0.0))
        attempts.sent = authorization
        stream = self.link.open_stream("WatchMembers", iter([b""]), attempts, seconds=None)
        self._stream = stream
        try:
            while (message := finished(anext(stream, None))) is not None:
                self._expected = time.monotonic() + PATIENCE_SECONDS
                yield message
        finally:
            self._stream = None
            stream.cancel()

    def cut_if_late(self) -> None:
        """Ends the stream if no message came in time."""
        stream = self._stream
        if stream is not None and time.monotonic() >= self._expected:
            self._is_late = True
            stream.cancel()
