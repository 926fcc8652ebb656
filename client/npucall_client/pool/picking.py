"""Which members fit a call, and which of them has the least to do [src:pool-picking]. Pure."""

from __future__ import annotations

from importlib.metadata import version
from typing import TYPE_CHECKING, NamedTuple

from npucall.errors import MixedPoolError, NoMemberError
from npucall.limits import MIB

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from npucall_client.pool.members import Load, Member

COST_BYTES = MIB
"""So many bytes cost as much as a call without any."""
_VERSION = version("npucall")
ANY = "any"
"""As a wish for the SoC: any SoC, and any kind of device."""


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


def work_of(load: Load) -> float:
    """How much a member said that it has to do: calls, plus bytes counted as calls."""
    return load.running + load.waiting + load.bytes_in_flight / COST_BYTES


def check_alike(wish: Requirements, members: Collection[Member]) -> None:
    """Raises MixedPoolError if the members' results differ, unless the caller takes any SoC."""
    if wish.soc == ANY:
        return
    kinds: dict[tuple[str, str], list[str]] = {}
    for member in members:
        if member.soc:
            kind = member.device.partition(":")[0]
            kinds.setdefault((member.soc, kind), []).append(member.address)
    if len(kinds) > 1:
        found = "; ".join(
            f"{soc} on {kind}: {', '.join(sorted(addresses)[:3])}"
            for (soc, kind), addresses in sorted(kinds.items())
        )
        raise MixedPoolError(
            f"the pool has several SoCs or kinds of device, and their results differ ({found}); "
            f"choose with soc or labels (NPUCALL_SOC, NPUCALL_LABELS), or take any with soc={ANY}"
        )


def _told(member: Member) -> str:
    kind = f"{member.soc or 'unknown'} on {member.device or 'unknown'}"
    if _major(member.version or _VERSION) != _MAJOR:
        return f"{kind} of version {member.version}, while this client has {_VERSION}"
    return kind


def none_fits(wish: Requirements, members: Collection[Member]) -> NoMemberError:
    """The error if no member fits what the client wants."""
    found = sorted({_told(member) for member in members})
    return NoMemberError(
        f"pool: expected a member with {wish}, found {len(members)} others"
        + (f" ({', '.join(found)})" if found else "")
        + "; change soc, product or labels (NPUCALL_SOC, NPUCALL_PRODUCT, NPUCALL_LABELS)"
    )
