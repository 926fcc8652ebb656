"""Settings of an NPU, and what CANN and its loader read from the environment."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, NamedTuple, Self

from pydantic import BaseModel, ByteSize, model_validator

from npucall_server.settings.expert import expert

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

    careful: bool = expert(
        default=False,
        description="For the first run on a new kind of host: turn off everything that makes an "
        "NPU faster. The server then uses one lane, waits for each copy and for each step of a "
        "program, and keeps no memory, descriptors or first phases. To turn these on again one by "
        f"one, set {', '.join(_CAREFUL)} too: what you set counts.",
    )
    lanes: int = expert(
        2,
        ge=1,
        le=8,
        description="Calls that run on an NPU at a time, each on a stream of its own.",
    )
    device_timeout: float = expert(
        120.0,
        gt=0,
        allow_inf_nan=False,
        le=2_000_000,
        description="Seconds that a call may take on an NPU. If one takes longer, the server "
        "treats the device as lost and exits with code 70, so that a supervisor starts it again.",
    )
    staging_limit: ByteSize = expert(
        ByteSize(8 * 2**20),
        ge=0,
        description="Bytes of pinned host memory that each lane may keep for copies, for "
        "example 8MiB; a larger call goes through it in four pieces. 0: no pinned memory, and "
        "each copy is waited for.",
    )
    kept_device_memory: ByteSize = expert(
        ByteSize(2**30),
        ge=0,
        description="Bytes of freed device memory that each lane keeps for its next calls.",
    )
    kept_calls: int = expert(
        256,
        ge=0,
        description="Calls of which each lane keeps the descriptors, to run them again faster; "
        "0 keeps none.",
    )
    phase_one_cache: int = expert(
        10_000,
        ge=0,
        le=10_000_000,
        description="Calls of which CANN remembers the first phase, for each lane (CANN's "
        "ACLNN_CACHE_LIMIT); 0 turns that off (CANN's DISABLE_L2_CACHE).",
    )
    deterministic: bool = expert(
        default=False,
        description="Make the NPU use algorithms that give the same bits each time; slower.",
    )
    busy_wait: bool = expert(
        default=False,
        description="Wait for the NPU without sleeping: less delay, but each lane uses one core.",
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
