"""One upload: a thread reads its frames, another one answers it."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Iterator

from npucall.errors import CancelledError, DeadlineError, MessageError, StalledError
from npucall.exchange import Chunk
from npucall.wire.uploads import UploadBegin, split_upload_frame
from npucall_server.access.callers import Caller, went_away
from npucall_server.scheduling.call_turn import gave_way
from npucall_server.scheduling.gate import Permit
from npucall_server.services.sessions.entries import Entries
from npucall_server.services.sessions.kept import Kept
from npucall_server.telemetry.log import Record

_LOOK_SECONDS = 1.0
"""Time between two checks of the caller's credential."""
_BREAK_SECONDS = 1.0
"""A peer that goes away looks as if it had sent all, until gRPC tells; which is at once."""


class Upload:
    """The frames of one upload, from the first to the end, and what becomes of its entries.

    However it ends, first the thread that writes into memory stops. Then handles that were not
    filled are given back.
    """

    def __init__(
        self,
        messages: Iterator[bytes],
        record: Record,
        caller: Caller,
        kept: Kept,
        permit: Permit,
    ) -> None:
        self._messages, self._record, self._caller = messages, record, caller
        self._kept, self._permit = kept, permit
        self._entries: Entries | None = None
        self._lock = threading.Lock()
        """Held to change entries. Nothing changes them once the upload is over."""
        self._is_over = False
        self._done = threading.Event()
        self._failure: Exception | None = None
        self._waits_since: float | None = time.monotonic()
        """When it began to wait for the next frame; None while it takes one, and at the end."""

    def run(self) -> list[bool]:
        """Answers whether the bytes of each entry are kept.

        Raises the error that ends the upload.
        """
        reader = threading.Thread(target=self._read, name="npucall-upload", daemon=True)
        if not self._caller.add_callback(self._break):
            raise went_away()
        self._permit.may_end_by(self._give_way)
        reader.start()
        try:
            remembered = self._result()
        except BaseException as error:
            self._close(error)
            raise
        self._close(went_away())
        return remembered

    def _result(self) -> list[bool]:
        """Waits for the end, while bytes come and the caller's credential is good."""
        while not self._done.wait(min(_LOOK_SECONDS, max(self._seconds_left(), 0.0))):
            self._kept.guard.check(self._caller.identity)
            self._check_moves()
        if self._failure is not None:
            raise self._failure
        assert self._entries is not None  # noqa: S101  # it has not failed
        self._entries.wait_for_others(self._caller)
        return self._entries.remembered

    def _close(self, error: BaseException) -> None:
        with self._lock:
            self._is_over = True
            entries, self._entries = self._entries, None
            if entries is not None:
                entries.give_back(error)
        self._failure = None  # it has been raised, and its frames have this upload

    # --- The thread that reads --------------------------------------------------------------------

    def _read(self) -> None:
        try:
            for message in self._messages:
                if self._take(message):
                    return
            if not self._done.wait(_BREAK_SECONDS):
                self._fail(_unended())
        except CancelledError:
            self._break()
        except Exception as error:  # noqa: BLE001  # told by the other thread
            self._fail(error)

    def _take(self, message: bytes) -> bool:
        """Whether that was the last frame that is wanted."""
        self._waits_since = None
        frame = split_upload_frame(message)
        with self._lock:
            if self._is_over:
                return True
            if isinstance(frame, UploadBegin):
                self._begin(frame)
            elif self._entries is None:
                raise MessageError("upload: expected a frame `begin` first, found another")
            elif isinstance(frame, Chunk):
                self._entries.take(frame)
                self._record.request_bytes += len(frame.data)
            else:
                self._entries.end()
                self._done.set()
                return True
        self._waits_since = time.monotonic()
        return False

    def _begin(self, begin: UploadBegin) -> None:
        if self._entries is not None:
            raise MessageError("upload: expected one frame `begin`, found two")
        self._entries = Entries(begin.entries, self._kept, self._caller, self._give_way)
        self._entries.open()

    # --- What ends it -----------------------------------------------------------------------------

    def _fail(self, error: Exception) -> None:
        if self._failure is None:
            self._failure = error
        self._done.set()
        if self._is_over:
            self._failure = None

    def _break(self) -> None:
        self._fail(went_away())

    def _give_way(self) -> None:
        """Ends it for others: for its room, or for a reservation."""
        self._fail(self._permit.refusal or gave_way())

    def _seconds_left(self) -> float:
        """How long its next bytes may still take."""
        own, since = self._caller.time_remaining(), self._waits_since
        left = math.inf if since is None else since + self._patience - time.monotonic()
        return left if own is None else min(own, left)

    @property
    def _patience(self) -> float:
        peers = self._kept.peers
        some = self._entries is not None and self._entries.received
        return peers.timeout if some else peers.first_timeout

    def _check_moves(self) -> None:
        """Raises DeadlineError, or StalledError if no bytes came in time."""
        if self._seconds_left() > 0:
            return
        own = self._caller.time_remaining()
        if own is not None and own <= 0:
            raise DeadlineError("the deadline of the upload ended before all its bytes arrived")
        limit = f"{self._patience:g}"
        raise StalledError(
            f"no bytes of the upload arrived for {limit} s (setting peer_timeout); repeat the "
            "upload",
            limit=limit,
            setting="peer_timeout",
        )


def _unended() -> MessageError:
    return MessageError("upload: expected a frame `end`, found the end of the stream")
