"""How the attacks start a server, and print their figures."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from tests.summary import figures

from .servers import AttackedServer, Start, attacked


@pytest.fixture
def start(tmp_path: Path) -> Start:
    """``attacked``, in a folder of the test's own. At its end it tells the figures of the test."""
    if sys.platform != "linux":
        pytest.skip("memory is read from /proc")

    @contextmanager
    def begin(*flags: str, **options: Any) -> Iterator[AttackedServer]:
        with attacked(tmp_path, *flags, **options) as server:
            try:
                yield server
            finally:
                figures(server.show_peak(), *server.notes)

    return begin
