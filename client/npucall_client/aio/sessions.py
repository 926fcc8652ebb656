"""Sessions, their tensors and their programs for asyncio."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import TracebackType
from typing import Any, ParamSpec, Self, overload

from npucall.declare import Operator
from npucall.dtypes import AnyArray, Array
from npucall_client.calls.options import Progress
from npucall_client.sending.progress import on_loop
from npucall_client.sending.senders import shortly
from npucall_client.sessions.program import ProgramBase, ProgramPlan
from npucall_client.sessions.remote import RemoteTensor
from npucall_client.sessions.session import SessionBase

__tracebackhide__ = True  # in a red test pytest shows the line that called

P = ParamSpec("P")


class Remote(RemoteTensor):
    """A tensor on the server. Made by a session; a call takes it wherever it takes an array.

    See ``npucall_client.Remote``; here you await its methods.
    """

    __slots__ = ()

    async def numpy(
        self, *, progress: Progress | None = None, timeout: float | None = None
    ) -> AnyArray:
        """Downloads it, as a NumPy array of its own memory."""
        return await shortly(self._numpy(progress, timeout))

    async def torch(self, *, progress: Progress | None = None, timeout: float | None = None) -> Any:
        """Downloads it, as a torch tensor. Raises ImportError without torch."""
        return await shortly(self._torch(progress, timeout))

    async def fetch(self, *, progress: Progress | None = None, timeout: float | None = None) -> Any:
        """Downloads it: as a torch tensor if tensors of torch came in, else as an array."""
        return await shortly(self._fetch(progress, timeout))

    async def release(self) -> None:
        """Gives its memory back now, not when Python collects it. You cannot use it after that."""
        await self._release()


class Session(SessionBase):
    """Arrays that stay on the server. Made by ``client.session``.

    See ``npucall_client.Session``; here you await its methods.
    """

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.close()

    async def put(
        self,
        array: Array,
        *,
        constant: bool = False,
        progress: Progress | None = None,
        timeout: float | None = None,
    ) -> Remote:
        """Sends an array, or a CPU tensor of torch, which stays on the server.

        The array must not change until this is done. See ``npucall_client.Session.put``.
        """
        remote: Remote = await shortly(
            self._put(array, on_loop(progress), timeout, constant=constant)
        )
        return remote

    @overload
    async def run(
        self, operator: Operator[P, AnyArray], /, *args: P.args, **kwargs: P.kwargs
    ) -> Remote: ...
    @overload
    async def run(
        self,
        operator: Operator[P, tuple[AnyArray, AnyArray]],
        /,
        *args: P.args,
        **kwargs: P.kwargs,
    ) -> tuple[Remote, Remote]: ...
    @overload
    async def run(
        self,
        operator: Operator[P, tuple[AnyArray, AnyArray, AnyArray, AnyArray]],
        /,
        *args: P.args,
        **kwargs: P.kwargs,
    ) -> tuple[Remote, Remote, Remote, Remote]: ...
    @overload
    async def run(
        self,
        operator: str,
        /,
        *args: Any,
        variant: str | None = None,
        outputs: Mapping[str, Any] | None = None,
        timeout: float | None = None,
        **kwargs: Any,
    ) -> Any: ...
    async def run(self, operator: Any, /, *args: Any, **kwargs: Any) -> Any:
        """Runs an operator as ``client.run`` does, and keeps the result on the server: a Remote.

        See ``npucall_client.Session.run``.
        """
        return await shortly(self._run(operator, args, kwargs))

    def program(self, *, timeout: float | None = None) -> Program:
        """Many calls in one round trip: ``async with session.program() as p: await p.run(...)``.

        timeout: seconds for all of them, the client's if not given.
        """
        return Program(self._home, self._connection, self._timeout(timeout))

    async def release(self, remotes: Remote | Iterable[Remote]) -> None:
        """Gives the memory of these back now, not when Python collects them; in one call."""
        await self._release(remotes)

    def options(
        self,
        *,
        timeout: float | None = None,
        variant: str | None = None,
        outputs: Mapping[str, Any] | None = None,
        request_id: str | None = None,
        keep_layout: bool | None = None,
    ) -> Session:
        """The same session with options of ``client.options``."""
        connection = self._connection.having(
            timeout=timeout,
            variant=variant,
            outputs=outputs,
            request_id=request_id,
            keep_layout=keep_layout,
        )
        return Session(self._home, connection)

    async def close(self) -> None:
        """Ends the session: the server releases all of it."""
        await self._home.close()


class Program(ProgramBase):
    """Calls that are sent together when the block is left. Made by ``session.program``.

    See ``npucall_client.Program``; here you await its methods, except ``fetch``.
    """

    async def __aenter__(self) -> Self:
        await self.begin()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await shortly(self._leave(kind))

    @overload
    async def run(
        self, operator: Operator[P, AnyArray], /, *args: P.args, **kwargs: P.kwargs
    ) -> Remote: ...
    @overload
    async def run(
        self,
        operator: Operator[P, tuple[AnyArray, AnyArray]],
        /,
        *args: P.args,
        **kwargs: P.kwargs,
    ) -> tuple[Remote, Remote]: ...
    @overload
    async def run(
        self,
        operator: Operator[P, tuple[AnyArray, AnyArray, AnyArray, AnyArray]],
        /,
        *args: P.args,
        **kwargs: P.kwargs,
    ) -> tuple[Remote, Remote, Remote, Remote]: ...
    @overload
    async def run(
        self,
        operator: str,
        /,
        *args: Any,
        variant: str | None = None,
        outputs: Mapping[str, Any] | None = None,
        **kwargs: Any,
    ) -> Any: ...
    async def run(self, operator: Any, /, *args: Any, **kwargs: Any) -> Any:
        """Adds a call: a Remote, whose bytes come later, or a named tuple of them.

        See ``npucall_client.Program.run``.
        """
        return await shortly(self._add(operator, args, kwargs))

    async def plan(self) -> ProgramPlan:
        """What running the calls that it has so far would need and give. Sends no data."""
        return await shortly(self._plan())
