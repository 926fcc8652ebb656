"""What systemd would do with a unit of ``deploy/ray``, on a host of the tests."""

from __future__ import annotations

import json
import re
import shlex
import string
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from tests.pool.hosts import Host

ROOT = Path(__file__).parents[2]
RAY = ROOT / ".venv-ray"
"""In place of /opt/ray."""
# Restart=always and RestartSec; as systemd does with a control group, it ends what the main process
# leaves behind: here that is all of the host but its first process and this one.
_SUPERVISOR = """
import contextlib, json, os, signal, subprocess, sys, time
seconds, environment, command = json.loads(sys.argv[1])
while True:
    subprocess.run(command, env=os.environ | environment)
    with contextlib.suppress(ProcessLookupError):
        os.kill(-1, signal.SIGKILL)
    time.sleep(seconds)
"""


class Unit(NamedTuple):
    environment: dict[str, str]
    command: list[str]
    restart: str
    restart_seconds: float

    @classmethod
    def read(cls, name: str, variables: Mapping[str, str]) -> Unit:
        """A unit with what ``EnvironmentFile`` would say."""
        text = (ROOT / "deploy" / "ray" / name).read_text(encoding="utf-8")
        lines = re.sub(r"\\\n\s*", "", text).splitlines()
        pairs = [line.partition("=")[::2] for line in lines if not line.startswith("#")]
        settings = dict(pairs)
        given = dict(value.partition("=")[::2] for key, value in pairs if key == "Environment")
        environment = {**given, **variables}
        command = []
        for word in settings["ExecStart"].split():
            if word.startswith("$") and not word.startswith("${"):
                command += shlex.split(environment[word[1:]])
            else:
                command.append(string.Template(word).substitute(environment))
        command[0] = command[0].replace("/opt/ray", str(RAY))
        return cls(environment, command, settings["Restart"], float(settings["RestartSec"]))

    def start(self, host: Host, log: Path) -> subprocess.Popen[bytes]:
        """Runs it there for as long as that host and this process live."""
        assert self.restart == "always"
        told = json.dumps([self.restart_seconds, self.environment, self.command])
        command = host.command(sys.executable, "-I", "-c", _SUPERVISOR, told)
        with log.open("wb") as output:
            return subprocess.Popen(command, stdout=output, stderr=subprocess.STDOUT)
