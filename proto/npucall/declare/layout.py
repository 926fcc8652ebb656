"""Faults of a call that the C function cannot have: these errors have no aclnn status."""

from __future__ import annotations

from npucall.declare.call import Call, tensors_of
from npucall.declare.parameters import Attribute, Input, Output
from npucall.errors import ArgumentMissingError, AttributeValueError, TensorLayoutError
from npucall.tensors import TensorSpec


def check_layout(call: Call) -> None:
    """Raises the error of the first of them."""
    for attribute in call.operator.attributes:
        known = attribute.name in call.arguments or call.operator.default(attribute) is not None
        if not known and not attribute.kind.nullable:
            raise AttributeValueError(
                f"{attribute.name}: expected a value, found none; it has no default",
                parameter=attribute.name,
            )
    for name, value in call.arguments.items():
        parameter = call.operator.by_name[name]
        if isinstance(parameter, Attribute):
            if value is None and not parameter.kind.nullable:
                raise AttributeValueError(
                    f"{name}: expected a value, found none; a {parameter.c_type} cannot be null",
                    parameter=name,
                )
        elif value is not None:
            for place, spec in tensors_of(name, value):
                _check_tensor(place, spec, parameter, sent=place in call.stored)
    for output in call.operator.outputs:
        if output not in call.operator.given and not (
            output.shape or output.name in call.arguments
        ):
            raise ArgumentMissingError(
                f"{output.name}: expected the output's shape and dtype, or null, found neither; "
                f"npucall knows {call.operator.name} by its C header alone and cannot infer them",
                parameter=output.name,
            )


def _check_tensor(name: str, spec: TensorSpec, parameter: Input | Output, *, sent: bool) -> None:
    if isinstance(parameter, Output) and spec.overlaps_itself():
        raise TensorLayoutError(
            f"{name}: expected an output whose elements do not share memory, found shape "
            f"{spec.shape} with strides {spec.strides}",
            parameter=name,
        )
    read = parameter.in_place if isinstance(parameter, Output) else parameter.read
    if read and not sent:
        raise TensorLayoutError(
            f"{name}: expected its values, which the operator reads, found none; set `stored` and "
            "send its storage",
            parameter=name,
        )
