"""A rule: a named check of a call. It raises an error, lets the call pass, or ends the checks."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, TypeAlias

from npucall.declare.call import parameter_of
from npucall.errors import PARAM_INVALID, ArgumentError, NpucallError, ShapeError

if TYPE_CHECKING:
    from npucall.declare.draft import Draft


class EndOfChecks(Exception):  # noqa: N818  # it is no error: the call succeeds here
    """Raised by a rule that ends the checks.

    ``fill``: what the operator writes into every element of its outputs, or of those called
    ``outputs``; None: it writes nothing.
    """

    def __init__(self, fill: float | None = None, outputs: tuple[str, ...] = ()) -> None:
        super().__init__()
        self.fill, self.outputs = fill, outputs


@dataclass(frozen=True)
class Rule:
    """A named check."""

    description: str
    blames: tuple[str, ...]
    """Parameters that an error may blame."""
    status: int
    """The aclnn status of its errors; 0 for a rule that raises none."""
    check: Callable[[Draft], None]
    finds: str | None = None
    """The name under which it leaves a shape or dtype for others."""


Fault: TypeAlias = "tuple[str | tuple[str, ...], str, object]"
"""The parameters to blame, what was expected of them, and what was found."""


def refuses(  # noqa: PLR0913  # all that a rule says
    error: type[NpucallError],
    description: str,
    blames: tuple[str, ...],
    faults: Callable[[Draft], Iterable[Fault]],
    *,
    status: int = PARAM_INVALID,
    finds: str | None = None,
) -> Rule:
    """A rule that refuses a call for the first of the faults that it finds."""

    def check(draft: Draft) -> None:
        for blamed, expected, found in faults(draft):
            names = blamed if isinstance(blamed, str) else listed(blamed)
            sentence = f"{names}: expected {expected}, found {found}"
            raise error(sentence, parameter=blamed, aclnn_status=status)

    parameters = tuple(dict.fromkeys(map(parameter_of, blames)))
    return Rule(description, parameters, status, check, finds)


def requires(
    description: str,
    *blames: str,
    holds: Callable[[Draft], bool],
    found: Callable[[Draft], object],
    error: type[ArgumentError] = ShapeError,
) -> Rule:
    """What no other rule says; messages read "expected ``description``" and blame the first."""

    def check(draft: Draft) -> None:
        if not holds(draft):
            raise error(
                f"{blames[0]}: expected {description}, found {found(draft)}",
                parameter=blames,
                aclnn_status=PARAM_INVALID,
            )

    return Rule(f"{blames[0]}: {description}", blames, PARAM_INVALID, check)


def with_status(status: int, *rules: Rule) -> tuple[Rule, ...]:
    """The same rules where the software finds the fault elsewhere, and so answers this status.

    Such as 561002, of what a generated operator checks only when it cuts the work into tiles.
    """
    return tuple(
        replace(rule, status=rule.status and status, check=_ending(rule, status)) for rule in rules
    )


def _ending(rule: Rule, status: int) -> Callable[[Draft], None]:
    def check(draft: Draft) -> None:
        try:
            rule.check(draft)
        except NpucallError as error:
            error.aclnn_status = status
            raise

    return check if rule.status else rule.check


def is_unknown(name: str, draft: Draft) -> bool:
    """Whether it is a parameter of which the call says nothing, such as an output to derive."""
    given = draft.tensor(name) or draft.scalar(name)
    return given is None and parameter_of(name) in draft.operator.by_name


def listed(words: tuple[str, ...], joint: str = "and") -> str:
    """The words as a sentence has them: ``a, b and c``."""
    return f" {joint} ".join(filter(None, [", ".join(words[:-1]), words[-1]]))
