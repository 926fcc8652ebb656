"""The attempts at one call on one server, and which of them were lost."""

from __future__ import annotations

from typing import TYPE_CHECKING, Generic, Protocol, Self, TypeVar

from npucall.errors import NpucallError
from npucall_client.sending.losses import Losses, is_break, needs_look

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

T = TypeVar("T")


class Carrier(Protocol):
    """The link to a server."""

    @property
    def target(self) -> str:
        """The target of the server."""

    @property
    def instance(self) -> str:
        """The instance of the process that answered last."""

    def carrying(self, losses: Losses) -> Self:
        """The same connection, for a call of which an attempt was lost."""

    async def has_ended(self, instance: str) -> bool:
        """Whether that process is gone."""


L = TypeVar("L", bound=Carrier)


class Following(Generic[L, T]):
    """Makes an attempt each time that it is called, and tells the next one about lost attempts.

    ``send`` gets the link and the seconds that are left. ``losses``: the lost attempts of a call
    that was under way elsewhere before.
    """

    __slots__ = ("_link", "_losses", "_name", "_request_id", "_send")

    def __init__(
        self,
        link: L,
        send: Callable[[L, float], Awaitable[T]],
        losses: Losses | None,
        name: str,
        request_id: str,
    ) -> None:
        self._link, self._send, self._losses = link, send, losses
        self._name, self._request_id = name, request_id

    async def __call__(self, seconds: float) -> T:
        """Raises the error of the attempt, or PoisonedCallError."""
        instance = self._link.instance
        try:
            return await self._send(self._link, seconds)
        except NpucallError as error:
            if is_break(error):
                await self._hear(error, instance)
            raise

    async def _hear(self, error: NpucallError, instance: str) -> None:
        if self._losses is None:
            self._losses = Losses(self._name, self._request_id)
            self._link = self._link.carrying(self._losses)
        link = self._link
        ended = needs_look(error) and await link.has_ended(instance)
        self._losses.check(error, link.target, instance, ended=ended)
