"""What a fault of the trial is, and the ways to put one into a server's parts.

Who wrote them had not read the suite's own, and thought as the engineer of a new driver.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial, wraps
from typing import TYPE_CHECKING, Any, TypeAlias

from npucall.compute import evaluate, operands
from npucall.compute.helpers import UNLIMITED
from npucall.compute.layouts import Layout
from npucall.declare.catalogue import Catalogue
from npucall.errors import NpucallError
from npucall.v1 import operator_service_pb2 as pb
from npucall.wire import calls
from npucall_client import local
from npucall_server.devices import cpu
from npucall_server.execution import executions
from npucall_server.services import operators as service

if TYPE_CHECKING:
    import pytest

    from npucall.declare.declaration import Operator
    from npucall.declare.rules import Rule

Plant: TypeAlias = "Callable[[pytest.MonkeyPatch], None]"
LOCAL, SOCKET = "local", "socket"


@dataclass(frozen=True)
class Planted:
    """A fault of a server."""

    title: str
    kind: str
    """The row of the table that it counts in."""
    operators: tuple[str, ...]
    """Those that the suite is run on."""
    plant: Plant
    over: str = LOCAL
    """``local:``, or a server of a process of its own."""
    soc: str = "Ascend910B1"
    profile: str = ""
    """The suite's own choice if empty."""
    allowed: str = ""
    """Why a server may be so, if it may: then the fault does not count."""
    flags: tuple[str, ...] = ()
    """Further settings of the server."""

    @property
    def id(self) -> str:
        """As tests and processes name it."""
        return self.title.replace(" ", "-")


def kind(name: str, **fields: Any) -> Callable[..., Planted]:
    """Makes faults of one kind: ``(title, "Exp Log", plant)``."""

    def planted(title: str, operators: str, plant: Plant, **more: Any) -> Planted:
        return Planted(title, name, tuple(operators.split()), plant, **{**fields, **more})

    return planted


# --- Operators


def find(name: str) -> Operator[..., Any]:
    """An operator as it is by now: ``Exp``, or ``KlDivTargetBackward.builtin``."""
    plain, _, variant = name.partition(".")
    return local.CATALOGUE.find(f"aclnn{plain}", variant)


def have(patch: pytest.MonkeyPatch, catalogue: Catalogue) -> None:
    """``local:`` and the device ``cpu`` have these operators."""
    patch.setattr(local, "CATALOGUE", catalogue)
    patch.setattr(cpu, "CATALOGUE", catalogue)
    patch.setattr(cpu.CpuDevice, "catalogue", catalogue)


def changed(name: str, **fields: Any) -> Plant:
    """An operator has other fields; a function of the operator finds one."""

    def plant(patch: pytest.MonkeyPatch) -> None:
        old = find(name)
        values = {key: value(old) if callable(value) else value for key, value in fields.items()}
        rest = (each for each in local.CATALOGUE if each.title != old.title)
        have(patch, Catalogue((*rest, replace(old, **values))))

    return plant


def lacking(*names: str) -> Plant:
    """Operators are not there at all."""

    def plant(patch: pytest.MonkeyPatch) -> None:
        gone = {find(name).title for name in names}
        have(patch, Catalogue(each for each in local.CATALOGUE if each.title not in gone))

    return plant


def formula(name: str, wrong: Callable[..., Any]) -> Plant:
    """The formula is ``wrong(right, facts, given)``; ``right`` takes ``given`` as keywords."""

    def spoilt(operator: Operator[..., Any]) -> Callable[..., Any]:
        right: Any = operator.formula

        @wraps(right)
        def computed(facts: Any, **given: Any) -> Any:
            bare = replace(facts, out=None)
            return wrong(partial(right, bare), bare, given)

        return computed

    return changed(name, formula=spoilt)


def result(name: str, wrong: Callable[[Any], Any]) -> Plant:
    """What the formula gives is changed."""
    return formula(name, lambda right, _, given: wrong(right(**given)))


def given(name: str, **wrong: Callable[[Any], Any]) -> Plant:
    """The formula gets other inputs and attributes than were sent."""

    def other(right: Any, _: Any, given: dict[str, Any]) -> Any:
        return right(**{key: wrong.get(key, _same)(value) for key, value in given.items()})

    return formula(name, other)


def _same(value: Any) -> Any:
    return value


# --- Rules


def _rules(operator: Operator[..., Any], start: str) -> list[Rule]:
    found = [rule for rule in operator.checks if rule.description.startswith(start)]
    if not found:
        known = "; ".join(rule.description for rule in operator.checks)
        raise ValueError(f"{operator.title}: expected a check that starts {start!r}: {known}")
    return found


