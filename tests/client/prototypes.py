"""Operators known by their C prototype alone, and calls of them as they are sent."""

from collections.abc import Mapping
from typing import Any

from tests.proto.prototypes import operator

from npucall.declare.declaration import Operator
from npucall.products import A2
from npucall.v1 import operator_service_pb2 as pb
from npucall.wire.listing import declare, describe
from npucall_client.calls import arguments

__all__ = ["operator"]  # beside what is defined here


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
