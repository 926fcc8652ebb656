"""The poison rule: whether a call may itself be what ends its servers. Pure.

A call is repeated behind a connection that broke, and would so end one server after the other where
it is the call that ends them. What waited beside it must go on meanwhile. Hence an attempt counts
as lost only if its server's process ended, and the call had its turn on the device there. Each
attempt behind a break asks the server to say when that turn begins. The first one did not ask, and
is taken as begun. Behind two losses of a call that shared the device, nobody knows yet which one it
was: the call runs once more, alone. Whatever is lost alone, as its second loss or a later one, is
not sent again.
"""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, NamedTuple

from npucall.errors import DeviceLostError, NpucallError, PoisonedCallError, Repeat
from npucall.wire.status import ALONE, BEGUN, INSTANCE, LOSSES, NONE, SHARED

if TYPE_CHECKING:
    from collections.abc import Iterable

_TOLERATED = 2
"""Losses of which the last one has to be alone."""


class Loss(NamedTuple):
    """An attempt that ended with its server."""

    address: str
    instance: str
    """Of the process; empty where nobody knows it."""


class Losses:
    """What has been lost of one call. ``operator`` and ``request_id`` are for the error."""

    def __init__(self, operator: str = "", request_id: str = "") -> None:
        self._operator, self._request_id = operator, request_id
        self._broke = False
        self.lost: list[Loss] = []
        self.alone = False
        """Whether the next attempt has to be alone on its device."""

    @property
    def metadata(self) -> tuple[tuple[str, str], ...]:
        """What the next attempt carries; nothing until a connection broke."""
        if not self._broke:
            return ()
        return ((LOSSES, ALONE if self.alone else str(len(self.lost))),)

    def heard(
        self, error: NpucallError, address: str, instance: str = "", *, ended: bool
    ) -> PoisonedCallError | None:
        """An attempt failed. Answers what to raise where the call must not be sent again.

        ``ended``: whether the process that had the call is gone; what said DEVICE_LOST is, anyway.
        ``error.details`` says whether the call had begun, as ``told`` puts it there.
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
        """``heard``, and raises what it answers."""
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
    """Whether it matters if the process has ended that had the call."""
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
    """Has a broken attempt that asked say what its server told it by then.

    ``metadata`` is the initial one of the answer; empty where none came.
    """
    said = {key: value for key, value in metadata if isinstance(value, str)}
    error.details.setdefault(BEGUN, said.get(BEGUN, NONE))
    if INSTANCE in said:
        error.details.setdefault(INSTANCE, said[INSTANCE])
