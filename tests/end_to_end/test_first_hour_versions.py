"""The version, which a new user looks for in each package and command."""

from __future__ import annotations

import subprocess
import sys
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import npucall
import npucall_client
import npucall_pool
import npucall_server

if TYPE_CHECKING:
    from types import ModuleType


@pytest.mark.parametrize(
    ("module", "distribution"),
    [
        (npucall, "npucall"),
        (npucall_client, "npucall-client"),
        (npucall_pool, "npucall-pool"),
        (npucall_server, "npucall-server"),
    ],
)
def test_every_package_has_the_version_of_its_distribution(
    module: ModuleType, distribution: str
) -> None:
    assert module.__version__ == version(distribution)
    with pytest.raises(AttributeError, match="has no attribute 'nope'"):
        module.nope  # noqa: B018


@pytest.mark.parametrize(
    "command", ["npucall", "npucall-server", "npucall-directory", "npucall-pool"]
)
def test_every_command_says_its_version(command: str) -> None:
    path = Path(sys.executable).with_name(command)
    done = subprocess.run([path, "--version"], capture_output=True, text=True, check=True)
    assert done.stdout == f"{command} {version('npucall')}\n"
