"""Hosts on one switch, as network namespaces, whose cables can be cut.

Nothing of them is left when the tests end, however they end: a namespace has no name and is gone
with the processes in it, and each of those is killed with the process that started it.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator
    from contextlib import AbstractContextManager

PROGRAMS = ("ip", "iptables", "nsenter", "setpriv", "unshare")
DIES_TOO = ("setpriv", "--pdeathsig", "KILL", "--")
"""Before a command: it is killed with the process that started it."""
NETWORK = "198.18.7"


def missing() -> str:
    """Why no hosts can be made here, in a sentence; empty if they can."""
    if not sys.platform.startswith("linux"):
        return "platform: expected Linux, whose network namespaces this needs"
    if os.geteuid() != 0:
        return "user: expected root, who may make network namespaces"
    lacking = [program for program in PROGRAMS if shutil.which(program) is None]
    if lacking:
        return f"PATH: expected {', '.join(lacking)}, found none (Debian: iproute2, iptables)"
    tried = subprocess.run(
        ["unshare", "--net", "true"], capture_output=True, text=True, check=False
    )
    return f"namespaces: expected to make one, found {tried.stderr.strip()}" * bool(
        tried.returncode
    )


@dataclass(frozen=True)
class Host:
    """A machine: processes that share an address."""

    name: str
    address: str
    switch: Namespace
    inside: Namespace

    def command(self, *command: str) -> list[str]:
        """The same, run on this host."""
        return [*self.inside.enter, *DIES_TOO, *command]

    def set_cable(self, state: str) -> None:
        self.switch.run("ip", "link", "set", f"port-{self.name}", state)

    @contextmanager
    def cut(self) -> Iterator[None]:
        """Its cable is out meanwhile."""
        self.set_cable("down")
        try:
            yield
        finally:
            self.set_cable("up")

    @contextmanager
    def filtered(self, chain: str, *match: str) -> Iterator[None]:
        """Packets of that chain (INPUT: hears them, OUTPUT: says them) are lost meanwhile."""
        self.inside.run("iptables", "-A", chain, *match, "-j", "DROP")
        try:
            yield
        finally:
            self.inside.run("iptables", "-D", chain, *match, "-j", "DROP")

    def deaf(self) -> AbstractContextManager[None]:
        """It hears nobody, and others hear it."""
        return self.filtered("INPUT", "-i", "eth0")

    def mute(self) -> AbstractContextManager[None]:
        """Nobody hears it, and it hears others."""
        return self.filtered("OUTPUT", "-o", "eth0")

    def losing(self, share: float) -> AbstractContextManager[None]:
        """A share of the packets to it is lost."""
        return self.filtered(
            "INPUT",
            "-i",
            "eth0",
            "-m",
            "statistic",
            "--mode",
            "random",
            "--probability",
            f"{share}",
        )


@dataclass(frozen=True)
class Namespace:
    """A network namespace, which lives as long as a process in it."""

    pid: int

    @property
    def enter(self) -> tuple[str, ...]:
        """Before a command: it is run in there."""
        return ("nsenter", f"--net=/proc/{self.pid}/ns/net", "--")

    def run(self, *command: str) -> None:
        subprocess.run([*self.enter, *command], check=True)


@contextmanager
def namespace() -> Iterator[Namespace]:
    """A network namespace of its own."""
    command = [*DIES_TOO, "unshare", "--net", "--", "sh", "-c", "echo; exec sleep infinity"]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as holder:
        try:
            assert holder.stdout is not None
            holder.stdout.readline()  # it is in its namespace now
            yield Namespace(holder.pid)
        finally:
            holder.kill()


@contextmanager
def hosts(*names: str) -> Iterator[dict[str, Host]]:
    """Hosts by name, of at most ten letters, on one switch."""
    with ExitStack() as stack:
        switch = stack.enter_context(namespace())
        switch.run("ip", "link", "add", "switch", "type", "bridge")
        switch.run("ip", "link", "set", "switch", "up")
        made = {}
        for number, name in enumerate(names, 1):
            inside = stack.enter_context(namespace())
            made[name] = _attached(name, f"{NETWORK}.{number}", switch, inside)
        yield made


def _attached(name: str, address: str, switch: Namespace, inside: Namespace) -> Host:
    port = f"port-{name}"
    peer = ("peer", "name", "eth0", "netns", str(inside.pid))
    switch.run("ip", "link", "add", port, "type", "veth", *peer)
    switch.run("ip", "link", "set", port, "master", "switch", "up")
    inside.run("ip", "address", "add", f"{address}/24", "dev", "eth0")
    inside.run("ip", "link", "set", "eth0", "up")
    inside.run("ip", "link", "set", "lo", "up")
    return Host(name, address, switch, inside)
