"""The headers of CANN, downloaded by the first test that needs them."""

import os
import shutil
from collections.abc import Mapping
from typing import NoReturn

import pytest

from . import wheel
from .headers import Headers


@pytest.fixture(scope="session")
def headers() -> Headers:
    """Tests of it are skipped where there are no headers or no compiler, but fail in CI."""
    need({"g++": "g++"})
    try:
        return Headers(wheel.headers())
    except wheel.UnavailableError as error:
        _give_up(str(error))


def need(packages: Mapping[str, str]) -> None:
    """Skips without one of these programs, by Debian's package that has it; in CI it fails."""
    missing = sorted({packages[name] for name in packages if shutil.which(name) is None})
    if missing:
        _give_up(f"not installed: apt-get install --no-install-recommends {' '.join(missing)}")


def _give_up(reason: str) -> NoReturn:
    if os.environ.get("CI"):
        pytest.fail(reason)
    pytest.skip(reason)
