"""What the attacks have in common: how a server is started, and where the figures go."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from .attacked import attacked

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    from .attacked import Attacked, Figure, Start


@pytest.fixture
def start(tmp_path: Path) -> Start:
    """``attacked``, in a folder of the test's own."""

    def begin(*flags: str, **options: Any) -> AbstractContextManager[Attacked]:
        return attacked(tmp_path, *flags, **options)

    return begin


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


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Memory and descriptors are read from /proc."""
    if sys.platform != "linux":
        for item in items:
            if item.path.is_relative_to(Path(__file__).parent):
                item.add_marker(pytest.mark.skip(reason="memory is read from /proc"))
