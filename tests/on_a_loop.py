"""The client for asyncio behind the interface of the other one, for tests of both.

Its event loop runs in a thread of its own, whoever calls waits for what the loop answers.
"""

from __future__ import annotations

import asyncio
import inspect
import threading
import weakref
from concurrent.futures import CancelledError as Cancelled
from functools import cache
from typing import TYPE_CHECKING, Any, Self

import numpy as np

import npucall_client
from npucall.errors import CancelledError
from npucall_client import aio
from npucall_client.aio.opening import Opening

if TYPE_CHECKING:
    from collections.abc import Coroutine, Iterator


def connect(*args: Any, **kwargs: Any) -> Any:
    """As ``npucall_client.connect``."""
    opening = aio.connect(*args, **kwargs)
    return shown(done(opened(opening)))


@cache
def loop() -> asyncio.AbstractEventLoop:
    """The event loop of the tests, which runs until their process ends."""
    made = asyncio.new_event_loop()
    threading.Thread(target=made.run_forever, name="tests-loop", daemon=True).start()
    return made


def done(work: Coroutine[Any, Any, Any], timeout: float | None = None) -> Any:
    """What a coroutine gives on the loop."""
    task = asyncio.run_coroutine_threadsafe(work, loop())
    del work
    try:
        return task.result(timeout)
    except Cancelled:
        raise CancelledError("call: cancelled") from None
    except BaseException:
        task.cancel()
        raise
    finally:
        del task


async def opened(opening: Any) -> Any:
    return await opening


def shown(value: Any) -> Any:
    """Something of the loop's client as a test sees it."""
    for kind, facade in KINDS.items():
        if isinstance(value, kind):
            return facade(value)
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return type(value)(*map(shown, value))
    return value


def hidden(value: Any) -> Any:
    """What a test gives, as the loop's client takes it."""
    if isinstance(value, Facade):
        return value.real
    if type(value) in (list, tuple):
        return type(value)(map(hidden, value))
    return {key: hidden(each) for key, each in value.items()} if type(value) is dict else value


class Facade:
    """Something whose coroutines are waited for."""

    def __init__(self, real: Any) -> None:
        self.real = real

    def __enter__(self) -> Self:
        if hasattr(self.real, "__aenter__"):
            done(self.real.__aenter__())
        return self

    def __exit__(self, *error: object) -> None:
        done(self.real.__aexit__(*error))

    def __repr__(self) -> str:
        return repr(self.real)

    def __len__(self) -> int:
        return len(self.real)

    def __bool__(self) -> bool:
        return bool(self.real)

    def __getattr__(self, name: str) -> Any:
        found = getattr(self.real, name)
        if not inspect.ismethod(found) or name.startswith("_"):
            return found

        def call(*args: Any, **kwargs: Any) -> Any:
            args, kwargs = tuple(map(hidden, args)), hidden(kwargs)
            return shown(done(self._called(found, args, kwargs)))

        return call

    async def _called(self, method: Any, args: Any, kwargs: Any) -> Any:
        answer = method(*args, **kwargs)
        del args, kwargs
        waits = inspect.isawaitable(answer) or isinstance(answer, Opening)
        return await answer if waits else answer


class RemoteFacade(Facade):
    """A tensor on the server."""

    __class__ = npucall_client.Remote  # type: ignore[assignment]  # for isinstance

    def __array__(self, *_: Any, **__: Any) -> Any:
        return np.asarray(self.real)


class PipelineFacade(Facade):
    """A pipeline."""

    def submit(self, /, *args: Any, **kwargs: Any) -> Any:
        return done(self._submitted(tuple(map(hidden, args)), hidden(kwargs)))

    async def _submitted(self, args: Any, kwargs: Any) -> Any:
        return PendingFacade(await self.real.submit(*args, **kwargs))

    def as_completed(self) -> Iterator[Any]:
        calls = self.real.as_completed()
        while (call := done(anext(calls, None))) is not None:
            known = call.facade()
            yield PendingFacade(call) if known is None else known
            del call, known


class PendingFacade:
    """A call of a pipeline."""

    def __init__(self, real: Any) -> None:
        self.real = real
        real.facade = weakref.ref(self)

    def result(self, timeout: float | None = None) -> Any:
        return shown(done(self._waited(timeout)))

    def exception(self, timeout: float | None = None) -> Any:
        try:
            self.result(timeout)
        except TimeoutError:
            raise
        except Exception as error:  # noqa: BLE001  # what is asked for
            return error
        return None

    def answer(self, timeout: float | None = None) -> Any:
        self.result(timeout)
        return done(self.real.answer())

    def done(self) -> bool:
        return bool(self.real.done())

    def cancel(self) -> bool:
        async def cancel() -> Any:
            return self.real.cancel()

        return bool(done(cancel()))

    def add_done_callback(self, function: Any) -> None:
        async def add() -> None:
            self.real.add_done_callback(lambda _: function(self))

        done(add())

    async def _waited(self, timeout: float | None) -> Any:
        return await asyncio.wait_for(asyncio.shield(self.real), timeout)


KINDS: dict[type, type] = {
    aio.Client: Facade,
    aio.Session: Facade,
    aio.Program: Facade,
    aio.Remote: RemoteFacade,
    aio.Pipeline: PipelineFacade,
    aio.PendingCall: PendingFacade,
}
