"""``local:`` and the client's distribution: what they need, and what they do without."""

from __future__ import annotations

import subprocess
import sys
from importlib.metadata import requires

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

COMPUTE = """
import numpy as np
import npucall_client
from npucall.operators.kl_div_backward import kl_div_backward

ones = np.ones((2, 3), np.float32)
with npucall_client.connect("local:") as client:
    print(client.run(kl_div_backward, ones, self=ones, target=2 * ones, reduction=2).tolist())
"""

REFUSING = """
import sys

class Refuse:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {names!r}:
            raise ModuleNotFoundError(f"{{name}} is not there", name=name)

sys.meta_path.insert(0, Refuse())
"""

# What Windows and macOS do not have, by the documentation of Python's standard library.
ONLY_ON_LINUX = """
import os, signal, socket, sys

sys.platform = {platform!r}
for name in ("sched_getaffinity", "sched_setaffinity", "memfd_create", "fork", "forkpty",
             "register_at_fork", "eventfd", "posix_fadvise", "sysconf", "getuid", "pidfd_open"):
    if hasattr(os, name):
        delattr(os, name)
for name in ("AF_UNIX", "SCM_RIGHTS", "SO_PEERCRED", "send_fds", "recv_fds"):
    if hasattr(socket, name):
        delattr(socket, name)
for name in ("resource", "fcntl", "termios", "pwd", "grp"):
    sys.modules[name] = None
"""


def python(program: str) -> str:
    """Standard output of a program in an interpreter of its own, warnings being errors."""
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", program],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_local_needs_no_server_package() -> None:
    program = REFUSING.format(names=["npucall_server"]) + COMPUTE
    assert python(program) == "[[-2.0, -2.0, -2.0], [-2.0, -2.0, -2.0]]"


@pytest.mark.parametrize("platform", ["win32", "darwin"])
def test_the_client_runs_without_what_only_linux_has(platform: str) -> None:
    # NumPy and gRPC ask for the platform too; they are loaded as the platform that they are for.
    loaded = "import asyncio, grpc, ml_dtypes, numpy, pydantic.dataclasses, subprocess, tempfile\n"
    program = loaded + ONLY_ON_LINUX.format(platform=platform) + COMPUTE
    assert python(program) == "[[-2.0, -2.0, -2.0], [-2.0, -2.0, -2.0]]"


@pytest.mark.parametrize(
    "names", [["torch"], ["typer", "rich"], ["pytest"], ["grpc_health", "grpc_reflection"]]
)
def test_the_client_needs_no_extra(names: list[str]) -> None:
    assert python(REFUSING.format(names=names) + COMPUTE)


def test_the_client_does_not_load_torch_by_itself() -> None:
    assert python(COMPUTE + "\nimport sys; print('torch' in sys.modules)").endswith("False")


def test_the_client_brings_11_packages_along_at_most() -> None:
    found: set[str] = set()
    wanted = ["npucall-client"]
    while wanted:
        name = wanted.pop()
        found.add(name)
        needed = map(Requirement, requires(name) or ())
        here = {
            canonicalize_name(requirement.name)
            for requirement in needed
            if requirement.marker is None or requirement.marker.evaluate({"extra": ""})
        }
        wanted += here - found
    assert "npucall" in found
    assert len(found) <= 12, sorted(found)
