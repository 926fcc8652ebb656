"""Rules about the dtypes of tensors and aclScalars."""

from __future__ import annotations

from typing import TYPE_CHECKING

from npucall.declare.rules.rule import Fault, Rule, is_unknown, listed, refuses
from npucall.dtypes import BF16, FLOAT, DType, can_cast, promote
from npucall.errors import DTypeError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from npucall.declare.draft import Draft


def supported(*names: str, blames: tuple[str, ...] = (), besides: tuple[DType, ...] = ()) -> Rule:
    """Their dtypes are in the operator's list for the product, or among ``besides``.

    A name may also be that of an aclScalar, or of a dtype that a rule found; ``blames`` then names
    the parameter to blame.
    """

    def faults(draft: Draft) -> Iterator[Fault]:
        allowed = draft.operator.dtypes_on(draft.product)
        allowed += besides if allowed else ()
        for name in draft.members(*names):
            if not is_unknown(name, draft) and draft.dtype(name) not in allowed:
                found = f"{draft.dtype(name)} (their {name})" if blames else draft.dtype(name)
                yield blames or name, *_expected(draft, allowed, found)

    more = f", or {listed(tuple(map(str, besides)), 'or')}" if besides else ""
    text = f"dtype of {listed(names)} is one that the product takes{more}"
    return refuses(DTypeError, text, blames or names, faults)


def castable(name: str, *, to: str, blames: tuple[str, ...] = ()) -> Rule:
    """The dtype of ``name`` can be cast to that of the output ``to``."""

    def faults(draft: Draft) -> Iterator[Fault]:
        for output, target in draft.tensors((to,)):
            if not can_cast(draft.dtype(name), target.dtype):
                expected = f"a dtype that {draft.dtype(name)} ({name}) can be cast to"
                yield output, expected, target.dtype

    return refuses(DTypeError, f"{name} can be cast to the dtype of {to}", blames or (to,), faults)


def promoted(*names: str, into: str) -> Rule:
    """The dtypes promote, one after the other, to one type; found as ``into``."""

    def faults(draft: Draft) -> Iterator[Fault]:
        given = draft.members(*(name for name in names if not draft.absent(name)))
        result = draft.dtype(given[0])
        for index, name in enumerate(given[1:], start=2):
            common = promote(result, draft.dtype(name))
            if common is None:
                found = f"{result} and {draft.dtype(name)}"
                yield given[:index], "dtypes that promote to one", found
                return
            result = common
        draft.found_dtypes[into] = result

    return refuses(
        DTypeError, f"dtypes of {listed(names)} promote to one", names, faults, finds=into
    )


def dtype_from(name: str, *, into: str, make: Callable[[Draft], DType]) -> Rule:
    """No check: finds a dtype, which follows from ``name``, for others under the name ``into``."""

    def check(draft: Draft) -> None:
        draft.found_dtypes[into] = make(draft)

    return Rule(f"{into} follows from {name}", (), 0, check, into)


def same_dtype(*names: str, as_: str) -> Rule:
    """Their dtypes are that of ``as_``; the first that differs is to blame."""

    def faults(draft: Draft) -> Iterator[Fault]:
        for name, spec in draft.tensors(names):
            if not is_unknown(as_, draft) and spec.dtype is not draft.dtype(as_):
                yield name, f"{draft.dtype(as_)}, the dtype of {as_}", spec.dtype

    return refuses(DTypeError, f"dtype of {listed(names)} is that of {as_}", names, faults)


def dtype_in(name: str, *dtypes: DType) -> Rule:
    """The dtype of a tensor, or of an aclScalar, is one of these, whatever the product."""
    expected = listed(tuple(map(str, dtypes)), "or")

    def faults(draft: Draft) -> Iterator[Fault]:
        for each in draft.members(name):
            given = draft.tensor(each) or draft.scalar(each)
            if given is not None and given.dtype not in dtypes:
                yield each, expected, given.dtype

    return refuses(DTypeError, f"dtype of {name} is {expected}", (name,), faults)


def dtype_row(rows: tuple[tuple[DType, ...], ...], *names: str) -> Rule:
    """The dtypes of these tensors are a row: of each one, in this order.

    What is not given has any. The first that no row has beside those before it is to blame.
    """

    def faults(draft: Draft) -> Iterator[Fault]:
        left = rows
        for place, name in enumerate(names):
            given = draft.tensor(name)
            fitting = tuple(row for row in left if given is None or row[place] is given.dtype)
            if not fitting:
                expected = listed(tuple(dict.fromkeys(str(row[place]) for row in left)), "or")
                beside = f" beside {listed(names[:place])}" if place else ""
                yield name, f"{expected}{beside}", given and given.dtype
                return
            left = fitting

    spelled = "; ".join(", ".join(map(str, row)) for row in rows)
    return refuses(DTypeError, f"dtypes of {listed(names)} are a row: {spelled}", names, faults)


def float_of(name: str, *, into: str) -> Rule:
    """No check: finds as ``into`` FLOAT for integers and BOOL, else the dtype of ``name``."""

    def check(draft: Draft) -> None:
        given = draft.dtype(name)
        draft.found_dtypes[into] = FLOAT if given.kind in ("int", "bool") else given

    return Rule(f"{into} is FLOAT for integers, else the dtype of {name}", (), 0, check, into)


def real(*names: str) -> Rule:
    """None of these aclScalars is complex: they can be cast to FLOAT."""

    def faults(draft: Draft) -> Iterator[Fault]:
        for name in names:
            given = draft.scalar(name)
            if given is not None and not can_cast(given.dtype, FLOAT):
                yield name, "a real number", given.dtype

    return refuses(DTypeError, f"{listed(names)} can be cast to FLOAT", names, faults)


def bfloat16_if_product_has(*names: str, blames: tuple[str, ...] = ()) -> Rule:
    """None of them is BF16 on a product without it.

    A name may also be that of a dtype that a rule found; ``blames`` then names the parameter to
    blame.
    """

    def faults(draft: Draft) -> Iterator[Fault]:
        for name in draft.members(*names):
            if is_unknown(name, draft) or draft.product.bfloat16:
                continue
            if draft.dtype(name) is BF16:
                found = f"BF16 (their {name})" if blames else BF16
                expected = f"another dtype than BF16, which {draft.product} does not have"
                yield blames or name, expected, found

    text = f"{listed(names)} not BF16 where the product has none"
    return refuses(DTypeError, text, blames or names, faults)


def _expected(draft: Draft, allowed: tuple[DType, ...], found: object) -> tuple[str, object]:
    """What ``supported`` expected and found, or why the product takes nothing at all."""
    if allowed:
        names = listed(tuple(map(str, allowed)), "or")
        return f"{names} on {draft.product}", found
    variants = draft.catalogue.variants_on(draft.operator.name, draft.product)
    instead = f", which has the variant {listed(variants, 'or')}" if variants else ""
    return f"a product that has {draft.operator.title}", f"{draft.product}{instead}"
