"""Ray's side of a keeper: an actor on the host of its server."""

from __future__ import annotations

import ray

from npucall_pool.keeping import Keeping
from npucall_pool.order import Order


class KeeperActor:
    """Keeps the server of an order, as text, for as long as it lives. Answers texts."""

    def __init__(self, order: str, resource: str) -> None:
        given = ray.get_runtime_context().get_accelerator_ids().get(resource, ())
        self._keeping = Keeping(Order.of_text(order), tuple(map(str, given)))

    def status(self) -> str:
        """What happened to the server so far, as JSON."""
        return self._keeping.status()

    def again(self) -> None:
        """Starts a server that had been left alone."""
        self._keeping.again()

    def stop(self) -> str:
        """Has the server finish its calls and end; answers the status once it has."""
        return self._keeping.stop()

    def leave(self) -> None:
        """Ends the actor; Ray then gives its device to others. Only once ``stop`` answered."""
        ray.actor.exit_actor()
