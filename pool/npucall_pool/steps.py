"""The steps of each command after it has connected to a cluster."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any

from npucall_pool import cluster, rows
from npucall_pool.cluster import ClusterError, RemoteKeeper
from npucall_pool.keeper import Phase
from npucall_pool.order import Order
from npucall_pool.plan import DIRECTORY, PoolPlan
from npucall_pool.rows import Row

_POLL_SECONDS = 0.5
_GRACE_SECONDS = 20.0
"""Added to the time that a server gets to end: for its keeper and for Ray."""


def up(plan: PoolPlan, only: Sequence[str], wait: float) -> tuple[list[Row], list[str]]:
    """Starts what is missing on the named hosts, or on all; waits until all servers serve.

    Answers a row for each server, and notes. Raises ClusterError or ValueError.
    """
    hosts = [each for each in cluster.hosts() if each.is_alive]
    for name in only:
        if not any(each.is_called(name) for each in hosts):
            raise ClusterError(
                f"host: expected one of {', '.join(each.hostname for each in hosts)}, found {name}"
            )
    chosen = {each.address for each in hosts if not only or any(map(each.is_called, only))}
    orders = [each for each in plan.orders(hosts) if each.name == DIRECTORY or each.host in chosen]
    keepers = [cluster.start(order) for order in orders]
    _start_again(keepers)
    answers = _wait_until_settled(keepers, wait)
    return rows.rows_of(answers, hosts), _notes(orders, answers)


def status() -> list[Row]:
    """A row for each server of the pool."""
    found = cluster.keepers()
    return rows.rows_of(cluster.statuses(found), cluster.hosts()) if found else []


def drain(host: str, *, force: bool) -> dict[str, str]:
    """Ends the servers of a host. Answers what went wrong, by name. Raises ClusterError."""
    addresses = {each.address for each in cluster.hosts() if each.is_called(host)}
    found = [keeper for keeper in cluster.keepers() if keeper.host in addresses]
    if not found:
        raise ClusterError(f"host: expected one with servers of the pool, found {host!r}")
    return _end(found, force=force)


def down(*, force: bool) -> dict[str, str]:
    """Ends all servers, and then the directory. Answers what went wrong, by name."""
    found = cluster.keepers()
    servers = _end([keeper for keeper in found if keeper.host], force=force)
    return {**servers, **_end([keeper for keeper in found if not keeper.host], force=force)}


def _start_again(keepers: Sequence[RemoteKeeper]) -> None:
    """Starts the servers that had been given up."""
    answers = cluster.statuses(keepers)
    out = [keeper for keeper in keepers if (answers[keeper.name] or {}).get("phase") == Phase.OUT]
    if out:
        cluster.statuses(out, "again")


def _wait_until_settled(
    keepers: Sequence[RemoteKeeper], wait: float
) -> dict[str, dict[str, Any] | None]:
    """Waits until each server serves or is out. Answers the statuses of the keepers."""
    end = time.monotonic() + wait
    while True:
        answers = cluster.statuses(keepers)
        phases = [(answer or {}).get("phase") for answer in answers.values()]
        if all(phase in (Phase.SERVING, Phase.OUT) for phase in phases) or time.monotonic() > end:
            return answers
        time.sleep(_POLL_SECONDS)


def _notes(orders: Sequence[Order], answers: Mapping[str, dict[str, Any] | None]) -> list[str]:
    return [
        f"{order.name} runs as it was started, with other settings: drain its host, then up"
        for order in orders
        if (answer := answers[order.name]) is not None and answer["order"] != order.as_text()
    ]


def _end(keepers: Sequence[RemoteKeeper], *, force: bool) -> dict[str, str]:
    """Ends servers and their keepers. Answers what went wrong, by name."""
    if not keepers:
        return {}
    answers = cluster.statuses(keepers)
    faults = {keeper.name: "its keeper does not answer" for keeper in keepers}
    answering = [keeper for keeper in keepers if answers[keeper.name]]
    faults.update(cluster.drain(answering, max(map(_patience, answers.values()))))
    lost = [keeper for keeper in keepers if faults[keeper.name]]
    if force:
        cluster.forget(lost)
        faults.update({keeper.name: "" for keeper in lost})
    left = cluster.wait_until_gone({name for name, fault in faults.items() if not fault})
    return {**faults, **dict.fromkeys(left, "Ray has not let go of its keeper yet")}


def _patience(answer: Mapping[str, Any] | None) -> float:
    """Seconds that a keeper may need to stop its server."""
    return _GRACE_SECONDS + (Order.of_text(answer["order"]).drain if answer else 0.0)
