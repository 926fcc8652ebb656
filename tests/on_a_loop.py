"""The client for asyncio behind the interface of the other one, for tests of both.

Its event loop runs in a thread of its own, whoever calls waits for what the loop answers.
"""

import asyncio
import inspect
import threading
import weakref
from collections.abc import Coroutine, Iterator
from concurrent.futures import CancelledError as Cancelled
from functools import cache
from typing import Any, Self

import numpy as np

import npucall_client
from npucall.errors import CancelledError
from npucall_client import aio
from npucall_client.aio.opening import Opening


def connect(*args: Any, **kwargs: Any) -> Any:
    """As ``npucall_client.connect``."""
    return shown(done(_called(aio.connect, args, kwargs)))


_first = threading.Lock()


def loop() -> asyncio.AbstractEventLoop:
    """The event loop of the tests, one for all threads, which runs until their process ends."""
    with _first:
        return _made()


@cache
def _made() -> asyncio.AbstractEventLoop:
    made = asyncio.new_event_loop()
    threading.Thread(target=made.run_forever, name="tests-loop", daemon=True).start()
    return made


def done(work: Coroutine[Any, Any, Any]) -> Any:
    """What a coroutine gives on the loop."""
    task = asyncio.run_coroutine_threadsafe(work, loop())
    del work
    try:
        return task.result()
    except Cancelled:
        raise CancelledError("call: cancelled") from None
    except BaseException:
        task.cancel()
        raise
    finally:
        del task


async def _called(method: Any, args: Any, kwargs: Any) -> Any:
    answer = method(*args, **kwargs)
    del args, kwargs
    waits = inspect.iscoroutine(answer) or isinstance(answer, Opening)
    return await answer if waits else answer


def shown(value: Any) -> Any:
    """Something of the loop's client as a test sees it."""
    known = getattr(value, "facade", None) if isinstance(value, aio.PendingCall) else None
    if known is not None:
        return known() or FACADES[aio.PendingCall](value)
    for kind, facade in FACADES.items():
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
            return shown(done(_called(found, args, kwargs)))

        return call


class RemoteFacade(Facade):
    """A tensor on the server."""

    __class__ = npucall_client.Remote  # type: ignore[assignment]  # for isinstance

    def __array__(self, *_: Any, **__: Any) -> Any:
        return np.asarray(self.real)


class PipelineFacade(Facade):
    """A pipeline."""

    def as_completed(self) -> Iterator[Any]:
        calls = self.real.as_completed()
        while (call := done(anext(calls, None))) is not None:
            yield shown(call)
            del call


class PendingFacade(Facade):
    """A call of a pipeline, which is one object however it is found."""

    def __init__(self, real: Any) -> None:
        super().__init__(real)
        real.facade = weakref.ref(self)

    def result(self, timeout: float | None = None) -> Any:
        return shown(done(asyncio.wait_for(asyncio.shield(self.real), timeout)))

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


FACADES: dict[type, type] = {
    aio.Client: Facade,
    aio.Session: Facade,
    aio.Program: Facade,
    aio.Remote: RemoteFacade,
    aio.Pipeline: PipelineFacade,
    aio.PendingCall: PendingFacade,
}
