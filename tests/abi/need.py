"""What some tests need of the host."""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping

import pytest


def need(packages: Mapping[str, str]) -> None:
    """Skips without one of these programs, by Debian's package that has it; in CI it fails."""
    missing = sorted({packages[name] for name in packages if shutil.which(name) is None})
    if missing:
        message = f"not installed: apt-get install --no-install-recommends {' '.join(missing)}"
        pytest.fail(message) if os.environ.get("CI") else pytest.skip(message)
