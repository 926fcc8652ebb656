"""An operator as its listing shows it, ``npucall.v1.OperatorInfo``, from its declaration."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from npucall.operators.spec import Attribute, Input, Output
from npucall.v1 import operator_service_pb2 as pb

if TYPE_CHECKING:
    from npucall.operators.spec import Operator, Parameter
    from npucall.products import Product

_ROLES = {Input: pb.ROLE_INPUT, Output: pb.ROLE_OUTPUT, Attribute: pb.ROLE_ATTRIBUTE}


def describe(operator: Operator[Any, Any], product: Product) -> pb.OperatorInfo:
    """Everything that a caller can know of an operator, seen from a server of ``product``."""
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
        available=bool(operator.dtypes_on(product)),
        prototype=operator.prototype,
    )


def _parameter(operator: Operator[Any, Any], parameter: Parameter) -> pb.ParameterInfo:
    info = pb.ParameterInfo(
        name=parameter.name,
        role=_ROLES[type(parameter)],
        c_type=parameter.c_type,
        description=parameter.description,
        read=isinstance(parameter, Input) and parameter.read,
        optional=_optional(operator, parameter),
    )
    default = operator.default(parameter) if isinstance(parameter, Attribute) else None
    if isinstance(default, bool):
        info.boolean = default
    elif isinstance(default, int):
        info.integer = default
    elif isinstance(default, float):
        info.number = default
    elif isinstance(default, str):
        info.text = default
    return info


def _optional(operator: Operator[Any, Any], parameter: Parameter) -> bool:
    if isinstance(parameter, Attribute):
        signature = operator.signature.parameters[parameter.name]
        return parameter.kind.nullable and signature.default is None
    return isinstance(parameter, Input) and parameter.optional
