"""What is judged, as the command line says: a server, this process, or a library."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from npucall.errors import ArgumentError
from npucall.products import product_of
from npucall_conformance.running.adapters.torch_npu import NAME, TorchNpu
from npucall_conformance.running.judged import Judged, in_place_of_a_server, judged

if TYPE_CHECKING:
    from collections.abc import Callable

    from npucall_client.client import Client

ADAPTERS = (NAME,)
"""Libraries that answer in place of a server."""
_LOCAL, _POOL = "local:", "pool:"


@dataclass
class Subjects:
    """Opens the servers or libraries that are judged; ``stack`` closes them."""

    stack: ExitStack
    connect: Callable[..., Client]
    soc: str = ""
    """The SoC of ``local:``, and of the members of a pool; empty: as the settings say."""

    def first(self, target: str | None, adapter: str = "") -> Judged:
        """The server at the target, by default at the settings' target; or an adapter.

        Raises ValueError if there is no such adapter, if it is not installed, or if a target is
        given too.
        """
        if not adapter:
            return self._server(target, self.soc)
        if adapter not in ADAPTERS:
            raise ValueError(f"adapter: expected one of {', '.join(ADAPTERS)}, found {adapter!r}")
        if target is not None:
            raise ValueError(f"target: expected none beside an adapter, found {target!r}")
        if self.soc:
            raise ValueError(f"soc: expected none, for an adapter has its own, found {self.soc!r}")
        library = TorchNpu()
        return in_place_of_a_server(library, library.server)

    def second(self, target: str, first: Judged) -> Judged:
        """A server to compare with; ``local:`` has the SoC of the first."""
        soc = self.soc
        if target == _LOCAL and not soc and _is_known(first.server.soc):
            soc = first.server.soc
        return self._server(target, soc if target.startswith((_LOCAL, _POOL)) else "")

    def _server(self, target: str | None, soc: str) -> Judged:
        settings: dict[str, Any] = {"soc": soc} if soc else {}
        client = self.stack.enter_context(self.connect(target, **settings))
        named = target or client._settings.target  # noqa: SLF001  # its own package
        if soc and not named.startswith((_LOCAL, _POOL)):
            raise ValueError(
                f"soc: expected {_LOCAL} or a pool, for a server has its own, found {named}"
            )
        found = judged(client, named)
        self.stack.callback(found.close)
        return found


def _is_known(soc: str) -> bool:
    try:
        product_of(soc)
    except ArgumentError:
        return False
    return True
