"""Hypothesis without deadlines, since tests do not judge time; what several modules use."""

import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import grpc
import pytest
from hypothesis import settings
from tests.certificates import Authority

from npucall_client.testing import ServerProcess, running_server

from . import wire
from .contract import Caller
from .pages import ROOT

settings.register_profile("npucall", deadline=None)
settings.load_profile("npucall")


@pytest.fixture(scope="session")
def endless_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    """A server that no test ends, which takes ENDLESS calls and shares memory."""
    side = tmp_path_factory.mktemp("s") / "side.sock"  # AF_UNIX takes 107 bytes
    flags = f"--shared-memory={side}", "--shared-memory-limit=128MiB", *wire.ENDLESS_LIMIT
    with running_server(*flags) as server:
        yield server


@pytest.fixture
def channel(endless_server: ServerProcess) -> Iterator[grpc.Channel]:
    """To it. At the end no call is left there for the next test."""
    with wire.bare_channel(
        endless_server.target, ("grpc.max_receive_message_length", -1)
    ) as channel:
        yield channel
        wire.until(lambda: wire.calls_in_flight(channel) == 0, "no call is left")


@pytest.fixture
def caller(channel: grpc.Channel) -> Caller:
    return Caller(channel)


@pytest.fixture(scope="session")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("authority"))


@pytest.fixture(scope="session")
def repository(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A repository with a branch main that has the files of this one as they are."""
    folder = tmp_path_factory.mktemp("repository")
    listed = subprocess.run(
        ["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True
    )
    for name in filter(lambda name: (ROOT / name).is_file(), listed.stdout.splitlines()):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, folder / name)
    identity = "-c", "user.name=anna", "-c", "user.email=anna@lab.example"
    for command in (
        ["init", "--quiet", "-b", "main"],
        ["add", "."],
        ["commit", "--quiet", "-m", "x"],
    ):
        subprocess.run(["git", *identity, *command], cwd=folder, check=True)
    return folder
