"""The server's tests: none is told anything by the environment, none judges time."""

from __future__ import annotations

import pytest
from hypothesis import settings

from npucall_server.settings import ServerSettings

settings.register_profile("npucall", deadline=None)
settings.load_profile("npucall")


@pytest.fixture(autouse=True)
def _no_settings_from_outside(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ServerSettings.model_fields:
        monkeypatch.delenv(f"NPUCALL_{name.upper()}", raising=False)
