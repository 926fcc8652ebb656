"""How an operator is called through torch: by a function that ends in the same kernel of the NPU.

torch_npu registers the device ``npu`` and gives torch's operators kernels that call ``aclnn*``; its
repository op-plugin says which. Operators of ``torch.ops.aten`` are called directly. If torch has a
gradient only in autograd, the forward function is called and differentiated.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

from npucall_conformance.stating.arguments import member_or_list

REDUCTIONS = (0, 1, 2)
"""The codes that torch knows: none, mean, sum."""


class InexpressibleError(Exception):
    """Torch cannot make this call; the text says why."""


@dataclass(frozen=True)
class TorchArguments:
    """A call's arguments as torch takes them; ``given["self"]``; None for what is absent."""

    torch: Any
    npu: Any
    """The module torch_npu."""
    values: Mapping[str, Any]

    def __getitem__(self, name: str) -> Any:
        return member_or_list(self.values, name)

    @property
    def aten(self) -> Any:
        """The operators of torch."""
        return self.torch.ops.aten


Way: TypeAlias = Callable[[TorchArguments], Any]
"""Calls an operator; answers its outputs in their order, or the only one."""


def aten(name: str, *arguments: str, **named: str) -> Way:
    """An operator of torch, such as ``silu_backward`` or ``mean.dim``, with these arguments."""
    operator, _, overload = name.partition(".")

    def call(given: TorchArguments) -> Any:
        function = getattr(given.aten, operator)
        function = getattr(function, overload or "default")
        more = {key: given[value] for key, value in named.items()}
        return function(*(given[argument] for argument in arguments), **more)

    return call


def autograd(forward: Way, of: tuple[str, ...], upstream: str) -> Way:
    """The gradient of a function with respect to inputs, by autograd.

    The given gradient must have the shape and dtype of the function's result. The returned gradient
    has the input's own shape.
    """

    def call(given: TorchArguments) -> Any:
        inputs = {name: given[name].detach().requires_grad_() for name in of}
        with given.torch.enable_grad():
            result = forward(TorchArguments(given.torch, given.npu, {**given.values, **inputs}))
        grad = given[upstream]
        if (grad.shape, grad.dtype) != (result.shape, result.dtype):
            raise InexpressibleError(
                f"autograd takes no {upstream} but of the result's shape and dtype"
            )
        return given.torch.autograd.grad(result, tuple(inputs.values()), grad)

    return call


def within(way: Way, name: str, known: tuple[Any, ...] = REDUCTIONS) -> Way:
    """The way, only for these values of an attribute; torch has no others."""

    def call(given: TorchArguments) -> Any:
        if given[name] not in known:
            raise InexpressibleError(f"torch has no {name} {given[name]}")
        return way(given)

    return call


def of_one_shape(way: Way, *names: str) -> Way:
    """The way, only for inputs of one shape, since autograd sums over stretched dimensions."""

    def call(given: TorchArguments) -> Any:
        if len({tuple(given[name].shape) for name in names}) > 1:
            raise InexpressibleError("autograd sums the gradient of an input that is stretched")
        return way(given)

    return call
