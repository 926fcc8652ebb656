"""The headers of CANN, downloaded by the first test that needs them."""

from __future__ import annotations

import os
import shutil

import pytest

from . import wheel
from .headers import Headers


@pytest.fixture(scope="session")
def headers() -> Headers:
    """Tests that use it are skipped where there are no headers or no compiler, but not in CI."""
    try:
        if shutil.which("g++") is None:
            raise wheel.UnavailableError("expected g++ on the path, found none")
        return Headers(wheel.headers())
    except wheel.UnavailableError as error:
        if os.environ.get("CI"):
            raise
        pytest.skip(str(error))
