"""A server in this process, so that tests can put faults into it."""

import io
import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from npucall_server.devices import open_device
from npucall_server.serving.app import Server, build
from npucall_server.settings.server import ServerSettings
from npucall_server.telemetry.log import Log


@contextmanager
def serving(**settings: Any) -> Iterator[str]:
    """The target of a CPU server with these settings."""
    given = ServerSettings(listen="127.0.0.1:0", memory_limit=1 << 28, **settings)
    text = io.StringIO()
    server = Server(build(given, open_device(given, lambda _: None), Log(stream=text)))
    server.start()
    try:
        lines = map(json.loads, text.getvalue().splitlines())
        (event,) = [line for line in lines if line["event"] == "serving"]
        yield event["addresses"].removeprefix("plain:")
    finally:
        server.drain()
