"""Calls of programs, planned and run by a client."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np

from npucall.declare.attributes import attribute_value
from npucall.declare.call import Call, tensors_of
from npucall.declare.domain import Elementwise
from npucall.declare.parameters import Attribute, c_name
from npucall.declare.prepare import Prepared, prepare
from npucall.errors import (
    HandleLostError,
    NpucallError,
    OperatorUnavailableError,
    OperatorUnknownError,
    ServerUnreachableError,
    SessionExpiredError,
    SessionUnknownError,
    WrongServerError,
)
from npucall.limits import CACHED_CALLS
from npucall.operators import CATALOGUE
from npucall.products import taken_for
from npucall.tensors import TensorSpec
from npucall_client.calls.tensors import Empty
from npucall_exec.launches import VARIANTS, CallOfC, call_of, each, saturate

if TYPE_CHECKING:
    from collections.abc import Callable

    from npucall.declare.declaration import Operator
    from npucall.declare.parameters import Parameter
    from npucall.dtypes import AnyArray
    from npucall_client.client import Client

LOST = (
    ServerUnreachableError,
    HandleLostError,
    SessionExpiredError,
    SessionUnknownError,
    WrongServerError,
)
"""Errors after which the server has nothing of a program any more."""
_REFUSED, _FIND_KERNEL, _INNER, _LOST, _FAILED = 161002, 561003, 561000, 507010, 507015
_OF_HOST = ("cpu", "local")
"""Devices that want no workspace."""
_WORKSPACE = 16_896
"""Of operators that are not elementwise: else nobody would test that they allocate one."""


@dataclass(frozen=True)
class PlannedCall:
    """A call that has passed its checks."""

    call: CallOfC
    variant: str = ""
    prepared: Prepared | None = None
    """None for an operator that only the server knows."""
    workspace: int = 0
    names: Mapping[str, str] = field(default_factory=dict)
    """Of its parameters in Python, by those in C."""

    @property
    def launches(self) -> bool:
        """Whether there is anything to compute."""
        return self.prepared is None or not (self.prepared.done and not self.prepared.fills)

    def split(self, given: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
        """What is read and what is written, by the names in Python; what is updated is in both."""
        written = {self.names.get(name, name) for name in self.call.outputs}
        outputs = self.prepared.operator.outputs if self.prepared else ()
        only = written - {output.name for output in outputs if output.in_place}
        named = {self.names.get(name, name): value for name, value in given.items()}
        inputs = {name: value for name, value in named.items() if name not in only}
        return inputs, {name: value for name, value in named.items() if name in written}


class ProgramCalls:
    """Plans and runs calls. Calls that are alike are planned once."""

    def __init__(self, client: Client, variant: str = "") -> None:
        info = client.info()
        server = info.server
        self.soc, self.device = server.soc, server.device
        self.steps = 0 if server.device == "local" else info.limits.program_steps
        """Most steps of a program on a server that keeps tensors; else 0."""
        self._client, self._variant = client, variant
        self._product = taken_for(server.soc).product
        self.planned = lru_cache(CACHED_CALLS)(self._plan)
        """The planned call of a text. Raises the contract's errors."""

    def _plan(self, text: str) -> PlannedCall:
        call = call_of(text)
        if not CATALOGUE.of_name(call.operator):
            self._client.operator(call.operator, self._variant)
            planned = PlannedCall(call, self._variant)
            return replace(planned, workspace=self._asked(planned))
        operator = CATALOGUE.find(call.operator, "", self._variant or VARIANTS[call.package])
        parameters = {c_name(p): p for p in operator.parameters}
        names = {name: parameter.name for name, parameter in parameters.items()}
        arguments = {
            names[name]: _argument(parameters[name], value) for name, value in call.values.items()
        }
        prepared = prepare(Call(operator, arguments, _tensors(arguments)), self._product, CATALOGUE)
        planned = PlannedCall(call, operator.variant, prepared, 0, names)
        if self.device in _OF_HOST and (operator.name, operator.variant) in self._served:
            return replace(planned, workspace=_workspace_of(operator))
        return replace(planned, workspace=self._asked(planned) or _workspace_of(operator))

    @cached_property
    def _served(self) -> set[tuple[str, str]]:
        """What the server runs: it need not be asked for each call, which takes a round trip."""
        return {(one.name, one.variant) for one in self._client.operators() if one.available}

    def _asked(self, planned: PlannedCall) -> int:
        """The workspace that the device wants."""
        call = planned.call
        given = call.with_tensors(lambda spec: Empty(spec.shape, spec.dtype.numpy))
        inputs, outputs = planned.split(given)
        plan = self._client.plan(call.operator, variant=planned.variant, outputs=outputs, **inputs)
        return plan.workspace_bytes

    def run(
        self, planned: PlannedCall, array_of: Callable[[TensorSpec], AnyArray], *, saturates: bool
    ) -> None:
        """Runs a call. ``array_of`` has the elements of each tensor, in their order."""
        call = planned.call
        given = call.with_tensors(array_of)
        inputs, outputs = planned.split(given)
        unwritten = planned.prepared.unwritten if planned.prepared else {}
        kept = {
            name: outputs[name] for name in unwritten if isinstance(outputs.get(name), np.ndarray)
        }
        fresh = {name: np.empty(array.shape, array.dtype) for name, array in kept.items()}
        self._client.run(
            call.operator, variant=planned.variant, outputs={**outputs, **fresh}, **inputs
        )
        for name, array in kept.items():
            np.copyto(array, fresh[name], where=np.not_equal(fresh[name], unwritten[name]))
        if saturates:
            for array in each(outputs.values()):
                saturate(array)


def status_of(error: Exception, *, launched: bool) -> int:
    """The status of CANN for a failure."""
    if isinstance(error, LOST):
        return _LOST if launched else _INNER
    if launched:
        return _FAILED
    if isinstance(error, OperatorUnknownError | OperatorUnavailableError):
        return _FIND_KERNEL
    status = error.aclnn_status if isinstance(error, NpucallError) else None
    return status or (_REFUSED if isinstance(error, ValueError | TypeError) else _INNER)


def _workspace_of(operator: Operator[Any, Any]) -> int:
    return 0 if isinstance(operator.over, Elementwise) else _WORKSPACE


def _argument(parameter: Parameter, value: Any) -> Any:
    if isinstance(parameter, Attribute) and value is not None:
        return attribute_value(parameter.name, parameter, value)
    return tuple(value) if isinstance(value, list) else value


def _tensors(arguments: Mapping[str, Any]) -> tuple[str, ...]:
    """The names of all tensors, those of a list one by one."""
    return tuple(
        place
        for name, value in arguments.items()
        for place, each in tensors_of(name, value)
        if isinstance(each, TensorSpec)
    )
