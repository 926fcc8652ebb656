"""Calls below the Python client: any spec, any message, through the same transports."""

from collections.abc import Collection

import pytest

from npucall.declare.call import Argument
from npucall.dtypes import FLOAT
from npucall.errors import VariantUnavailableError
from npucall.tensors import TensorSpec
from npucall.v1 import operator_service_pb2 as pb
from npucall.wire import calls
from npucall.wire import messages as framing
from npucall_client import Client
from npucall_client.calls.arguments import BoundCall
from npucall_client.sending.request import Request
from npucall_client.sending.senders import finished

Arguments = dict[str, "Argument"]

KL, L1, KL_TARGET = "aclnnKlDivBackward", "aclnnL1LossBackward", "aclnnKlDivTargetBackward"
INPUTS = ("grad_output", "self", "target")
OUTPUTS = {KL: "out", L1: "grad_input", KL_TARGET: "grad_target"}
# Every operator by name and variant.
OPERATORS = (
    (KL, ""),
    (L1, ""),
    (KL_TARGET, "builtin"),
    (KL_TARGET, "community"),
    (KL_TARGET, "documented"),
)
SHAPE = (2, 3)
ABSENT = (pytest.skip.Exception, VariantUnavailableError)
"""What a call of a variant raises that the host has not; every host has one."""


def valid(operator: str, **changes: Argument) -> Arguments:
    """Arguments of a call that passes every rule, but for the changes: all FLOAT of one shape."""
    tensors = (*INPUTS, OUTPUTS[operator])
    arguments: Arguments = {name: TensorSpec(FLOAT, SHAPE) for name in tensors}
    return arguments | {"reduction": 1} | changes


def plan(
    client: Client,
    operator: str,
    variant: str,
    arguments: Arguments,
    inputs: Collection[str] = INPUTS,
) -> pb.PlanResponse:
    """Phase one of a call that the typed client cannot express."""
    names = stored(arguments, inputs)
    return plan_bytes(client, calls.encode(operator, variant, arguments, names))


def plan_bytes(client: Client, call: bytes) -> pb.PlanResponse:
    return finished(client._transport.plan(Request(30, call=BoundCall("raw", call))))


def execute(
    client: Client,
    operator: str,
    variant: str,
    arguments: Arguments,
    inputs: Collection[str] = INPUTS,
) -> framing.Response:
    """The call with zeros for every input that it gives."""
    names = stored(arguments, inputs)
    call = calls.encode(operator, variant, arguments, names)
    return execute_bytes(client, call, {name: zeros(arguments[name]) for name in names})


def execute_bytes(client: Client, call: bytes, storage: dict[str, bytes]) -> framing.Response:
    made = BoundCall("raw", call, dict(storage))
    return finished(client._transport.execute(Request(30, call=made)))


def stored(arguments: Arguments, inputs: Collection[str] = INPUTS) -> tuple[str, ...]:
    """The inputs that are tensors: those whose storage has to follow."""
    return tuple(
        name
        for name, value in arguments.items()
        if name in inputs and isinstance(value, TensorSpec)
    )


def zeros(value: Argument) -> bytes:
    assert isinstance(value, TensorSpec)
    return bytes(value.storage_bytes)
