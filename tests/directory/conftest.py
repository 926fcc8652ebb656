"""The directory's tests: none is told anything by the environment."""

import pytest

from npucall_server.directory.settings import DirectorySettings


@pytest.fixture(autouse=True)
def _no_settings_from_outside(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in DirectorySettings.model_fields:
        monkeypatch.delenv(f"NPUCALL_DIRECTORY_{name.upper()}", raising=False)
