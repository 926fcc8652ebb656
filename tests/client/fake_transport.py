"""A fake server in this process whose operators are known by their C prototype alone.

It is a transport: calls arrive as bytes, are prepared as a server prepares them, and run a function
of the test.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from npucall.declare.catalogue import Catalogue
from npucall.declare.declaration import prototype_only
from npucall.declare.parameters import Attribute, Input, Output, parameter_of
from npucall.products import A2
from npucall.tensors import view
from npucall.v1 import operator_service_pb2 as pb
from npucall.wire.calls import PreparedCalls
from npucall.wire.listing import declare, describe
from npucall.wire.messages import Response
from npucall.wire.replies import ServerIdentity, Timings, encode_reply, encode_timings
from npucall_client import arguments
from npucall_client.client import Client
from npucall_client.senders.threads import THREADS
from npucall_client.settings import ClientSettings

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from npucall.declare.declaration import Operator
    from npucall.declare.prepare import Prepared
    from npucall.tensors import Buffer

SERVER = ServerIdentity("a1b2", "cann:0", "Ascend910B1")
_ROLES = {"in": (Input, False), "out": (Output, False), "in/out": (Output, True)}


def operator(name: str, **parameters: str) -> Operator[..., Any]:
    """An operator by its C types; those of tensors begin with their role: ``out aclTensor*``."""
    made = []
    for key, text in parameters.items():
        first, _, rest = text.partition(" ")
        role, in_place = _ROLES.get(first, (None, False))
        made.append(parameter_of(key, rest if role else text, role, in_place=in_place))
    return prototype_only(name, tuple(made), f"{name}.h")


def listed(name: str, **parameters: str) -> Operator[..., Any]:
    """The same as a client finds it in a listing."""
    return declare(describe(operator(name, **parameters), A2))


def bound(
    called: Operator[..., Any],
    outputs: Mapping[str, Any] | None = None,
    *args: Any,
    keep_layout: bool = False,
    **kwargs: Any,
) -> arguments.BoundCall:
    """The request of a call."""
    return arguments.bind(called, "", args, kwargs, outputs or {}, keep_layout=keep_layout)


def parsed(request: arguments.BoundCall) -> dict[str, pb.Argument]:
    """Arguments of the call as the message has them."""
    return {argument.name: argument for argument in pb.Call.FromString(request.call).arguments}


def members(request: arguments.BoundCall) -> dict[str, str | None]:
    """Which member holds each argument."""
    return {name: argument.WhichOneof("value") for name, argument in parsed(request).items()}


class FakeTransport:
    """Runs functions, which get arrays, lists of them, and attributes, by name."""

    sender = THREADS

    def __init__(self, functions: Mapping[Operator[..., Any], Callable[..., None]]) -> None:
        self._functions = {called.name: function for called, function in functions.items()}
        self._catalogue = Catalogue(functions)
        self._calls = PreparedCalls(self._catalogue, A2, "")
        self.asked: list[tuple[str, float]] = []
        """Names and timeouts of GetOperator."""
        self.ran: list[Prepared] = []

    async def execute(
        self, request: arguments.BoundCall, timeout: float, request_id: str
    ) -> Response:
        call = self._calls.of(request.call)
        self.ran.append(call)
        sent = call.storages(list(request.storage.values()))
        written = {
            name: bytearray(sent.get(name, bytes(spec.storage_bytes)))
            for name, spec in call.outputs.items()
        }
        self._functions[call.operator.name](**_given(call, {**sent, **written}))
        answers = [memoryview(storage) for storage in written.values()]
        return Response(encode_reply(call, SERVER), encode_timings(Timings()), answers)

    async def plan(
        self, request: arguments.BoundCall, timeout: float, request_id: str
    ) -> pb.PlanResponse:
        reply = encode_reply(self._calls.of(request.call), SERVER)
        return pb.PlanResponse(reply=pb.Reply.FromString(reply), workspace_bytes=512)

    async def operators(self, timeout: float) -> list[pb.OperatorInfo]:
        return [describe(called, A2) for called in self._catalogue]

    async def operator(self, name: str, variant: str, timeout: float) -> pb.OperatorInfo:
        self.asked.append((name, timeout))
        return describe(self._catalogue.find(name, variant), A2)

    async def server_info(self, timeout: float) -> pb.GetServerInfoResponse:
        return pb.GetServerInfoResponse()

    async def close(self) -> None:
        pass


def connected(transport: Any) -> Client:
    return Client(transport, ClientSettings.of(target="local:", timeout=7.0))


def _given(call: Prepared, storages: Mapping[str, Buffer]) -> dict[str, Any]:
    specs = {**call.inputs, **call.outputs}
    arrays = {name: view(spec, storages[name]) for name, spec in specs.items()}
    given: dict[str, Any] = dict(call.values)
    for parameter in call.operator.parameters:
        if not isinstance(parameter, Attribute):
            places = call.lists.get(parameter.name)
            one = arrays.get(parameter.name)
            given[parameter.name] = one if places is None else [arrays[place] for place in places]
    return given
