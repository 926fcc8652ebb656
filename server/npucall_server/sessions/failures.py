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
from npucall.texts import retry_in

_RETRY_SECONDS = 0.1


def of_another(error: NpucallError | None, failure: str) -> NpucallError:
    """What a retry raises of what it joined; it may repeat where that one's caller gave up."""
    if error is None or isinstance(error, (CancelledError, DeadlineError)):
        return BusyError(
            f"the call that should fill the handle gave up ({failure}); {retry_in(_RETRY_SECONDS)}",
            retry_after=_RETRY_SECONDS,
        )
    return as_told(error)


def as_told(error: BaseException) -> NpucallError:
    """The error for another caller: without frames, which would keep alive what the call held."""
    if not isinstance(error, NpucallError):
        return InternalError(
            "the call that should fill the handle met a bug; the server's log has the traceback"
        )
    told = copy.copy(error)
    told.details = dict(error.details)
    return told
