"""Objects that ``await`` opens, or ``async with``, which also closes them."""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import Awaitable, Callable, Generator
from types import TracebackType
from typing import Any, Generic, TypeVar

from npucall_client.calls.options import Progress
from npucall_client.sending.senders import shortly

T = TypeVar("T")


def on_loop(progress: Progress | None) -> Progress | None:
    """The same function for every thread: it is called on this loop, in the order of the reports.

    What it raises is raised to who reports next.
    """
    if progress is None:
        return None
    loop, thread, told = asyncio.get_running_loop(), threading.get_ident(), progress
    reports: deque[tuple[int, ...]] = deque()
    failures: list[Exception] = []

    def tell() -> None:
        while reports:
            try:
                told(*reports.popleft())
            except Exception as error:  # noqa: BLE001  # raised by who reports next
                failures.append(error)

    def report(*numbers: int) -> None:
        reports.append(numbers)
        if threading.get_ident() == thread:
            tell()
        else:
            loop.call_soon_threadsafe(tell)
        if failures:
            raise failures.pop()

    return report


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
