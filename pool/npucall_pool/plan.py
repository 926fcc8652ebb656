"""The servers of a pool: makes an order for each keeper from what the administrator wants."""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, NamedTuple

from npucall_pool.order import Order
from npucall_pool.ports import Ports

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    Settings = Mapping[str, Any]

DIRECTORY = "directory"
"""Name of the pool's directory."""
_HOLDS = 0.001
"""How much a keeper takes of ``node:ADDRESS``. Each host has 1 of it, so the keeper runs there."""
_HEAD = "node:__internal_head__"
_PORTS = Ports(50051, 50082)
_CORES = "CPU"
"""Ray's resource that servers of the device cpu take."""
_NAME = re.compile(r"[a-z][a-z0-9_]*")


class Host(NamedTuple):
    """A host that Ray knows."""

    address: str
    hostname: str
    resources: Mapping[str, float]
    """How much it has of each resource of Ray."""
    is_alive: bool
    is_head: bool

    def is_called(self, name: str) -> bool:
        """Whether a name means this host."""
        return name in (self.address, self.hostname)


@dataclass(frozen=True)
class Servers:
    """Servers of one kind, on each host that has their devices."""

    device: str = "cann"
    """The value of their ``--device``; ``cann`` means the NPU that Ray gives. ``{index}`` counts
    the servers of a host."""
    resource: str = ""
    """The resource of Ray of which each gets one. Empty: CPU for the device cpu, else NPU."""
    per_host: int | None = None
    """None: one for each unit of the resource that the host has, but one for CPU."""
    hosts: tuple[str, ...] = ()
    """Their hosts: addresses, or names that Ray knows. Empty: all."""
    settings: Settings = field(default_factory=dict)
    """Settings of these servers, as in a server's own TOML file."""

    @property
    def takes(self) -> str:
        """The resource of which each takes one."""
        return self.resource or (_CORES if self.device == "cpu" else "NPU")

    def count(self, host: Host, taken: int) -> int:
        """How many of them a host has, if other servers have taken so much of their resource."""
        if self.hosts and not any(map(host.is_called, self.hosts)):
            return 0
        if self.takes == _CORES:
            return 1 if self.per_host is None else self.per_host
        left = int(host.resources.get(self.takes, 0)) - taken
        return left if self.per_host is None else min(left, self.per_host)


@dataclass(frozen=True)
class PlannedDirectory:
    """The directory of the pool, on Ray's head."""

    port: int = 50050
    settings: Settings = field(default_factory=dict)


