"""Objects that ``await`` opens, or ``async with``, which also closes them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Generator
from types import TracebackType
from typing import Any, Generic, TypeVar

from npucall_client.sending.senders import shortly

__tracebackhide__ = True  # in a red test pytest shows the line that called

T = TypeVar("T")


class Opening(Generic[T]):
    """``async with opening as it: ...``; or ``it = await opening``, and ``close`` at the end."""

    def __init__(
        self, open_: Callable[[], Awaitable[T]], close: Callable[[T], Awaitable[object]]
    ) -> None:
        self._open, self._close = open_, close

    def __await__(self) -> Generator[Any, None, T]:
        return shortly(self._open()).__await__()

    async def __aenter__(self) -> T:
        self._opened = await shortly(self._open())
        return self._opened

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self._close(self._opened)
