"""Adapters answer the calls of cases: a server, or a library of this process in place of one.

Its modules, from the top::

    server     a server
    torch_npu  torch_npu, in this process
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from npucall_client.client import Client
    from npucall_conformance.cases.made_call import MadeCall
    from npucall_conformance.wire import WireAnswer


class Adapter(Protocol):
    """Answers calls. If it raises any other error than those named here, the answer is wrong."""

    @property
    def client(self) -> Client:
        """The client for requests other than calls.

        Raises NotJudgedError if there is no server.
        """
        ...

    def answer(self, call: MadeCall, timeout: float) -> WireAnswer:
        """The answer to a call.

        Raises NpucallError as a server does, NotJudgedError for a call that cannot be made here.
        """
        ...

    def lives(self) -> bool:
        """Whether it can still be asked, after a call without an answer."""
        ...
