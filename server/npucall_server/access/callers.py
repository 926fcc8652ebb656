"""Who waits for a call, whatever carried it. What counts, limits or logs by caller asks these."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Protocol

from npucall.errors import CancelledError
from npucall_server.access.identity import Identity


def went_away() -> CancelledError:
    """The error that ends a call when its caller no longer waits."""
    return CancelledError("the caller cancelled the call, or disconnected")


class Waiting(Protocol):
    """Whether somebody waits for a call, and how long."""

    def time_remaining(self) -> float | None:
        """Seconds until its deadline; None or infinity without one."""

    def is_active(self) -> bool:
        """Whether it still waits."""

    def add_callback(self, callback: Callable[[], None]) -> bool:
        """Calls back when it no longer waits; False if that is already so."""


class Caller(Waiting, Protocol):
    """What a call has to know about its caller."""

    @property
    def peer(self) -> str:
        """Its address, as gRPC tells it."""

    @property
    def identity(self) -> Identity:
        """Who it is."""

    @property
    def owner(self) -> str:
        """The owner that its calls and memory count for."""

    @property
    def metadata(self) -> Mapping[str, str | bytes]:
        """The metadata that it sent with the request, or with the stream."""

    @property
    def carrier(self) -> str:
        """What carries its bytes."""

    @property
    def request_id(self) -> str:
        """Its own name for the call; empty if it has none."""

    def cancel(self) -> None:
        """Ends the call, or the stream, without an answer."""


class YieldingCaller:
    """A caller that gives up its call as soon as others ask for what the call holds."""

    def __init__(self, caller: Caller) -> None:
        self.caller = caller
        self.gave_way = False
        self._callbacks: list[Callable[[], None]] = []

    def give_way(self) -> None:
        """Others ask for what the call holds."""
        self.gave_way = True
        for callback in tuple(self._callbacks):
            callback()

    def time_remaining(self) -> float | None:
        """As the caller says."""
        return self.caller.time_remaining()

    def is_active(self) -> bool:
        """Whether it still waits."""
        return not self.gave_way and self.caller.is_active()

    def add_callback(self, callback: Callable[[], None]) -> bool:
        """Calls back when it no longer waits."""
        self._callbacks.append(callback)
        return self.caller.add_callback(callback)
