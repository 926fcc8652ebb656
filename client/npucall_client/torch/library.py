"""Each declared function as two operators of torch, ``npucall::NAME`` and ``NAME_backward``.

The first has the second for its autograd. Their fakes run the same steps by ``prepare``. Arguments
before the function's own: the number of the place; whether torch computes the forward; whether a
backward may follow.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import torch

from npucall.limits import CACHED_CALLS
from npucall_client.torch.places import KeptArguments, Place, held_for, place_of, ticket
from npucall_client.torch.runs import SessionRun

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from torch import Tensor

    from npucall_client.torch.declarations import Function, Run, Steps

_BEFORE = 3
"""Arguments that stand before the function's own."""


def define(function: Function[Any]) -> Callable[..., Any]:
    """Declares the operators of a function, and returns the forward."""
    name = f"npucall::{function.name}"
    results = ", ".join(["Tensor"] * (2 + len(function.hidden)))
    gradients = ", ".join(["Tensor"] * len(function.gradients))
    backward: Any = torch.library.custom_op(
        f"{name}_backward",
        partial(_backward, function, fake=False),
        mutates_args=(),
        schema=f"(int place, bool held, bool[] needed, Tensor grad, Tensor ticket, Tensor[] saved, "
        f"{function.schema}) -> {gradients if len(function.gradients) == 1 else f'({gradients})'}",
    )
    backward.register_fake(partial(_backward, function, fake=True))
    backward.register_autograd(partial(_no_second, function))
    forward: Any = torch.library.custom_op(
        name,
        partial(_forward, function, fake=False),
        mutates_args=(),
        schema=f"(int place, bool by_torch, bool keep, {function.schema}) -> ({results})",
    )
    forward.register_fake(partial(_forward, function, fake=True))
    forward.register_autograd(
        partial(_gradients, function, backward), setup_context=partial(_save, function)
    )
    operator: Callable[..., Any] = getattr(torch.ops.npucall, function.name).default
    return operator


def _forward(  # what goes before a function's own arguments
    function: Function[Any],
    number: int,
    by_torch: bool,  # noqa: FBT001  # of an operator of torch
    keep: bool,  # noqa: FBT001
    *arguments: Any,
    fake: bool,
) -> tuple[Tensor, ...]:
    arguments = function.filled(arguments)
    place, steps = place_of(number), function.steps(*arguments)
    holds = place.holds(arguments, keep=keep, by_torch=by_torch)
    if not fake:
        steps.check()
    if keep and not fake:
        _check_backward(function, place, arguments)
    if by_torch:
        result, *hidden = _several(function.by_torch(steps, arguments, fake=fake))
        return result, *hidden, ticket(None)
    if fake:
        result, *hidden = _several(steps.forward(place.planned))
        empty = [torch.empty(0) for _ in hidden] if holds else hidden
        return result, *empty, torch.empty(1, dtype=torch.uint8)
    run = place.forward(arguments, keep=keep, results=function.saves)
    result, *hidden = _several(steps.forward(run))
    tensor = run.tensor(result)
    if not isinstance(run, SessionRun):
        return tensor, *hidden, ticket(None)
    saved = [result, *hidden] if function.saves_result else hidden
    return tensor, *(torch.empty(0) for _ in hidden), ticket(KeptArguments(run.held, saved))


def _check_backward(function: Function[Any], place: Place, arguments: Sequence[Any]) -> None:
    """Raises what the backward would raise later; looks once at calls that look alike."""
    key = function.name, *(_look(each) for each in arguments)
    if key in place.checked:
        return
    steps = function.steps(*(_without_data(each) for each in arguments))
    result, *hidden = _several(steps.forward(place.planned))
    saved = [result, *hidden] if function.saves_result else hidden
    _found(place.planned, steps, function.gradients[:1], result, saved)
    if len(place.checked) >= CACHED_CALLS:
        place.checked.clear()
    place.checked.add(key)


