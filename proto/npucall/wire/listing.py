"""An operator in a listing, ``npucall.v1.OperatorInfo``, from its declaration."""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache
from typing import Any

from npucall.declare.declaration import Operator
from npucall.declare.parameters import (
    Attribute,
    Input,
    Kind,
    Output,
    Parameter,
    c_name,
    parameter_of,
)
from npucall.dtypes import BY_WIRE, DType
from npucall.products import Product
from npucall.v1 import operator_service_pb2 as pb
from npucall.wire.calls import signed


def describe(
    operator: Operator[Any, Any], product: Product, unavailable_because: str = ""
) -> pb.OperatorInfo:
    """Everything that a caller can know of an operator, seen from a server of ``product``.

    ``unavailable_because``: why the server cannot run it, if the product could.
    """
    if operator.reference and not operator.dtypes_on(product):
        unavailable_because = f"{product} does not have it"
    listed = [(operator.products, False), (operator.legacy, True)]
    return pb.OperatorInfo(
        name=operator.name,
        variant=operator.variant,
        summary=operator.summary,
        description=operator.description,
        parameters=[_parameter(operator, parameter) for parameter in operator.parameters],
        products=[
            pb.ProductInfo(soc=key.soc, dtypes=[d.wire for d in dtypes], legacy=legacy)  # type: ignore[misc]
            for products, legacy in listed
            for key, dtypes in products.items()
        ],
        rules=[
            pb.RuleInfo(description=rule.description, blames=rule.blames, aclnn_status=rule.status)
            for rule in operator.checks
        ],
        source=operator.source,
        available=not unavailable_because,
        prototype=operator.prototype,
        reference=operator.reference,
        unavailable_because=unavailable_because,
        formats_by_rank=operator.formats_by_rank,
    )


@lru_cache(maxsize=8)
def listing(
    operators: tuple[Operator[Any, Any], ...], product: Product, reasons: tuple[str, ...] = ()
) -> bytes:
    """The answer to ListOperators, made once, for anybody may ask for it again and again.

    ``reasons``: why each of them is unavailable; if not given, all that the product has are there.
    """
    told = zip(operators, reasons or len(operators) * ("",), strict=True)
    described = [describe(operator, product, reason) for operator, reason in told]
    return pb.ListOperatorsResponse(operators=described).SerializeToString(deterministic=True)


def declare(info: pb.OperatorInfo) -> Operator[Any, Any]:
    """An operator from a listing: what a caller needs, without rules and formula.

    Raises ValueError for a parameter of an unknown kind.
    """
    parameters = tuple(map(_declared, info.parameters))
    return Operator(
        info.name, info.variant, parameters, {}, {}, (), None, None, info.source, None,
        reference=info.reference,
    )  # fmt: skip


def _declared(info: pb.ParameterInfo) -> Parameter:
    if info.role not in _TYPES:
        raise ValueError(f"{info.name}: expected a known role, found {info.role}")
    parameter = parameter_of(
        info.name, info.c_type, _TYPES[info.role], in_place=info.role == _IN_PLACE
    )
    parameter = replace(
        parameter, description=info.description, c_name=info.c_name or parameter.c_name
    )
    if isinstance(parameter, Input):
        return replace(parameter, read=info.read, optional=info.optional)
    if isinstance(parameter, Output):
        return replace(parameter, optional=info.optional)
    member = info.WhichOneof("default_value")
    default = getattr(info, member) if member else None
    default = BY_WIRE.get(info.dtype) if member == "dtype" else default
    if parameter.kind is Kind.UINT64 and isinstance(default, int):
        default %= 2**64
    return replace(parameter, default=default)


_IN_PLACE = pb.ROLE_INPUT_OUTPUT
_TYPES: dict[int, type[Input | Output] | None] = {
    pb.ROLE_INPUT: Input,
    pb.ROLE_OUTPUT: Output,
    pb.ROLE_INPUT_OUTPUT: Output,
    pb.ROLE_ATTRIBUTE: None,
}


def _role(parameter: Parameter) -> pb.Role.ValueType:
    if isinstance(parameter, Attribute):
        return pb.ROLE_ATTRIBUTE
    if isinstance(parameter, Input):
        return pb.ROLE_INPUT
    return _IN_PLACE if parameter.in_place else pb.ROLE_OUTPUT


def _parameter(operator: Operator[Any, Any], parameter: Parameter) -> pb.ParameterInfo:
    info = pb.ParameterInfo(
        name=parameter.name,
        c_name=c_name(parameter),
        role=_role(parameter),
        c_type=parameter.c_type,
        description=parameter.description,
        read=parameter.read if isinstance(parameter, Input) else _role(parameter) == _IN_PLACE,
        optional=_optional(operator, parameter),
    )
    default = operator.default(parameter) if isinstance(parameter, Attribute) else None
    if isinstance(default, bool):
        info.boolean = default
    elif isinstance(default, int):
        info.integer = signed(default)
    elif isinstance(default, float):
        info.number = default
    elif isinstance(default, str):
        info.text = default
    elif isinstance(default, DType):
        info.dtype = default.wire  # type: ignore[assignment]
    return info


def _optional(operator: Operator[Any, Any], parameter: Parameter) -> bool:
    if isinstance(parameter, Attribute):
        given = parameter.name in operator.required or operator.default(parameter) is not None
        return parameter.kind.nullable and not given
    return parameter.optional if isinstance(parameter, Input) else parameter.nullable
