"""How the attacks start a server, and where the figures go."""

from __future__ import annotations

import os
import sys
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from .servers import attacked

if TYPE_CHECKING:
    from collections.abc import Iterator

    from .servers import AttackedServer, Start


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
                show(f"{request.node.name}: {'; '.join([server.show_peak(), *server.notes])}")

    def show(line: str) -> None:
        with capsys.disabled():
            print(f"\n    {line}", end="")
        if path := os.environ.get("ATTACK_FIGURES"):
            with Path(path).open("a") as file:
                file.write(line + "\n")

    return begin
