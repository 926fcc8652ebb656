"""What answers the calls of cases: a server, or a library of this process in place of one.

Its modules, from the top::

    server     a server
    torch_npu  torch_npu, in this process
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from npucall_client.client import Client
    from npucall_client.conformance.cases.calls import MadeCall
    from npucall_client.conformance.wire import Answer


class Adapter(Protocol):
    """What answers calls. Whatever it raises beside these errors is a wrong answer."""

    @property
    def client(self) -> Client:
        """By which a server is asked more than calls.

        Raises NotJudgedError where there is no server.
        """
        ...

    def answer(self, call: MadeCall, timeout: float) -> Answer:
        """The answer to a call.

        Raises NpucallError as a server does, NotJudgedError for a call that cannot be made here.
        """
        ...

    def lives(self) -> bool:
        """Whether it can still be asked, after a call without an answer."""
        ...
