"""Hosts for Ray: namespaces of this machine on one switch, with processes and folders of their own.

Nothing of a host is left when its first process ends, and that ends with the test's.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

NETWORK = "198.18.43"
_RAYS_FOLDER = Path("/tmp/ray")
_PROGRAMS = ("ip", "nsenter", "setpriv", "unshare")
_WITH_US = ("setpriv", "--pdeathsig", "KILL", "--")
# The first process of a host: a folder for Ray that is the host's own, then it buries the dead.
_FIRST = f"""
import os, socket, subprocess, sys, time
socket.sethostname(sys.argv[1])
for folder in "{_RAYS_FOLDER}", "/dev/shm":
    subprocess.run(["mount", "-t", "tmpfs", "tmpfs", folder], check=True)
subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
print("up", flush=True)
while True:
    try:
        os.wait()
    except ChildProcessError:
        time.sleep(0.1)
"""


def missing() -> str:
    """Why there can be no hosts here, in a sentence; empty if there can."""
    if not sys.platform.startswith("linux") or os.geteuid() != 0:
        return "expected root on Linux, who may make namespaces"
    lacking = [program for program in _PROGRAMS if shutil.which(program) is None]
    return f"PATH: expected {', '.join(lacking)}, found none" if lacking else ""


def until(condition: Callable[[], object], what: str, seconds: float = 240.0) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, f"not within {seconds:g} s: {what}"
        time.sleep(0.02)


class Host(NamedTuple):
    name: str
    address: str
    pid: int
    """Of its first process, as this machine numbers it."""

    def command(self, *command: str) -> list[str]:
        """A command that runs there."""
        inside = ("nsenter", f"--target={self.pid}", "--net", "--uts", "--mount", "--pid", "--")
        return [*_WITH_US, *inside, *_WITH_US, *command]

    def run(
        self, *command: str, seconds: float = 180.0, check: bool = True
    ) -> subprocess.CompletedProcess[str]:
        done = subprocess.run(
            self.command(*command), capture_output=True, text=True, timeout=seconds, check=False
        )
        assert not check or done.returncode == 0, f"{command}: {done.stdout}{done.stderr}"
        return done

    def pids(self, *words: str) -> list[int]:
        """Of its processes whose command lines have all of these, as this machine numbers them."""
        own = Path(f"/proc/{self.pid}/ns/pid").readlink()
        found = []
        for folder in Path("/proc").glob("[0-9]*"):
            try:
                line = (folder / "cmdline").read_bytes().replace(b"\0", b" ").decode()
                if own == (folder / "ns/pid").readlink() and all(word in line for word in words):
                    found.append(int(folder.name))
            except OSError:
                continue
        return [pid for pid in found if pid != self.pid]


class Site(NamedTuple):
    hosts: tuple[Host, ...]
    switch: int
    """Process whose network has the switch, and a place for clients."""

    def outside(self, *command: str) -> list[str]:
        """A command that runs on the network of the hosts, and on none of them."""
        return [*_WITH_US, "nsenter", f"--target={self.switch}", "--net", "--", *command]

    def plug(self, host: Host, state: str) -> None:
        """Cuts the cable of a host ("down"), or mends it ("up")."""
        subprocess.run(self.outside("ip", "link", "set", host.name, state), check=True)


@contextmanager
def site(*names: str) -> Iterator[Site]:
    """Hosts of these names on one switch. Needs root; see ``missing``."""
    _RAYS_FOLDER.mkdir(exist_ok=True)
    with ExitStack() as standing:
        switch = standing.enter_context(_process("unshare", "--net", "sleep", "infinity"))
        until(lambda: _has_own_network(switch.pid), "the switch has a network of its own")
        inside = ("nsenter", f"--target={switch.pid}", "--net", "ip")
        for command in (
            "link set lo up", "link add switch type bridge", "link set switch up",
            f"addr add {NETWORK}.254/24 dev switch",
        ):  # fmt: skip
            subprocess.run([*inside, *command.split()], check=True)
        hosts = []
        for number, name in enumerate(names, 1):
            host = standing.enter_context(_host(name, f"{NETWORK}.{number}"))
            hosts.append(host)
            for command in (
                f"link add {name} type veth peer name eth0 netns {host.pid}",
                f"link set {name} master switch up",
            ):
                subprocess.run([*inside, *command.split()], check=True)
            host.run("ip", "addr", "add", f"{host.address}/24", "dev", "eth0")
            host.run("ip", "link", "set", "eth0", "up")
        yield Site(tuple(hosts), switch.pid)


@contextmanager
def _host(name: str, address: str) -> Iterator[Host]:
    command = (
        "unshare", "--net", "--uts", "--ipc", "--mount", "--pid", "--fork", "--kill-child",
        "--mount-proc", sys.executable, "-I", "-c", _FIRST, name,
    )  # fmt: skip
    with _process(*command) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "up\n"
        children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
        yield Host(name, address, int(children[0]))


@contextmanager
def _process(*command: str) -> Iterator[subprocess.Popen[str]]:
    with subprocess.Popen([*_WITH_US, *command], stdout=subprocess.PIPE, text=True) as process:
        try:
            yield process
        finally:
            process.kill()


def _has_own_network(pid: int) -> bool:
    return Path(f"/proc/{pid}/ns/net").readlink() != Path("/proc/self/ns/net").readlink()
