"""What others are told of a handle that could not be filled."""

from __future__ import annotations

import copy

from npucall.errors import (
    BusyError,
    CancelledError,
    DeadlineError,
    InternalError,
    NpucallError,
)
from npucall_server import retries


def of_another(error: NpucallError | None, failure: str) -> NpucallError:
    """The error of a retry for the call that it joined.

    If that call's caller gave up, the retry may be repeated.
    """
    if error is None or isinstance(error, (CancelledError, DeadlineError)):
        sentence = f"the call that should fill the handle gave up ({failure})"
        return retries.refusal(BusyError, sentence, retries.HANDLE_FILLING)
    return as_told(error)


def as_told(error: BaseException) -> NpucallError:
    """The error for another caller. It has no frames, which would keep the call's data alive."""
    if not isinstance(error, NpucallError):
        return InternalError(
            "the call that should fill the handle met a bug; the server's log has the traceback"
        )
    told = copy.copy(error)
    told.details = dict(error.details)
    return told
