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
        description="HOST:PORT at which Prometheus reads metrics, at /metrics; a host such as "
        "127.0.0.1, and port 0 for any free one. Everybody who reaches it can see the names of "
        "tenants and operators. Needs the extra metrics: pip install 'npucall-server[metrics]'. "
        "Default: no metrics.",
    )


class WatchSettings(MetricsSettings):
    """Where what the server counts is kept."""

    usage_file: Path | None = Field(
        None,
        description="File of the account: who used the device for how long, a JSON line for "
        "each caller and minute. The server reads it at its start, so that quotas survive a "
        "restart. At 16 MiB it is renamed to FILE.1, FILE.1 to FILE.2, and so on up to FILE.8. "
        "Default: the server keeps the account in memory only.",
    )
