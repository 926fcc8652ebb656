"""Hosts on one switch, as namespaces of this machine, whose cables can be cut.

Nothing of them is left when the tests end, however they end: a namespace has no name and is gone
with the processes in it, and each of those is killed with the process that started it.
"""

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

PROGRAMS = ("ip", "nsenter", "setpriv", "unshare")
DIES_TOO = ("setpriv", "--pdeathsig", "KILL", "--")
"""Before a command: it is killed with the process that started it."""
NETWORK = "198.18.7"
NET, OWN = ("net",), ("net", "uts", "mount", "pid")
"""A host has a network of its own, or also a name, a file system and processes."""
_IDLE = ("sh", "-c", "echo; exec sleep infinity")


def missing(packages: str, *programs: str) -> str:
    """Why no hosts can be made here, in a sentence; empty if they can.

    ``packages``: Debian's, which have the further programs.
    """
    if not sys.platform.startswith("linux"):
        return "platform: expected Linux, whose network namespaces this needs"
    if os.geteuid() != 0:
        return "user: expected root, who may make network namespaces"
    lacking = [program for program in (*PROGRAMS, *programs) if shutil.which(program) is None]
    if lacking:
        return f"PATH: expected {', '.join(lacking)}, found none: {packages}"
    tried = subprocess.run(
        ["unshare", "--net", "true"], capture_output=True, text=True, check=False
    )
    found = tried.stderr.strip()
    return f"namespaces: expected to make one, found {found}" if tried.returncode else ""


def need(packages: str, *programs: str) -> None:
    """Skips where no hosts can be made, or a program is missing; in CI that is a failure."""
    if reason := missing(packages, *programs):
        (pytest.fail if os.environ.get("CI") else pytest.skip)(reason)


def until(condition: Callable[[], object], what: str, seconds: float = 400.0) -> float:
    """Waits for something that another process does. Answers how many seconds that took."""
    began = time.monotonic()
    while not condition():
        assert time.monotonic() < began + seconds, f"not within {seconds:g} s: {what}"
        time.sleep(0.05)
    return time.monotonic() - began


@dataclass(frozen=True)
class Namespace:
    """Namespaces, which live as long as their first process."""

    pid: int
    """Of that process, as this machine numbers it."""
    kinds: Sequence[str]

    @property
    def enter(self) -> tuple[str, ...]:
        """Before a command: it is run in there."""
        return ("nsenter", f"--target={self.pid}", *(f"--{kind}" for kind in self.kinds), "--")

    def command(self, *command: str) -> list[str]:
        """The same command, run there for as long as the process that starts it lives."""
        return [*DIES_TOO, *self.enter, *DIES_TOO, *command]

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
        space = f"ns/{'pid' if 'pid' in self.kinds else 'net'}"
        own = Path(f"/proc/{self.pid}/{space}").readlink()
        found = []
        for folder in Path("/proc").glob("[0-9]*"):
            try:
                line = (folder / "cmdline").read_bytes().replace(b"\0", b" ").decode()
                if own == (folder / space).readlink() and all(word in line for word in words):
                    found.append(int(folder.name))
            except OSError:
                continue
        return [pid for pid in found if pid != self.pid]


@dataclass(frozen=True)
class Host(Namespace):
    """A machine: processes that share an address."""

    name: str
    address: str
    switch: Namespace

    @contextmanager
    def cut(self) -> Iterator[None]:
        """Its cable is out meanwhile."""
        cable = ("ip", "link", "set", f"port-{self.name}")
        self.switch.run(*cable, "down")
        try:
            yield
        finally:
            self.switch.run(*cable, "up")

    @contextmanager
    def losing(self, *match: str) -> Iterator[None]:
        """Packets that match are lost meanwhile: of INPUT those to it, of OUTPUT those from it."""
        self.run("iptables", "-A", *match, "-j", "DROP")
        try:
            yield
        finally:
            self.run("iptables", "-D", *match, "-j", "DROP")


@contextmanager
def namespace(kinds: Sequence[str] = NET, first: Sequence[str] = _IDLE) -> Iterator[Namespace]:
    """New ones. ``first``: their first process, which prints a line once it is there."""
    options = [f"--{kind}" for kind in kinds]
    if "pid" in kinds:
        options += ["--ipc", "--fork", "--kill-child", "--mount-proc"]
    command = [*DIES_TOO, "unshare", *options, "--", *first]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as holder:
        try:
            assert holder.stdout is not None
            assert holder.stdout.readline()
            pid = holder.pid
            if "pid" in kinds:
                children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
                pid = int(children[0])
            yield Namespace(pid, kinds)
        finally:
            holder.kill()


@contextmanager
def hosts(
    *names: str, kinds: Sequence[str] = NET, first: Sequence[str] = _IDLE
) -> Iterator[dict[str, Host]]:
    """Hosts by name, of at most ten letters, on one switch, which has an address too.

    ``first`` gets the name of its host as an argument.
    """
    with ExitStack() as stack:
        switch = stack.enter_context(namespace())
        for command in (
            "link set lo up", "link add switch type bridge", "link set switch up",
            f"address add {NETWORK}.254/24 dev switch",
        ):  # fmt: skip
            switch.run("ip", *command.split())
        made = {}
        for number, name in enumerate(names, 1):
            inside = stack.enter_context(namespace(kinds, (*first, name)))
            host = Host(inside.pid, kinds, name, f"{NETWORK}.{number}", switch)
            _attach(host)
            made[name] = host
        yield made


def _attach(host: Host) -> None:
    port = f"port-{host.name}"
    peer = ("peer", "name", "eth0", "netns", str(host.pid))
    host.switch.run("ip", "link", "add", port, "type", "veth", *peer)
    host.switch.run("ip", "link", "set", port, "master", "switch", "up")
    host.run("ip", "address", "add", f"{host.address}/24", "dev", "eth0")
    for device in "lo", "eth0":
        host.run("ip", "link", "set", device, "up")
