"""Tenants: groups of callers. Each has a share of the device and its own limits."""

from __future__ import annotations

from collections.abc import Mapping
from enum import IntEnum
from typing import Annotated, Literal, Self

from pydantic import (
    AfterValidator,
    BaseModel,
    ByteSize,
    ConfigDict,
    Field,
    StringConstraints,
    model_validator,
)

TENANT_PATTERN = r"[a-z0-9][a-z0-9_.-]{0,62}"
"""Matches the whole name of a tenant."""
MOST_WEIGHT = 1000

TenantName = Annotated[str, StringConstraints(pattern=f"^{TENANT_PATTERN}$")]
RoleName = Literal["user", "bench", "admin", "server"]


class Role(IntEnum):
    """What a caller may do. A higher role may do more. The names are those of the proto."""

    SERVER = 1
    """Announce a server to a directory, and nothing else."""
    USER = 2
    """Run calls, and see its own usage."""
    BENCH = 3
    """Reserve the device too."""
    ADMIN = 4
    """See everybody's usage and end reservations too."""

    @classmethod
    def named(cls, name: str) -> Role:
        """The role of a name as settings spell it, such as user. Raises KeyError."""
        return cls[name.upper()]


class Tenant(BaseModel):
    """A table ``[tenants.NAME]`` of the settings file. A limit that is left out is no limit."""

    model_config = ConfigDict(extra="forbid", frozen=True, populate_by_name=True)

    weight: int = Field(
        1,
        ge=1,
        le=MOST_WEIGHT,
        description="Its share of the device, relative to the weights of the other tenants that "
        "want it at the same time.",
    )
    scheduling_class: Literal["interactive", "batch"] = Field(
        "interactive",
        alias="class",
        description="interactive goes before batch; batch still gets a tenth of the device.",
    )
    role: RoleName = Field(
        "user",
        description="What its callers may do. user: run calls. bench: also reserve the device. "
        "admin: also see everybody's usage and end reservations. server: only announce servers to "
        "a directory.",
    )
    bench: tuple[str, ...] = Field((), description="Names of its callers who have the role bench.")
    admins: tuple[str, ...] = Field((), description="Names of its callers who have the role admin.")
    calls: int | None = Field(None, ge=1, description="Most calls at a time.")
    memory: ByteSize | None = Field(
        None,
        gt=0,
        description="Most bytes of --memory-limit that its calls may hold, such as 4GiB.",
    )
    streams: int | None = Field(None, ge=0, description="Most open streams.")
    shared_memory: ByteSize | None = Field(
        None, ge=0, description="Most bytes of shared memory, for example 1GiB."
    )
    sessions: int | None = Field(None, ge=0, description="Most open sessions.")
    handle_memory: ByteSize | None = Field(
        None,
        ge=0,
        description="Most bytes that the handles of its sessions may hold, such as 16GiB.",
    )
    device_seconds_per_hour: float | None = Field(
        None,
        gt=0,
        allow_inf_nan=False,
        description="Most seconds that its calls may hold the device in any hour.",
    )
    users: tuple[str | int, ...] = Field(
        (),
        description="Users of the server's host who belong to it, by number or name; needs "
        "shared_memory.",
    )
    certificates: tuple[str, ...] = Field(
        (),
        description="Names in client certificates (subject alternative names) that belong to it; "
        "* stands for any text, as in *.vision.lab.",
    )
    claims: tuple[str, ...] = Field(
        (),
        description="Values of the claim oidc_tenant_claim that belong to it; * stands for any "
        "text, as in repo:vision/*.",
    )

    hosts: tuple[str, ...] = Field(
        (),
        description="Hosts that its callers with the role server may announce, in addition to "
        "the names in their certificates; * stands for any text, as in npu*.lab.",
    )

    @model_validator(mode="after")
    def _users_run_calls(self) -> Self:
        if self.users and self.role == "server":
            raise ValueError(
                "users: expected none beside the role server, since local users run calls; found "
                f"{self.users[0]!r}"
            )
        return self

    def role_of(self, name: str) -> Role:
        """The role of a caller of that name, unless its credential names a role."""
        if name in self.admins:
            return Role.ADMIN
        return Role.BENCH if name in self.bench else Role.named(self.role)


def _check_users(tenants: dict[str, Tenant]) -> dict[str, Tenant]:
    """The tenants. Raises ValueError if a user of the host belongs to two of them."""
    owners: dict[str | int, str] = {}
    for name, tenant in tenants.items():
        for user in tenant.users:
            other = owners.setdefault(user, name)
            if other != name:
                raise ValueError(
                    f"users: expected {user!r} in one tenant, found {other} and {name}"
                )
    return tenants


TenantTables = Annotated[dict[TenantName, Tenant], AfterValidator(_check_users)]

NOBODY = Tenant.model_validate({})
"""For callers without a tenant, or whose tenant was removed: one share, no limit."""


class Tenants:
    """The current tenants. They are replaced all at once, while other threads read."""

    def __init__(self, by_name: Mapping[str, Tenant]) -> None:
        self.by_name = by_name

    def of(self, name: str) -> Tenant:
        """The tenant of that name."""
        return self.by_name.get(name, NOBODY)

    def replace(self, by_name: Mapping[str, Tenant]) -> None:
        """Uses these tenants from now on."""
        self.by_name = by_name
