"""A call and its bytes, and the bounded cache of prepared calls, keyed by those bytes.

Why it is worth it: [src:call-cache].
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from google.protobuf.message import DecodeError

from npucall.declare.attributes import check_range
from npucall.declare.call import Argument, Call, element, tensors_of
from npucall.declare.parameters import Attribute, Input, Kind, Output, Scalar
from npucall.declare.prepare import Prepared, prepare
from npucall.dtypes import BOOL, BY_WIRE, DType
from npucall.errors import (
    ArgumentUnknownError,
    AttributeValueError,
    DTypeError,
    MessageError,
    NpucallError,
    TensorLayoutError,
)
from npucall.limits import (
    CACHED_CALL_BYTES,
    CACHED_CALL_VALUES,
    KNOWN_CALLS_BYTES,
    MAX_CALL_BYTES,
    MAX_FIELDS,
)
from npucall.tensors import Format, TensorSpec, row_major
from npucall.v1 import operator_service_pb2 as pb
from npucall.v1 import tensor_pb2
from npucall.wire.caches import BoundedCache
from npucall.wire.messages import KnownMessage, call_in, known_request
from npucall.wire.protobuf import Malformed, data_bytes_in

if TYPE_CHECKING:
    from collections.abc import Mapping

    from npucall.declare.catalogue import Catalogue
    from npucall.declare.declaration import Operator
    from npucall.declare.parameters import Parameter
    from npucall.products import Product


class PreparedCalls:
    """Calls that passed their rules on one product, kept by their bytes. Failures are not kept.

    Neither are calls that take much memory: of more than ``CACHED_CALL_BYTES``, or with more than
    ``CACHED_CALL_VALUES`` tensors and members of lists. What is kept has ``KNOWN_CALLS_BYTES``.
    """

    def __init__(self, catalogue: Catalogue, product: Product, default_variant: str) -> None:
        self._catalogue, self._product = catalogue, product
        self._default_variant = default_variant
        self.kept: BoundedCache[bytes, _Kept] = BoundedCache(KNOWN_CALLS_BYTES)

    def of(self, call: bytes, owner: str = "") -> Prepared:
        """The prepared call of a serialised ``npucall.v1.Call``.

        ``owner``: who is charged for it if it is kept. Raises what ``decode`` and ``prepare``
        raise.
        """
        kept = self.kept.get(call)
        return self._prepare(call, owner) if kept is None else kept.call

    def received(self, message: bytes) -> tuple[Prepared, Mapping[str, memoryview]] | None:
        """Call and storages of an ``ExecuteRequest``, if that takes no parsing and no checks.

        That is so for a call that was prepared before, if npucall wrote the message, with all
        storages in it. None for every other message.
        """
        kept = self.kept.get(call_in(message))
        if kept is None:
            return None
        call, request = kept
        storages = None if request is None else request.split(message)
        return None if storages is None else (call, dict(zip(call.stored, storages, strict=True)))

    def _prepare(self, call: bytes, owner: str) -> Prepared:
        decoded = decode(call, self._catalogue, self._default_variant)
        prepared = prepare(decoded, self._product, self._catalogue)
        if len(call) <= CACHED_CALL_BYTES and _members(prepared) <= CACHED_CALL_VALUES:
            kept = _Kept(prepared, known_request(call, prepared.stored_bytes))
            tensors = len(prepared.inputs) + len(prepared.outputs)
            size = len(call) * _BYTES_A_BYTE + tensors * _TENSOR_BYTES
            self.kept.keep(call, kept, size, owner)
        return prepared


class _Kept(NamedTuple):
    call: Prepared
    request: KnownMessage | None
    """What a message with it looks like; None if that has to be parsed."""


_TENSOR_BYTES, _BYTES_A_BYTE = 2048, 16
"""About what a prepared call takes for each tensor, and for each byte of the call."""


def _members(call: Prepared) -> int:
    """Tensors and members of lists."""
    lists = (len(value) for value in call.values.values() if isinstance(value, tuple))
    return len(call.inputs) + len(call.outputs) + sum(lists)


def encode(
    operator: str,
    variant: str,
    arguments: Mapping[str, Argument],
    stored: tuple[str, ...],
    roles: Mapping[str, type[Input | Output]] | None = None,
) -> bytes:
    """The bytes of a call.

    Storage must be sent in the order of ``arguments``; ``stored`` names a list of tensors as a
    whole. ``roles``: the roles of tensors if the listing guesses wrong.
    """
    listed = [_encode_argument(name, value, name in stored) for name, value in arguments.items()]
    for argument in listed:
        if roles and argument.name in roles:
            argument.role = _ROLES[roles[argument.name]]
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
        if len(data) > 2 * MAX_FIELDS:  # fewer bytes cannot have more
            data_bytes_in(data, pb.Call.DESCRIPTOR, MAX_FIELDS)
        message = pb.Call.FromString(data)
    except Malformed as fault:
        raise MessageError(f"call: expected a serialised npucall.v1.Call, found {fault}") from fault
    except DecodeError as error:
        raise MessageError("call: expected a serialised npucall.v1.Call") from error
    operator = catalogue.runnable(message.operator, message.variant, default_variant)
    try:
        return _decode_arguments(message, operator)
    except NpucallError as error:
        error.details.setdefault("operator", operator.name)
        raise


def encode_tensor(spec: TensorSpec) -> tensor_pb2.TensorSpec:
    """The message of a spec, without what follows from the rest."""
    message = tensor_pb2.TensorSpec(dtype=spec.dtype.wire, shape=spec.shape)  # type: ignore[arg-type]
    if spec.offset or spec.storage_shape != spec.shape or spec.strides != row_major(spec.shape):
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
    if isinstance(value, tuple):
        member = _MEMBER_OF_MANY[type(value[0]) if value else int]
        return pb.Argument(name=name, stored=stored, **{member: _many(member, value)})
    return pb.Argument(name=name, stored=stored, **{_MEMBER_OF_ONE[type(value)]: _one(value)})


def _one(value: Any) -> Any:
    """A value as its member of the message takes it."""
    if isinstance(value, TensorSpec):
        return encode_tensor(value)
    if isinstance(value, Scalar):
        data = np.array(value.value, value.dtype.numpy).tobytes()
        return pb.Scalar(dtype=value.dtype.wire, value=data)  # type: ignore[arg-type]
    if type(value) is int:
        return signed(value)
    return value.wire if isinstance(value, DType) else value


def signed(number: int) -> int:
    """The int64 of the same 64 bits, as an uint64_t travels."""
    return number - 2**64 if number >= 2**63 else number


def _many(member: str, values: tuple[Any, ...]) -> Any:
    converted = [_one(value) for value in values]
    return _LISTS[member](**{_FIELD_OF_LIST.get(member, "values"): converted})


def _decode_arguments(message: pb.Call, operator: Operator[Any, Any]) -> Call:
    operator = _with_roles(message, operator)
    arguments: dict[str, Argument] = {}
    stored: list[str] = []
    for argument in message.arguments:
        name = argument.name
        parameter = _parameter(name, operator)
        if name in arguments:
            raise MessageError(
                f"{name}: expected one argument of this name, found two", parameter=name
            )
        arguments[name] = value = _decode_argument(argument, parameter)
        if argument.stored:
            if isinstance(parameter, Attribute) or value is None:
                raise MessageError(
                    f"{name}: expected a tensor, since `stored` is set, found none", parameter=name
                )
            stored += (place for place, _ in tensors_of(name, value))
    return Call(operator, arguments, tuple(stored))


def _parameter(name: str, operator: Operator[Any, Any]) -> Parameter:
    parameter = operator.by_name.get(name)
    if parameter is None:
        raise ArgumentUnknownError(
            f"{name!r}: expected a parameter of {operator.title}: {', '.join(operator.by_name)}",
            parameter=name,
        )
    return parameter


def _with_roles(message: pb.Call, operator: Operator[Any, Any]) -> Operator[Any, Any]:
    """The operator with the roles that the caller states."""
    roles = {}
    for argument in message.arguments:
        if not argument.role:
            continue
        name, role = argument.name, _TENSORS_BY_ROLE.get(argument.role)
        attribute = isinstance(_parameter(name, operator), Attribute)
        if role is None or attribute or operator.reference:
            raise MessageError(
                f"{name}: expected no role, found {argument.role}; only a tensor of an operator "
                "that npucall knows by its C header alone may have one, INPUT or OUTPUT",
                parameter=name,
            )
        roles[name] = role
    return operator.with_roles(roles) if roles else operator


_ROLES: dict[type[Input | Output], pb.Role.ValueType] = {
    Input: pb.ROLE_INPUT,
    Output: pb.ROLE_OUTPUT,
}
_TENSORS_BY_ROLE: dict[int, type[Input | Output]] = {v: k for k, v in _ROLES.items()}
_MEMBER_OF_ONE = {
    bool: "boolean",
    int: "integer",
    float: "number",
    str: "text",
    DType: "dtype",
    Scalar: "scalar",
    TensorSpec: "tensor",
}
"""The member of ``Argument.value`` that holds a Python type."""
_MEMBER_OF_MANY = {
    bool: "booleans",
    int: "integers",
    float: "numbers",
    Scalar: "scalars",
    TensorSpec: "tensors",
}
"""The member that holds several of that type; an empty list is sent as integers."""
_LISTS: dict[str, Any] = {
    "booleans": pb.BoolArray,
    "integers": pb.IntArray,
    "numbers": pb.FloatArray,
    "scalars": pb.ScalarList,
    "tensors": pb.TensorList,
}
_FIELD_OF_LIST = {"tensors": "tensors"}
_MEMBERS = {
    Kind.INT64: "integer",
    Kind.INT32: "integer",
    Kind.INT: "integer",
    Kind.INT8: "integer",
    Kind.UINT64: "integer",
    Kind.BOOL: "boolean",
    Kind.FLOAT: "number",
    Kind.DOUBLE: "number",
    Kind.DTYPE: "dtype",
    Kind.STRING: "text",
    Kind.SCALAR: "scalar",
    Kind.SCALAR_LIST: "scalars",
    Kind.INT_ARRAY: "integers",
    Kind.FLOAT_ARRAY: "numbers",
    Kind.BOOL_ARRAY: "booleans",
}
"""The member that holds a kind of attribute."""


def _member_of(parameter: Parameter) -> str:
    if isinstance(parameter, Attribute):
        return _MEMBERS[parameter.kind]
    return "tensors" if parameter.many else "tensor"


def _decode_argument(argument: pb.Argument, parameter: Parameter) -> Argument:
    name, member = argument.name, argument.WhichOneof("value")
    if member == "absent":
        return None
    expected = _member_of(parameter)
    if member == "integers" and expected in _LISTS and not argument.integers.values:
        return ()
    if member != expected:
        raise MessageError(
            f"{name}: expected its value as {expected!r}, found {member or 'none'!r}",
            parameter=name,
        )
    given = getattr(argument, expected)
    if expected == "tensors":
        specs = enumerate(given.tensors)
        return tuple(decode_tensor(element(name, index), spec) for index, spec in specs)
    if expected in _LISTS:
        return tuple(_decode_value(name, value, parameter) for value in given.values)
    value: Argument = _decode_value(name, given, parameter)
    return value


def _decode_value(name: str, given: Any, parameter: Parameter) -> Any:
    if isinstance(given, tensor_pb2.TensorSpec):
        return decode_tensor(name, given)
    if isinstance(given, pb.Scalar):
        return _decode_scalar(name, given)
    kind = parameter.kind if isinstance(parameter, Attribute) else None
    if kind is Kind.DTYPE:
        return _decode_dtype(name, given)
    if isinstance(given, str) and "\0" in given:
        raise AttributeValueError(
            f"{name}: expected a text without a zero byte, found {given!r}", parameter=name
        )
    if kind is not None and type(given) is int:
        check_range(name, kind, given)
        return given % 2**64 if kind is Kind.UINT64 else given
    return given


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
