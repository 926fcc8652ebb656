"""What these tests need of the host, and its namespaces of network."""

from __future__ import annotations

import os
import shutil
import sys
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tests.pool.hosts import namespace

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).parents[2]
TOOLS = Path(sys.executable).parent
FOLDER = ROOT / "build" / "containers"
"""Kept between runs: the base image, and what podman has built."""

PACKAGES = {
    "catatonit": "catatonit",
    "ip": "iproute2",
    "iptables": "iptables",
    "mmdebstrap": "mmdebstrap",
    "nsenter": "util-linux",
    "podman": "podman",
    "runc": "runc",
    "/usr/lib/podman/aardvark-dns": "aardvark-dns",
    "/usr/lib/podman/netavark": "netavark",
}
"""Programs, and Debian's packages that have them."""
DOCKER = {"/usr/sbin/dockerd": "docker.io", "/usr/bin/docker-compose": "docker-compose"}
_CAP_SYS_ADMIN = 21  # capabilities(7)


def need(packages: dict[str, str]) -> None:
    """Skips without root; without one of the packages too, which in CI is a failure."""
    if sys.platform != "linux" or not _may_make_namespaces():
        pytest.skip("containers are run on Linux, by a root who may mount (CAP_SYS_ADMIN)")
    if missing := sorted({packages[name] for name in packages if not shutil.which(name)}):
        message = f"not installed: apt-get install --no-install-recommends {' '.join(missing)}"
        pytest.fail(message) if os.environ.get("CI") else pytest.skip(message)


def _may_make_namespaces() -> bool:
    lines = Path("/proc/self/status").read_text().splitlines()
    (held,) = (int(line.split()[1], 16) for line in lines if line.startswith("CapEff:"))
    return os.geteuid() == 0 and bool(held >> _CAP_SYS_ADMIN & 1)


@contextmanager
def own_network() -> Iterator[list[str]]:
    """A namespace of network without a way out; yields what a command in it begins with."""
    with namespace() as made:
        made.run("ip", "link", "set", "lo", "up")
        yield list(made.enter)
