"""What counts as the copy to the device: not the work of the host before it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from npucall_server.devices.cann.transfer import Transfer
from npucall_server.devices.stopwatch import Stopwatch

from .situations import l1

if TYPE_CHECKING:
    import pytest

    from .opened import Opened


def test_staging_is_filled_before_the_time_of_the_copy_begins(
    device: Opened, monkeypatch: pytest.MonkeyPatch
) -> None:
    steps: list[str] = []
    note(monkeypatch, steps, Transfer, "stage")
    note(monkeypatch, steps, Stopwatch, "mark")
    note(monkeypatch, steps, Transfer, "copy_in")
    device.run(l1(device.device))
    assert steps[:4] == ["stage", "mark", "copy_in", "mark"]


def note(monkeypatch: pytest.MonkeyPatch, steps: list[str], owner: type, name: str) -> None:
    """Lets ``steps`` have the name whenever the method is called."""
    method = getattr(owner, name)

    def noted(*arguments: Any) -> Any:
        steps.append(name)
        return method(*arguments)

    monkeypatch.setattr(owner, name, noted)
