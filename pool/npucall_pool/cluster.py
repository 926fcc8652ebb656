"""The command's requests to a Ray cluster. Every wait has a limit, since hosts may be dead."""

from __future__ import annotations

import json
import logging
import os
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, redirect_stdout
from typing import Any, NamedTuple

from npucall_pool import environment
from npucall_pool.order import Order
from npucall_pool.plan import Host

NAMESPACE = "npucall-pool"
"""Ray's namespace for the names of keepers."""
ANSWER_SECONDS = 5.0
"""How long a living keeper on a living host may take to answer."""
_POLL_SECONDS = 0.3
_LEFT_SECONDS = 20.0
_AT_ONCE = 4
"""Requests that a keeper handles at the same time: it answers ``status`` during ``stop``."""


class ClusterError(Exception):
    """Why the command cannot do what it was asked to do, in a sentence."""


class RemoteKeeper(NamedTuple):
    """An actor. It has the name of its server."""

    name: str
    actor: Any

    @property
    def host(self) -> str:
        """The address of its host; empty for the directory."""
        return self.name.rpartition("-npu-")[0] or self.name.rpartition("-cpu-")[0]


@contextmanager
def connected(address: str) -> Iterator[None]:
    """Connects this process to the cluster that its host belongs to. Raises ClusterError.

    Ray prints errors of its own to standard output. Meanwhile that is standard error, so that
    standard output has the answer alone.
    """
    sys.stdout.flush()
    answer = os.dup(1)
    os.dup2(2, 1)
    try:
        with redirect_stdout(sys.stderr):
            _connect(address)
            try:
                yield
            finally:
                sys.modules["ray"].shutdown()
    finally:
        os.dup2(answer, 1)
        os.close(answer)


def _connect(address: str) -> None:
    # A keeper's host may wait for the head for hours, but a command may not.
    environment.set_for_ray("RAY_gcs_rpc_server_reconnect_timeout_s", "10")
    try:
        import ray  # noqa: PLC0415  # so that --help works without it
    except ImportError:
        raise ClusterError(
            "ray: the package is not installed in this environment; pip install 'npucall-pool[ray]'"
        ) from None
    try:
        ray.init(
            address=address,
            namespace=NAMESPACE,
            log_to_driver=False,
            logging_level=logging.ERROR,
            configure_logging=False,
        )
    except (ConnectionError, RuntimeError, ValueError) as error:
        raise ClusterError(
            f"ray: expected a cluster at {address}, found none ({_first_line(error)}); run this on "
            "a host where `ray start` has run, and whose head lives"
        ) from None


def hosts() -> list[Host]:
    """The hosts that Ray knows, the head first. For each address, the living node counts."""
    import ray  # noqa: PLC0415  # as above

    found: dict[str, Host] = {}
    for node in ray.nodes():
        had = node.get("Resources", {})
        host = Host(
            node["NodeManagerAddress"],
            node["NodeManagerHostname"],
            had,
            node["Alive"],
            "node:__internal_head__" in had,
        )
        if host.address not in found or host.is_alive:
            found[host.address] = host
    return sorted(found.values(), key=lambda host: (not host.is_head, host.address))


def keepers() -> list[RemoteKeeper]:
    """All keepers of the pool, the directory's first."""
    import ray  # noqa: PLC0415  # as above

    names = sorted(
        each["name"]
        for each in ray.util.list_named_actors(all_namespaces=True)
        if each["namespace"] == NAMESPACE
    )
    found = []
    for name in names:
        try:
            found.append(RemoteKeeper(name, ray.get_actor(name)))
        except ValueError:  # it has ended meanwhile
            continue
    return sorted(found, key=lambda keeper: (bool(keeper.host), keeper.name))


def start(order: Order) -> RemoteKeeper:
    """The keeper of an order: the existing one, or a new one."""
    import ray  # noqa: PLC0415  # as above

    from npucall_pool.actors import KeeperActor  # noqa: PLC0415  # as above

    needs = dict(order.needs)
    actor = (
        ray.remote(KeeperActor)
        .options(
            name=order.name,
            get_if_exists=True,
            lifetime="detached",
            max_restarts=-1,
            max_concurrency=_AT_ONCE,
            num_cpus=needs.pop("CPU", 0),
            resources=needs,
        )
        .remote(order.as_text())
    )
    return RemoteKeeper(order.name, actor)


def statuses(
    asked: Sequence[RemoteKeeper], method: str = "status"
) -> dict[str, dict[str, Any] | None]:
    """Each keeper's answer, by its name; None if it does not answer in time."""
    import ray  # noqa: PLC0415  # as above

    calls = {getattr(keeper.actor, method).remote(): keeper.name for keeper in asked}
    answers: dict[str, dict[str, Any] | None] = dict.fromkeys(keeper.name for keeper in asked)
    done, _ = ray.wait(list(calls), num_returns=max(1, len(calls)), timeout=ANSWER_SECONDS)
    for call in done:
        try:
            answer = ray.get(call)
        except ray.exceptions.RayError:
            continue
        answers[calls[call]] = json.loads(answer) if answer else {}
    return answers


def drain(asked: Sequence[RemoteKeeper], patience: float) -> Iterator[tuple[str, str]]:
    """Stops servers, then ends their keepers. Yields each name, with what went wrong or "".

    The order matters: Ray gives the device to others as soon as the keeper has ended.
    """
    import ray  # noqa: PLC0415  # as above

    stops = {keeper.actor.stop.remote(): keeper for keeper in asked}
    waiting = list(stops)
    end = time.monotonic() + patience
    while waiting and time.monotonic() < end:
        done, waiting = ray.wait(waiting, timeout=end - time.monotonic())
        for call in done:
            try:
                ray.get(call)
            except ray.exceptions.RayError as error:
                yield stops[call].name, f"the keeper does not answer: {_first_line(error)}"
                continue
            stops[call].actor.leave.remote()
            yield stops[call].name, ""
    for call in waiting:
        yield stops[call].name, "the keeper does not answer"


def wait_until_gone(names: set[str]) -> set[str]:
    """Waits until Ray has removed these keepers and has their resources; answers the others."""
    end = time.monotonic() + _LEFT_SECONDS
    while (left := names & {keeper.name for keeper in keepers()}) and time.monotonic() < end:
        time.sleep(_POLL_SECONDS)
    return left


def forget(asked: Sequence[RemoteKeeper]) -> None:
    """Ends keepers that do not answer. A server dies at once with its keeper."""
    import ray  # noqa: PLC0415  # as above

    for keeper in asked:
        ray.kill(keeper.actor, no_restart=True)


def _first_line(error: Exception) -> str:
    return str(error).strip().partition("\n")[0]
