"""A compose file under an engine: brought up, its servers killed and rolled, taken down."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from . import images

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

LOAD = Path(__file__).with_name("load.py")


class Engine(Protocol):
    """podman or docker, as far as both are asked the same."""

    enter: list[str]

    def __call__(self, *arguments: str) -> str: ...

    def wait_healthy(self, *containers: str) -> None: ...


class Seen(NamedTuple):
    """What callers saw from the first call to the last."""

    right: int
    wrong: int
    slowest: float
    """Seconds."""
    errors: list[str]

    def lost_nothing(self) -> None:
        """There were answers, and all of them right."""
        assert (self.wrong, self.errors) == (0, []), self
        assert self.right > 0


class Calls:
    """Callers who go on until they are told to stop."""

    def __init__(self, stop: Callable[[], str]) -> None:
        self._stop = stop

    def stop(self) -> Seen:
        """What they saw."""
        said = self._stop()
        assert "{" in said, said
        return Seen(**json.loads(said.splitlines()[-1]))


@contextmanager
def calls_from_here(engine: Engine, target: str) -> Iterator[Calls]:
    """Callers in the namespace of the engine, with the client of this environment."""
    command = [*engine.enter, sys.executable, "-I", str(LOAD), target]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdout=pipe, stderr=subprocess.STDOUT, text=True) as process:

        def stop() -> str:
            process.terminate()
            return process.communicate(timeout=120)[0]

        try:
            assert process.stdout is not None
            assert process.stdout.readline() == "calling\n"
            yield Calls(stop)
        finally:
            process.kill()


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
        while "calling" not in engine("logs", name):
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
