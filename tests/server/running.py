"""A server on the CPU in this process, put together as the command does it."""

from __future__ import annotations

import io
import json
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from npucall_server import app
from npucall_server.devices import open_device
from npucall_server.log import Log
from npucall_server.settings import ServerSettings

if TYPE_CHECKING:
    from collections.abc import Iterator


class Running:
    """The server, the notes of its device, and the lines of its log."""

    def __init__(self, settings: ServerSettings) -> None:
        self._log = io.StringIO()
        self.notes: list[str] = []
        self.device = open_device(settings, self.notes.append)
        self.server = app.Server(app.build(settings, self.device, Log(stream=self._log)))
        self.server.start()

    @property
    def target(self) -> str:
        return self.server.address

    def events(self, name: str) -> list[dict[str, Any]]:
        lines = map(json.loads, self._log.getvalue().splitlines())
        return [line for line in lines if line["event"] == name]


@contextmanager
def running(listen: str = "127.0.0.1:0", **settings: Any) -> Iterator[Running]:
    """Drains it at the end."""
    started = Running(ServerSettings(listen=listen, **settings))
    try:
        yield started
    finally:
        assert started.server.drain()
        started.device.close()
