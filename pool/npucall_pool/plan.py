"""The servers of a pool: makes an order for each keeper from the administrator's options."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, NamedTuple

from npucall_pool.order import Order
from npucall_pool.ports import Ports

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

DIRECTORY = "directory"
"""Name of the pool's directory."""
_HOLDS = 0.001
"""How much a keeper takes of ``node:ADDRESS``. Each host has 1 of it, so the keeper runs there."""
_HEAD = "node:__internal_head__"
_OPTION = re.compile(r"[a-z][a-z0-9-]*(=.*)?", re.DOTALL)


class Host(NamedTuple):
    """A host that Ray knows."""

    address: str
    hostname: str
    devices: int
    """How many of the resource it has."""
    cores: int
    """Ray's resource CPU."""
    is_alive: bool
    is_head: bool

    def is_called(self, name: str) -> bool:
        """Whether a name means this host."""
        return name in (self.address, self.hostname)


@dataclass(frozen=True)
class Plan:
    """What the administrator wants."""

    environment: str
    resource: str
    device: str
    servers_per_host: int | None
    """None: one for each unit of the resource that the host has."""
    cpu: int
    """Servers of the device cpu on each host."""
    ports: Ports
    directory: str
    """Directories outside the pool. Empty: the pool has its own one."""
    directory_port: int
    labels: tuple[str, ...]
    server_options: tuple[str, ...]
    directory_options: tuple[str, ...]
    set_env: str
    folder: str
    drain: float

    def orders(self, hosts: Sequence[Host]) -> list[Order]:
        """An order for each server, after the directory's. Raises ValueError with a sentence."""
        orders = [] if self.directory else [self._directory(hosts)]
        announce = self.directory or f"{orders[0].host}:{self.directory_port}"
        for host in hosts:
            orders += self._servers(host, announce)
        if len(orders) == (not self.directory):
            raise ValueError(
                f"resource: expected hosts with {self.resource}, found none among "
                f"{', '.join(host.hostname for host in hosts) or 'no hosts'}; --resource names "
                "another one, --cpu asks for servers of the device cpu, and `ray start "
                f"--resources` says what a host has"
            )
        return orders

    def _directory(self, hosts: Sequence[Host]) -> Order:
        head = next((host for host in hosts if host.is_head), None)
        if head is None:
            raise ValueError("directory: expected Ray's head among the hosts, found none")
        port = self.directory_port
        return Order(
            name=DIRECTORY,
            host=head.address,
            environment=self.environment,
            program="npucall-directory",
            arguments=(
                "--listen={host}:{port}",
                "--ready-file={folder}/{name}.ready",
                *map(flag, self.directory_options),
            ),
            ports=(port, port),
            port=port,
            folder=self.folder,
            drain=self.drain,
            device="",
            needs={_HEAD: _HOLDS},
        )

    def _servers(self, host: Host, announce: str) -> Iterator[Order]:
        wanted = host.devices if self.servers_per_host is None else self.servers_per_host
        for index in range(min(wanted, host.devices)):
            order = self._server(
                host, f"npu-{index}", index, announce, f"{self.resource}-{{number}}"
            )
            needs = {self.resource: 1.0, **order.needs}
            yield replace(order, index=index, device=self.device, set_env=self.set_env, needs=needs)
        for index in range(self.cpu):
            place = host.devices + index
            order = self._server(host, f"cpu-{index}", place, announce, "{name}")
            yield replace(order, index=index, needs={"CPU": 1.0, **order.needs})

    def _server(self, host: Host, slot: str, place: int, announce: str, lock: str) -> Order:
        """``place``: index of its port on the host. ``lock``: name of the device's lock file."""
        kind = slot.partition("-")[0]
        labels = (f"kind={kind}", "host={hostname}", f"node={host.address}", *self.labels)
        first, last = self.ports
        return Order(
            name=f"{host.address}-{slot}",
            host=host.address,
            environment=self.environment,
            program="npucall-server",
            arguments=(
                "serve",
                "--device={device}",
                "--listen={host}:{port}",
                f"--announce={announce}",
                *(f"--label={label}" for label in labels),
                "--ready-file={folder}/{name}.ready",
                f"--device-lock={{folder}}/{lock}.lock",
                *map(flag, self.server_options),
            ),
            ports=(first, last),
            port=first + place % (last - first + 1),
            folder=self.folder,
            drain=self.drain,
            needs={f"node:{host.address}": _HOLDS},
        )


def flag(option: str) -> str:
    """A setting as a flag: ``queue-length=100`` is ``--queue-length=100``. Raises ValueError."""
    name, equals, value = option.removeprefix("--").partition("=")
    text = f"{name.replace('_', '-')}{equals}{value}"
    if not _OPTION.fullmatch(text):
        raise ValueError(
            f"option: expected NAME or NAME=VALUE, such as queue-length=100, found {option!r}"
        )
    return f"--{text}"
