"""Every setting of the server: from the command line, the environment, a TOML file, in this order.

The only module of the server that reads the environment.
"""

from __future__ import annotations

import json
import os
import socket
import tomllib
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple

from pydantic import AfterValidator, ByteSize, Field, model_validator
from pydantic_settings import (
    BaseSettings,
    PydanticBaseSettingsSource,
    SettingsConfigDict,
    TomlConfigSettingsSource,
)

from npucall.errors import ArgumentError
from npucall.limits import CHUNK_BYTES
from npucall.operators import CATALOGUE, DEFAULT_VARIANT
from npucall.products import DEFAULT_SOC, product_of
from npucall_server import addresses, device_kinds

_CGROUP_LIMITS = (
    Path("/sys/fs/cgroup/memory.max"),
    Path("/sys/fs/cgroup/memory/memory.limit_in_bytes"),  # version 1
)
_CAN_SHARE_MEMORY = hasattr(os, "memfd_create") and hasattr(socket, "SO_PEERCRED")
_PORT = 50051
_LONGEST_SECONDS = 1e9
"""Thirty years; a lock cannot wait for infinity."""


def half_of_memory() -> ByteSize:
    """Half of the memory that the machine has, or that its control group allows, in bytes."""
    total = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    for file in _CGROUP_LIMITS:
        if file.exists() and (limit := file.read_text().strip()).isdecimal():
            total = min(total, int(limit))
    return ByteSize(total // 2)


def quarter_of_memory() -> ByteSize:
    """Half of that."""
    return ByteSize(half_of_memory() // 2)


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


_UserId = Annotated[int, Field(ge=0, lt=2**32 - 1)]


class ServerSettings(BaseSettings):
    """Serves operators of Ascend NPUs over gRPC, from one device.

    Every setting is a flag, an environment variable NPUCALL_<NAME>, or a line of the TOML file that
    --config names; the first of these that is there counts. Other commands: `npucall-server health
    [TARGET]` asks a running server whether it serves; `npucall-server doctor` looks for what keeps
    an NPU from working; `npucall-server headers DIR` lists the operators that CANN's headers in a
    folder declare.
    """

    model_config = SettingsConfigDict(
        env_prefix="NPUCALL_",
        cli_kebab_case=True,
        cli_implicit_flags=True,
        cli_hide_none_type=True,
        cli_prog_name="npucall-server",
        extra="forbid",
        frozen=True,
    )

    config: Path | None = Field(None, description="TOML file of settings.")
    device: Annotated[str, AfterValidator(_known_device)] = Field(
        device_kinds.CPU.form,
        description="What runs the calls: "
        + "".join(f"{kind.form}, {kind.meaning}; " for kind in device_kinds.KINDS)
        + "or what an installed package adds.",
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
    listen: str = Field(
        f"127.0.0.1:{_PORT}",
        description="Address: HOST:PORT, port 0 for any free one, or unix:PATH. Anything but "
        "loopback needs --insecure-bind.",
    )
    listen_host: str = Field(
        "",
        description="The host of that address alone, for who computes the port elsewhere; another "
        "one than that of --listen is refused.",
    )
    insecure_bind: bool = Field(
        default=False,
        description="Listen beyond loopback although nothing is encrypted and nobody has to "
        "prove who they are.",
    )
    ready_file: Path | None = Field(
        None, description="File to write the address to, once the server answers."
    )
    queue_length: int = Field(
        64, ge=0, le=1000, description="Calls that may wait for the device; more are refused."
    )
    memory_limit: ByteSize = Field(
        default_factory=half_of_memory,
        gt=0,
        description="Bytes of requests and responses, and of what computing them takes besides, "
        "that may wait or run at a time, and the most that one tensor may hold; for example 8GiB. "
        "Default: half of the memory.",
    )
    keep_memory: ByteSize = Field(
        ByteSize(2**30),
        ge=0,
        description="Bytes of freed host memory kept for the next calls, at most 2GiB, which makes "
        "large calls several times as fast; 0 keeps none. Given back when no call has come for ten "
        "seconds. Needs Linux with glibc, and does nothing elsewhere.",
    )
    max_message_bytes: ByteSize = Field(
        ByteSize(2**31 - 1),
        gt=0,
        le=2**31 - 1,
        description="Largest request in bytes, for example 64MiB; gRPC's own limit is 2 GiB.",
    )
    shared_memory: Path | None = Field(
        None,
        description="Path of a Unix socket to make, that hands out memory to processes of the same "
        "user on this host, so that tensors need not travel. Linux alone.",
    )
    shared_memory_limit: ByteSize = Field(
        default_factory=quarter_of_memory,
        gt=0,
        description="Bytes of shared memory that may be in use at a time, for example 8GiB. What a "
        "call has in it counts towards --memory-limit all the same. Default: a quarter of the "
        "memory.",
    )
    shared_memory_users: tuple[_UserId, ...] = Field(
        (),
        description="Numbers of the users who get shared memory besides the server's own, for "
        "example 1000,1001.",
    )
    max_streams: int = Field(
        64, ge=0, le=1000, description="Streams that may be open; more are refused."
    )
    stream_window: int = Field(
        32,
        ge=1,
        le=1000,
        description="Calls of one stream that may be without a complete answer; more are not read.",
    )
    chunk_bytes: ByteSize = Field(
        ByteSize(CHUNK_BYTES),
        ge=64 * 2**10,
        le=3 * 2**20,  # and the rest of its frame: gRPC's clients receive 4 MiB unless told more
        description="Most bytes of one chunk of a large call, for example 256KiB; answers come in "
        "such chunks, and clients are asked to send no longer ones. Long chunks make large calls "
        "faster and cost less CPU time; short ones keep small calls beside them quick.",
    )
    call_timeout: float = Field(
        300.0,
        gt=0,
        allow_inf_nan=False,
        le=_LONGEST_SECONDS,
        description="Seconds after which the server ends a call, whatever its deadline is.",
    )
    computation_limit: int = Field(
        10**11,
        ge=1,
        lt=2**63,
        description="Elements that one call may compute; a larger call is refused before anything "
        "of it is computed. Elementwise operators count the elements of the shape that the inputs "
        "broadcast to, others those of their largest tensor; CtcLossBackward counts the states and "
        "classes of every item at every step.",
    )
    drain_timeout: float = Field(
        30.0,
        ge=0,
        allow_inf_nan=False,
        le=_LONGEST_SECONDS,
        description="Seconds that running calls get to finish after SIGTERM.",
    )
    log_calls: Literal["all", "errors", "slow"] = Field(
        "all", description="Which calls get a log line; slow: errors and those over --slow-call."
    )
    slow_call: float = Field(
        1.0,
        ge=0,
        allow_inf_nan=False,
        le=_LONGEST_SECONDS,
        description="Seconds from which a call counts as slow.",
    )
    lanes: int = Field(
        2,
        ge=1,
        le=8,
        description="Calls that run on an NPU at a time, each on a stream of its own.",
    )
    device_timeout: float = Field(
        120.0,
        gt=0,
        allow_inf_nan=False,
        le=2_000_000,
        description="Seconds that a call may take on an NPU; past them the device counts as lost, "
        "and the server exits with code 70 to be started again.",
    )
    staging_limit: ByteSize = Field(
        ByteSize(256 * 2**20),
        ge=0,
        description="Bytes of pinned host memory that each lane may keep for copies, for example "
        "256MiB; a larger call is copied more slowly, without it.",
    )
    kept_device_memory: ByteSize = Field(
        ByteSize(2**30),
        ge=0,
        description="Bytes of device memory that each lane keeps for its next calls.",
    )
    kept_calls: int = Field(
        256, ge=1, description="Calls whose descriptors each lane keeps, to run them again."
    )
    phase_one_cache: int = Field(
        10_000,
        ge=1,
        le=10_000_000,
        description="Calls that CANN remembers per lane (its ACLNN_CACHE_LIMIT).",
    )
    deterministic: bool = Field(
        default=False,
        description="Have the NPU choose algorithms whose results do not vary; slower.",
    )
    busy_wait: bool = Field(
        default=False,
        description="Wait for the NPU without sleeping: less delay, one core a lane.",
    )
    reflection: bool = Field(
        default=True,
        description="Let clients such as grpcurl ask for the services' descriptions; each that "
        "keeps asking holds a thread.",
    )
    print_settings: bool = Field(default=False, description="Print the settings as TOML and exit.")

    @model_validator(mode="before")
    @classmethod
    def _give_the_address_its_host(cls, values: dict[str, Any]) -> dict[str, Any]:
        host, listen = values.get("listen_host"), values.get("listen", f":{_PORT}")
        if not host or not isinstance(host, str) or not isinstance(listen, str):
            return values
        return {**values, "listen": addresses.at_host(host, addresses.check(listen))}

    @model_validator(mode="after")
    def _bind_on_purpose(self) -> ServerSettings:
        addresses.check(self.listen)
        if not self.insecure_bind and not addresses.is_loopback(self.listen):
            raise ValueError(
                f"listen: expected a loopback address, found {self.listen}; nothing is encrypted, "
                "so another one needs insecure_bind (--insecure-bind)"
            )
        return self

    @model_validator(mode="after")
    def _share_memory_where_it_can_be_sealed(self) -> ServerSettings:
        if self.shared_memory is not None and not _CAN_SHARE_MEMORY:
            raise ValueError(
                "shared_memory: expected Linux, which has sealed memory files and tells who "
                "connects to a socket; found another system"
            )
        return self

    def as_toml(self) -> str:
        """The settings as a TOML file that ``--config`` reads; what is not set is left out."""
        left_out = {"config", "print_settings"}
        values = self.model_dump(mode="json", exclude=left_out, exclude_none=True)
        return "".join(
            f"{name} = {json.dumps(value, ensure_ascii=False)}\n" for name, value in values.items()
        )

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """Arguments, then environment, then the file that one of these names."""
        del dotenv_settings, file_secret_settings
        return init_settings, env_settings, _ConfigFile(settings_cls)


class _ConfigFile(TomlConfigSettingsSource):
    """The TOML file that ``config`` names, once the sources before it have been read."""

    def __init__(self, settings_cls: type[BaseSettings]) -> None:
        super().__init__(settings_cls, toml_file=None)

    def __call__(self) -> dict[str, object]:
        path = self.current_state.get("config")
        try:
            return self._read_file(Path(path)) if path else {}
        except tomllib.TOMLDecodeError as error:
            raise ValueError(f"config: expected TOML in {path}, found a fault: {error}") from error


class AscendPaths(NamedTuple):
    """Where CANN is installed, as its own ``set_env.sh`` tells programs."""

    home: Path | None
    """ASCEND_HOME_PATH: the toolkit."""
    opp: Path | None
    """ASCEND_OPP_PATH: its operators."""
    custom: tuple[Path, ...]
    """ASCEND_CUSTOM_OPP_PATH: custom packages, the first one first."""


def ascend_paths() -> AscendPaths:
    """The paths in the environment."""

    def path(name: str) -> Path | None:
        return Path(value) if (value := os.environ.get(name)) else None

    custom = os.environ.get("ASCEND_CUSTOM_OPP_PATH", "").split(":")
    return AscendPaths(
        path("ASCEND_HOME_PATH") or path("ASCEND_TOOLKIT_HOME"),
        path("ASCEND_OPP_PATH"),
        tuple(Path(entry) for entry in custom if entry),
    )


def ascend_environment() -> dict[str, str]:
    """All that CANN and the loader read from the environment to find their files."""
    names = (name for name in os.environ if name.startswith("ASCEND_") or name == "LD_LIBRARY_PATH")
    return {name: os.environ[name] for name in names}


def tell_cann(settings: ServerSettings) -> None:
    """Sets what CANN reads from the environment; before its libraries are opened."""
    os.environ.setdefault("ACLNN_CACHE_LIMIT", str(settings.phase_one_cache))
