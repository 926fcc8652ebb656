"""Settings of who watches: the account of use, metrics."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Annotated, Any

from pydantic import AfterValidator, BaseModel, Field

from npucall_server.settings.expert import expert

_HOST_AND_PORT = re.compile(r"(?:\[[0-9a-fA-F:.%]+\]|[^:\[\]]+):([0-9]{1,5})")
_LAST_PORT = 65535


def _host_and_port(address: str) -> str:
    found = _HOST_AND_PORT.fullmatch(address)
    if address and (found is None or int(found[1]) > _LAST_PORT):
        raise ValueError(f"expected HOST:PORT, found {address!r}")
    return address


class MetricsSettings(BaseModel):
    """Where what the server counts is shown."""

    metrics_listen: Annotated[str, AfterValidator(_host_and_port)] = Field(
        "",
        description="HOST:PORT at which Prometheus reads metrics, at /metrics; a host such as "
        "127.0.0.1, and port 0 for any free one. Everybody who reaches it can see the names of "
        "tenants and operators. Needs the extra metrics: pip install './server[metrics]', in "
        "npucall's sources. Default: no metrics.",
    )


def _folder_of_systemd() -> Path | None:
    """What ``StateDirectory=`` of a unit has made."""
    named = os.environ.get("STATE_DIRECTORY", "").partition(":")[0]
    return Path(named) if named else None


def _kept_usage(values: dict[str, Any]) -> Path | None:
    folder: Path | None = values.get("state_folder")
    return None if folder is None else folder / "usage.jsonl"


class WatchSettings(MetricsSettings):
    """Where what the server counts is kept."""

    state_folder: Path | None = expert(
        default_factory=_folder_of_systemd,
        description="Folder, of this server alone, in which it remembers beyond its process: its "
        "id and its account, whether it drained, and of which tenants' callers calls ended "
        "processes: after two of them, these callers' calls go one at a time. Default: the "
        "StateDirectory of its systemd unit, else none.",
    )
    usage_file: Path | None = Field(
        default_factory=_kept_usage,
        description="File of the account: who used the device for how long, a JSON line for "
        "each caller and minute. The server reads it at its start, so that quotas survive a "
        "restart. At 16 MiB it is renamed to FILE.1, FILE.1 to FILE.2, and so on up to FILE.8. "
        "Default: usage.jsonl in state_folder; without such a folder the server only remembers.",
    )
