"""Names, kinds and layouts, which the C function cannot be asked: errors without aclnn status."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import grpc
import pytest

from npucall.dtypes import FLOAT
from npucall.errors import (
    ArgumentUnknownError,
    AttributeValueError,
    DTypeError,
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


def refused(client: Client, call: pb.Call) -> NpucallError:
    with pytest.raises(NpucallError) as caught:
        raw.plan_bytes(client, call.SerializeToString())
    assert caught.value.aclnn_status is None
    return caught.value


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


@pytest.mark.parametrize("name", ["aclnnKlDivLoss", "", "aclnnklDivBackward", "kl_div_backward"])
def test_an_unknown_operator_is_not_found(client: Client, name: str) -> None:
    error = refused(client, pb.Call(operator=name))
    assert (type(error), error.code) == (OperatorUnknownError, grpc.StatusCode.NOT_FOUND)


@pytest.mark.parametrize(("operator", "variant"), [(KL_TARGET, "fast"), (KL, "builtin"), (L1, "x")])
def test_an_unknown_variant_is_not_found(client: Client, operator: str, variant: str) -> None:
    error = refused(client, message(operator, variant))
    assert (type(error), error.code) == (OperatorUnknownError, grpc.StatusCode.NOT_FOUND)
    assert error.parameter == "variant"


def test_the_default_variant_runs_where_a_call_names_none(client: Client) -> None:
    reply = raw.plan_bytes(client, message(KL_TARGET).SerializeToString()).reply
    assert reply.variant == client.server_info().default_variant


@pytest.mark.parametrize("name", ["input", "gradOutput", "", "workspaceSize"])
def test_an_unknown_argument_is_refused_by_name(client: Client, name: str) -> None:
    error = refused(client, message(more=pb.Argument(name=name, integer=1)))
    assert (type(error), error.parameter) == (ArgumentUnknownError, name)
    assert "grad_output, self, target, reduction, log_target, out" in str(error)


def test_l1_has_no_log_target(client: Client) -> None:
    error = refused(client, message(L1, more=pb.Argument(name="log_target", boolean=False)))
    assert (type(error), error.parameter) == (ArgumentUnknownError, "log_target")


@pytest.mark.parametrize(
    ("operator", "name"), [(KL, "reduction"), (KL, "log_target"), (L1, "reduction")]
)
def test_an_attribute_without_a_pointer_type_cannot_be_null(
    client: Client, operator: str, name: str
) -> None:
    null = pb.Argument(name=name, absent=pb.Absent())
    error = refused(client, message(operator, "", **{name: null}))
    assert (type(error), error.parameter) == (AttributeValueError, name)


@pytest.mark.parametrize(
    "argument",
    [
        pb.Argument(name="reduction", boolean=True),
        pb.Argument(
            name="reduction", tensor=tensor_pb2.TensorSpec(dtype=tensor_pb2.DATA_TYPE_INT64)
        ),
        pb.Argument(name="log_target", integer=1),
        pb.Argument(name="self", integer=1),
        pb.Argument(name="out", boolean=True),
        pb.Argument(name="reduction"),
        pb.Argument(name="self"),
    ],
    ids=lambda argument: f"{argument.name} as {argument.WhichOneof('value')}",
)
def test_a_value_of_another_kind_than_its_parameter_is_malformed(
    client: Client, argument: pb.Argument
) -> None:
    error = refused(client, message(KL, "", **{argument.name: argument}))
    assert (type(error), error.parameter) == (MessageError, argument.name)


@pytest.mark.parametrize("index", [0, 3, 4])
def test_an_argument_given_twice_is_malformed(client: Client, index: int) -> None:
    call = message()
    call.arguments.append(call.arguments[index])
    error = refused(client, call)
    assert (type(error), error.parameter) == (MessageError, call.arguments[index].name)


@pytest.mark.parametrize("index", [0, 2, 4])
def test_stored_without_a_tensor_is_malformed(client: Client, index: int) -> None:
    call = message()
    call.arguments[index].stored = True
    call.arguments[index].absent.SetInParent()
    error = refused(client, call)
    assert (type(error), error.parameter) == (MessageError, call.arguments[index].name)


@pytest.mark.parametrize("dtype", [0, UINT1, INT4, 6, 99, -1])
def test_a_dtype_that_is_not_listed_or_packed_cannot_travel(client: Client, dtype: int) -> None:
    call = message()
    # A closed list refuses it in Python only; proto3 carries any number.
    call.arguments[2].tensor.MergeFromString(b"\x08" + _varint(dtype))
    error = refused(client, call)
    assert (type(error), error.parameter) == (DTypeError, "target")


@pytest.mark.parametrize("number", [6, 50, 99, -1])
def test_a_format_that_is_not_listed_is_refused(client: Client, number: int) -> None:
    call = message()
    call.arguments[2].tensor.MergeFromString(b"\x30" + _varint(number))
    error = refused(client, call)
    assert (type(error), error.parameter) == (TensorLayoutError, "target")


def test_an_output_whose_elements_share_memory_is_refused(client: Client) -> None:
    call = message()
    call.arguments[3].tensor.strides.extend([0, 1])
    error = refused(client, call)
    assert (type(error), error.parameter) == (TensorLayoutError, "out")


def test_structure_is_judged_before_any_rule(client: Client) -> None:
    null = pb.Argument(name="target", absent=pb.Absent())
    call = message(target=null, more=pb.Argument(name="more", integer=1))
    assert type(refused(client, call)) is ArgumentUnknownError


def test_the_layout_is_judged_before_a_null(client: Client) -> None:
    call = message(target=pb.Argument(name="target", absent=pb.Absent()))
    next(each for each in call.arguments if each.name == "out").tensor.strides.extend([0, 1])
    assert type(refused(client, call)) is TensorLayoutError


def test_the_operator_is_judged_before_its_arguments(client: Client) -> None:
    call = message(KL, "fast", more=pb.Argument(name="more"))
    assert type(refused(client, call)) is OperatorUnknownError


@pytest.mark.parametrize("variant", ["builtin", "documented"])
def test_every_private_format_is_refused_where_formats_are_checked(
    client: Client, variant: str
) -> None:
    for private in PRIVATE:
        target = TensorSpec(FLOAT, raw.SHAPE, format=private)
        with pytest.raises(NpucallError, match=private.name) as caught:
            raw.plan(client, KL_TARGET, variant, raw.valid(KL_TARGET, target=target))
        assert (caught.value.aclnn_status, caught.value.parameter) == (161002, "target")


@pytest.mark.parametrize(("operator", "variant"), raw.OPERATORS)
def test_every_public_format_is_accepted(client: Client, operator: str, variant: str) -> None:
    for each in PUBLIC:
        spec = TensorSpec(FLOAT, raw.SHAPE, format=each)
        changes = dict.fromkeys((*raw.INPUTS, raw.OUTPUTS[operator]), spec)
        (output,) = raw.plan(
            client, operator, variant, raw.valid(operator, **changes)
        ).reply.outputs
        assert output.tensor.shape == [2, 3]


@pytest.mark.parametrize(("operator", "variant"), [(KL, ""), (L1, ""), (KL_TARGET, "community")])
def test_private_formats_are_accepted_where_formats_are_not_checked(
    client: Client, operator: str, variant: str
) -> None:
    spec = TensorSpec(FLOAT, raw.SHAPE, format=Format.FRACTAL_NZ)
    changes = dict.fromkeys((*raw.INPUTS, raw.OUTPUTS[operator]), spec)
    arguments = raw.valid(operator, **changes)
    assert len(raw.execute(client, operator, variant, arguments).storage) == 1


@pytest.mark.parametrize("variant", ["documented", "community"])
def test_the_empty_exit_stands_before_the_format_check(client: Client, variant: str) -> None:
    empty = TensorSpec(FLOAT, (0, 3), format=Format.FRACTAL_NZ)
    changes = dict.fromkeys((*raw.INPUTS, "grad_target"), empty)
    (storage,) = raw.execute(client, KL_TARGET, variant, raw.valid(KL_TARGET, **changes)).storage
    assert bytes(storage) == b""


def test_builtin_checks_the_format_of_empty_tensors_too(client: Client) -> None:
    empty = TensorSpec(FLOAT, (0, 3), format=Format.FRACTAL_NZ)
    changes = dict.fromkeys((*raw.INPUTS, "grad_target"), empty)
    with pytest.raises(NpucallError, match="grad_output: expected a public format"):
        raw.plan(client, KL_TARGET, "builtin", raw.valid(KL_TARGET, **changes))


def _varint(value: int) -> bytes:
    value &= 2**64 - 1  # a negative number travels as 64 bits
    encoded = bytearray()
    while value > 0x7F:
        encoded.append(value & 0x7F | 0x80)
        value >>= 7
    encoded.append(value)
    return bytes(encoded)
