"""How the attacks start a server, and print their figures."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from .servers import AttackedServer, Start, attacked


@pytest.fixture
def start(
    tmp_path: Path, request: pytest.FixtureRequest, capsys: pytest.CaptureFixture[str]
) -> Start:
    """``attacked``, in a folder of the test's own. At its end it prints the figures of the test."""
    if sys.platform != "linux":
        pytest.skip("memory is read from /proc")

    @contextmanager
    def begin(*flags: str, **options: Any) -> Iterator[AttackedServer]:
        with attacked(tmp_path, *flags, **options) as server:
            try:
                yield server
            finally:
                figures = "; ".join([server.show_peak(), *server.notes])
                with capsys.disabled():
                    print(f"\n    {request.node.name}: {figures}", end="")

    return begin
