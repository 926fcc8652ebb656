"""Programs that call a pool meanwhile (``load.py``), and what they saw."""

import json
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.summary import figures

LOAD = Path(__file__).with_name("load.py")
_END_SECONDS = 150.0


@dataclass(frozen=True)
class Seen:
    """What callers saw from the first call to the last."""

    right: int
    wrong: int
    errors: list[str]
    slowest: float
    """Seconds of the slowest call."""
    by_server: dict[str, float]
    """Answers by the instance that gave them, a call of 1 MiB counting as one more."""
    devices: dict[str, int]
    """Answers by the device."""
    fewest: int
    """Calls of the caller who had the fewest."""

    def check(self) -> None:
        """Every call was answered, rightly."""
        figures(self)
        assert (self.wrong, self.errors) == (0, [])
        assert self.right > 0
        assert self.fewest > 0


class Calls:
    """Callers who go on until they are told to stop. ``stop`` answers what their program said.

    ``read``: the next line that it says.
    """

    def __init__(self, stop: Callable[[], str], read: Callable[[], str] | None = None) -> None:
        self._stop, self._read = stop, read

    def wait_until_enough(self) -> None:
        """Until they have had as many answers as ``--enough`` said."""
        assert self._read is not None
        said = self._read()
        assert said == "enough\n", said + self._stop()

    def stop(self) -> Seen:
        """Lets the calls under way end."""
        said = self._stop()
        assert "{" in said, said
        told: dict[str, Any] = json.loads(said.splitlines()[-1])
        return Seen(**told)


@contextmanager
def calling(
    enter: list[str], *arguments: str, environment: Mapping[str, str] | None = None
) -> Iterator[Calls]:
    """Callers from their first answers on. ``enter`` leads to where they run."""
    command = [*enter, sys.executable, str(LOAD), *arguments]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=environment
    ) as process:

        def stop() -> str:
            process.terminate()
            return process.communicate(timeout=_END_SECONDS)[0]

        try:
            assert process.stdout is not None
            first = process.stdout.readline()
            assert first == "calls\n", first
            yield Calls(stop, process.stdout.readline)
        finally:
            process.kill()
