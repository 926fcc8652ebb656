"""Ray's side of a keeper: an actor on the host of its server."""

from __future__ import annotations

import ray

from npucall_pool.keeping import Keeping
from npucall_pool.order import Order


class KeeperActor:
    """Keeps the server of an order while the actor lives. Orders and answers are texts."""

    def __init__(self, text: str) -> None:
        order = Order.of_text(text)
        given = ray.get_runtime_context().get_accelerator_ids().get(order.resource, ())
        self._keeping = Keeping(order, tuple(map(str, given)))

    def status(self) -> str:
        """The history of the server so far, as JSON."""
        return self._keeping.status()

    def again(self) -> None:
        """Starts a server that the keeper had given up."""
        self._keeping.again()

    def stop(self) -> str:
        """Tells the server to finish its calls and end; answers the status when it has ended."""
        return self._keeping.stop()

    def leave(self) -> None:
        """Ends the actor; then Ray gives its device to others. Call it only after ``stop``."""
        ray.actor.exit_actor()
