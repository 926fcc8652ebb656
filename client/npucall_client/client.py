"""``connect`` and ``Client``: what a user of npucall sees."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from time import perf_counter_ns
from typing import TYPE_CHECKING, Any, ParamSpec, Protocol, Self, TypeAlias, TypeVar, overload

from npucall import memory
from npucall.declare.declaration import Operator
from npucall.operators import CATALOGUE
from npucall.wire.listing import declare
from npucall.wire.replies import decode_reply, decode_timings
from npucall_client import arguments
from npucall_client.local import LocalTransport
from npucall_client.pipeline import Pipeline
from npucall_client.remote.channel import ChannelTransport
from npucall_client.settings import LOCAL, ClientSettings

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from types import TracebackType

    from npucall.dtypes import DType
    from npucall.tensors import TensorSpec
    from npucall.v1 import operator_service_pb2 as pb
    from npucall.wire.messages import Response
    from npucall.wire.replies import ServerIdentity, Timings
    from npucall_client.pipeline import Calls
    from npucall_client.shared.memory import SharedMemory

_KEPT = 2**30
"""Bytes that ``keep_memory=True`` keeps."""

P = ParamSpec("P")
R = TypeVar("R")
Progress: TypeAlias = "Callable[[int, int, int], object]"
"""Is told bytes sent, bytes received, and bytes known to travel in all."""


def connect(  # noqa: PLR0913  # one a setting
    target: str | None = None,
    *,
    timeout: float | None = None,
    connect_timeout: float | None = None,
    stream_from: int | None = None,
    keep_memory: bool | int | None = None,
    send_unread: bool | None = None,
    shared_memory_socket: str | None = None,
    variant: str | None = None,
    soc: str | None = None,
) -> Client:
    """Connects to a server, and closes again as a context manager.

    target: ``HOST:PORT`` or ``unix:PATH`` of a server; ``local:`` computes in this process. If not
        given NPUCALL_TARGET counts, otherwise 127.0.0.1:50051.
    timeout: seconds until a call fails, retries included (NPUCALL_TIMEOUT, 60).
    connect_timeout: seconds to wait here for a server that is starting (NPUCALL_CONNECT_TIMEOUT,
        10).
    stream_from: bytes of a call's arrays from which they travel in chunks, in little more memory
        than their own (NPUCALL_STREAM_FROM, 4 MiB).
    keep_memory: keep freed memory in this process for its next large arrays, which makes large
        calls about three times as fast; True for 1 GiB, or the bytes. It counts for the whole
        process, and needs Linux with glibc (NPUCALL_KEEP_MEMORY, 0).
    send_unread: send also the values of inputs that an operator never reads (``self`` of
        ``kl_div_backward``), not only their shape and dtype (NPUCALL_SEND_UNREAD, False).
    shared_memory_socket: the path here of the server's socket for ``Client.shared``, where it is
        another than in the server's file system (NPUCALL_SHARED_MEMORY_SOCKET, the server's own).
    variant: the variant of operators called by name that have several (NPUCALL_VARIANT, else the
        server's own default).
    soc: with ``local:``, the SoC whose rules hold (NPUCALL_SOC, Ascend910B1). A server has its own.

    Raises ServerUnreachableError if nothing answers in time, ValueError for a setting that cannot
    be.
    """
    settings = ClientSettings.of(
        target=target,
        timeout=timeout,
        connect_timeout=connect_timeout,
        stream_from=stream_from,
        keep_memory=_KEPT if keep_memory is True else keep_memory,
        send_unread=send_unread,
        shared_memory_socket=shared_memory_socket,
        variant=variant,
        soc=soc,
    )
    if settings.keep_memory:
        memory.keep(settings.keep_memory)
    if settings.target == LOCAL:
        return Client(LocalTransport(settings.soc), settings)
    if soc is not None:
        raise ValueError(
            f"soc: expected none beside target {settings.target}, found {soc}; the server has its "
            "own, only local: takes one"
        )
    transport = ChannelTransport(settings.target, settings.connect_timeout, settings.stream_from)
    return Client(transport, settings)


@dataclass(frozen=True)
class Result:
    """The full answer to a call."""

    outputs: Mapping[str, Any]
    """The output arrays by name; for a list of tensors a list of arrays."""
    value: Any
    """What ``run`` answers: the only output, or a named tuple of several."""
    variant: str
    """The variant that ran; empty for an operator that has only one."""
    kernel_dtype: DType | None
    """What the operator computed and rounded in, where the device tells."""
    timings: Timings
    """Where the server's time went."""
    total_ns: int
    """Nanoseconds from arrays to arrays; what ``timings`` leave over is wire and client."""
    warnings: tuple[str, ...]
    """What you should know though the call was valid."""
    server: ServerIdentity
    """Who answered."""


@dataclass(frozen=True)
class Plan:
    """What running a call would need and give."""

    outputs: Mapping[str, TensorSpec]
    """The specs of the outputs by name; tensors of a list one by one, as ``out[0]``."""
    workspace_bytes: int
    """Device memory besides the tensors."""
    variant: str
    """The variant that would run."""
    kernel_dtype: DType | None
    """What the operator would compute and round in."""
    warnings: tuple[str, ...]
    """What you should know though the call is valid."""
    server: ServerIdentity
    """Who answered."""


@dataclass(frozen=True)
class Options:
    """What goes with a call besides its arguments."""

    timeout: float
    variant: str
    outputs: Mapping[str, Any] = field(default_factory=dict)
    request_id: str = ""
    keep_layout: bool = False
    progress: Progress | None = None


class Transport(Protocol):
    """Where calls are computed: a server, or this process."""

    def execute(self, request: arguments.BoundCall, timeout: float, request_id: str) -> Response:
        """Runs a call."""

    def plan(
        self, request: arguments.BoundCall, timeout: float, request_id: str
    ) -> pb.PlanResponse:
        """Checks a call."""

    def calls(self) -> Calls:
        """Where a pipeline sends its calls."""

    def shared(self, nbytes: int, socket: str, timeout: float) -> SharedMemory:
        """Memory that it shares; ``socket``: where, unless it is where the server says."""

    def operators(self, timeout: float) -> list[pb.OperatorInfo]:
        """Lists the operators."""

    def operator(self, name: str, variant: str, timeout: float) -> pb.OperatorInfo:
        """Describes one operator."""

    def server_info(self, timeout: float) -> pb.GetServerInfoResponse:
        """Describes the server."""

    def close(self) -> None:
        """Gives back what it holds."""


class Client:
    """Calls operators. Safe to use from several threads. Made by ``connect``."""

    def __init__(
        self,
        transport: Transport,
        settings: ClientSettings,
        options: Options | None = None,
        declared: dict[str, Operator[Any, Any]] | None = None,
    ) -> None:
        self._transport = transport
        self._settings = settings
        self._options = options or Options(settings.timeout, settings.variant)
        self._declared = declared if declared is not None else {}

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
        """Closes the connection. Calls under way in other threads raise CancelledError."""
        self._transport.close()

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

        With an operator object the call is typed by the operator's own signature, and that object's
        variant runs. With a name it also takes ``variant``, ``outputs`` and ``timeout`` (see
        ``options``) and reaches operators that only the server knows, from the headers installed
        there. Those take their arguments by name, as C spells it (``**{"from": 0}`` for a name that
        Python reserves), and every output has to be given in ``outputs``; what is given there
        counts as an output, whatever the listing guessed.

        Tensors are NumPy arrays of any memory order, or CPU tensors of torch, lists of tensors
        lists of those; None is a null pointer. Results are NumPy arrays in memory of their own.

        Raises a subclass of ``npucall.errors.NpucallError``, with ``code``, ``reason``,
        ``aclnn_status`` and ``parameter``; TypeError where a Python call would.
        """
        request, options = self._call(operator, args, kwargs)
        response = self._transport.execute(request, options.timeout, options.request_id)
        reply = arguments.decode_reply(response.reply)
        outputs = arguments.unpack(request, reply, response.storage)
        return arguments.value_of(request.operator, outputs)

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
        """As ``run``, and answers everything: outputs, variant, timings, warnings, server."""
        start = perf_counter_ns()
        request, options = self._call(operator, args, kwargs)
        response = self._transport.execute(request, options.timeout, options.request_id)
        return _result(request, response, start)

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
        """Checks a call as ``run`` would, without sending or computing data."""
        options = self._options_of(operator, kwargs)
        request = self._bind(operator, args, kwargs, options)
        response = self._transport.plan(request, options.timeout, options.request_id)
        reply = decode_reply(response.reply.SerializeToString())
        return Plan(
            reply.outputs,
            response.workspace_bytes,
            reply.variant,
            reply.kernel_dtype,
            reply.warnings,
            reply.server,
        )

    def pipeline(self) -> Pipeline:
        """A stream for many calls, several in flight at a time, with the options of this client.

        ``with client.pipeline() as p: futures = [p.submit(operator, ...) for ...]``
        """
        return Pipeline(self._transport.calls(), self._call, _result)

    def shared(self, nbytes: int) -> SharedMemory:
        """Memory that a server on this host sees too, so that what lies in it does not travel.

        ``with client.shared(2**30) as memory: x = memory.array(x)``, then calls as ever; with
        ``options(outputs={"out": memory.empty(...)})`` outputs are written there, nothing copied.
        The arrays of a call must not change until it has ended. With ``local:`` it is ordinary
        memory. Where the server is restarted its arrays travel from then on, and a RuntimeWarning
        says so.

        Raises SharedMemoryError where the server shares none, or not with this process; what the
        server refuses it for, such as TooLargeError and QueueFullError; DeadlineError.
        """
        settings = self._settings
        return self._transport.shared(
            nbytes, settings.shared_memory_socket, settings.connect_timeout
        )

    def options(  # noqa: PLR0913  # one an option
        self,
        *,
        timeout: float | None = None,
        variant: str | None = None,
        outputs: Mapping[str, Any] | None = None,
        request_id: str | None = None,
        keep_layout: bool | None = None,
        progress: Progress | None = None,
    ) -> Client:
        """A client of the same connection that calls with these options.

        timeout: seconds until a call fails, retries included.
        variant: the variant of operators called by name that have several.
        outputs: arrays (or torch tensors) of your own to write outputs to, by name; of any strides,
            gaps stay untouched. They are validated, never resized, and choose the output's dtype.
            None as a value is a null pointer; a list of tensors is a list of arrays. What the
            operator reads too, as in-place operators do, is read from there.
        request_id: your own name for calls, in the server's log and in errors.
        keep_layout: send arrays with their strides and gaps, and outputs too, so that the device
            itself reads and writes through the strides; otherwise what is not dense is gathered.
        progress: called with bytes sent, bytes received, and bytes known to travel in all, while a
            call travels in chunks; from any thread. What it raises ends the call.
        """
        given = {
            "timeout": timeout,
            "variant": variant,
            "outputs": outputs,
            "request_id": request_id,
            "keep_layout": keep_layout,
            "progress": progress,
        }
        named: dict[str, Any] = {key: value for key, value in given.items() if value is not None}
        options = replace(self._options, **named)
        return Client(self._transport, self._settings, options, self._declared)

    def operators(self) -> list[pb.OperatorInfo]:
        """What the server lists, as messages of the contract (``npucall/v1``)."""
        return self._transport.operators(self._options.timeout)

    def operator(self, name: str, variant: str = "") -> pb.OperatorInfo:
        """One operator of the server. Raises OperatorUnknownError."""
        return self._transport.operator(name, variant, self._options.timeout)

    def server_info(self) -> pb.GetServerInfoResponse:
        """What the server is and allows, as a message of the contract."""
        return self._transport.server_info(self._options.timeout)

    def _call(
        self, operator: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> tuple[arguments.BoundCall, Options]:
        """What travels, and the options it travels with."""
        options = self._options_of(operator, kwargs)
        request = self._bind(operator, args, kwargs, options)
        request.progress = options.progress
        return request, options

    def _options_of(self, operator: Any, kwargs: dict[str, Any]) -> Options:
        """Takes the options that a call by name has among its arguments out of them."""
        if isinstance(operator, Operator):
            return self._options
        names = ("variant", "outputs", "timeout")
        given = {name: kwargs.pop(name) for name in names if name in kwargs}
        return self.options(**given)._options if given else self._options  # noqa: SLF001  # its own

    def _bind(
        self,
        operator: Operator[Any, Any] | str,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        options: Options,
    ) -> arguments.BoundCall:
        variant = options.variant
        if isinstance(operator, Operator):
            variant = operator.variant
        else:
            operator = self._find(operator, options.timeout)
            variant = options.variant if operator.variant else ""
        return arguments.bind(
            operator,
            variant,
            args,
            kwargs,
            options.outputs,
            keep_layout=options.keep_layout,
            send_unread=self._settings.send_unread,
        )

    def _find(self, name: str, timeout: float) -> Operator[Any, Any]:
        """The operator of that name: declared here, or as the server lists it, asked for once.

        Variants take the same arguments, since they share a C prototype: any will do to bind.
        """
        if same_name := CATALOGUE.of_name(name):
            return same_name[0]
        if name not in self._declared:
            self._declared[name] = declare(self._transport.operator(name, "", timeout))
        return self._declared[name]


def _result(request: arguments.BoundCall, response: Response, start: int) -> Result:
    """The full answer; ``start``: when the call was made, in nanoseconds."""
    reply = arguments.decode_reply(response.reply)
    outputs = arguments.unpack(request, reply, response.storage)
    return Result(
        outputs,
        arguments.value_of(request.operator, outputs),
        reply.variant,
        reply.kernel_dtype,
        decode_timings(response.timings),
        perf_counter_ns() - start,
        reply.warnings,
        reply.server,
    )
