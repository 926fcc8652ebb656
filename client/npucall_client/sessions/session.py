"""``Session``: arrays that are put here once serve many calls."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from hashlib import sha256
from typing import TYPE_CHECKING, Any, ParamSpec, Self, overload

from npucall.dtypes import BY_NUMPY, AnyArray, Array
from npucall.places import Keep
from npucall_client.calls import answers, arrays
from npucall_client.calls.hints import warn
from npucall_client.sending.senders import finished
from npucall_client.sending.session_transport import HandleUpload
from npucall_client.sessions.program import Program
from npucall_client.sessions.remote import Remote, RemoteTensor
from npucall_client.sessions.results import new_handle, results_of
from npucall_client.settings import checked_seconds

if TYPE_CHECKING:
    from types import TracebackType

    from npucall.declare import Operator
    from npucall_client.calls.options import Progress
    from npucall_client.sessions.connection import Connection
    from npucall_client.sessions.session_link import SessionLink

__tracebackhide__ = True  # in a red test pytest shows the line that called

P = ParamSpec("P")


class SessionBase:
    """A session without its public methods."""

    def __init__(self, home: SessionLink, connection: Connection) -> None:
        self._home = home
        self._connection = connection

    def __repr__(self) -> str:
        told = "closed" if self._home.closed else f"lease {self.lease:g} s, {self.budget} bytes"
        return f"<Session on {self._home.host}, {told}>"

    @property
    def lease(self) -> float:
        """Seconds after the last sign of life until the server releases everything."""
        return self._home.lease

    @property
    def refill(self) -> bool:
        """Whether it is opened again if it was lost, and what was ``put`` sent again."""
        return self._home.refill

    @property
    def budget(self) -> int:
        """Bytes that its tensors may hold together."""
        return self._home.budget

    async def _put(
        self, array: Array, progress: Progress | None, timeout: float | None, *, constant: bool
    ) -> Any:
        source = arrays.as_array("array", array)
        sent = arrays.send("array", source, keep_layout=False)
        nbytes = len(sent.storage)
        digest = sha256(sent.storage).digest() if constant and nbytes else b""
        wire = BY_NUMPY[sent.dtype].wire
        upload = HandleUpload(new_handle(), sent.storage, digest, wire)
        request = self._connection.request(self._timeout(timeout))
        await self._home.upload(request, upload, progress)
        from_torch = arrays.is_torch(array)
        return self._home.remote(self._home, upload.handle, sent[:4], nbytes, from_torch=from_torch)

    async def _run(self, operator: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        request = await self._connection.bind(operator, args, kwargs, self._home)
        call = request.call
        remotes = results_of(
            self._home,
            call,
            await self._connection.checks(),
        )
        call.kept = {name: Keep(remote.handle) for name, remote in remotes.items()}
        response = await self._connection.send(request)
        for remote in remotes.values():
            remote.filled()
        reply = answers.decode_reply(response.reply)
        warn(reply.warnings)
        outputs = answers.unpack(call, reply, response.storage, remotes)
        return answers.value_of(call.operator, outputs)

    async def _release(self, remotes: RemoteTensor | Iterable[RemoteTensor]) -> None:
        several = [remotes] if isinstance(remotes, RemoteTensor) else list(remotes)
        for remote in several:
            remote.drop()
        await self._home.flush()

    def _timeout(self, given: float | None) -> float:
        return self._connection.options.timeout if given is None else checked_seconds(given)


class Session(SessionBase):
    """Arrays that stay on the server. A context manager; made by ``client.session``.

    ``put`` sends an array once, ``run`` computes and keeps the results there, ``program`` does so
    with many calls in one round trip; their results are of the class ``Remote``. A call takes
    ordinary arrays too: they travel with the call. Safe to use from several threads.

    It is kept alive in the background as long as this object lives. If the server is started again,
    or the lease ends, later uses raise HandleLostError or SessionExpiredError, unless the session
    was opened with ``refill=True``.
    """

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def put(
        self,
        array: Array,
        *,
        constant: bool = False,
        progress: Progress | None = None,
        timeout: float | None = None,
    ) -> Remote:
        """Sends an array, or a CPU tensor of torch, which stays on the server.

        constant: if the server has the same bytes already, from an upload of any caller of your
            tenant, only their SHA-256 travels. If not, the server remembers them.
        progress: a function that is called with bytes sent, 0, and bytes in all, from any thread.
            If it raises, the upload ends.
        timeout: in seconds, the client's if not given.

        The array must not change until this returns. With ``refill=True`` the session keeps it, and
        can send it again if it has not changed. Raises HandleMemoryError if the server has no room.
        """
        remote: Remote = finished(self._put(array, progress, timeout, constant=constant))
        return remote

    @overload
    def run(
        self, operator: Operator[P, AnyArray], /, *args: P.args, **kwargs: P.kwargs
    ) -> Remote: ...
    @overload
    def run(
        self,
        operator: Operator[P, tuple[AnyArray, AnyArray]],
        /,
        *args: P.args,
        **kwargs: P.kwargs,
    ) -> tuple[Remote, Remote]: ...
    @overload
    def run(
        self,
        operator: Operator[P, tuple[AnyArray, AnyArray, AnyArray, AnyArray]],
        /,
        *args: P.args,
        **kwargs: P.kwargs,
    ) -> tuple[Remote, Remote, Remote, Remote]: ...
    @overload
    def run(
        self,
        operator: str,
        /,
        *args: Any,
        variant: str | None = None,
        outputs: Mapping[str, Any] | None = None,
        timeout: float | None = None,
        **kwargs: Any,
    ) -> Any: ...
    def run(self, operator: Any, /, *args: Any, **kwargs: Any) -> Any:
        """Runs an operator as ``client.run`` does, and keeps the result on the server: a Remote.

        It returns a named tuple of them if the operator has several. If ``outputs`` has an array
        for an output, the result is written there, and does not stay on the server. For an operator
        that only a C header declares, give ``npucall_client.Empty(shape, dtype)`` for an output
        that is to stay.
        """
        return finished(self._run(operator, args, kwargs))

    def program(self, *, timeout: float | None = None) -> Program:
        """Many calls in one round trip: ``with session.program() as p: a = p.run(...)``.

        timeout: seconds for all of them, the client's if not given.
        """
        program = Program(self._home, self._connection, self._timeout(timeout))
        finished(program.begin())
        return program

    def release(self, remotes: Remote | Iterable[Remote]) -> None:
        """Gives the memory of these back now, not when Python collects them; in one call."""
        finished(self._release(remotes))

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

    def close(self) -> None:
        """Ends the session: the server releases all of it."""
        finished(self._home.close())
