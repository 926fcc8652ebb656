"""Settings of an NPU, and what CANN and its loader read from the environment."""

from __future__ import annotations

import os
from pathlib import Path
from typing import NamedTuple

from pydantic import BaseModel, ByteSize, Field


class NpuSettings(BaseModel):
    """How the server uses an NPU; on another device they mean nothing."""

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


def tell_cann(settings: NpuSettings) -> None:
    """Sets what CANN reads from the environment; before its libraries are opened."""
    os.environ.setdefault("ACLNN_CACHE_LIMIT", str(settings.phase_one_cache))
