"""Rules about the shapes of tensors."""

from __future__ import annotations

from typing import TYPE_CHECKING

from npucall.declare.rules.rule import Fault, Rule, is_unknown, listed, refuses
from npucall.errors import ShapeError
from npucall.tensors import Shape
from npucall.tensors import broadcast as broadcast_shape

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from npucall.declare.draft import Draft


def rank_at_most(limit: int, *names: str) -> Rule:
    """None of them has more than ``limit`` dimensions."""

    def faults(draft: Draft) -> Iterator[Fault]:
        for name, spec in draft.tensors(names):
            if len(spec.shape) > limit:
                yield name, f"at most {limit} dimensions", len(spec.shape)

    return refuses(ShapeError, f"{listed(names)} have at most {limit} dimensions", names, faults)


def rank_is(name: str, *ranks: int) -> Rule:
    """The tensor has one of these numbers of dimensions."""
    expected = f"{listed(tuple(map(str, ranks)), 'or')} dimensions"

    def faults(draft: Draft) -> Iterator[Fault]:
        for each, spec in draft.tensors((name,)):
            if len(spec.shape) not in ranks:
                yield each, expected, len(spec.shape)

    return refuses(ShapeError, f"{name} has {expected}", (name,), faults)


def same_rank(*names: str, as_: str) -> Rule:
    """They have as many dimensions as ``as_``; the first that differs is to blame."""

    def faults(draft: Draft) -> Iterator[Fault]:
        rank = len(draft.shape(as_))
        for name, spec in draft.tensors(names):
            if len(spec.shape) != rank:
                yield name, f"{rank} dimensions, as {as_} has", len(spec.shape)

    text = f"{listed(names)} have as many dimensions as {as_}"
    return refuses(ShapeError, text, names, faults)


def one_element(name: str) -> Rule:
    """The tensor has one element, whatever its rank."""

    def faults(draft: Draft) -> Iterator[Fault]:
        for each, spec in draft.tensors((name,)):
            if spec.elements != 1:
                yield each, "one element", f"shape {spec.shape}"

    return refuses(ShapeError, f"{name} has one element", (name,), faults)


def broadcast(*names: str, into: str) -> Rule:
    """They broadcast, one after the other, to one shape; found as ``into``."""

    def faults(draft: Draft) -> Iterator[Fault]:
        every = draft.members(*names)
        result = draft.shape(every[0])
        for index, name in enumerate(every[1:], start=2):
            common = broadcast_shape(result, draft.shape(name))
            if common is None:
                found = " and ".join(str(draft.shape(each)) for each in every[:index])
                yield every[:index], "shapes that broadcast to one", found
                return
            result = common
        draft.found_shapes[into] = result

    return refuses(ShapeError, f"{listed(names)} broadcast to one shape", names, faults, finds=into)


def expandable(name: str, *, to: str, meaning: str) -> Rule:
    """``name`` broadcasts to the shape found as ``to`` (``meaning`` for people), not beyond it."""

    def faults(draft: Draft) -> Iterator[Fault]:
        if draft.absent(name):
            return
        shape, target = draft.shape(name), draft.shape(to)
        if broadcast_shape(shape, target) != target:
            expected = f"a shape that broadcasts to {target}, {meaning}, without enlarging it"
            yield name, expected, shape

    return refuses(ShapeError, f"{name} broadcasts to {meaning}", (name,), faults)


def same_shape(name: str, like: str, meaning: str = "") -> Rule:
    """``name`` has exactly the shape ``like``, rank included."""
    meaning = meaning or f"that of {like}"

    def faults(draft: Draft) -> Iterator[Fault]:
        for each, spec in draft.tensors((name,)):
            if not is_unknown(like, draft) and spec.shape != draft.shape(like):
                yield each, f"shape {draft.shape(like)}, {meaning}", spec.shape

    return refuses(ShapeError, f"shape of {name} is {meaning}", (name,), faults)


def one_for_each(
    name: str,
    like: str,
    condition: Callable[[Draft], bool],
    meaning: str,
) -> Rule:
    """``name`` has the shape ``like`` if the condition holds, else shape () or (1,).

    ``meaning`` says the condition to people, as in "if reduction is 0".
    """

    def faults(draft: Draft) -> Iterator[Fault]:
        for _, spec in draft.tensors((name,)):
            allowed = (draft.shape(like),) if condition(draft) else ((), (1,))
            if spec.shape not in allowed:
                shapes = listed(tuple(map(str, allowed)), "or")
                one = f"one element for each of {like} {meaning} and a single one otherwise"
                yield name, f"shape {shapes}, {one}", spec.shape

    text = f"shape of {name} is that of {like} {meaning}, otherwise () or (1,)"
    return refuses(ShapeError, text, (name,), faults)


def same_extent(like: str, axis: int, meaning: str, **axes: int) -> Rule:
    """Each of these tensors has, along its axis, the extent of ``like`` along ``axis``.

    ``meaning`` says what that extent counts, as in "batch size".
    """
    names = tuple(axes)

    def faults(draft: Draft) -> Iterator[Fault]:
        extent = draft.shape(like)[axis]
        for name, spec in draft.tensors(names):
            if spec.shape[axes[name]] != extent:
                expected = f"extent {extent} of dimension {axes[name]}, the {meaning} of {like}"
                yield name, expected, f"shape {spec.shape}"

    return refuses(ShapeError, f"{listed(names)} have the {meaning} of {like}", names, faults)


def shape_of(name: str, *, into: str, make: Callable[[Draft], Shape]) -> Rule:
    """No check: finds a shape for others under the name ``into``."""

    def check(draft: Draft) -> None:
        draft.found_shapes[into] = make(draft)

    return Rule(f"{into} follows from {name}", (), 0, check, into)
