"""The headers of CANN, downloaded by the first test that needs them."""

from __future__ import annotations

import os
import shutil
from typing import NoReturn

import pytest

from . import wheel
from .headers import Headers


@pytest.fixture(scope="session")
def headers() -> Headers:
    """Tests of it are skipped where there are no headers or no compiler, but fail in CI."""
    if shutil.which("g++") is None:
        _give_up("expected g++ on the path, found none")
    try:
        return Headers(wheel.headers())
    except wheel.UnavailableError as error:
        _give_up(str(error))


def _give_up(reason: str) -> NoReturn:
    if os.environ.get("CI"):
        pytest.fail(reason)
    pytest.skip(reason)
