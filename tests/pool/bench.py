"""Three hosts with two servers each, a fourth with a directory and a name server, and a desk."""

import json
import shlex
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path

from .callers import Calls, calling
from .hosts import Host, hosts
from .processes import Kept, directory, running, server

PORTS = (50051, 50052)
NAME = "npus.lab"
SOURCES = ("static", "directory", "file", "dns")


@dataclass(frozen=True)
class Bench:
    """What there is."""

    hosts: dict[str, Host]
    servers: list[Kept]
    directory: Kept
    folder: Path

    def target(self, source: str) -> str:
        """What ``connect`` takes; ``dns`` has the first server of each host alone."""
        addresses = [each.address for each in self.servers]
        return {
            "static": "pool:" + ",".join(addresses),
            "directory": f"pool:directory:{self.directory.address}",
            "file": f"pool:file:{self._members(addresses)}",
            "dns": f"pool:dns:{NAME}:{PORTS[0]}",
        }[source]

    def _members(self, addresses: list[str]) -> Path:
        path = self.folder / "members.json"
        path.write_text(json.dumps({"members": [{"address": each} for each in addresses]}))
        return path

    def calling(self, source: str, *flags: str) -> AbstractContextManager[Calls]:
        """Callers at the desk."""
        prefix = self._asks_head() if source == "dns" else ()
        return calling(self.hosts["desk"].command(*prefix), self.target(source), *flags)

    def _asks_head(self) -> tuple[str, ...]:
        """Before a command: its name server is that of the head."""
        told = self.folder / "resolv.conf"
        told.write_text(f"nameserver {self.hosts['head'].address}\n")
        mount = f'mount --bind {shlex.quote(str(told))} /etc/resolv.conf && exec "$@"'
        return ("unshare", "--mount", "--", "sh", "-c", mount, "sh")

    def name_server(self) -> Kept:
        """A real dnsmasq, which knows the name of the pool."""
        head, firsts = self.hosts["head"], [e for e in self.servers if e.port == PORTS[0]]
        records = [f"--host-record={NAME},{each.host.address}" for each in firsts]
        command = [
            "dnsmasq", "--keep-in-foreground", "--no-resolv", "--no-hosts", "--conf-file=/dev/null",
            "--user=root", "--pid-file", f"--listen-address={head.address}", "--bind-interfaces",
            *records,
        ]  # fmt: skip
        return Kept("dnsmasq", head, 53, command, self.folder)


@contextmanager
def bench(folder: Path, *flags: str, ports: Sequence[int] = PORTS) -> Iterator[Bench]:
    """All of it, running; ``ports``: of the servers of each host."""
    with hosts("one", "two", "three", "head", "desk") as made:
        told = directory(made["head"], 50050, folder)
        announce = f"--announce={told.address}", *flags
        servers = [
            server(made[name], port, folder, *announce)
            for name in ("one", "two", "three")
            for port in ports
        ]
        with running([told, *servers]):
            yield Bench(made, servers, told, folder)
