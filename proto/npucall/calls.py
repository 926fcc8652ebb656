"""A call and its bytes, and the bounded cache of prepared calls, keyed by those bytes."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np
from google.protobuf.message import DecodeError

from npucall.dtypes import BOOL, BY_WIRE
from npucall.errors import (
    ArgumentUnknownError,
    AttributeValueError,
    DTypeError,
    MessageError,
    NpucallError,
    TensorLayoutError,
)
from npucall.operators.prepare import Prepared, prepare
from npucall.operators.spec import Argument, Attribute, Call, Kind, Scalar
from npucall.tensors import Format, TensorSpec
from npucall.v1 import operator_service_pb2 as pb
from npucall.v1 import tensor_pb2

if TYPE_CHECKING:
    from collections.abc import Mapping

    from npucall.dtypes import DType
    from npucall.operators.catalogue import Catalogue
    from npucall.operators.spec import Operator, Parameter
    from npucall.products import Product

MAX_CALL_BYTES = 64 * 1024
_CACHED_CALLS = 1024
_CACHED_CALL_BYTES = 8 * 1024


class PreparedCalls:
    """Calls that passed their rules on one product, kept by their bytes. Failures are not kept."""

    def __init__(self, catalogue: Catalogue, product: Product, default_variant: str) -> None:
        self._catalogue, self._product = catalogue, product
        self._default_variant = default_variant
        self._cached = lru_cache(_CACHED_CALLS)(self._prepare)

    def of(self, call: bytes) -> Prepared:
        """The prepared call of a serialised ``npucall.v1.Call``.

        Raises what ``decode`` and ``prepare`` raise.
        """
        return self._cached(call) if len(call) <= _CACHED_CALL_BYTES else self._prepare(call)

    def _prepare(self, call: bytes) -> Prepared:
        decoded = decode(call, self._catalogue, self._default_variant)
        return prepare(decoded, self._product, self._catalogue)


def encode(
    operator: str, variant: str, arguments: Mapping[str, Argument], stored: tuple[str, ...]
) -> bytes:
    """The bytes of a call. Storage must be sent in the order of ``arguments``."""
    listed = [_encode_argument(name, value, name in stored) for name, value in arguments.items()]
    call = pb.Call(operator=operator, variant=variant, arguments=listed)
    return call.SerializeToString(deterministic=True)


def decode(data: bytes, catalogue: Catalogue, default_variant: str = "") -> Call:
    """The call in serialised bytes.

    Raises MessageError, OperatorUnknownError, ArgumentUnknownError, DTypeError and
    TensorLayoutError, in this order.
    """
    if len(data) > MAX_CALL_BYTES:
        raise MessageError(f"call: expected at most {MAX_CALL_BYTES} bytes, found {len(data)}")
    try:
        message = pb.Call.FromString(data)
    except DecodeError as error:
        raise MessageError("call: expected a serialised npucall.v1.Call") from error
    operator = catalogue.find(message.operator, message.variant, default_variant)
    try:
        return _decode_arguments(message, operator)
    except NpucallError as error:
        error.details.setdefault("operator", operator.name)
        raise


def encode_tensor(spec: TensorSpec) -> tensor_pb2.TensorSpec:
    """The message of a spec; what follows from the rest is left out."""
    message = tensor_pb2.TensorSpec(dtype=spec.dtype.wire, shape=spec.shape)  # type: ignore[arg-type]
    if spec != spec.dense():
        message.strides.extend(spec.strides)
        message.offset = spec.offset
        message.storage_shape.extend(spec.storage_shape)
    if spec.format is not Format.ND:
        message.format = spec.format + 1  # type: ignore[assignment]
    return message


def decode_tensor(name: str, message: tensor_pb2.TensorSpec) -> TensorSpec:
    """The spec in a message.

    Raises DTypeError or TensorLayoutError, without an aclnn status.
    """
    return TensorSpec(
        _decode_dtype(name, message.dtype),
        tuple(message.shape),
        tuple(message.strides) or None,  # type: ignore[arg-type]
        message.offset,
        tuple(message.storage_shape) or None,  # type: ignore[arg-type]
        _decode_format(name, message.format),
        name,
    )


def _encode_argument(name: str, value: Argument, stored: bool) -> pb.Argument:  # noqa: FBT001
    if value is None:
        return pb.Argument(name=name, absent=pb.Absent())
    if isinstance(value, TensorSpec):
        return pb.Argument(name=name, stored=stored, tensor=encode_tensor(value))
    if isinstance(value, Scalar):
        data = np.array(value.value, value.dtype.numpy).tobytes()
        return pb.Argument(name=name, scalar=pb.Scalar(dtype=value.dtype.wire, value=data))  # type: ignore[arg-type]
    if isinstance(value, tuple):
        return pb.Argument(name=name, integers=pb.IntArray(values=value))
    return pb.Argument(name=name, **{_PLAIN[type(value)]: value})  # type: ignore[arg-type]


def _decode_arguments(message: pb.Call, operator: Operator[Any, Any]) -> Call:
    arguments: dict[str, Argument] = {}
    stored = []
    for argument in message.arguments:
        name = argument.name
        parameter = operator.by_name.get(name)
        if parameter is None:
            raise ArgumentUnknownError(
                f"{name!r}: expected a parameter of {operator.title}: "
                f"{', '.join(operator.by_name)}",
                parameter=name,
            )
        if name in arguments:
            raise MessageError(f"{name}: expected once, found twice", parameter=name)
        arguments[name] = _decode_argument(argument, parameter)
        if argument.stored:
            if not isinstance(arguments[name], TensorSpec):
                raise MessageError(f"{name}: `stored` is set without a tensor", parameter=name)
            stored.append(name)
    return Call(operator, arguments, tuple(stored))


_PLAIN = {bool: "boolean", int: "integer", float: "number", str: "text"}
"""The member of ``Argument.value`` that holds a Python type."""
_MEMBERS = {
    Kind.INT64: "integer",
    Kind.BOOL: "boolean",
    Kind.FLOAT: "number",
    Kind.DOUBLE: "number",
    Kind.STRING: "text",
    Kind.SCALAR: "scalar",
    Kind.INT_ARRAY: "integers",
}
"""The member that holds a kind of attribute."""


def _decode_argument(argument: pb.Argument, parameter: Parameter) -> Argument:
    member = argument.WhichOneof("value")
    if member == "absent":
        return None
    expected = _MEMBERS[parameter.kind] if isinstance(parameter, Attribute) else "tensor"
    if member != expected:
        raise MessageError(
            f"{argument.name}: expected the value as {expected!r}, found {member or 'none'!r}",
            parameter=argument.name,
        )
    if member == "tensor":
        return decode_tensor(argument.name, argument.tensor)
    if member == "scalar":
        return _decode_scalar(argument.name, argument.scalar)
    if member == "integers":
        return tuple(argument.integers.values)
    value: int | bool | float | str = getattr(argument, expected)
    if isinstance(value, str) and "\0" in value:
        raise AttributeValueError(
            f"{argument.name}: expected a text without a zero byte, found {value!r}",
            parameter=argument.name,
        )
    return value


def _decode_scalar(name: str, message: pb.Scalar) -> Scalar:
    dtype = _decode_dtype(name, message.dtype)
    if len(message.value) != dtype.itemsize:
        raise AttributeValueError(
            f"{name}: expected {dtype.itemsize} bytes for a {dtype}, found {len(message.value)}",
            parameter=name,
        )
    value = (
        bool(message.value[0])
        if dtype is BOOL
        else np.frombuffer(message.value, dtype.numpy)[0].item()
    )
    return Scalar(dtype, value)


def _decode_dtype(name: str, value: int) -> DType:
    dtype = BY_WIRE.get(value)
    if dtype is None:
        raise DTypeError(
            f"{name}: expected a dtype of whole bytes that npucall.v1.DataType lists, "
            f"found value {value}",
            parameter=name,
        )
    return dtype


def _decode_format(name: str, value: int) -> Format:
    try:
        return Format(value - 1) if value else Format.ND
    except ValueError:
        raise TensorLayoutError(
            f"{name}: expected a format that npucall.v1.Format lists, found value {value}",
            parameter=name,
        ) from None