def _look(value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        return value.dtype, tuple(value.shape)
    return tuple(value) if isinstance(value, list) else value


def _without_data(value: Any) -> Any:
    return value.detach().to("meta") if isinstance(value, torch.Tensor) else value


def _backward(  # noqa: PLR0913  # what goes before a function's own arguments
    function: Function[Any],
    number: int,
    holds: bool,  # noqa: FBT001  # of an operator of torch
    needed: Sequence[bool],
    grad: Tensor,
    given: Tensor,
    saved: Sequence[Any],
    *arguments: Any,
    fake: bool,
) -> Any:
    arguments = function.filled(arguments)
    place, steps = place_of(number), function.steps(*arguments)
    held = held_for(given) if holds and not fake else None
    run = place.planned if fake else place.backward(arguments, held)
    if held is not None:
        saved = held.saved
    elif holds and function.hidden:  # the session's are not here: what a copy of a ticket means
        saved = _several(steps.forward(run))[1:]
    wanted = [name for name, need in zip(function.gradients, needed, strict=True) if need]
    found = _found(run, steps, wanted, grad, saved)
    by_name = dict(zip(function.arguments, arguments, strict=True))
    fitted = [
        _fitted(found[name], by_name[name]) if name in wanted else grad.new_empty(0)
        for name in function.gradients
    ]
    return fitted[0] if len(fitted) == 1 else tuple(fitted)


def _found(
    run: Run, steps: Steps, wanted: Sequence[str], grad: Tensor, saved: Sequence[Any]
) -> dict[str, Tensor]:
    found: dict[str, Tensor] = {}
    for names, gradients in steps.backward.items():
        if set(names) & set(wanted):
            values = _several(gradients(run, grad, *saved))
            found |= zip(names, map(run.tensor, values), strict=True)
    return found


def _fitted(gradient: Tensor, argument: Tensor) -> Tensor:
    """Sums along the dimensions in which the argument was stretched, and converts."""
    if gradient.shape != argument.shape:
        gradient = gradient.sum_to_size(argument.shape)
    return gradient.to(argument.dtype)


def _save(function: Function[Any], ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
    number, by_torch, keep, *given = inputs
    arguments = function.filled(given)
    result, *hidden, made = output
    place = place_of(number)
    ctx.place = place  # keeps the place alive until the backward runs
    ctx.holds = place.holds(arguments, keep=keep, by_torch=by_torch)
    ctx.mark_non_differentiable(*hidden, made)
    saved = [result, *hidden] if function.saves_result else hidden
    ctx.saved = len(saved)
    tensors = [each if isinstance(each, torch.Tensor) else None for each in arguments]
    ctx.save_for_backward(made, *saved, *tensors)
    ctx.given = len(given)
    ctx.others = [None if isinstance(each, torch.Tensor) else each for each in arguments]


def _gradients(
    function: Function[Any], backward: Any, ctx: Any, grad: Tensor, *_: Any
) -> tuple[Tensor | None, ...]:
    made, *rest = ctx.saved_tensors
    saved, tensors = rest[: ctx.saved], rest[ctx.saved :]
    arguments = [
        other if tensor is None else tensor
        for tensor, other in zip(tensors, ctx.others, strict=True)
    ]
    needs = dict.fromkeys(function.arguments, False)
    needs.update(zip(function.arguments, ctx.needs_input_grad[_BEFORE:]))  # noqa: B905  # as given
    needed = [needs[name] for name in function.gradients]
    answer = backward(ctx.place.number, ctx.holds, needed, grad, made, saved, *arguments)
    found = dict(zip(function.gradients, _several(answer), strict=True))
    own = [found.get(name) if needs[name] else None for name in function.arguments]
    return (*[None] * _BEFORE, *own[: ctx.given])


def _no_second(function: Function[Any], ctx: Any, *grads: Tensor) -> None:
    del ctx, grads
    raise RuntimeError(
        f"{function.name}: expected a first derivative, found a second; the NPU has no operators "
        "for second derivatives"
    )


def _several(value: Any) -> tuple[Any, ...]:
    return tuple(value) if isinstance(value, tuple | list) else (value,)
