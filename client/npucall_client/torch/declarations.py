"""What a function is: a declaration, from which operators of torch, autograd and fakes follow."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any, Generic, ParamSpec, Protocol

import torch
from torch import Tensor

P = ParamSpec("P")

# Annotations of a declaration -> types of a schema of torch.
_TYPES = {
    "Tensor": "Tensor",
    "Tensor | None": "Tensor?",
    "Sequence[int]": "int[]",
    "Sequence[int] | None": "int[]?",
    "Sequence[float] | None": "float[]?",
    "bool": "bool",
    "bool | None": "bool?",
    "float": "float",
    "float | None": "float?",
    "int": "int",
    "int | None": "int?",
    "str": "str",
    "torch.dtype | None": "ScalarType?",
}


class Run(Protocol):
    """Runs operators of the catalogue: on a device, in this process, or for shapes alone."""

    def __call__(self, operator: str, /, **arguments: Any) -> Any:
        """What the operator gives, a tuple if it has several outputs; see ``tensor``."""

    def tensor(self, value: Any) -> Tensor:
        """What an operator gave, here; it may lie on the device until then."""

    def together(self) -> AbstractContextManager[Together]:
        """For operators of which one takes what another gave: in a session one program."""


class Together(Protocol):
    """What a ``Run`` runs in one go. Outside of it ``Run.tensor`` has what was fetched."""

    def __call__(self, operator: str, /, **arguments: Any) -> Any:
        """What the operator will give."""

    def kept(self, value: Tensor) -> Any:
        """An argument that several operators take; it travels once."""

    def fetch(self, *values: Any) -> None:
        """What is wanted here, too."""


@dataclass(frozen=True)
class Steps:
    """What a function does with the arguments that it got."""

    forward: Callable[[Run], Any]
    """The result, and after it the other tensors that the backward needs: ``Function.hidden``."""
    backward: Mapping[tuple[str, ...], Callable[..., Any]]
    """The gradients of these arguments, from a run, the gradient of the result, and what the
    forward left. They may still have the shape and dtype that arguments were stretched to."""
    by_torch: Callable[[], Any] | None = None
    """What ``forward`` gives, by torch; None: torch's function of that name gives it."""
    fake_by_torch: Callable[[], Any] | None = None
    """Tensors of the same shapes, if torch itself cannot find them without data."""
    check: Callable[[], object] = lambda: None
    """Raises what torch raises for values of arguments, where operators do not."""


def two_operators(  # noqa: PLR0913  # what each of both takes
    forward: str,
    backward: str,
    told: Mapping[str, Any],
    back: Mapping[str, Any] | None = None,
    *,
    grad: str = "grad_output",
    of: tuple[str, ...] = ("input",),
) -> Steps:
    """A function by an operator, and the gradients ``of`` its arguments by another one.

    ``told``: to both, but ``back`` to the second if it takes other arguments, beside the gradient.
    """
    again = told if back is None else back
    return Steps(
        lambda run: run(forward, **told),
        {of: lambda run, upstream: run(backward, **{grad: upstream}, **again)},
    )


@dataclass(frozen=True)
class Function(Generic[P]):
    """A function that replaces one of torch."""

    name: str
    torch: Callable[..., Any]
    """Torch's own, which has the same signature."""
    steps: Callable[P, Steps]
    gradients: tuple[str, ...]
    """The arguments that have a gradient."""
    saves_result: bool
    """Whether the backward takes the result."""
    hidden: tuple[str, ...]
    """What else the forward operator gives for the backward."""
    autocast: str = ""
    """To what torch's autocast converts on a CPU: ``float32``, or ``lower`` for its own dtype."""

    def cast(self, value: Any) -> Any:
        """An argument as torch's autocast makes it, if it is on."""
        is_cast = self.autocast and torch.is_autocast_enabled("cpu")
        if not (is_cast and isinstance(value, torch.Tensor) and value.is_floating_point()):
            return value
        if value.dtype is torch.float64:
            return value
        lower = self.autocast == "lower"
        return value.to(torch.get_autocast_dtype("cpu") if lower else torch.float32)

    @cached_property
    def arguments(self) -> tuple[str, ...]:
        """Names of the arguments."""
        return tuple(inspect.signature(self.steps).parameters)

    @cached_property
    def _defaults(self) -> tuple[Any, ...]:
        return tuple(each.default for each in inspect.signature(self.steps).parameters.values())

    def filled(self, arguments: Sequence[Any]) -> tuple[Any, ...]:
        """The arguments with the defaults that torch leaves out at the end."""
        return (*arguments, *self._defaults[len(arguments) :])

    @cached_property
    def saves(self) -> bool:
        """Whether the backward takes what the forward gave."""
        return self.saves_result or bool(self.hidden)

    @property
    def schema(self) -> str:
        """The arguments, as a schema of torch spells them."""
        return ", ".join(map(_spelled, inspect.signature(self.steps).parameters.values()))

    def by_torch(self, steps: Steps, arguments: tuple[Any, ...], *, fake: bool) -> Any:
        """What ``steps.forward`` gives, by torch."""
        if fake and steps.fake_by_torch is not None:
            return steps.fake_by_torch()
        if steps.by_torch is not None:
            return steps.by_torch()
        named = zip(self.arguments, arguments, strict=True)
        # None is what is not given; older versions of torch do not know all of these.
        return self.torch(**{name: value for name, value in named if value is not None})


def function(
    *gradients: str,
    saves_result: bool = False,
    hidden: tuple[str, ...] = (),
    autocast: str = "",
    by_torch: Callable[..., Any] | None = None,
) -> Callable[[Callable[P, Steps]], Function[P]]:
    """Declares a function of ``torch.nn.functional``, or of torch, with its name and signature.

    ``by_torch``: the same by functions of torch, if torch has none of that name, or if that of
    ``torch.nn.functional`` is old, or several.
    """

    def declare(steps: Callable[P, Steps]) -> Function[P]:
        name = steps.__name__
        own = getattr(torch, name, None)
        theirs = by_torch or getattr(torch.nn.functional, name, None) or own
        assert theirs is not None, name  # noqa: S101  # it stands where one of torch stands
        names = gradients or ("input",)
        return Function(name, theirs, steps, names, saves_result, hidden, autocast)

    return declare


loss = partial(function, autocast="float32")
"""Declares a loss."""


def _spelled(parameter: inspect.Parameter) -> str:
    text = f"{_TYPES[parameter.annotation]} {parameter.name}"
    if parameter.default is inspect.Parameter.empty:
        return text
    default = parameter.default
    return f"{text}=" + (f'"{default}"' if isinstance(default, str) else repr(default))
