"""Every setting of the server."""

from __future__ import annotations

import os
import socket
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated, ClassVar

from pydantic import AfterValidator, BaseModel, Field, model_validator
from pydantic_settings import SettingsConfigDict

from npucall.errors import ArgumentError
from npucall.operators import CATALOGUE, DEFAULT_VARIANT
from npucall.products import DEFAULT_SOC, product_of
from npucall_server.settings import addresses, device_kinds
from npucall_server.settings.addresses import Address, Security
from npucall_server.settings.announcing import AnnounceSettings
from npucall_server.settings.expert import expert
from npucall_server.settings.keeping import ReservationSettings, SessionSettings
from npucall_server.settings.limits import ConnectionSettings, MemorySettings
from npucall_server.settings.listener import ListenerSettings, read_as
from npucall_server.settings.listening import named
from npucall_server.settings.npu import NpuSettings
from npucall_server.settings.watching import WatchSettings

_KNOWS_WHO_CONNECTS = hasattr(socket, "SO_PEERCRED")
_CAN_SHARE_MEMORY = hasattr(os, "memfd_create") and _KNOWS_WHO_CONNECTS
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
        description="The device that runs the calls: "
        + "".join(f"{kind.form}, {kind.meaning}; " for kind in device_kinds.KINDS)
        + "or one of an installed package.",
    )
    device_lock: Path | None = expert(
        None,
        description="File that the server locks before it opens the device, and keeps locked "
        "until it ends. Servers with the same file use the device one after the other.",
    )
    device_lock_wait: float = expert(
        60.0,
        ge=0,
        allow_inf_nan=False,
        le=_LONGEST_SECONDS,
        description="Seconds to wait for that lock; after them the server exits with code 72.",
    )
    soc: Annotated[str, AfterValidator(_known_soc)] = Field(
        DEFAULT_SOC,
        description="The SoC whose rules the device cpu applies, for example Ascend910_9391.",
    )
    variant: Annotated[str, AfterValidator(_known_variant)] = expert(
        "",
        description="The variant that runs if an operator has several and a call names none: "
        f"{', '.join(CATALOGUE.variants())}. Default: on cpu {DEFAULT_VARIANT}, or the first that "
        "the product has; on an NPU the installed one.",
    )
    queue_length: int = Field(
        64,
        ge=0,
        le=1000,
        description="Calls that may wait for the device; the server refuses any more.",
    )
    call_timeout: float = expert(
        300.0,
        gt=0,
        allow_inf_nan=False,
        le=_LONGEST_SECONDS,
        description="Seconds after which the server ends a call, even if its deadline is later. "
        "The time in which its bytes are sent does not count.",
    )
    computation_limit: int = expert(
        10**12,
        ge=1,
        lt=2**63,
        description="Elements that one call may compute; the server refuses a larger call "
        "before it computes anything. For elementwise operators these are the elements of the "
        "shape that the inputs broadcast to, for others those of the largest tensor; "
        "CtcLossBackward counts the states and classes of every item at every step, Matmul the "
        "products of two numbers.",
    )
    drain_timeout: float = expert(
        30.0,
        ge=0,
        allow_inf_nan=False,
        le=_LONGEST_SECONDS,
        description="Seconds that running calls have to finish after SIGTERM.",
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
    ListenerSettings,
):
    """Serves operators of Ascend NPUs over gRPC, from one device.

    Give a setting as a flag, as an environment variable NPUCALL_<NAME>, or as a line of the TOML
    file that --config names; the first of these counts. NPUCALL_DEFAULT_<NAME> counts only if none
    of them gives the setting. Other commands: `npucall-server settings` prints the settings that
    hold, as a TOML file; `npucall-server health [TARGET]` asks a running server whether it serves;
    `npucall-server doctor` looks for what keeps an NPU from working; `npucall-server headers DIR`
    lists the operators that CANN's headers in a folder declare; `npucall-server token new` makes a
    token; `npucall-server tenants check FILE` shows who may do what; `npucall-server certificates
    DIR` makes certificates for TLS.
    """

    model_config = SettingsConfigDict(
        env_prefix="NPUCALL_", cli_prog_name="npucall-server", cli_shortcuts={"labels": "label"}
    )
    ways_to_know: ClassVar[str] = (
        f"{ListenerSettings.ways_to_know}, or shared_memory or frames_socket with users of a tenant"
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
    def _frames_where_users_are_told(self) -> ServerSettings:
        if isinstance(self.frames_socket, Path) and not _KNOWS_WHO_CONNECTS:
            raise ValueError("frames_socket: expected Linux, found another system")
        return self

    @model_validator(mode="after")
    def _lock_where_files_can_be_locked(self) -> ServerSettings:
        if self.device_lock is not None and sys.platform == "win32":
            raise ValueError("device_lock: expected Linux or macOS, found another system")
        return self

    @model_validator(mode="after")
    def _check_where_frames_come_in(self) -> ServerSettings:
        with named("frames_listen"):
            address = self.frames_address
            if address is None:
                return self
            if address.where.startswith("unix:"):
                raise ValueError(f"expected HOST:PORT, found {address.where}; set frames_socket")
            self.check_address(address)
        return self

    @property
    def has_frames_socket(self) -> bool:
        """Whether frames of this host come in."""
        return self.frames_socket != "off" and _KNOWS_WHO_CONNECTS

    @property
    def frames_address(self) -> Address | None:
        """Where frames of other hosts come in. Raises ValueError."""
        listen = self.frames_listen
        if listen.startswith("+"):
            return _above(self.listens, listen)
        return self.address_of(listen) if listen else None

    @property
    def has_frames_tls(self) -> bool:
        """Whether they are encrypted there."""
        address = self.frames_address
        return address is not None and address.security is not Security.PLAIN

    @property
    def knows_local_users(self) -> bool:
        """Whether a socket knows users of this host."""
        has_users = any(tenant.users for tenant in self.tenants.values())
        return has_users and (self.shared_memory is not None or self.has_frames_socket)


def _above(listens: Sequence[Address], number: str) -> Address | None:
    """The first address with a port, at one that is so much higher; None if none has a port."""
    if not number[1:].isdecimal():
        raise ValueError(f"expected HOST:PORT or +NUMBER, found {number!r}")
    for address in listens:
        port = addresses.port(address.where)
        if port is not None:
            host = address.where.rpartition(":")[0]
            above = port + int(number) if port else 0  # 0: any free one
            return replace(address, where=addresses.check(f"{host}:{above}"))
    return None


def read(arguments: Sequence[str]) -> ServerSettings:
    """The settings that hold with these arguments of the command line.

    Raises ValueError, a line for each fault.
    """
    return read_as(ServerSettings, arguments)
