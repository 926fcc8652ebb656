"""What a caller asks for and gets: options, results, plans, and how arguments become a call.

This module uses no gRPC and no transport, so that every client makes calls and reads answers in the
same way.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from time import perf_counter_ns
from types import ModuleType
from typing import TYPE_CHECKING, Any, TypeAlias

from npucall.declare import Operator
from npucall.errors import CancelledError
from npucall.operators import CATALOGUE
from npucall.wire.listing import declare
from npucall.wire.replies import decode_reply, decode_timings
from npucall_client.calls import answers, arguments
from npucall_client.calls.hints import warn
from npucall_client.calls.known import KnownCalls
from npucall_client.settings import checked_seconds

if TYPE_CHECKING:
    from collections.abc import Callable

    from npucall.dtypes import DType
    from npucall.tensors import TensorSpec
    from npucall.v1 import operator_service_pb2 as pb
    from npucall.wire.messages import Response
    from npucall.wire.replies import ServerIdentity, Timings
    from npucall_client.calls.arguments import BoundCall
    from npucall_client.calls.tensors import Home
    from npucall_client.settings import ClientSettings

Progress: TypeAlias = "Callable[[int, int, int], object]"
"""A function that gets bytes sent, bytes received, and bytes known to travel in all."""


@dataclass(frozen=True)
class CallOptions:
    """What goes with a call in addition to its arguments."""

    timeout: float
    variant: str
    outputs: Mapping[str, Any] = field(default_factory=dict)
    request_id: str = ""
    keep_layout: bool = False
    progress: Progress | None = None


@dataclass(frozen=True)
class Result:
    """The full answer to a call."""

    outputs: Mapping[str, Any]
    """The output arrays by name; for a list of tensors a list of arrays."""
    value: Any
    """What ``run`` returns: the only output, or a named tuple of several."""
    variant: str
    """The variant that ran; empty for an operator that has only one."""
    kernel_dtype: DType | None
    """The dtype in which the operator computed and rounded, if the device says it."""
    timings: Timings
    """Where the server's time went."""
    total_ns: int
    """Nanoseconds from arrays to arrays; the part that is not in ``timings`` is wire and client."""
    warnings: tuple[str, ...]
    """What you should know, though the call was valid."""
    server: ServerIdentity
    """Who answered."""


@dataclass(frozen=True)
class Plan:
    """What running a call would need and give."""

    outputs: Mapping[str, TensorSpec]
    """The specs of the outputs by name; tensors of a list one by one, as ``out[0]``."""
    workspace_bytes: int
    """Device memory in addition to the tensors."""
    variant: str
    """The variant that would run."""
    kernel_dtype: DType | None
    """The dtype in which the operator would compute and round."""
    warnings: tuple[str, ...]
    """What you should know, though the call is valid."""
    server: ServerIdentity
    """Who answered."""


_BY_NAME = ("variant", "outputs", "timeout")
"""Options that a call by name has among its arguments."""
_OPTIONS = {each.name for each in fields(CallOptions)}


