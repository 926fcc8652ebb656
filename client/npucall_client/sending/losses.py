"""The poison rule: whether a call may itself make its servers end. Pure.

The client repeats a call after its connection broke. If the call itself makes servers end, repeats
would end one server after the other. But calls that only waited next to it must go on. So an
attempt counts as lost only if its server's process ended, and the call had its turn on the device.
Each attempt after a break asks the server to say when that turn begins. The first attempt did not
ask, and counts as begun. After two losses of a call that shared the device, it is not known yet
which call was the cause: this call runs once more, alone. A call that is lost while it is alone, as
its second loss or a later one, is not sent again.
"""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, NamedTuple

from npucall.errors import DeviceLostError, NpucallError, PoisonedCallError, Repeat
from npucall.wire.status import ALONE, BEGUN, INSTANCE, LOSSES, NONE, SHARED

if TYPE_CHECKING:
    from collections.abc import Iterable

_TOLERATED = 2
"""After so many losses, of which the last one was alone, a call is not sent again."""


class Loss(NamedTuple):
    """An attempt that ended with its server."""

    address: str
    instance: str
    """The instance of the process; empty if it is not known."""


class Losses:
    """The lost attempts of one call. ``operator`` and ``request_id`` are for the error."""

    def __init__(self, operator: str = "", request_id: str = "") -> None:
        self._operator, self._request_id = operator, request_id
        self._broke = False
        self.lost: list[Loss] = []
        self.alone = False
        """Whether the next attempt must be alone on its device."""

    @property
    def metadata(self) -> tuple[tuple[str, str], ...]:
        """The metadata of the next attempt; empty until a connection broke."""
        if not self._broke:
            return ()
        return ((LOSSES, ALONE if self.alone else str(len(self.lost))),)

    def heard(
        self, error: NpucallError, address: str, instance: str = "", *, ended: bool
    ) -> PoisonedCallError | None:
        """An attempt failed. Returns the error to raise if the call must not be sent again.

        ``ended``: whether the process that had the call is gone; after DEVICE_LOST it always is.
        ``error.details`` says whether the call had begun; ``told`` puts it there.
        """
        if not is_break(error):
            return None
        self._broke = True
        begun = error.details.get(BEGUN, SHARED)
        if begun == NONE or not (ended or isinstance(error, DeviceLostError)):
            return None
        self.lost.append(Loss(address, error.details.get(INSTANCE, instance)))
        if len(self.lost) < _TOLERATED:
            return None
        if begun == ALONE or self.alone:
            return self._poisoned()
        self.alone = True
        return None

    def check(self, error: NpucallError, address: str, instance: str = "", *, ended: bool) -> None:
        """Does as ``heard``, and raises the error that it returns."""
        poisoned = self.heard(error, address, instance, ended=ended)
        if poisoned is not None:
            try:
                raise poisoned from error
            finally:
                del poisoned  # its traceback would keep it, and the tensors

    def _poisoned(self) -> PoisonedCallError:
        servers = ", ".join(
            f"{address} (instance {instance})" if instance else address
            for address, instance in self.lost
        )
        call = self._operator or "call"
        name = f"; request id {self._request_id}" if self._request_id else ""
        return PoisonedCallError(
            f"{call}: each server that ran this call ended, so the client does not send it again: "
            f"{servers}{name}",
            operator=self._operator,
            request_id=self._request_id,
            servers=servers,
        )


def is_break(error: NpucallError) -> bool:
    """Whether it may mean a loss: the connection broke, or the device was lost."""
    return error.repeat is Repeat.FEW_TIMES


def needs_look(error: NpucallError) -> bool:
    """Whether it matters if the process that had the call has ended."""
    if not is_break(error) or isinstance(error, DeviceLostError):
        return False
    return error.details.get(BEGUN, SHARED) != NONE


def not_begun(error: NpucallError) -> NpucallError:
    """The same for a call of which nothing had been sent."""
    if not is_break(error):
        return error
    other = copy.copy(error)
    other.details = {**error.details, BEGUN: NONE}
    return other


def told(error: NpucallError, metadata: Iterable[tuple[str, str | bytes]]) -> None:
    """Adds to the error of a broken attempt, if it asked, what its server had said by then.

    ``metadata`` is the initial metadata of the answer; empty if none came.
    """
    said = {key: value for key, value in metadata if isinstance(value, str)}
    error.details.setdefault(BEGUN, said.get(BEGUN, NONE))
    if INSTANCE in said:
        error.details.setdefault(INSTANCE, said[INSTANCE])
