"""Names, kinds and layouts, which the C function cannot be asked: errors without aclnn status."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any

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
from npucall.v1 import tensor_pb2
from npucall.wire import calls

from . import raw
from .raw import KL, KL_TARGET, L1

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from npucall_client import Client

# [src:formats]
PRIVATE = (
    Format.NC1HWC0,
    Format.NC1HWC0_C04,
    Format.NDC1HWC0,
    Format.FRACTAL_Z,
    Format.FRACTAL_Z_3D,
    Format.FRACTAL_NZ,
    Format.FRACTAL_NZ_C0_2,
    Format.FRACTAL_NZ_C0_4,
    Format.FRACTAL_NZ_C0_8,
    Format.FRACTAL_NZ_C0_16,
    Format.FRACTAL_NZ_C0_32,
)
PUBLIC = [each for each in Format if each not in PRIVATE]
UINT1, INT4 = 30 + 1, 29 + 1  # ACL's codes of packed types, plus 1 as on the wire
Row = tuple[str, pb.Call, type[NpucallError], str]
"""What is wrong with a call, the call, the class of its error, and the parameter."""


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


def changed(change: Callable[[pb.Call], Any]) -> pb.Call:
    """A valid call that a function has changed."""
    call = message()
    change(call)
    return call


def null(name: str) -> pb.Argument:
    return pb.Argument(name=name, absent=pb.Absent())


def unknown() -> Iterator[Row]:
    """Operators, variants and arguments that there are not."""
    for name in ("aclnnKlDivLoss", "", "aclnnklDivBackward", "kl_div_backward"):
        yield f"operator {name!r}", pb.Call(operator=name), OperatorUnknownError, ""
    for operator, variant in ((KL_TARGET, "fast"), (KL, "builtin"), (L1, "x")):
        wrong = message(operator, variant)
        yield f"variant {variant!r}", wrong, OperatorUnknownError, "variant"
    for name in ("input", "gradOutput", "", "workspaceSize"):
        more = pb.Argument(name=name, integer=1)
        yield f"argument {name!r}", message(more=more), ArgumentUnknownError, name
    flag = pb.Argument(name="log_target", boolean=False)
    yield "log_target of L1", message(L1, more=flag), ArgumentUnknownError, "log_target"


def of_another_kind() -> Iterator[Row]:
    """Attributes without a pointer that are null, and values of another kind."""
    for operator, name in ((KL, "reduction"), (KL, "log_target"), (L1, "reduction")):
        call = message(operator, "", **{name: null(name)})
        yield f"a null {name} of {operator}", call, AttributeValueError, name
    int64 = tensor_pb2.TensorSpec(dtype=tensor_pb2.DATA_TYPE_INT64)
    for argument in (
        pb.Argument(name="reduction", boolean=True),
        pb.Argument(name="reduction", tensor=int64),
        pb.Argument(name="log_target", integer=1),
        pb.Argument(name="self", integer=1),
        pb.Argument(name="out", boolean=True),
        pb.Argument(name="reduction"),
        pb.Argument(name="self"),
    ):
        call = message(KL, "", **{argument.name: argument})
        yield (
            f"{argument.name} as {argument.WhichOneof('value')}",
            call,
            MessageError,
            argument.name,
        )


def malformed() -> Iterator[Row]:
    """What is twice there, what is stored and no tensor, and tensors that cannot travel."""
    names = [argument.name for argument in message().arguments]
    for index in (0, 3, 4):
        twice = changed(lambda call, i=index: call.arguments.append(call.arguments[i]))  # type: ignore[misc]
        yield f"{names[index]} twice", twice, MessageError, names[index]
    for index in (0, 2, 4):
        call = message(**{names[index]: null(names[index])})
        call.arguments[-1].stored = True
        yield f"{names[index]} stored and null", call, MessageError, names[index]
    for dtype in (0, UINT1, INT4, 6, 99, -1):
        # A closed list refuses it in Python only; proto3 carries any number.
        yield f"dtype {dtype}", merged(b"\x08" + _varint(dtype)), DTypeError, "target"
    for number in (6, 50, 99, -1):
        yield f"format {number}", merged(b"\x30" + _varint(number)), TensorLayoutError, "target"
    shared = changed(lambda call: call.arguments[3].tensor.strides.extend([0, 1]))
    yield "an output whose elements share memory", shared, TensorLayoutError, "out"


def merged(field: bytes) -> pb.Call:
    """A call with this field in its target."""
    return changed(lambda call: call.arguments[2].tensor.MergeFromString(field))


def several() -> Iterator[Row]:
    """Of several defects the one of the structure is the answer."""
    more, gone = pb.Argument(name="more", integer=1), null("target")
    yield "a null, and a name", message(target=gone, more=more), ArgumentUnknownError, "more"
    call = message(target=gone)
    next(each for each in call.arguments if each.name == "out").tensor.strides.extend([0, 1])
    yield "a null, and a layout", call, TensorLayoutError, "out"
    both = message(KL, "fast", more=pb.Argument(name="more"))
    yield "a variant, and a name", both, OperatorUnknownError, "variant"


def answer(client: Client, call: pb.Call) -> NpucallError | None:
    try:
        raw.plan_bytes(client, call.SerializeToString())
    except NpucallError as error:
        return error
    return None


def test_a_call_of_a_wrong_structure_is_refused_without_an_aclnn_status(client: Client) -> None:
    wrong = []
    for what, call, kind, parameter in (*unknown(), *of_another_kind(), *malformed(), *several()):
        error = answer(client, call)
        found = error and (type(error), error.parameter or "", error.aclnn_status)
        if found != (kind, parameter, None):
            wrong.append((what, error))
    assert not wrong


def test_the_error_about_a_name_tells_those_that_there_are(client: Client) -> None:
    error = answer(client, message(more=pb.Argument(name="input", integer=1)))
    assert "grad_output, self, target, reduction, log_target, out" in str(error)
    error = answer(client, pb.Call(operator="aclnnKlDivLoss"))
    assert error is not None
    assert error.code == grpc.StatusCode.NOT_FOUND


def test_the_default_variant_runs_where_a_call_names_none(client: Client) -> None:
    reply = raw.plan_bytes(client, message(KL_TARGET).SerializeToString()).reply
    assert reply.variant == client.server_info().default_variant


# --- Formats --------------------------------------------------------------------------------------


def in_format(operator: str, form: Format, shape: tuple[int, ...] = raw.SHAPE) -> raw.Arguments:
    """A call whose tensors all have this format."""
    spec = TensorSpec(FLOAT, shape, format=form)
    names = (*raw.INPUTS, raw.OUTPUTS[operator])
    return raw.valid(operator, **dict.fromkeys(names, spec))


def test_every_public_format_is_accepted(client: Client) -> None:
    for operator, variant in raw.OPERATORS:
        with suppress(*raw.ABSENT):
            for form in PUBLIC:
                (output,) = raw.plan(
                    client, operator, variant, in_format(operator, form)
                ).reply.outputs
                assert output.tensor.shape == [2, 3]


def test_every_private_format_is_refused_where_formats_are_checked(client: Client) -> None:
    wrong = []
    for operator, variant in raw.OPERATORS:
        with suppress(*raw.ABSENT):
            for form in PRIVATE:
                error = format_error(client, operator, variant, in_format(operator, form))
                checked = variant in ("builtin", "documented")
                told = error is not None and (error.parameter, error.aclnn_status)
                if (told == ("grad_output", 161002)) is not checked:
                    wrong.append((operator, variant, form, error))
    assert not wrong


def test_the_empty_exit_stands_before_the_check_of_formats_but_in_builtin(client: Client) -> None:
    for variant, reached in (("documented", False), ("community", False), ("builtin", True)):
        with suppress(*raw.ABSENT):
            empty = in_format(KL_TARGET, Format.FRACTAL_NZ, (0, 3))
            assert (format_error(client, KL_TARGET, variant, empty) is not None) is reached


def format_error(
    client: Client, operator: str, variant: str, arguments: raw.Arguments
) -> FormatError | None:
    """The error about a format that the call has on a device, which runs it if there is none."""
    try:
        raw.execute(client, operator, variant, arguments)
    except FormatError as error:
        return error
    return None


def _varint(value: int) -> bytes:
    value &= 2**64 - 1  # a negative number travels as 64 bits
    encoded = bytearray()
    while value > 0x7F:
        encoded.append(value & 0x7F | 0x80)
        value >>= 7
    encoded.append(value)
    return bytes(encoded)
