"""``connect`` and ``Client`` for users whose threads wait for answers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ParamSpec, Self, TypeVar, overload

from npucall.wire.rpcs import GET_ACTIVITY, GET_SERVER_INFO, GET_USAGE, LIST_OPERATORS
from npucall_client.base import ClientBase, ReservedBase, opened, settings_of
from npucall_client.sending.pipeline import Pipeline
from npucall_client.sending.senders import finished
from npucall_client.sending.threads import THREADS
from npucall_client.sessions.remote import Remote
from npucall_client.sessions.session import Session
from npucall_client.views import (
    OperatorInfo,
    ServerActivity,
    ServerInfo,
    ServerOperators,
    ServerUsage,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from os import PathLike
    from types import TracebackType

    from npucall.declare import Operator
    from npucall_client.calls.options import Plan, Progress, Result
    from npucall_client.settings import Options
    from npucall_client.shared.memory import SharedMemory

__tracebackhide__ = True  # in a red test pytest shows the line that called

P = ParamSpec("P")
R = TypeVar("R")


def connect(  # noqa: PLR0913  # what most people give
    target: str | None = None,
    *,
    timeout: float | None = None,
    wait: bool | None = None,
    token: str | Callable[[], str] | None = None,
    ca: str | PathLike[str] | None = None,
    variant: str | None = None,
    soc: str | None = None,
    options: Options | None = None,
    **older: Any,
) -> Client:
    """Connects to a server or to a pool of them. As a context manager it closes at the end.

    What is not given here is taken from the environment, a variable ``NPUCALL_...`` for each
    setting (docs/settings.md).

    target: ``HOST:PORT``, ``HOST`` (port 50051) or ``unix:PATH`` of a server; ``local:`` computes
        in this process. Of a pool ``pool:HOST:PORT,HOST:PORT`` with all its servers,
        ``pool:dns:NAME:PORT`` with a name that has an address for each, ``pool:file:PATH`` with a
        file that lists them or a folder of ready files, or ``pool:directory:HOST:PORT`` with a
        directory to which they announce themselves (you may name several, with commas; the client
        watches one that answers). If not given: NPUCALL_TARGET, else 127.0.0.1:50051.
    timeout: seconds until a call fails, retries included (NPUCALL_TIMEOUT, 60).
    wait: wait for a server that is full, or for a quota, as long as the server says and ``timeout``
        allows, and send the call again; False raises the refusal at once (NPUCALL_WAIT, True).
    token: a token that tells the server who calls, or a function that returns one; the client calls
        it again before the token ends (NPUCALL_TOKEN). Without TLS it travels to this machine
        alone.
    ca: file of the authorities that may have signed the server's certificate; turns TLS on
        (NPUCALL_CA).
    variant: the variant to run if an operator called by name has several (NPUCALL_VARIANT, else
        the server's own default).
    soc: with a pool, the SoC of the members to call, or ``any``; if not given, that of most
        members, since results differ (NPUCALL_SOC). With ``local:``, the SoC whose rules apply
        (NPUCALL_SOC, Ascend910B1). A single server has its own.
    options: everything else, such as ``npucall.Options(certificate=..., key=...)``.
    older: the same by name, as in 0.1.

    Raises ServerUnreachableError if nothing answers in time, UnauthenticatedError if the server
    does not know who calls, SettingError (a ValueError) for an invalid setting.
    """
    settings = settings_of(
        options,
        older,
        target=target,
        timeout=timeout,
        wait=wait,
        token=token,
        ca=ca,
        variant=variant,
        soc=soc,
    )
    return Client(finished(opened(settings, THREADS)), settings)


class Client(ClientBase):
    """Calls operators. Safe to use from several threads. Made by ``connect``."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Closes the sessions, then the connection.

        Calls under way and later ones raise CancelledError.
        """
        finished(self._close())

    @overload
    def run(self, operator: Operator[P, R], /, *args: P.args, **kwargs: P.kwargs) -> R: ...
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
        """Runs an operator: arrays in, an array out; a named tuple of arrays if it has several.

        With an operator object the call has the types of the operator's own signature, and that
        object's variant runs. With a name, ``run`` also takes ``variant``, ``outputs`` and
        ``timeout`` (see ``options``), and it can call operators that only the server knows, from
        the headers installed there. Those take their arguments by name, as C spells it
        (``**{"from": 0}`` for a name that Python reserves), and you have to give every output in
        ``outputs``; an array given there counts as an output, whatever the listing guessed.

        You may also give arguments by their names in C (``gradOutput``), and a number that has
        words as a word (``reduction="mean"``).

        Tensors are NumPy arrays of any memory order, CPU tensors of torch, and whatever else has
        ``__array__``, ``__dlpack__`` or a buffer. Numbers and nested lists have the dtype of the
        other inputs. Lists of tensors are lists of arrays; None is a null pointer. Results are
        NumPy arrays in memory of their own, or tensors of torch if tensors of torch came in.

        Raises a subclass of ``npucall.errors.NpucallError``, with ``code``, ``reason``,
        ``aclnn_status`` and ``parameter``, and TypeError if a Python call would. A warning of the
        reply becomes a ``CallWarning`` of Python at the line of the call.
        """
        return finished(self._calls.run(operator, args, kwargs))

    @overload
    def execute(self, operator: Operator[P, R], /, *args: P.args, **kwargs: P.kwargs) -> Result: ...
    @overload
    def execute(
        self,
        operator: str,
        /,
        *args: Any,
        variant: str | None = None,
        outputs: Mapping[str, Any] | None = None,
        timeout: float | None = None,
        **kwargs: Any,
    ) -> Result: ...
    def execute(self, operator: Any, /, *args: Any, **kwargs: Any) -> Result:
        """Runs as ``run``, and returns everything: outputs, variant, timings, warnings, server.

        The warnings of the reply are in ``warnings``; Python does not warn.
        """
        return finished(self._calls.execute(operator, args, kwargs))

    @overload
    def plan(self, operator: Operator[P, R], /, *args: P.args, **kwargs: P.kwargs) -> Plan: ...
    @overload
    def plan(
        self,
        operator: str,
        /,
        *args: Any,
        variant: str | None = None,
        outputs: Mapping[str, Any] | None = None,
        timeout: float | None = None,
        **kwargs: Any,
    ) -> Plan: ...
    def plan(self, operator: Any, /, *args: Any, **kwargs: Any) -> Plan:
        """Checks a call as ``run`` would, without sending or computing data.

        Only shapes and dtypes count: tensors may also be those of torch's device "meta", or
        ``npucall_client.Empty(shape, dtype)``.
        """
        return finished(self._calls.plan(operator, args, kwargs))

    def pipeline(self) -> Pipeline:
        """A stream for many calls, several in flight at a time, with the options of this client.

        ``with client.pipeline() as p: futures = [p.submit(operator, ...) for ...]``
        """
        return Pipeline(self._calls.open().calls(), self._calls.bind_ready, THREADS)

    def session(
        self, *, lease: float | None = None, budget: int | None = None, refill: bool = False
    ) -> Session:
        """Arrays that stay on the server, for many calls.

        ``with client.session() as s: x = s.put(array)``, then ``s.run`` and ``s.program``; results
        stay there too, and their ``numpy()`` downloads. With ``local:`` they stay in this process.

        lease: if the server hears nothing of this process for so many seconds, it releases
            everything; at most the server's ``session_lease``, which also applies if not given.
        budget: bytes that the session may hold; at most the server's ``handle_memory``.
        refill: if the server was started again, or the lease has ended, open the session again and
            send the arrays that were ``put`` again; the session keeps them for that. It cannot fill
            results of calls again: using them raises HandleLostError. False: all uses raise it.

        Raises HandleMemoryError if the server holds no handles, QueueFullError and QuotaError if
        there are too many sessions.
        """
        return Session(finished(self._home(Remote, lease, budget, refill=refill)), self._calls)

    def shared(self, nbytes: int) -> SharedMemory:
        """Memory that a server on this host sees too, so that arrays in it do not travel.

        ``with client.shared(2**30) as memory: x = memory.array(x)``, then calls as usual; with
        ``options(outputs={"out": memory.empty(...)})`` the server writes outputs there, and nothing
        is copied. The arrays of a call must not change until it has ended. With ``local:`` it is
        ordinary memory. If the server is restarted, its arrays travel from then on, and a
        RuntimeWarning says so.

        Raises SharedMemoryError if the server shares none, or not with this process; the server's
        refusal, such as TooLargeError or QueueFullError; DeadlineError.
        """
        return finished(self._memory(nbytes))

    def reserve(self, seconds: float, *, wait: float = 0.0, count: int = 1) -> Reserved:
        """Reserves the device, and returns a client of the same connection that has it alone.

        ``with client.reserve(60) as quiet:`` and then calls of ``quiet`` or of this client; their
        pipelines too. Calls of others, also of your other programs, wait meanwhile, within their
        timeout; with ``wait=False`` they raise ReservedError. The reservation is renewed in the
        background, also across a restart of a server with a ``reservation_key``, and released at
        the end. If it was lost, calls of ``quiet`` raise ReservedError.

        seconds: for how long at most; not more than the server's ``max_reservation``.
        wait: seconds to wait until others have ended theirs.
        count: devices, in a pool; calls go to the reserved ones only.

        Raises ReservedError if others do not end theirs in time; PermissionDeniedError.
        """
        return Reserved(self, finished(self._renewal(seconds, wait, count)))

    def release_reservation(self) -> None:
        """Ends any reservation. Raises PermissionDeniedError unless you are an admin."""
        finished(self._calls.open().release(self._calls.request(), ""))

    def options(  # noqa: PLR0913  # one an option
        self,
        *,
        timeout: float | None = None,
        variant: str | None = None,
        outputs: Mapping[str, Any] | None = None,
        request_id: str | None = None,
        keep_layout: bool | None = None,
        progress: Progress | None = None,
        wait: bool | None = None,
    ) -> Client:
        """A client of the same connection that calls with these options.

        timeout: seconds until a call fails, retries included.
        variant: the variant to run if an operator called by name has several.
        outputs: arrays (or torch tensors) of your own to write outputs to, by name. They may have
            any strides; gaps stay untouched. They are validated, never resized, and choose the
            output's dtype. None as a value is a null pointer; a list of tensors is a list of
            arrays. If the operator also reads an output, as in-place operators do, it reads this
            array. After an error they may hold anything: a large call writes outputs as their bytes
            come.
        request_id: your own name for calls, in the server's log and in errors.
        keep_layout: send arrays with their strides and gaps, and outputs too, so that the device
            itself reads and writes through the strides; otherwise the client gathers the elements
            of an array that is not dense.
        progress: a function that is called while a call travels in chunks, from any thread, with
            bytes sent, bytes received, and bytes known to travel in all. If it raises, the call
            ends.
        wait: wait for a server that is full, or for a quota; False raises the refusal at once.
        """
        calls = self._calls.having(
            wait,
            timeout=timeout,
            variant=variant,
            outputs=outputs,
            request_id=request_id,
            keep_layout=keep_layout,
            progress=progress,
        )
        return Client(self._transport, self._settings, calls)

    def operators(self) -> ServerOperators:
        """What the server lists. This and what follows have a message of the contract, ``message``.

        They have its fields too (``npucall/v1``), and are short to look at, in notebooks as tables.
        """
        return ServerOperators(finished(self._calls.answer(LIST_OPERATORS)))

    def operator(self, name: str, variant: str = "") -> OperatorInfo:
        """One operator of the server. Raises OperatorUnknownError."""
        return OperatorInfo(finished(self._calls.operator(name, variant)))

    def info(self) -> ServerInfo:
        """What the server is and allows."""
        return ServerInfo(finished(self._calls.answer(GET_SERVER_INFO)))

    server_info = info
    """Its name in 0.1."""

    def carrier(self) -> str:
        """How calls travel now: in ``frames``, over ``grpc``; ``local``, ``recorded``: not at all.

        Waits until that is known. A call that frames do not reach goes over gRPC all the same. Of a
        pool it is how they travel to one of its members.
        """
        return finished(self._calls.open().carrier(self._calls.request()))

    def usage(self, last_seconds: float = 0) -> ServerUsage:
        """What callers used in the last seconds (0: all that the server knows).

        It has a line for each tenant, caller and operator: only your own lines, unless your role is
        admin. ``local:`` counts nothing and has no line.
        """
        asked = GET_USAGE.request(last_seconds=last_seconds)
        return ServerUsage(finished(self._calls.answer(GET_USAGE, asked)))

    def activity(self) -> ServerActivity:
        """Who uses the server now: your own line, and the sums."""
        return ServerActivity(finished(self._calls.answer(GET_ACTIVITY)))


class Reserved(ReservedBase, Client):
    """A client that has the device alone, until it is closed. Made by ``Client.reserve``."""

    def close(self) -> None:
        """Releases the device. The client that reserved it stays open."""
        finished(self._release())