class Binding:
    """Makes calls from arguments, with the options and settings of a client."""

    def __init__(
        self,
        settings: ClientSettings,
        options: CallOptions | None = None,
        declared: dict[str, Operator[Any, Any]] | None = None,
        known: KnownCalls | None = None,
    ) -> None:
        self.options = options or CallOptions(settings.timeout, settings.variant)
        self._settings = settings
        self._declared = declared if declared is not None else {}
        """Operators that only the server knows, asked for once."""
        self._known = known or KnownCalls()

    def having(self, **given: Any) -> Binding:
        """The same with other options; None means not given."""
        named: dict[str, Any] = {key: value for key, value in given.items() if value is not None}
        if "timeout" in named:
            named["timeout"] = checked_seconds(named["timeout"])
        if not isinstance(named.get("outputs", {}), Mapping):
            found = type(named["outputs"]).__name__
            raise TypeError(f'outputs: expected arrays by name, {{"out": array}}, found {found}')
        options = replace(self.options, **named)
        return Binding(self._settings, options, self._declared, self._known)

    def options_of(self, operator: Operator[Any, Any] | str, kwargs: dict[str, Any]) -> CallOptions:
        """Removes the options from the arguments of a call by name, and returns them.

        Raises TypeError if the operator is neither an operator nor a name, and for an option that
        only ``client.options`` takes.
        """
        if isinstance(operator, Operator):
            if not _OPTIONS.isdisjoint(kwargs):
                _check_no_option(operator, kwargs)
            return self.options
        if not isinstance(operator, str):
            raise _no_operator(operator)
        given = {name: kwargs.pop(name) for name in _BY_NAME if name in kwargs}
        return self.having(**given).options if given else self.options

    def knows(self, operator: Operator[Any, Any] | str) -> bool:
        """Whether it can bind a call; if not, the client has to ask the server for the operator."""
        if isinstance(operator, Operator) or operator in self._declared:
            return True
        return bool(CATALOGUE.of_name(operator))

    def declare(self, info: pb.OperatorInfo) -> None:
        """Takes an operator as the server lists it."""
        self._declared[info.name] = declare(info)

    def declared(self, name: str) -> Operator[Any, Any]:
        """An operator that only the server knows, and that was declared before."""
        return self._declared[name]

    def bind(  # noqa: PLR0913  # all that makes a call
        self,
        operator: Operator[Any, Any] | str,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        options: CallOptions,
        home: Home | None = None,
        within: object = None,
        *,
        planning: bool = False,
    ) -> BoundCall:
        """The call of an operator. One that only the server knows must have been declared before.

        ``home``: the session to which all tensors on the server belong; ``within``: its program.
        Variants take the same arguments, since they share a C prototype, so any of them can bind a
        call; but they may know different words.
        """
        if isinstance(operator, Operator):
            called, variant = operator, operator.variant
        else:
            if not self.knows(operator):
                raise LookupError(f"{operator}: expected it declared, by what the server lists")
            same_name = CATALOGUE.of_name(operator)
            named = [each for each in same_name if each.variant == options.variant]
            called = [*named, *same_name][0] if same_name else self._declared[operator]
            variant = options.variant if called.variant else ""
        send_unread = self._settings.send_unread
        if planning or options.outputs or options.keep_layout:
            call = arguments.bind(
                called, variant, args, kwargs, options.outputs,
                keep_layout=options.keep_layout, send_unread=send_unread,
                planning=planning, home=home, within=within,
            )  # fmt: skip
        else:
            call = self._known.bind(
                called, variant, args, kwargs, send_unread=send_unread, home=home, within=within
            )
        if options.progress is not None:
            call.progress = options.progress
        return call


def _no_operator(given: object) -> TypeError:
    """The error for a value that is no operator, most often an operator's module."""
    if not isinstance(given, ModuleType):
        return TypeError(
            'operator: expected an operator, or its name such as "aclnnKlDiv", '
            f"found {type(given).__name__}"
        )
    inside = [name for name, value in vars(given).items() if isinstance(value, Operator)]
    instead = f"; write: from {given.__name__} import {inside[0]}" if inside else ""
    return TypeError(f"operator: expected an operator, found the module {given.__name__}{instead}")


def _check_no_option(operator: Operator[Any, Any], kwargs: Mapping[str, Any]) -> None:
    """Raises TypeError for an option among the arguments of an operator object."""
    for name in _OPTIONS & kwargs.keys() - operator.by_name.keys():
        if name == "variant":
            instead = f"call it by name to choose one: run({operator.name!r}, variant=...)"
        else:
            instead = f"use client.options({name}=...)"
        raise TypeError(f"{operator.name}: {name} is no parameter of the operator; {instead}")


def closed() -> CancelledError:
    """What every use of a client raises once it is closed."""
    return CancelledError("the client is closed; connect() opens another one")


def value_of(call: BoundCall, response: Response) -> Any:
    """What ``run`` returns: the only output, or a named tuple. Warns as the reply says."""
    reply = answers.decode_reply(response.reply)
    if reply.warnings:
        warn(reply.warnings)
    outputs = answers.unpack(call, reply, response.storage)
    return answers.value_of(call.operator, outputs)


def result_of(call: BoundCall, response: Response, start: int) -> Result:
    """The full answer; ``start``: when the call was made, in nanoseconds of ``perf_counter_ns``."""
    reply = answers.decode_reply(response.reply)
    outputs = answers.unpack(call, reply, response.storage)
    return Result(
        outputs,
        answers.value_of(call.operator, outputs),
        reply.variant,
        reply.kernel_dtype,
        decode_timings(response.timings),
        perf_counter_ns() - start,
        reply.warnings,
        reply.server,
    )


def plan_of(response: pb.PlanResponse) -> Plan:
    """A plan from a server's answer."""
    reply = decode_reply(response.reply.SerializeToString())
    return Plan(
        reply.outputs,
        response.workspace_bytes,
        reply.variant,
        reply.kernel_dtype,
        reply.warnings,
        reply.server,
    )
