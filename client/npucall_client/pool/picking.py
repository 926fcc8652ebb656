"""Which members fit a call, and which of them has the least to do [src:pool-picking]. Pure."""

from __future__ import annotations

from importlib.metadata import version
from typing import TYPE_CHECKING, NamedTuple, TypeAlias, TypeVar

from npucall.errors import NoMemberError
from npucall.limits import MIB
from npucall_client.pool.members import MemberState
from npucall_client.targets import ANY

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from npucall_client.pool.candidate import Candidate
    from npucall_client.pool.members import Load, Member

    Catalogues: TypeAlias = Mapping[int, frozenset[tuple[str, str]]]
    """Names and variants of the operators, by ``Member.catalogue``."""

T = TypeVar("T")

COST_BYTES = MIB
"""So many bytes cost as much as a call without any."""
_VERSION = version("npucall")


class Requirements(NamedTuple):
    """What every member must have that the client calls; empty: nothing."""

    soc: str = ""
    product: str = ""
    labels: Mapping[str, str] = {}

    def allows(self, member: Member) -> bool:
        """Whether a member fits, as far as the client knows it yet."""
        return (
            _major(member.version or _VERSION) == _MAJOR
            and (self.soc in ("", ANY) or member.soc in ("", self.soc))
            and (not self.product or member.product in ("", self.product))
            and (not member.instance or self.labels.items() <= member.labels.items())
        )

    def __str__(self) -> str:
        parts = [f"soc {self.soc}"] if self.soc not in ("", ANY) else []
        parts += [f"product {self.product}"] if self.product else []
        parts += [f"label {key}={value}" for key, value in self.labels.items()]
        return ", ".join(parts) or "nothing"


def _major(text: str) -> str:
    return text.partition(".")[0]


_MAJOR = _major(_VERSION)
"""Servers of another major version speak another contract."""


class Wanted(NamedTuple):
    """What one call wants of its member."""

    operator: str = ""
    variant: str = ""
    nbytes: int = 0

    def is_had_by(self, member: Member, catalogues: Catalogues) -> bool:
        """Whether a member has the operator, as far as the client knows."""
        operators = catalogues.get(member.catalogue)
        if operators is None or not self.operator:
            return True
        return (self.operator, self.variant) in operators


NOTHING = Wanted()


def serving(
    among: list[Candidate[T]],
    wanted: Wanted,
    catalogues: Catalogues,
    now: float,
    *,
    reserved: bool = False,
) -> list[Candidate[T]]:
    """Members that may be called now; suspects and reserved ones only if there are no others.

    What a source says about reservations is a second old, and only the member has the details.
    """
    found = [
        each
        for each in among
        if not each.rests_until and each.busy_until <= now and not each.member.is_leaving
    ]
    found = [each for each in found if wanted.is_had_by(each.member, catalogues)] or found
    if not reserved:
        found = [e for e in found if e.member.load is None or not e.member.load.reserved] or found
    return [each for each in found if each.member.state is MemberState.SERVING] or found


def work_of(load: Load) -> float:
    """How much a member said that it has to do: calls, plus bytes counted as calls."""
    return load.running + load.waiting + load.bytes_in_flight / COST_BYTES


def _told(member: Member) -> str:
    kind = f"{member.soc or 'unknown'} on {member.device or 'unknown'}"
    if _major(member.version or _VERSION) != _MAJOR:
        return f"{kind} of version {member.version}, while this client has {_VERSION}"
    return kind


def none_fits(
    wish: Requirements, members: Collection[Member], kind: object = None
) -> NoMemberError:
    """The error if no member fits what the client wants, or none is of the kind of its pool."""
    found = sorted({_told(member) for member in members})
    of_kind = f", of the kind that it had when this client connected ({kind})" if kind else ""
    return NoMemberError(
        f"pool: expected a member with {wish}{of_kind}, found {len(members)} others"
        + (f" ({', '.join(found)})" if found else "")
        + "; change soc, product or labels (NPUCALL_SOC, NPUCALL_PRODUCT, NPUCALL_LABELS)"
        + (", or connect again" if kind else "")
    )
