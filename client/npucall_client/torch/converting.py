"""``convert``: a whole model whose layers, losses and activations run on a server."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

from npucall_client.torch.declarations import Function
from npucall_client.torch.functional import FUNCTIONS, Functional


def _spellings(name: str) -> set[Any]:
    """How a function is called: of torch.nn.functional, of torch, as a method."""
    homes = torch.nn.functional, torch, torch.Tensor
    return {getattr(home, name) for home in homes if getattr(home, name, None) is not None}


KNOWN = {
    spelling: function
    for name, function in FUNCTIONS.items()
    for spelling in (function.torch, *_spellings(name))
    if spelling is not torch.Tensor.unfold  # another function of that name
}
"""The functions by all that torch and its layers call."""


def named(
    function: Function[Any], called: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]
) -> dict[str, Any]:
    """Arguments of a call by name; torch's own names differ in no other way."""
    names = function.arguments
    if called is not function.torch:  # a method, or a function of torch that has no _stacklevel
        names = tuple(name for name in names if name not in ("_stacklevel", "inplace"))
    return {**dict(zip(names, args)), **kwargs}  # noqa: B905  # defaults are left out


class Converted(torch.nn.Module):  # type: ignore[misc]  # torch has no types here
    """Made by ``convert``."""

    def __init__(self, module: torch.nn.Module, functions: Functional) -> None:
        super().__init__()
        self.module = module
        self.functions = functions

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """What the module gives."""
        with _Redirected(self.functions):
            return self.module(*args, **kwargs)


def convert(module: torch.nn.Module, functions: Functional) -> Converted:
    """The same module, with the same parameters, computed by ``functions``.

    Each call of a function that ``functions`` has, by a layer, by ``torch.nn.functional``, by
    ``torch`` or as a method of a tensor, is made by an operator, and so is its gradient. What else
    the module calls, torch computes here, such as sums and views. ``module`` itself stays as it is.
    Calls that the operators do not have raise as those of ``functions`` do.
    """
    return Converted(module, functions)


class _Redirected(TorchFunctionMode):  # type: ignore[misc]  # torch has no types here
    def __init__(self, functions: Functional) -> None:
        super().__init__()
        self._functions = functions

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        del types
        function = KNOWN.get(func)
        if function is None:
            return func(*args, **(kwargs or {}))
        return getattr(self._functions, function.name)(**named(function, func, args, kwargs or {}))
