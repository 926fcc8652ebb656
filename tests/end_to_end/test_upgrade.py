"""From 0.1.0 to this version under load: servers one after the other, clients in any order."""

import json
import os
import subprocess
import sys
import tarfile
from contextlib import AbstractContextManager, ExitStack
from io import BytesIO
from pathlib import Path
from typing import Any

import pytest
from tests.client.pool.heard import lasting_port, until
from tests.summary import figures

from npucall_client.testing import ServerProcess, running_server

from .pages import ROOT

pytestmark = pytest.mark.long

OLD = "1ffe786f"
"""Of version 0.1.0."""
MEMBERS = "proto", "server", "client"
PATIENCE = 60.0
CALLER = """
import json, os, sys
import numpy as np
import npucall_client
from npucall.operators.l1_loss_backward import l1_loss_backward

target, stop, done = sys.argv[1:]
small, large = np.ones(3, np.float32), np.ones(2 << 20, np.float32)
calls, failures = 0, []
def piped(*args, **kwargs):
    return pipeline.submit(*args, **kwargs).result()

with npucall_client.connect(target) as client, client.pipeline() as pipeline:
    while not os.path.exists(stop):
        x = large if calls % 20 == 19 else small
        try:
            run = piped if calls % 4 == 3 else client.run
            gradient = run(l1_loss_backward, x, 2 * x, x, reduction=2)
            if not (gradient == 1).all():
                failures.append("a wrong answer")
        except Exception as error:
            failures.append(repr(error))
        calls += 1
        with open(done, "w") as file:
            file.write(str(calls))
print(json.dumps([calls, failures]))
"""


def modules_in(folder: Path) -> str:
    """What finds the modules of a checkout there."""
    return os.pathsep.join(str(folder / member) for member in MEMBERS)


@pytest.fixture(scope="module")
def old(tmp_path_factory: pytest.TempPathFactory) -> str:
    """What finds the modules of 0.1.0."""
    archive = subprocess.run(
        ["git", "archive", OLD, *MEMBERS],
        cwd=ROOT,
        capture_output=True,
        check=False,
    )
    if archive.returncode != 0:
        pytest.skip(f"expected git's history with {OLD}, which is 0.1.0: {archive.stderr.decode()}")
    folder = tmp_path_factory.mktemp("old")
    with tarfile.open(fileobj=BytesIO(archive.stdout)) as tar:
        tar.extractall(folder, filter="data")
    return modules_in(folder)


def server(modules: str, address: str) -> AbstractContextManager[ServerProcess]:
    """A server at that address that answers."""
    return running_server(listen=address, environment={**os.environ, "PYTHONPATH": modules})


class Caller:
    """A program that calls without a pause."""

    def __init__(self, modules: str, target: str, folder: Path, name: str) -> None:
        self._stop, self._done = folder / "stop", folder / f"done-{name}"
        self._process = subprocess.Popen(
            [sys.executable, "-c", CALLER, target, self._stop, self._done],
            env={**os.environ, "PYTHONPATH": modules}, stdout=subprocess.PIPE, cwd=folder,
        )  # fmt: skip
        self.name = name

    @property
    def calls(self) -> int:
        try:
            return int(self._done.read_text() or 0)
        except FileNotFoundError:
            return 0

    def goes_on(self) -> None:
        """Waits until it has made some more calls."""
        enough = self.calls + 40
        until(lambda: self.calls >= enough, f"{self.name} calls on")

    def said(self) -> Any:
        """How many calls it made, and what failed. It has been told to stop."""
        return json.loads(self._process.communicate(timeout=PATIENCE)[0])


def test_nobody_loses_a_call_while_servers_of_0_1_0_become_servers_of_this_version(
    old: str, tmp_path: Path
) -> None:
    new = modules_in(ROOT)
    first, second = (f"127.0.0.1:{lasting_port()}" for _ in range(2))
    with ExitStack() as stack:
        running = {at: stack.enter_context(server(old, at)) for at in (first, second)}
        callers = [
            Caller(old, first, tmp_path, "a client of 0.1.0"),
            Caller(new, first, tmp_path, "a client of this version"),
            Caller(new, f"pool:{first},{second}", tmp_path, "a client of a pool"),
        ]
        for caller in callers:
            caller.goes_on()
        for address, each in running.items():
            assert each.stop() == 0  # it finished the calls that it had
            stack.enter_context(server(new, address))
            for caller in callers:
                caller.goes_on()
        (tmp_path / "stop").touch()
        said = {caller.name: caller.said() for caller in callers}
    figures(f"upgrade from 0.1.0: {', '.join(f'{n}: {c} calls' for n, (c, _) in said.items())}")
    assert {name: failures for name, (_, failures) in said.items()} == {name: [] for name in said}