@dataclass(frozen=True)
class PoolPlan:
    """What the administrator wants."""

    servers: tuple[Servers, ...]
    settings: Settings = field(default_factory=dict)
    """Settings of every server."""
    environment: str = "/opt/npucall"
    """Folder of the virtual environment that has npucall-server, on every host."""
    set_env: str = ""
    """CANN's set_env.sh, if Ray was started without it."""
    folder: str = ""
    """Of locks, logs, accounts on each host; empty: a folder of this user for temporary files."""
    ports: Ports = _PORTS
    """Ports for the servers of a host."""
    drain: float = 40.0
    """Seconds that a server has to stop; more than its drain_timeout."""
    announce: str = ""
    """Directories outside the pool. Empty: the pool has its own one."""
    directory: PlannedDirectory = PlannedDirectory()

    def orders(self, hosts: Sequence[Host]) -> list[Order]:
        """An order for each server, after the directory's. Raises ValueError with a sentence."""
        directories = [] if self.announce else [self._directory(hosts)]
        announce = self.announce or f"{directories[0].host}:{self.directory.port}"
        servers = [order for host in hosts for order in self._servers(host, announce)]
        if not servers:
            wanted = ", ".join(sorted({each.takes for each in self.servers})) or "servers"
            raise ValueError(
                f"resource: expected hosts with {wanted}, found none among "
                f"{', '.join(host.hostname for host in hosts) or 'no hosts'}; `resource` in the "
                "pool's file names what a server takes, and `ray start --resources` says what a "
                "host has"
            )
        return [*directories, *servers]

    def _directory(self, hosts: Sequence[Host]) -> Order:
        head = next((host for host in hosts if host.is_head), None)
        if head is None:
            raise ValueError("directory: expected Ray's head among the hosts, found none")
        port = self.directory.port
        return Order(
            name=DIRECTORY,
            host=head.address,
            environment=self.environment,
            program="npucall-directory",
            arguments=(
                "--listen={host}:{port}",
                "--ready-file={folder}/{name}.ready",
                *flags(self.directory.settings),
            ),
            ports=(port, port),
            port=port,
            folder=self.folder,
            drain=self.drain,
            device="",
            needs={_HEAD: _HOLDS},
        )

    def _servers(self, host: Host, announce: str) -> Iterator[Order]:
        """The orders for a host. Servers of one resource are counted through, of whatever kind."""
        taken: dict[str, int] = {}
        first, last = self.ports
        place = 0
        for kind in self.servers:
            for _ in range(kind.count(host, taken.get(kind.takes, 0))):
                index = taken.get(kind.takes, 0)
                taken[kind.takes] = index + 1
                port = first + place % (last - first + 1)
                place += 1
                yield replace(self._server(kind, host, index, announce), port=port)

    def _server(self, kind: Servers, host: Host, index: int, announce: str) -> Order:
        is_cpu = kind.takes == _CORES
        sort = "cpu" if is_cpu else "npu"
        lock = "{name}" if is_cpu else f"{kind.takes}-{{number}}"
        labels = {"kind": sort, "host": "{hostname}", "node": host.address}
        return Order(
            name=f"{host.address}-{sort}-{index}",
            host=host.address,
            environment=self.environment,
            program="npucall-server",
            arguments=(
                "serve",
                "--device={device}",
                "--listen={host}:{port}",
                "--frames-listen=+1000",
                f"--announce={announce}",
                "--ready-file={folder}/{name}.ready",
                f"--device-lock={{folder}}/{lock}.lock",
                "--state-folder={folder}/{name}.state",
                *flags(_together({"labels": labels}, self.settings, kind.settings)),
            ),
            ports=self.ports,
            port=self.ports.first,
            index=index,
            device=kind.device,
            set_env="" if is_cpu else self.set_env,
            folder=self.folder,
            drain=self.drain,
            resource=kind.takes,
            needs={kind.takes: 1.0, f"node:{host.address}": _HOLDS},
        )


def _together(*settings: Settings) -> dict[str, Any]:
    """Settings of which the last one counts. Labels of all count."""
    together = {name: value for each in settings for name, value in each.items()}
    labels = [each["labels"] for each in settings if isinstance(each.get("labels"), dict)]
    return {**together, "labels": {name: value for each in labels for name, value in each.items()}}


def flags(settings: Settings) -> Iterator[str]:
    """Settings of a TOML file as flags: ``{"queue_length": 100}`` is ``--queue-length=100``.

    Raises ValueError for what is no setting.
    """
    for name, value in settings.items():
        if not _NAME.fullmatch(name):
            raise ValueError(f"settings: expected names such as queue_length, found {name!r}")
        if name == "labels" and isinstance(value, dict):
            yield from (f"--label={label}={text}" for label, text in value.items())
            continue
        flag = name.replace("_", "-")
        yield f"--{'' if value is not False else 'no-'}{flag}{_value(name, value)}"


def _value(name: str, value: object) -> str:
    """What follows a flag."""
    if isinstance(value, bool):
        return ""
    if isinstance(value, list) and all(isinstance(each, (str, int)) for each in value):
        return f"={','.join(map(str, value))}"
    if isinstance(value, (str, int, float)):
        return f"={value}"
    raise ValueError(
        f"{name}: expected a text, a number, true or false, or a list, found another value; write "
        "it into a file on each host, which the setting `config` names"
    )
