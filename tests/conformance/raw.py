"""Calls below the Python client: any spec, any message, through the same transports."""

from collections.abc import Collection

import pytest

from npucall.declare.call import Argument, parameter_of, tensors_of
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
    sent = tensors(arguments, inputs)
    call = calls.encode(operator, variant, arguments, stored(arguments, inputs))
    zeros = {name: bytes(spec.storage_bytes) for name, spec in sent.items()}
    return execute_bytes(client, call, zeros)


def execute_bytes(client: Client, call: bytes, storage: dict[str, bytes]) -> framing.Response:
    made = BoundCall("raw", call, dict(storage))
    return finished(client._transport.execute(Request(30, call=made)))


def stored(arguments: Arguments, inputs: Collection[str] = INPUTS) -> tuple[str, ...]:
    """The inputs that are tensors: those whose storage has to follow."""
    return tuple(dict.fromkeys(map(parameter_of, tensors(arguments, inputs))))


def tensors(arguments: Arguments, inputs: Collection[str]) -> dict[str, TensorSpec]:
    """Those, each tensor of a list by its place."""
    given = {
        n: v for n, v in arguments.items() if n in inputs and isinstance(v, TensorSpec | tuple)
    }
    return {place: spec for n, v in given.items() for place, spec in tensors_of(n, v)}