def without(name: str, start: str) -> Plant:
    """The checks whose description starts like this are missing."""
    return instead(name, start)


def instead(name: str, start: str, *new: Rule) -> Plant:
    """Others stand in their place."""

    def checks(operator: Operator[..., Any]) -> tuple[Rule, ...]:
        first, *more = _rules(operator, start)
        kept = [rule for rule in operator.checks if rule not in more]
        at = kept.index(first)
        return (*kept[:at], *new, *kept[at + 1 :])

    return changed(name, checks=checks)


def before(name: str, start: str, other: str) -> Plant:
    """A check comes before another one."""

    def checks(operator: Operator[..., Any]) -> tuple[Rule, ...]:
        early = _rules(operator, start)
        kept = [rule for rule in operator.checks if rule not in early]
        at = kept.index(_rules(operator, other)[0])
        return (*kept[:at], *early, *kept[at:])

    return changed(name, checks=checks)


# --- What is computed, whole


def run(wrong: Callable[..., Any]) -> Plant:
    """Computing a call is ``wrong(right, call, storages)``; ``right`` takes these two."""

    def plant(patch: pytest.MonkeyPatch) -> None:
        right = evaluate.run

        def spoilt(
            call: Any,
            storages: Any,
            turn: Any = UNLIMITED,
            targets: Any = evaluate.NO_TARGETS,
            helpers: Any = None,
        ) -> Any:
            def computed(call: Any, storages: Any) -> Any:
                return right(call, storages, turn, targets, helpers)

            return wrong(computed, call, storages)

        patch.setattr(evaluate, "run", spoilt)
        patch.setattr(cpu.CpuDevice, "piecewise", lambda *_: None)

    return plant


def outputs(wrong: Callable[[Any, dict[str, Any], dict[str, Any]], object]) -> Plant:
    """Outputs are changed by ``wrong(call, inputs, outputs)``, both arrays by name."""

    def spoilt(right: Any, call: Any, storages: Any) -> Any:
        answers = right(call, storages)
        inputs = {
            name: Layout.of_spec(spec).over(storages[name])
            for name, spec in call.inputs.items()
            if name in storages
        }
        arrays = {
            name: Layout.of_spec(spec).over(storage)
            for (name, spec), storage in zip(call.outputs.items(), answers, strict=True)
        }
        if not call.done:
            wrong(call, inputs, arrays)
        return answers

    return run(spoilt)


def stores(dtype: Any, wrong: Callable[[Any], Any]) -> Plant:
    """Numbers that become elements of a dtype are ``wrong`` of them."""

    def plant(patch: pytest.MonkeyPatch) -> None:
        right = operands.convert

        def spoilt(target: Any, source: Any) -> None:
            floats = source.dtype.kind == "f" and source.dtype != dtype
            right(target, wrong(source) if target.dtype == dtype and floats else source)

        patch.setattr(operands, "convert", spoilt)

    return plant


# --- What is said


def reply(wrong: Callable[[Any, Any], object]) -> Plant:
    """Replies are changed by ``wrong(message, call)``."""

    def plant(patch: pytest.MonkeyPatch) -> None:
        right = local.encode_reply

        def spoilt(call: Any, server: Any) -> bytes:
            message = pb.Reply.FromString(right(call, server))
            wrong(message, call)
            return message.SerializeToString()

        patch.setattr(local, "encode_reply", spoilt)
        patch.setattr(executions, "encode_reply", spoilt)

    return plant


def listing(wrong: Callable[[Any], object]) -> Plant:
    """What is listed of each operator is changed by ``wrong(message)``."""

    def plant(patch: pytest.MonkeyPatch) -> None:
        right = local.describe

        def spoilt(*described: Any) -> Any:
            message = right(*described)
            wrong(message)
            return message

        patch.setattr(local, "describe", spoilt)
        patch.setattr(service, "describe", spoilt)

    return plant


def refusal(wrong: Callable[[NpucallError], NpucallError | None]) -> Plant:
    """What refuses calls is changed by ``wrong(error)``, in place or for another one."""

    def plant(patch: pytest.MonkeyPatch) -> None:
        right = calls.prepare

        def spoilt(*call: Any) -> Any:
            try:
                return right(*call)
            except NpucallError as error:
                raise wrong(error) or error from None

        patch.setattr(calls, "prepare", spoilt)

    return plant


def both(*plants: Plant) -> Plant:
    """All of them."""

    def plant(patch: pytest.MonkeyPatch) -> None:
        for each in plants:
            each(patch)

    return plant
