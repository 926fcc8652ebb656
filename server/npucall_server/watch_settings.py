"""Settings of who watches: the account of use, metrics."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated

from pydantic import AfterValidator, BaseModel, Field

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
        description="HOST:PORT to show metrics to Prometheus on, at /metrics; a host such as "
        "127.0.0.1, port 0 for any free one. Whoever reaches it sees the names of tenants and "
        "operators. Needs the extra metrics: pip install 'npucall-server[metrics]'. Default: "
        "metrics are not shown.",
    )


class WatchSettings(MetricsSettings):
    """Where what the server counts is kept."""

    usage_file: Path | None = Field(
        None,
        description="File of the account of who used the device how long: a JSON line for each "
        "caller and minute, read again at the start, so that quotas outlive a restart. At 16 MiB "
        "it becomes FILE.1, that one FILE.2, and so on up to FILE.8. Default: the account is kept "
        "in memory alone.",
    )
