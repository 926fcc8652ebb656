"""Rules about the dtypes of tensors and aclScalars."""

from __future__ import annotations

from typing import TYPE_CHECKING

from npucall.declare.rules.rule import Rule, is_unknown, listed
from npucall.dtypes import BF16, FLOAT, DType, can_cast, promote
from npucall.errors import PARAM_INVALID, DTypeError

if TYPE_CHECKING:
    from collections.abc import Callable

    from npucall.declare.draft import Draft


def supported(*names: str, blames: tuple[str, ...] = (), besides: tuple[DType, ...] = ()) -> Rule:
    """Their dtypes are in the operator's list for the product, or among ``besides``.

    A name may also be that of an aclScalar, or of a dtype that a rule found; ``blames`` then names
    the parameter to blame.
    """

    def check(draft: Draft) -> None:
        allowed = draft.operator.dtypes_on(draft.product)
        allowed += besides if allowed else ()
        for name in names:
            if not is_unknown(name, draft) and draft.dtype(name) not in allowed:
                blamed = listed(blames) if blames else name
                found = f"{draft.dtype(name)} (their {name})" if blames else draft.dtype(name)
                raise DTypeError(
                    f"{blamed}: {_expected(draft, allowed, found)}",
                    parameter=blames or name,
                    aclnn_status=PARAM_INVALID,
                )

    more = f", or {listed(tuple(map(str, besides)), 'or')}" if besides else ""
    text = f"dtype of {listed(names)} is one that the product takes{more}"
    return Rule(text, blames or names, PARAM_INVALID, check)


def castable(name: str, *, to: str, blames: tuple[str, ...] = ()) -> Rule:
    """The dtype of ``name`` can be cast to that of the output ``to``."""

    def check(draft: Draft) -> None:
        for _, target in draft.tensors((to,)):
            if not can_cast(draft.dtype(name), target.dtype):
                raise DTypeError(
                    f"{to}: expected a dtype that {draft.dtype(name)} ({name}) can be cast to, "
                    f"found {target.dtype}",
                    parameter=to,
                    aclnn_status=PARAM_INVALID,
                )

    return Rule(f"{name} can be cast to the dtype of {to}", blames or (to,), PARAM_INVALID, check)


def promoted(*names: str, into: str) -> Rule:
    """The dtypes promote, one after the other, to one type; found as ``into``."""

    def check(draft: Draft) -> None:
        given = tuple(name for name in names if not draft.absent(name))
        result = draft.dtype(given[0])
        for index, name in enumerate(given[1:], start=1):
            common = promote(result, draft.dtype(name))
            if common is None:
                raise DTypeError(
                    f"{listed(given[: index + 1])}: expected dtypes that promote to one, "
                    f"found {result} and {draft.dtype(name)}",
                    parameter=given[: index + 1],
                    aclnn_status=PARAM_INVALID,
                )
            result = common
        draft.found_dtypes[into] = result

    return Rule(f"dtypes of {listed(names)} promote to one", names, PARAM_INVALID, check, into)


def dtype_from(name: str, *, into: str, make: Callable[[Draft], DType]) -> Rule:
    """No check: finds a dtype, which follows from ``name``, for others under the name ``into``."""

    def check(draft: Draft) -> None:
        draft.found_dtypes[into] = make(draft)

    return Rule(f"{into} follows from {name}", (), 0, check, into)


def same_dtype(*names: str, as_: str) -> Rule:
    """Their dtypes are that of ``as_``; the first that differs is to blame."""

    def check(draft: Draft) -> None:
        for name, spec in draft.tensors(names):
            if not is_unknown(as_, draft) and spec.dtype is not draft.dtype(as_):
                raise DTypeError(
                    f"{name}: expected {draft.dtype(as_)}, the dtype of {as_}, found {spec.dtype}",
                    parameter=name,
                    aclnn_status=PARAM_INVALID,
                )

    return Rule(f"dtype of {listed(names)} is that of {as_}", names, PARAM_INVALID, check)


def dtype_in(name: str, *dtypes: DType, status: int = PARAM_INVALID) -> Rule:
    """The dtype of a tensor, or of an aclScalar, is one of these, whatever the product."""
    expected = listed(tuple(map(str, dtypes)), "or")

    def check(draft: Draft) -> None:
        if draft.absent(name):
            return
        given = draft.tensor(name) or draft.scalar(name)
        if given is not None and given.dtype not in dtypes:
            raise DTypeError(
                f"{name}: expected {expected}, found {given.dtype}",
                parameter=name,
                aclnn_status=status,
            )

    return Rule(f"dtype of {name} is {expected}", (name,), status, check)


def float_of(name: str, *, into: str) -> Rule:
    """No check: finds as ``into`` FLOAT for integers and BOOL, else the dtype of ``name``."""

    def check(draft: Draft) -> None:
        given = draft.dtype(name)
        draft.found_dtypes[into] = FLOAT if given.kind in ("int", "bool") else given

    return Rule(f"{into} is FLOAT for integers, else the dtype of {name}", (), 0, check, into)


def real(*names: str) -> Rule:
    """None of these aclScalars is complex: they can be cast to FLOAT."""

    def check(draft: Draft) -> None:
        for name in names:
            given = draft.scalar(name)
            if given is not None and not can_cast(given.dtype, FLOAT):
                raise DTypeError(
                    f"{name}: expected a real number, found {given.dtype}",
                    parameter=name,
                    aclnn_status=PARAM_INVALID,
                )

    return Rule(f"{listed(names)} can be cast to FLOAT", names, PARAM_INVALID, check)


def bfloat16_if_product_has(*names: str, blames: tuple[str, ...] = ()) -> Rule:
    """None of them is BF16 on a product without it.

    A name may also be that of a dtype that a rule found; ``blames`` then names the parameter to
    blame.
    """

    def check(draft: Draft) -> None:
        for name in names:
            if is_unknown(name, draft) or draft.product.bfloat16:
                continue
            if draft.dtype(name) is BF16:
                blamed, found = (listed(blames), f"BF16 (their {name})") if blames else (name, BF16)
                raise DTypeError(
                    f"{blamed}: expected another dtype than BF16, which {draft.product} does not "
                    f"have, found {found}",
                    parameter=blames or name,
                    aclnn_status=PARAM_INVALID,
                )

    text = f"{listed(names)} not BF16 where the product has none"
    return Rule(text, blames or names, PARAM_INVALID, check)


def _expected(draft: Draft, allowed: tuple[DType, ...], found: object) -> str:
    """What ``supported`` expected, or why the product takes nothing at all."""
    if allowed:
        names = listed(tuple(map(str, allowed)), "or")
        return f"expected {names} on {draft.product}, found {found}"
    variants = draft.catalogue.variants_on(draft.operator.name, draft.product)
    instead = f", which has the variant {listed(variants, 'or')}" if variants else ""
    return f"expected a product that has {draft.operator.title}, found {draft.product}{instead}"
