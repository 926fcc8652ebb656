"""What the attacks have in common: how a server is started, and where the figures go."""

from __future__ import annotations

import os
import sys
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from .servers import attacked

if TYPE_CHECKING:
    from .servers import Figure, Start


@pytest.fixture
def start(tmp_path: Path) -> Start:
    """``attacked``, in a folder of the test's own."""
    if sys.platform != "linux":
        pytest.skip("memory is read from /proc")
    return partial(attacked, tmp_path)


@pytest.fixture
def figure(capsys: pytest.CaptureFixture[str]) -> Figure:
    """Prints a figure, and keeps it."""

    def show(name: str, value: object) -> None:
        line = f"{name}: {value}"
        with capsys.disabled():
            print(f"\n    {line}", end="")
        if path := os.environ.get("ATTACK_FIGURES"):
            with Path(path).open("a") as file:
                file.write(line + "\n")

    return show
