"""Settings of who watches: the account of use, metrics."""

from __future__ import annotations

from pathlib import Path

from pydantic import BaseModel, Field


class WatchSettings(BaseModel):
    """Where what the server counts is kept and shown."""

    usage_file: Path | None = Field(
        None,
        description="File of the account of who used the device how long: a JSON line for each "
        "caller and minute, read again at the start, so that quotas outlive a restart. At 16 MiB "
        "it becomes FILE.1, that one FILE.2, and so on up to FILE.4. Default: the account is kept "
        "in memory alone.",
    )
