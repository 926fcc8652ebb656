"""The vocabulary of checks. An operator lists them in the order in which the device applies them.

A rule raises an error, lets the call pass, or ends the checks: then the call is done, and its
outputs are zeros.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from npucall.dtypes import BF16, FLOAT, FLOAT16, can_cast, promote
from npucall.errors import (
    PARAM_INVALID,
    PARAM_NULLPTR,
    ArgumentError,
    ArgumentMissingError,
    AttributeValueError,
    DTypeError,
    FormatError,
    ShapeError,
)
from npucall.operators.spec import c_name
from npucall.tensors import broadcast as broadcast_shape

if TYPE_CHECKING:
    from npucall.dtypes import DType
    from npucall.operators.draft import Draft
    from npucall.products import Product
    from npucall.tensors import Shape


class EndOfChecks(Exception):  # noqa: N818  # it is no error: the call succeeds here
    """Raised by a rule that ends the checks."""


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


def present(*names: str) -> Rule:
    """None of them is absent; the first that is gives 161001."""

    def check(draft: Draft) -> None:
        for name in names:
            if draft.absent(name):
                null = c_name(draft.operator.by_name[name])
                raise ArgumentMissingError(
                    f"{name}: expected a value, found none (a null {null})",
                    parameter=name,
                    aclnn_status=PARAM_NULLPTR,
                )

    return Rule(f"{_list(names)} must not be null", names, PARAM_NULLPTR, check)


def supported(*names: str, blames: tuple[str, ...] = (), besides: tuple[DType, ...] = ()) -> Rule:
    """Their dtypes are in the operator's list for the product, or among ``besides``.

    A name may also be that of an aclScalar, or of a dtype that a rule found; ``blames`` then says
    whose fault it is.
    """

    def check(draft: Draft) -> None:
        allowed = draft.operator.dtypes_on(draft.product)
        allowed += besides if allowed else ()
        for name in names:
            if not _unknown(name, draft) and draft.dtype(name) not in allowed:
                blamed = _list(blames) if blames else name
                found = f"{draft.dtype(name)} (their {name})" if blames else draft.dtype(name)
                raise DTypeError(
                    f"{blamed}: {_expected(draft, allowed, found)}",
                    parameter=blames or name,
                    aclnn_status=PARAM_INVALID,
                )

    more = f", or {_list(tuple(map(str, besides)), 'or')}" if besides else ""
    text = f"dtype of {_list(names)} is one that the product takes{more}"
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
                    f"{_list(given[: index + 1])}: expected dtypes that promote to one, "
                    f"found {result} and {draft.dtype(name)}",
                    parameter=given[: index + 1],
                    aclnn_status=PARAM_INVALID,
                )
            result = common
        draft.found_dtypes[into] = result

    return Rule(f"dtypes of {_list(names)} promote to one", names, PARAM_INVALID, check, into)


def same_dtype(*names: str, as_: str) -> Rule:
    """Their dtypes are that of ``as_``; the first that differs is to blame."""

    def check(draft: Draft) -> None:
        for name, spec in draft.tensors(names):
            if not _unknown(as_, draft) and spec.dtype is not draft.dtype(as_):
                raise DTypeError(
                    f"{name}: expected {draft.dtype(as_)}, the dtype of {as_}, found {spec.dtype}",
                    parameter=name,
                    aclnn_status=PARAM_INVALID,
                )

    return Rule(f"dtype of {_list(names)} is that of {as_}", names, PARAM_INVALID, check)


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

    return Rule(f"{_list(names)} have at most {limit} dimensions", names, PARAM_INVALID, check)


def broadcast(*names: str, into: str) -> Rule:
    """They broadcast, one after the other, to one shape; found as ``into``."""

    def check(draft: Draft) -> None:
        result = draft.shape(names[0])
        for index, name in enumerate(names[1:], start=1):
            common = broadcast_shape(result, draft.shape(name))
            if common is None:
                raise ShapeError(
                    f"{_list(names[: index + 1])}: expected shapes that broadcast to one, "
                    f"found {' and '.join(str(draft.shape(n)) for n in names[: index + 1])}",
                    parameter=names[: index + 1],
                    aclnn_status=PARAM_INVALID,
                )
            result = common
        draft.found_shapes[into] = result

    return Rule(f"{_list(names)} broadcast to one shape", names, PARAM_INVALID, check, into)


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
            if not _unknown(like, draft) and spec.shape != draft.shape(like):
                raise ShapeError(
                    f"{name}: expected shape {draft.shape(like)}, {meaning or f'that of {like}'},"
                    f" found {spec.shape}",
                    parameter=name,
                    aclnn_status=status,
                )

    text = f"shape of {name} is {meaning or f'that of {like}'}"
    return Rule(text, (name,), status, check)


def rank_is(name: str, *ranks: int, status: int = PARAM_INVALID) -> Rule:
    """The tensor has one of these numbers of dimensions."""
    expected = _list(tuple(map(str, ranks)), "or")

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
                    f"{name}: expected shape {_list(tuple(map(str, allowed)), 'or')}, one element "
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

    text = f"{_list(names)} have the {meaning} of {like}"
    return Rule(text, names, PARAM_INVALID, check)


def shape_of(name: str, *, into: str, make: Callable[[Draft], Shape]) -> Rule:
    """No check: finds a shape for others under the name ``into``."""

    def check(draft: Draft) -> None:
        draft.found_shapes[into] = make(draft)

    return Rule(f"{into} follows from {name}", (), 0, check, into)


def requires(
    description: str,
    *blames: str,
    holds: Callable[[Draft], bool],
    found: Callable[[Draft], object],
    error: type[ArgumentError] = ShapeError,
    status: int = PARAM_INVALID,
) -> Rule:
    """What no other rule says; messages read "expected ``description``" and blame the first."""

    def check(draft: Draft) -> None:
        if not holds(draft):
            raise error(
                f"{blames[0]}: expected {description}, found {found(draft)}",
                parameter=blames,
                aclnn_status=status,
            )

    return Rule(f"{blames[0]}: {description}", blames, status, check)


def dim_of(name: str, attribute: str = "dim") -> Rule:
    """The attribute names a dimension of the tensor; rank 0 counts as rank 1."""

    def check(draft: Draft) -> None:
        rank = max(len(draft.shape(name)), 1)
        if not -rank <= draft.attribute(attribute) < rank:
            raise AttributeValueError(
                f"{attribute}: expected {-rank} to {rank - 1}, a dimension of {name}, "
                f"found {draft.attribute(attribute)}",
                parameter=attribute,
                aclnn_status=PARAM_INVALID,
            )

    return Rule(f"{attribute} is a dimension of {name}", (attribute,), PARAM_INVALID, check)


def dtype_in(name: str, *dtypes: DType, status: int = PARAM_INVALID) -> Rule:
    """The dtype of a tensor, or of an aclScalar, is one of these, whatever the product."""
    expected = _list(tuple(map(str, dtypes)), "or")

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

    return Rule(f"{_list(names)} can be cast to FLOAT", names, PARAM_INVALID, check)


def bfloat16_if_product_has(*names: str, blames: tuple[str, ...] = ()) -> Rule:
    """None of them is BF16 on a product without it.

    A name may also be that of a dtype that a rule found; ``blames`` then says whose fault it is.
    """

    def check(draft: Draft) -> None:
        for name in names:
            if draft.dtype(name) is BF16 and not draft.product.bfloat16:
                blamed, found = (_list(blames), f"BF16 (their {name})") if blames else (name, BF16)
                raise DTypeError(
                    f"{blamed}: expected no BF16, which {draft.product} has not, found {found}",
                    parameter=blames or name,
                    aclnn_status=PARAM_INVALID,
                )

    text = f"{_list(names)} not BF16 where the product has none"
    return Rule(text, blames or names, PARAM_INVALID, check)


def not_negative(name: str) -> Rule:
    """The number is 0 or more; NaN is not."""

    def check(draft: Draft) -> None:
        if not draft.attribute(name) >= 0:
            raise AttributeValueError(
                f"{name}: expected 0 or more, found {draft.attribute(name)}",
                parameter=name,
                aclnn_status=PARAM_INVALID,
            )

    return Rule(f"{name} is 0 or more", (name,), PARAM_INVALID, check)


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


def on(products: tuple[Product, ...], rule: Rule) -> Rule:
    """The rule holds on these products only."""
    where = _list(tuple(product.soc for product in products))
    return when(lambda draft: draft.product in products, rule, f"on {where}")


def except_on(products: tuple[Product, ...], rule: Rule) -> Rule:
    """The rule holds on all products but these."""
    where = _list(tuple(product.soc for product in products))
    return when(lambda draft: draft.product not in products, rule, f"not on {where}")


def when(condition: Callable[[Draft], bool], rule: Rule, meaning: str) -> Rule:
    """The rule holds only if the condition does; ``meaning`` says it to people."""

    def check(draft: Draft) -> None:
        if condition(draft):
            rule.check(draft)

    return replace(rule, description=f"{meaning}: {rule.description}", check=check)


def not_empty(name: str) -> Callable[[Draft], bool]:
    """Condition for ``when``: the tensor has elements."""
    return lambda draft: 0 not in draft.shape(name)


def not_given(name: str) -> Callable[[Draft], bool]:
    """Condition for ``when``: the call leaves the output to the operator."""
    return lambda draft: draft.tensor(name) is None


def one_of(name: str, *values: int | str, status: int = PARAM_INVALID) -> Rule:
    """The attribute has one of these values; whether it may be absent is for others to say."""

    def check(draft: Draft) -> None:
        if not draft.absent(name) and draft.attribute(name) not in values:
            raise AttributeValueError(
                f"{name}: expected one of {values}, found {draft.attribute(name)}",
                parameter=name,
                aclnn_status=status,
            )

    return Rule(f"{name} is one of {_list(tuple(map(str, values)))}", (name,), status, check)


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

    return Rule(f"{_list(names)} are not in a private format", names, PARAM_INVALID, check)


def succeed_if_empty(*names: str) -> Rule:
    """If one of them has no elements the call is done; its outputs are zeros."""

    def check(draft: Draft) -> None:
        if any(spec.elements == 0 for _, spec in draft.tensors(names)):
            raise EndOfChecks

    return Rule(f"if {_list(names, 'or')} is empty, the call is done", (), 0, check)


def warn_unless(name: str, *values: int, meaning: str) -> Rule:
    """Another value is allowed, and worth a warning that says what it means."""

    def check(draft: Draft) -> None:
        value = draft.attribute(name)
        if value not in values:
            draft.warnings.append((name, f"{name}: {value} is not one of {values}; {meaning}"))

    return Rule(f"warning unless {name} is one of {_list(tuple(map(str, values)))}", (), 0, check)


def float16_if_all(*names: str) -> Callable[[Draft], DType]:
    """Kernel dtype: FLOAT16 if all of them are, otherwise FLOAT."""

    def kernel_dtype(draft: Draft) -> DType:
        return FLOAT16 if all(draft.dtype(name) is FLOAT16 for name in names) else FLOAT

    return kernel_dtype


def short_if_all(*names: str) -> Callable[[Draft], DType]:
    """Kernel dtype: FLOAT16 or BF16 if that is the dtype of all of them, otherwise FLOAT."""

    def kernel_dtype(draft: Draft) -> DType:
        (first, *others) = {draft.dtype(name) for name in names}
        return first if first in (FLOAT16, BF16) and not others else FLOAT

    return kernel_dtype


def always(dtype: DType) -> Callable[[Draft], DType]:
    """Kernel dtype: this one, whatever the inputs are."""
    return lambda _: dtype


def dtype_of(name: str) -> Callable[[Draft], DType]:
    """Kernel dtype: that of a tensor, or the one that a rule found under that name."""
    return lambda draft: draft.dtype(name)


def _unknown(name: str, draft: Draft) -> bool:
    """Whether it is a parameter of which the call says nothing, such as an output to derive."""
    given = draft.tensor(name) or draft.scalar(name)
    return given is None and name in draft.operator.by_name


def _expected(draft: Draft, allowed: tuple[DType, ...], found: object) -> str:
    """What ``supported`` expected, or why the product takes nothing at all."""
    if allowed:
        names = _list(tuple(map(str, allowed)), "or")
        return f"expected {names} on {draft.product}, found {found}"
    variants = draft.catalogue.variants_on(draft.operator.name, draft.product)
    instead = f", which has the variant {_list(variants, 'or')}" if variants else ""
    return f"expected a product that has {draft.operator.title}, found {draft.product}{instead}"


def _list(words: tuple[str, ...], joint: str = "and") -> str:
    return f" {joint} ".join(filter(None, [", ".join(words[:-1]), words[-1]]))
