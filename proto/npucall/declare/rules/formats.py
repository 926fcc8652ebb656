"""Rules about the formats of tensors."""

from __future__ import annotations

from typing import TYPE_CHECKING

from npucall.declare.rules.rule import Rule, listed
from npucall.errors import PARAM_INVALID, FormatError

if TYPE_CHECKING:
    from npucall.declare.draft import Draft


def same_format(name: str, like: str) -> Rule:
    """Two tensors, if both are given, have one format."""

    def check(draft: Draft) -> None:
        one, other = draft.tensor(name), draft.tensor(like)
        if one is not None and other is not None and one.format is not other.format:
            raise FormatError(
                f"{name}: expected {other.format.name}, the format of {like}, "
                f"found {one.format.name}",
                parameter=name,
                aclnn_status=PARAM_INVALID,
            )

    return Rule(f"format of {name} is that of {like}", (name,), PARAM_INVALID, check)


def public_format(*names: str) -> Rule:
    """None of them is in a private format of the device."""

    def check(draft: Draft) -> None:
        for name, spec in draft.tensors(names):
            if spec.format.private:
                raise FormatError(
                    f"{name}: expected a public format such as ND, found {spec.format.name}, which "
                    "is private to the device",
                    parameter=name,
                    aclnn_status=PARAM_INVALID,
                )

    return Rule(f"{listed(names)} are not in a private format", names, PARAM_INVALID, check)
