"""A compose file under an engine: brought up, its servers killed and rolled, taken down."""

from __future__ import annotations

import json
import time
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from tests.pool.callers import LOAD, Calls, calling

from . import images

if TYPE_CHECKING:
    from collections.abc import Iterator
    from contextlib import AbstractContextManager


class Engine(Protocol):
    """podman or docker, as far as both are asked the same."""

    enter: list[str]

    def __call__(self, *arguments: str) -> str: ...

    def wait_healthy(self, *containers: str) -> None: ...


def calls_from_here(engine: Engine, target: str) -> AbstractContextManager[Calls]:
    """Callers in the namespace of the engine, with the client of this environment."""
    return calling(engine.enter, target)


@contextmanager
def calls_in_a_container(engine: Engine, network: str, target: str) -> Iterator[Calls]:
    """Callers in a container of that network, where names are known."""
    mount = f"--volume={LOAD}:/load.py:ro"
    python = "--entrypoint=/opt/npucall/bin/python"
    options = "--detach", f"--network={network}", "--init", mount, python
    name = engine("run", *options, images.CLIENT, "/load.py", target).splitlines()[-1]

    def stop() -> str:
        engine("stop", "--time=60", name)
        return engine("logs", name)

    try:
        end = time.monotonic() + 120
        while "calls" not in engine("logs", name):
            assert time.monotonic() < end, engine("logs", name)
            time.sleep(0.2)
        yield Calls(stop)
    finally:
        engine("rm", "--force", name)


def server_process(engine: Engine, container: str) -> int:
    """The process of the server, which is a child of the init that compose asks for."""
    (found,) = json.loads(engine("inspect", container))
    init: int = found["State"]["Pid"]
    (child,) = Path(f"/proc/{init}/task/{init}/children").read_text().split()
    return int(child)


def servers(engine: Engine, project: str) -> list[str]:
    """The containers of a project that say how healthy they are, in the order of their names."""
    label = f"--filter=label=com.docker.compose.project={project}"
    names = engine("ps", label, "--format={{.Names}}").split()
    return sorted(name for name in names if _checked(json.loads(engine("inspect", name))[0]))


def _checked(found: dict[str, Any]) -> bool:
    return bool(found["Config"].get("Healthcheck"))
