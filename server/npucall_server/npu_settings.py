"""Settings of an NPU, and what CANN and its loader read from the environment."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, NamedTuple, Self

from pydantic import BaseModel, ByteSize, Field, model_validator

_CAREFUL: dict[str, Any] = {
    "lanes": 1,
    "staging_limit": ByteSize(0),
    "kept_device_memory": ByteSize(0),
    "kept_calls": 0,
    "phase_one_cache": 0,
}
"""What ``careful`` makes of settings that are not given."""


class NpuSettings(BaseModel):
    """How the server uses an NPU; on another device they mean nothing."""

    careful: bool = Field(
        default=False,
        description="For the first run on a new kind of host: turn off all that makes an NPU "
        "faster. One lane; copies that wait; no memory, descriptors or first phases are kept; each "
        "step of a program is waited for. A setting that is given beside it counts, so that one "
        "thing after the other can be turned on again: "
        f"{', '.join(_CAREFUL)}.",
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
        ByteSize(8 * 2**20),
        ge=0,
        description="Bytes of pinned host memory that each lane may keep for copies, for example "
        "8MiB; a larger call goes through it in four pieces. 0: copies wait, and use none.",
    )
    kept_device_memory: ByteSize = Field(
        ByteSize(2**30),
        ge=0,
        description="Bytes of device memory that each lane keeps for its next calls.",
    )
    kept_calls: int = Field(
        256,
        ge=0,
        description="Calls whose descriptors each lane keeps, to run them again; 0 keeps none.",
    )
    phase_one_cache: int = Field(
        10_000,
        ge=0,
        le=10_000_000,
        description="Calls whose first phase CANN remembers per lane (its ACLNN_CACHE_LIMIT); 0 "
        "turns that off (its DISABLE_L2_CACHE).",
    )
    deterministic: bool = Field(
        default=False,
        description="Have the NPU choose algorithms whose results do not vary; slower.",
    )
    busy_wait: bool = Field(
        default=False,
        description="Wait for the NPU without sleeping: less delay, one core a lane.",
    )

    @model_validator(mode="after")
    def _be_careful(self) -> Self:
        if self.careful:
            for name in _CAREFUL.keys() - self.model_fields_set:
                object.__setattr__(self, name, _CAREFUL[name])
        return self


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
    if settings.phase_one_cache:
        os.environ.setdefault("ACLNN_CACHE_LIMIT", str(settings.phase_one_cache))
    else:
        os.environ["DISABLE_L2_CACHE"] = "1"
