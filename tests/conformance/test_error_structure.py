"""Errors without aclnn status, of names, kinds and layouts, reach the caller of every device.

``tests/proto/wire/test_calls.py`` has all of them, and their order.
"""

from contextlib import suppress
from typing import Any

import grpc

from npucall.dtypes import FLOAT
from npucall.errors import (
    ArgumentUnknownError,
    AttributeValueError,
    DTypeError,
    FormatError,
    MessageError,
    NpucallError,
    OperatorUnknownError,
    TensorLayoutError,
)
from npucall.tensors import Format, TensorSpec
from npucall.v1 import operator_service_pb2 as pb
from npucall.wire import calls
from npucall_client import Client

from . import raw
from .raw import KL, KL_TARGET, L1

INT4 = 29 + 1  # ACL's code of a packed type, plus 1 as on the wire
NULL = pb.Absent()
MORE = pb.Argument(name="more", integer=1)


def message(operator: str = KL, variant: str = "", **changes: Any) -> pb.Call:
    """A valid call as the message that it is on the wire; changes replace arguments."""
    arguments = raw.valid(operator)
    names = raw.stored(arguments)
    call = pb.Call.FromString(calls.encode(operator, variant, arguments, names))
    for name, argument in changes.items():
        kept = [each for each in call.arguments if each.name != name]
        del call.arguments[:]
        call.arguments.extend([*kept, argument])
    return call


def with_field(name: str, data: bytes, **changes: Any) -> pb.Call:
    """A call with more bytes in a tensor: a list of numbers is closed in Python only."""
    call = message(**changes)
    next(a for a in call.arguments if a.name == name).tensor.MergeFromString(data)
    return call


STRIDES = b"\x1a\x02\x00\x01"  # 0 and 1
OVERLAPPING = with_field("out", STRIDES)
TWICE = message()
TWICE.arguments.append(TWICE.arguments[0])
STORED = message(target=pb.Argument(name="target", absent=NULL, stored=True))
BESIDE_A_NULL = with_field("out", STRIDES, target=pb.Argument(name="target", absent=NULL))
# What is wrong, the class of the error, the parameter.
ROWS: list[tuple[pb.Call, type[NpucallError], str]] = [
    (pb.Call(operator="kl_div_backward"), OperatorUnknownError, ""),
    (message(KL, "builtin"), OperatorUnknownError, "variant"),
    (message(KL, "fast", more=MORE), OperatorUnknownError, "variant"),
    (message(more=MORE), ArgumentUnknownError, "more"),
    (
        message(L1, log_target=pb.Argument(name="log_target", boolean=False)),
        ArgumentUnknownError,
        "log_target",
    ),
    (
        message(reduction=pb.Argument(name="reduction", absent=NULL)),
        AttributeValueError,
        "reduction",
    ),
    (message(out=pb.Argument(name="out", boolean=True)), MessageError, "out"),
    (TWICE, MessageError, "grad_output"),
    (STORED, MessageError, "target"),
    (with_field("target", bytes([0x08, INT4])), DTypeError, "target"),
    (with_field("target", bytes([0x30, 99])), TensorLayoutError, "target"),
    (OVERLAPPING, TensorLayoutError, "out"),
    (BESIDE_A_NULL, TensorLayoutError, "out"),
]


def answer(client: Client, call: pb.Call) -> NpucallError | None:
    try:
        raw.plan_bytes(client, call.SerializeToString())
    except NpucallError as error:
        return error
    return None


def test_a_call_of_a_wrong_structure_is_refused_without_an_aclnn_status(client: Client) -> None:
    wrong = []
    for call, kind, parameter in ROWS:
        error = answer(client, call)
        found = error and (type(error), error.parameter or "", error.aclnn_status)
        if found != (kind, parameter, None):
            wrong.append((call, error))
    assert not wrong
    unknown = answer(client, ROWS[0][0])
    assert unknown is not None
    assert unknown.code == grpc.StatusCode.NOT_FOUND
    names = "grad_output, self, target, reduction, log_target, out"
    assert names in str(answer(client, message(more=MORE)))


def test_the_default_variant_runs_where_a_call_names_none(client: Client) -> None:
    reply = raw.plan_bytes(client, message(KL_TARGET).SerializeToString()).reply
    assert reply.variant == client.server_info().default_variant


def error_about(
    client: Client, operator: str, variant: str, form: Format, shape: tuple[int, ...] = raw.SHAPE
) -> FormatError | None:
    """The error of a call whose tensors all have a format; without one the device runs it."""
    spec = TensorSpec(FLOAT, shape, format=form)
    names = (*raw.INPUTS, raw.OUTPUTS[operator])
    try:
        raw.execute(client, operator, variant, raw.valid(operator, **dict.fromkeys(names, spec)))
    except FormatError as error:
        return error
    return None


def test_private_formats_are_refused_where_formats_are_checked_and_no_others(
    client: Client,
) -> None:
    wrong = []
    for operator, variant in raw.OPERATORS:
        with suppress(*raw.ABSENT):
            for form in Format:
                error = error_about(client, operator, variant, form)
                checked = form.private and variant in ("builtin", "documented")
                told = (error.parameter, error.aclnn_status) if error else None
                if told != (("grad_output", 161002) if checked else None):
                    wrong.append((operator, variant, form, error))
    assert not wrong


def test_the_empty_exit_stands_before_the_check_of_formats_but_in_builtin(client: Client) -> None:
    for variant, reached in (("documented", False), ("community", False), ("builtin", True)):
        with suppress(*raw.ABSENT):
            error = error_about(client, KL_TARGET, variant, Format.FRACTAL_NZ, (0, 3))
            assert (error is not None) is reached
