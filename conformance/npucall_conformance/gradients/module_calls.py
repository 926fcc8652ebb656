"""The calls of known functions that a module makes, found while it runs."""

from __future__ import annotations

from collections import Counter
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import torch
from torch.overrides import TorchFunctionMode

from npucall_client.torch.functional import FUNCTIONS

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from torch import Tensor

    from npucall_client.torch.declared import Function

_FAMILY = ("torch.nn.modules.activation", "torch.nn.modules.loss")
"""Modules whose layers are losses and activations."""


@dataclass(frozen=True)
class TorchCall:
    """A call of a known function whose result has a gradient."""

    layer: str
    """Name of the layer that made it; empty for the module itself."""
    function: Function[Any]
    arguments: Mapping[str, Any]
    """By name, tensors copied; those that require a gradient still do."""
    result: Tensor


@dataclass
class ModuleRun:
    """What a module did."""

    result: Any
    calls: list[TorchCall] = field(default_factory=list)
    unknown: list[str] = field(default_factory=list)
    """Losses and activations among its layers that have no gradient here."""
    others: Counter[str] = field(default_factory=Counter)
    """How often it called other functions of torch whose results have a gradient, by name."""


def watch(module: Any, arguments: tuple[Any, ...], named: Mapping[str, Any]) -> ModuleRun:
    """Runs a module, and returns its result and the calls that it made."""
    found = ModuleRun(None)
    layers: list[tuple[str, int]] = []
    with ExitStack() as hooks:
        for name, layer in module.named_modules():

            def enter(_: Any, __: Any, name: str = name) -> None:
                layers.append((name, len(found.calls)))

            def leave(layer: Any, _: Any, __: Any, name: str = name) -> None:
                before = layers.pop()[1]
                if type(layer).__module__ in _FAMILY and len(found.calls) == before:
                    found.unknown.append(f"{name or 'module'} ({type(layer).__name__})")

            for hook in layer.register_forward_pre_hook(enter), layer.register_forward_hook(leave):
                hooks.callback(hook.remove)
        with torch.enable_grad(), _Watch(found, lambda: layers[-1][0] if layers else ""):
            found.result = module(*arguments, **named)
    return found


class _Watch(TorchFunctionMode):  # type: ignore[misc]  # torch has no types here
    """Sees each function of torch that is called, except those that such functions call."""

    def __init__(self, found: ModuleRun, layer: Callable[[], str]) -> None:
        super().__init__()
        self._found = found
        self._layer = layer

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        del types
        function = _KNOWN.get(func)
        given = {} if function is None else _named(function, func, args, kwargs or {})
        result = func(*args, **(kwargs or {}))
        if function is None:
            self._found.others.update([func.__name__] if _computes(result) else ())
        elif result.requires_grad:
            self._found.calls.append(TorchCall(self._layer(), function, given, result))
        return result


def _computes(result: Any) -> bool:
    """Whether it has a gradient of its own; a view has that of another tensor."""
    found = isinstance(result, torch.Tensor) and result.grad_fn is not None
    return found and not result._is_view()  # noqa: SLF001  # torch has no public name for it


def _named(
    function: Function[Any], called: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]
) -> dict[str, Any]:
    """Arguments by name, as they are before the call; torch's own names differ in no other way."""
    names = function.arguments
    if called is not function.torch:  # a method, or a function of torch that has no _stacklevel
        names = tuple(name for name in names if name not in ("_stacklevel", "inplace"))
    given = {**dict(zip(names, args)), **kwargs}  # noqa: B905  # defaults are left out
    given.pop("inplace", None)
    return {name: _copied(value) for name, value in given.items()}


def _copied(value: Any) -> Any:
    if not isinstance(value, torch.Tensor):
        return value
    return value.detach().clone().requires_grad_(value.requires_grad)


def _spellings(name: str) -> set[Any]:
    """How a function is called: of torch.nn.functional, of torch, as a method."""
    homes = torch.nn.functional, torch, torch.Tensor
    return {getattr(home, name) for home in homes if getattr(home, name, None) is not None}


_KNOWN = {
    spelling: function
    for name, function in FUNCTIONS.items()
    for spelling in (function.torch, *_spellings(name))
}
