"""Rules about the shapes of tensors."""

from __future__ import annotations

from typing import TYPE_CHECKING

from npucall.declare.rules.rule import Rule, is_unknown, listed
from npucall.errors import PARAM_INVALID, ShapeError
from npucall.tensors import Shape
from npucall.tensors import broadcast as broadcast_shape

if TYPE_CHECKING:
    from collections.abc import Callable

    from npucall.declare.draft import Draft


def rank_at_most(limit: int, *names: str) -> Rule:
    """None of them has more than ``limit`` dimensions."""

    def check(draft: Draft) -> None:
        for name, spec in draft.tensors(names):
            if len(spec.shape) > limit:
                raise ShapeError(
                    f"{name}: expected at most {limit} dimensions, found {len(spec.shape)}",
                    parameter=name,
                    aclnn_status=PARAM_INVALID,
                )

    return Rule(f"{listed(names)} have at most {limit} dimensions", names, PARAM_INVALID, check)


def rank_is(name: str, *ranks: int, status: int = PARAM_INVALID) -> Rule:
    """The tensor has one of these numbers of dimensions."""
    expected = listed(tuple(map(str, ranks)), "or")

    def check(draft: Draft) -> None:
        for _, spec in draft.tensors((name,)):
            if len(spec.shape) not in ranks:
                raise ShapeError(
                    f"{name}: expected {expected} dimensions, found {len(spec.shape)}",
                    parameter=name,
                    aclnn_status=status,
                )

    return Rule(f"{name} has {expected} dimensions", (name,), status, check)


def one_element(name: str) -> Rule:
    """The tensor has one element, whatever its rank."""

    def check(draft: Draft) -> None:
        for _, spec in draft.tensors((name,)):
            if spec.elements != 1:
                raise ShapeError(
                    f"{name}: expected one element, found shape {spec.shape}",
                    parameter=name,
                    aclnn_status=PARAM_INVALID,
                )

    return Rule(f"{name} has one element", (name,), PARAM_INVALID, check)


def broadcast(*names: str, into: str) -> Rule:
    """They broadcast, one after the other, to one shape; found as ``into``."""

    def check(draft: Draft) -> None:
        result = draft.shape(names[0])
        for index, name in enumerate(names[1:], start=1):
            common = broadcast_shape(result, draft.shape(name))
            if common is None:
                raise ShapeError(
                    f"{listed(names[: index + 1])}: expected shapes that broadcast to one, "
                    f"found {' and '.join(str(draft.shape(n)) for n in names[: index + 1])}",
                    parameter=names[: index + 1],
                    aclnn_status=PARAM_INVALID,
                )
            result = common
        draft.found_shapes[into] = result

    return Rule(f"{listed(names)} broadcast to one shape", names, PARAM_INVALID, check, into)


def expandable(name: str, *, to: str, meaning: str) -> Rule:
    """``name`` broadcasts to the shape found as ``to`` (``meaning`` for people), not beyond it."""

    def check(draft: Draft) -> None:
        if draft.absent(name):
            return
        shape, target = draft.shape(name), draft.shape(to)
        if broadcast_shape(shape, target) != target:
            raise ShapeError(
                f"{name}: expected a shape that broadcasts to {target}, {meaning}, without "
                f"enlarging it, found {shape}",
                parameter=name,
                aclnn_status=PARAM_INVALID,
            )

    return Rule(f"{name} broadcasts to {meaning}", (name,), PARAM_INVALID, check)


def same_shape(name: str, like: str, meaning: str = "", status: int = PARAM_INVALID) -> Rule:
    """``name`` has exactly the shape ``like``, rank included."""

    def check(draft: Draft) -> None:
        for _, spec in draft.tensors((name,)):
            if not is_unknown(like, draft) and spec.shape != draft.shape(like):
                raise ShapeError(
                    f"{name}: expected shape {draft.shape(like)}, {meaning or f'that of {like}'},"
                    f" found {spec.shape}",
                    parameter=name,
                    aclnn_status=status,
                )

    text = f"shape of {name} is {meaning or f'that of {like}'}"
    return Rule(text, (name,), status, check)


def one_for_each(
    name: str,
    like: str,
    condition: Callable[[Draft], bool],
    meaning: str,
    status: int = PARAM_INVALID,
) -> Rule:
    """``name`` has the shape ``like`` if the condition holds, else shape () or (1,).

    ``meaning`` says the condition to people, as in "if reduction is 0".
    """

    def check(draft: Draft) -> None:
        for _, spec in draft.tensors((name,)):
            allowed = (draft.shape(like),) if condition(draft) else ((), (1,))
            if spec.shape not in allowed:
                raise ShapeError(
                    f"{name}: expected shape {listed(tuple(map(str, allowed)), 'or')}, one element "
                    f"for each of {like} {meaning} and a single one otherwise, found {spec.shape}",
                    parameter=name,
                    aclnn_status=status,
                )

    text = f"shape of {name} is that of {like} {meaning}, otherwise () or (1,)"
    return Rule(text, (name,), status, check)


def same_extent(like: str, axis: int, meaning: str, **axes: int) -> Rule:
    """Each of these tensors has, along its axis, the extent of ``like`` along ``axis``.

    ``meaning`` says what that extent counts, as in "batch size".
    """
    names = tuple(axes)

    def check(draft: Draft) -> None:
        expected = draft.shape(like)[axis]
        for name, spec in draft.tensors(names):
            if spec.shape[axes[name]] != expected:
                raise ShapeError(
                    f"{name}: expected extent {expected} of dimension {axes[name]}, the {meaning} "
                    f"of {like}, found shape {spec.shape}",
                    parameter=name,
                    aclnn_status=PARAM_INVALID,
                )

    text = f"{listed(names)} have the {meaning} of {like}"
    return Rule(text, names, PARAM_INVALID, check)


def shape_of(name: str, *, into: str, make: Callable[[Draft], Shape]) -> Rule:
    """No check: finds a shape for others under the name ``into``."""

    def check(draft: Draft) -> None:
        draft.found_shapes[into] = make(draft)

    return Rule(f"{into} follows from {name}", (), 0, check, into)
