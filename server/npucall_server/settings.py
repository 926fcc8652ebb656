"""Every setting of the server."""

from __future__ import annotations

import os
import socket
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, ClassVar

from pydantic import AfterValidator, BaseModel, Field, model_validator
from pydantic_settings import SettingsConfigDict

from npucall.errors import ArgumentError
from npucall.operators import CATALOGUE, DEFAULT_VARIANT
from npucall.products import DEFAULT_SOC, product_of
from npucall_server import device_kinds, device_lock
from npucall_server.announce_settings import AnnounceSettings
from npucall_server.connection_settings import ConnectionSettings
from npucall_server.front_settings import FrontSettings, read_as
from npucall_server.memory_settings import MemorySettings
from npucall_server.npu_settings import NpuSettings
from npucall_server.reservation_settings import ReservationSettings
from npucall_server.session_settings import SessionSettings
from npucall_server.watch_settings import WatchSettings

if TYPE_CHECKING:
    from collections.abc import Sequence

_CAN_SHARE_MEMORY = hasattr(os, "memfd_create") and hasattr(socket, "SO_PEERCRED")
_LONGEST_SECONDS = 1e9
"""Thirty years; a lock cannot wait for infinity."""


def _known_device(device: str) -> str:
    device_kinds.kind_of(device)
    return device


def _known_soc(soc: str) -> str:
    try:
        product_of(soc)
    except ArgumentError as error:
        raise ValueError(error) from None
    return soc


def _known_variant(variant: str) -> str:
    if variant not in ("", *CATALOGUE.variants()):
        raise ValueError(f"expected one of {', '.join(CATALOGUE.variants())}")
    return variant


class _ServingSettings(BaseModel):
    """What is served, to whom, and how calls are taken."""

    device: Annotated[str, AfterValidator(_known_device)] = Field(
        device_kinds.CPU.form,
        description="What runs the calls: "
        + "".join(f"{kind.form}, {kind.meaning}; " for kind in device_kinds.KINDS)
        + "or what an installed package adds.",
    )
    device_lock: Path | None = Field(
        None,
        description="File that the server locks before it opens the device, for as long as it "
        "lives. Servers that are told the same file have the device one after the other.",
    )
    device_lock_wait: float = Field(
        60.0,
        ge=0,
        allow_inf_nan=False,
        le=_LONGEST_SECONDS,
        description="Seconds to wait for a server that has that lock; past them the exit code is "
        "72.",
    )
    soc: Annotated[str, AfterValidator(_known_soc)] = Field(
        DEFAULT_SOC, description="The SoC whose rules hold on cpu, for example Ascend910_9391."
    )
    variant: Annotated[str, AfterValidator(_known_variant)] = Field(
        "",
        description="The variant that runs if a call names none and its operator has several: "
        f"{', '.join(CATALOGUE.variants())}. Default: on cpu {DEFAULT_VARIANT}, or the first that "
        "the product has; on an NPU the one that is installed.",
    )
    queue_length: int = Field(
        64, ge=0, le=1000, description="Calls that may wait for the device; more are refused."
    )
    call_timeout: float = Field(
        300.0,
        gt=0,
        allow_inf_nan=False,
        le=_LONGEST_SECONDS,
        description="Seconds after which the server ends a call, whatever its deadline is; those "
        "in which its bytes travel do not count.",
    )
    computation_limit: int = Field(
        10**12,
        ge=1,
        lt=2**63,
        description="Elements that one call may compute; a larger call is refused before anything "
        "of it is computed. Elementwise operators count the elements of the shape that the inputs "
        "broadcast to, others those of their largest tensor; CtcLossBackward counts the states and "
        "classes of every item at every step, Matmul the products of two numbers.",
    )
    drain_timeout: float = Field(
        30.0,
        ge=0,
        allow_inf_nan=False,
        le=_LONGEST_SECONDS,
        description="Seconds that running calls get to finish after SIGTERM.",
    )


class ServerSettings(
    NpuSettings,
    ReservationSettings,
    SessionSettings,
    ConnectionSettings,
    MemorySettings,
    AnnounceSettings,
    WatchSettings,
    _ServingSettings,
    FrontSettings,
):
    """Serves operators of Ascend NPUs over gRPC, from one device.

    Every setting is a flag, an environment variable NPUCALL_<NAME>, or a line of the TOML file that
    --config names; the first of these that is there counts. Other commands: `npucall-server health
    [TARGET]` asks a running server whether it serves; `npucall-server doctor` looks for what keeps
    an NPU from working; `npucall-server headers DIR` lists the operators that CANN's headers in a
    folder declare; `npucall-server token new` makes a token, `npucall-server tenants check FILE`
    says who may do what; `npucall-server certificates DIR` makes certificates for TLS.
    """

    model_config = SettingsConfigDict(
        env_prefix="NPUCALL_", cli_prog_name="npucall-server", cli_shortcuts={"labels": "label"}
    )
    ways_to_know: ClassVar[str] = (
        f"{FrontSettings.ways_to_know}, or shared_memory with users of a tenant"
    )

    @model_validator(mode="after")
    def _share_memory_where_it_can_be_sealed(self) -> ServerSettings:
        if self.shared_memory is not None and not _CAN_SHARE_MEMORY:
            raise ValueError(
                "shared_memory: expected Linux, found another system; only Linux has sealed "
                "memory files"
            )
        return self

    @model_validator(mode="after")
    def _lock_where_files_can_be_locked(self) -> ServerSettings:
        if self.device_lock is not None and not device_lock.CAN_LOCK:
            raise ValueError("device_lock: expected Linux or macOS, found another system")
        return self

    @property
    def knows_local_users(self) -> bool:
        """Whether the side socket knows users of this host."""
        has_users = any(tenant.users for tenant in self.tenants.values())
        return has_users and self.shared_memory is not None


def read(arguments: Sequence[str]) -> ServerSettings:
    """The settings that hold with these arguments of the command line.

    Raises ValueError, a line for each fault.
    """
    return read_as(ServerSettings, arguments)
