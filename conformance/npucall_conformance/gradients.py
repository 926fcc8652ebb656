"""Behind ``npucall_client.torch.check``: gradients of a module, by a device and by torch."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

from npucall.dtypes import BY_NUMPY
from npucall.errors import NpucallError
from npucall_client.calls import arrays
from npucall_client.client import Client
from npucall_client.torch.checking import Checked, GradientRow
from npucall_client.torch.converting import KNOWN, named
from npucall_client.torch.declarations import Function
from npucall_client.torch.functional import Functional, functional
from npucall_conformance.judging.tolerance import Judgement, judge
from npucall_conformance.judging.truth import Expected
from npucall_conformance.stating.rounding import ulp

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
    found.others.update(_own_functions(found.result))
    return found


def _own_functions(result: Any) -> Iterator[str]:
    """Names of functions with a backward in Python, which torch calls past ``_Watch``."""
    nodes = [each.grad_fn for each in _tensors(result) if each.grad_fn is not None]
    seen = set(nodes)
    while nodes:
        node = nodes.pop()
        if isinstance(node, torch.autograd.function.BackwardCFunction):
            yield node.name().removesuffix("Backward")
        new = {before for before, _ in node.next_functions if before is not None} - seen
        seen |= new
        nodes += new


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
        function = KNOWN.get(func)
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
    """Arguments by name, as they are before the call."""
    given = named(function, called, args, kwargs)
    given.pop("inplace", None)
    return {name: _copied(value) for name, value in given.items()}


def _copied(value: Any) -> Any:
    if not isinstance(value, torch.Tensor):
        return value
    return value.detach().clone().requires_grad_(value.requires_grad)


_SEED = 0


def compare(
    module: Any,
    inputs: Tensor | Sequence[Any] | Mapping[str, Any],
    client: Client,
    *,
    forward: str,
    profile: str,
) -> Checked:
    """Judges the gradient of each argument of each call that the module makes."""
    functions = functional(client, forward=forward)
    marks = not any(each.requires_grad for each in _tensors(inputs))
    inputs = _marked(inputs) if marks else inputs
    named = dict(inputs) if hasattr(inputs, "keys") else {}
    one = isinstance(inputs, torch.Tensor)
    arguments = (inputs,) if one else () if named else tuple(inputs)
    found = watch(module, arguments, named)
    rows = list[GradientRow]()
    unused = Counter[str]()
    for call, upstream in _upstream(found):
        if upstream is None:
            unused[call.function.name] += 1
            continue
        rows += _rows(call, upstream, functions, profile)
        found.others.update(_without_operator(call))
    return Checked(tuple(rows), tuple(found.unknown), dict(found.others), dict(unused), profile)


def _without_operator(call: TorchCall) -> Iterator[str]:
    """The arguments of a call that have a gradient by torch, and by no operator."""
    for name, value in call.arguments.items():
        if _needs(value) and name not in call.function.gradients:
            yield f"{call.function.name}'s {name}"


def _marked(value: Any) -> Any:
    """The same with copies of floating tensors that require a gradient, and may change in place."""
    if isinstance(value, torch.Tensor):
        return value.detach().requires_grad_().clone() if value.is_floating_point() else value
    if hasattr(value, "keys"):
        return {name: _marked(value[name]) for name in value}
    return type(value)(map(_marked, value)) if type(value) in (list, tuple) else value


def _upstream(found: ModuleRun) -> Iterator[tuple[TorchCall, Tensor | None]]:
    """The calls with the gradients of their results; None if no output depends on one."""
    outputs = [each for each in _tensors(found.result) if each.requires_grad]
    if not outputs or not found.calls:
        yield from ((call, None) for call in found.calls)
        return
    generator = torch.Generator().manual_seed(_SEED)
    given = [
        torch.ones_like(each)
        if each.numel() == 1
        else torch.randn(each.shape, generator=generator).to(each.dtype)
        for each in outputs
    ]
    results = [call.result for call in found.calls]
    gradients = torch.autograd.grad(outputs, results, given, allow_unused=True)
    yield from zip(found.calls, gradients, strict=True)


def _rows(
    call: TorchCall, upstream: Tensor, functions: Functional, profile: str
) -> Iterator[GradientRow]:
    names = [n for n, a in call.arguments.items() if _needs(a) and n in call.function.gradients]
    truth = _gradients(call.function.torch, call.arguments, names, upstream, torch.float64)
    own = _gradients(call.function.torch, call.arguments, names, upstream)
    problem, found = "", []
    try:
        function = getattr(functions, call.function.name)
        found = _gradients(function, call.arguments, names, upstream)
    except (NpucallError, TypeError, ValueError) as error:
        problem = f"{call.function.name} was refused: {error}"
    for number, name in enumerate(names):
        torchs = _judged(own[number], truth[number], profile)
        verdict = None if problem else _judged(found[number], truth[number], profile)
        argument = call.arguments[name]
        yield GradientRow(
            call.layer,
            call.function.name,
            name,
            str(argument.dtype).removeprefix("torch."),
            tuple(argument.shape),
            float("nan") if verdict is None else verdict.ratio,
            torchs.ratio,
            problem if verdict is None else verdict.problem,
        )


def _gradients(
    function: Any,
    arguments: Mapping[str, Any],
    names: Sequence[str],
    upstream: Tensor,
    dtype: Any = None,
) -> list[Tensor]:
    """Of these arguments; all floating tensors in ``dtype``, if one is given."""
    given = {name: _leaf(value, dtype, name in names) for name, value in arguments.items()}
    with torch.random.fork_rng(devices=[]):  # what dropout draws is the same for all
        torch.manual_seed(_SEED)
        result = function(**given)
    leaves = [given[name] for name in names]
    return list(torch.autograd.grad(result, leaves, upstream.to(result.dtype)))


def _leaf(value: Any, dtype: Any, needs: bool) -> Any:  # noqa: FBT001  # a value, no switch
    if not isinstance(value, torch.Tensor):
        return value
    converted = value.detach().to(dtype if value.is_floating_point() and dtype else value.dtype)
    return converted.requires_grad_(needs)


def _needs(value: Any) -> bool:
    return isinstance(value, torch.Tensor) and value.requires_grad


def _judged(found: Tensor, truth: Tensor, profile: str) -> Judgement:
    got, exact = arrays.as_array("gradient", found), arrays.as_array("gradient", truth)
    dtype = BY_NUMPY[got.dtype]
    size = np.nan_to_num(ulp(exact, dtype)) * 2.0**23  # half an ulp, beside that of rounding
    expected = Expected(exact, size, 1, dtype, stepwise=False, dtype=dtype, cost=1, biased=True)
    return judge(profile, got, expected)


def _tensors(value: Any) -> Iterator[Tensor]:
    """The tensors in what a module takes or gives."""
    if isinstance(value, torch.Tensor):
        yield value
    elif hasattr(value, "keys"):
        for name in value:
            yield from _tensors(value[name])
    elif isinstance(value, list | tuple):
        for each in value:
            yield from _tensors(each)
