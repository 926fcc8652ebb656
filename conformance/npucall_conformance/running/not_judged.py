"""Cases that are not judged, and why: a missing answer is not a wrong answer.

Either a case is not for a server, which what the server lists does not decide; or the server had no
time for it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from npucall.dtypes import BF16, DType
from npucall.errors import QueueFullError, QuotaError, ReservedError
from npucall_conformance.cases.case import Case
from npucall_conformance.cases.product_cases import LISTING, PRODUCTS_BLOCK
from npucall_conformance.stating.statement import WITHOUT_BFLOAT16
from npucall_conformance.stating.tables import SOCS
from npucall_conformance.wire import ON_CPU

if TYPE_CHECKING:
    from npucall_conformance.running.subject import Subject

BUSY: dict[str, str] = {
    QuotaError.reason: "the caller's quota is used up",
    QueueFullError.reason: "its queue is full",
    ReservedError.reason: "somebody has reserved its device",
}
"""Reasons of errors that say nothing about an operator, and their meanings."""


class NotJudgedError(Exception):
    """A case that could not be judged; the text says why."""

    def __init__(self, reason: str, *, lowers: bool = True) -> None:
        super().__init__(reason)
        self.lowers = lowers
        """The case should have been judged here, so that it lowers the verdict."""


def check_applies(case: Case, subject: Subject, *, allow_missing: bool = False) -> None:
    """Raises NotJudgedError for a case that the server's product or host does not have.

    ``allow_missing``: also for a case that the server should have and does not list; such a case
    lowers the verdict, others do not.
    """
    server, title, taken = subject.server, case.statement.title, case.statement.takes
    if server.product not in SOCS:
        raise NotJudgedError(f"no statement knows the product {server.product!r}")
    reason = _for_others(case, subject) or _not_taken(case, server.product)
    if reason:
        raise NotJudgedError(reason, lowers=False)
    if allow_missing and server.product in taken:
        if title not in subject.dtypes:
            raise NotJudgedError(f"{server.target} does not have {title}")
        if lacking := _types_of(case) & {*taken[server.product]} - subject.dtypes[title]:
            names = ", ".join(sorted(map(str, lacking)))
            raise NotJudgedError(f"{server.target} lists no {names} for {title}")


def applies(case: Case, subject: Subject) -> bool:
    """Whether the server should have what a case asks for, and lists it."""
    try:
        check_applies(case, subject, allow_missing=True)
    except NotJudgedError:
        return False
    return True


def _for_others(case: Case, subject: Subject) -> str:
    statement, server = case.statement, subject.server
    if case.products and server.product not in case.products:
        return f"for {', '.join(case.products)} alone"
    if case.unnamed and server.default_variant != statement.variant:
        return f"for servers whose default is {statement.variant}"
    if server.device in ON_CPU or not statement.variant or statement.title in subject.dtypes:
        return ""
    others = (title for title in subject.dtypes if title.partition(".")[0] == statement.operator)
    other = next(others, "")
    return f"{server.target} has {other}, as hosts have one variant" if other else ""


def _not_taken(case: Case, product: str) -> str:
    if case.block in (LISTING, PRODUCTS_BLOCK):
        return ""
    title, taken = case.statement.title, case.statement.takes.get(product, ())
    if not taken:
        return f"{title} is not on {product}"
    is_plain = not case.defects and not case.contradiction
    if is_plain and case.dtype not in taken:
        return f"{title} takes no {case.dtype} on {product}"
    # A list may have BF16 if the operator takes it for some tensors; setups say which.
    without = product in WITHOUT_BFLOAT16 and not case.products
    lacking = without or (is_plain and BF16 not in taken)
    if BF16 in _types_of(case) and lacking and not case.contradiction:
        return f"{title} takes no BF16 on {product}"
    return ""


def _types_of(case: Case) -> set[DType]:
    used = (case.dtypes, case.outputs, case.attributes)
    return {value for each in used for value in each.values() if isinstance(value, DType)}
