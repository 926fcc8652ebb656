"""The activations whose gradient has numbers or an interval in it, and torch's name for each."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import ml_dtypes
import numpy as np

import npucall_client
from npucall.operators.elu_backward import elu_backward
from npucall.operators.hardsigmoid_backward import hardsigmoid_backward
from npucall.operators.hardswish_backward import hardswish_backward
from npucall.operators.hardswish_backward_v2 import hardswish_backward_v2
from npucall.operators.hardtanh_backward import hardtanh_backward
from npucall.operators.leaky_relu_backward import leaky_relu_backward
from npucall.operators.softplus_backward import softplus_backward

if TYPE_CHECKING:
    from collections.abc import Mapping

    from npucall.declare.declaration import Operator

LOCAL = npucall_client.connect("local:")
FLOATS = (np.float32, np.float16, ml_dtypes.bfloat16)


@dataclass(frozen=True)
class Activation:
    """An operator with its numbers; each number is one of float32, so that torch has the same."""

    operator: Operator[..., Any]
    aten: str
    attributes: Mapping[str, Any]
    differs_at: tuple[float, ...] = ()
    """Where it is not torch's, on purpose."""
    factor_below: bool = False
    """Below its interval an infinite gradient is multiplied, where torch has 0."""

    @property
    def sums(self) -> bool:
        """Whether the formula adds up terms, which may cancel: of at most 1 + abs(x) times g."""
        return "Hardswish" in self.operator.name or bool(self.attributes.get("is_result"))

    def __str__(self) -> str:
        values = (f"{name}={value}" for name, value in self.attributes.items())
        return " ".join([self.operator.name, *values])

    @property
    def x(self) -> str:
        """The name of the tensor beside grad_output."""
        return self.operator.inputs[1].name

    def tensors(self, g: Any, x: Any) -> dict[str, Any]:
        return {"grad_output": g, self.x: x}

    def run(self, g: Any, x: Any, **outputs: Any) -> Any:
        """The result of this process's client; ``outputs`` are arrays to write to."""
        client = LOCAL.options(outputs=outputs)
        return client.run(self.operator, **self.tensors(g, x), **self.attributes)

    def torch(self, g: Any, x: Any) -> Any:
        """What torch has for arrays of float64."""
        import torch

        function = getattr(torch.ops.aten, self.aten)
        given = self.tensors(torch.tensor(g), torch.tensor(x)) | dict(self.attributes)
        order = (p.name for p in self.operator.parameters if p.name in given)
        return function(*(given[name] for name in order)).numpy()

    def torch_one_by_one(self, g: Any, x: Any) -> Any:
        """The same without vectors of several numbers, for which torch has other rules of NaN."""
        return np.concatenate([self.torch(g[i : i + 1], x[i : i + 1]) for i in range(len(g))])


LEAKY = (leaky_relu_backward, "leaky_relu_backward")
ELU = (elu_backward, "elu_backward")
HARDTANH = (hardtanh_backward, "hardtanh_backward")
SOFTPLUS = (softplus_backward, "softplus_backward")
ONES = {"alpha": 1.0, "scale": 1.0, "input_scale": 1.0}

ACTIVATIONS = [
    Activation(*LEAKY, {"negative_slope": 0.125, "self_is_result": False}),
    Activation(*LEAKY, {"negative_slope": 0.25, "self_is_result": True}),
    Activation(*LEAKY, {"negative_slope": -2.5, "self_is_result": False}),
    Activation(*ELU, {**ONES, "is_result": False}),
    Activation(*ELU, {**ONES, "is_result": True}),
    Activation(*ELU, {"alpha": 1.5, "scale": 0.75, "input_scale": 0.5, "is_result": False}),
    Activation(*ELU, {"alpha": 1.5, "scale": 0.75, "input_scale": 0.5, "is_result": True}),
    Activation(*ELU, {"alpha": -1.5, "scale": 2.0, "input_scale": 0.25, "is_result": False}),
    Activation(hardswish_backward, "hardswish_backward", {}, (-3, 3), factor_below=True),
    Activation(hardswish_backward_v2, "hardswish_backward", {}),
    Activation(hardsigmoid_backward, "hardsigmoid_backward", {}),
    Activation(*HARDTANH, {"min": -1.0, "max": 1.0}),
    Activation(*HARDTANH, {"min": 0.0, "max": 6.0}),
    Activation(*HARDTANH, {"min": 2.0, "max": -2.0}),
    Activation(*SOFTPLUS, {"beta": 1.0, "threshold": 20.0}),
    Activation(*SOFTPLUS, {"beta": 2.5, "threshold": 1.5}),
    Activation(*SOFTPLUS, {"beta": -0.5, "threshold": 0.0}),
]
OPERATORS = tuple(dict.fromkeys(activation.operator for activation in ACTIVATIONS))
FIRST = [next(a for a in ACTIVATIONS if a.operator is operator) for operator in OPERATORS]
"""Each operator once, with its first numbers."""
WITH_DOUBLE = (leaky_relu_backward, softplus_backward)


def taken(activation: Activation) -> list[Any]:
    """The NumPy dtypes that all its tensors may have on an Atlas A2."""
    return [*FLOATS, np.float64] if activation.operator in WITH_DOUBLE else [*FLOATS]


def short(dtype: Any) -> str:
    return str(np.dtype(dtype))
