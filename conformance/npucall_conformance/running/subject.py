"""``Subject``: what a server is, what it lists, and sending calls to it; of a pool, one member."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from grpc import StatusCode

from npucall.dtypes import BY_WIRE, DType
from npucall.errors import InternalError, NpucallError
from npucall_client.client import Client
from npucall_client.pool.pool_transport import PoolTransport
from npucall_client.sending.attempts import Attempts
from npucall_client.sending.link import Link
from npucall_client.sending.remote import ServerTransport
from npucall_client.sending.request import Request
from npucall_client.sending.senders import finished
from npucall_conformance.cases.made_call import MadeCall
from npucall_conformance.reporting.report import JudgedServer
from npucall_conformance.running.not_judged import BUSY, NotJudgedError
from npucall_conformance.running.torch_npu import NAME, TorchNpu
from npucall_conformance.statements import statements
from npucall_conformance.stating.tables import product_of
from npucall_conformance.wire import AnswerOrError, ServerAdapter, WireAnswer, unreadable

if TYPE_CHECKING:
    from npucall.v1.operator_service_pb2 import OperatorInfo

_GONE = (StatusCode.UNAVAILABLE, StatusCode.DEADLINE_EXCEEDED)
_SOON, _TIMEOUT, _TIMEOUT_WHEN_SILENT = 5.0, 60.0, 2.0
"""Seconds to wait for an answer: before the server is asked whether it lives; in all if it lives;
and in all if the server left the call before without an answer."""
_A_CALL = 30.0
"""Seconds to wait at most, in all, before one call of a server that says when it has time."""
_GIVE_UP = 3
"""After so many calls in a row without an answer, no more calls are sent."""
ADAPTERS = (NAME,)
"""Libraries that answer in place of a server."""
_LOCAL, _POOL = "local:", "pool:"


@dataclass
class Subject:
    """A server that is judged, or what stands in place of one."""

    adapter: ServerAdapter | TorchNpu
    server: JudgedServer
    dtypes: dict[str, frozenset[DType]]
    """By title of each operator that it can run, the dtypes that it lists for the product."""
    listing: tuple[OperatorInfo, ...] | None
    """The operators that it lists; None if it is no server."""
    waits: float = 300.0
    """So many seconds a run may still wait for a server that says when it has time."""
    gone: str = ""
    """Why no more calls are sent; empty while it answers."""
    silent: int = 0
    """How many calls in a row had no answer."""
    resources: Any = None
    """What paths have opened; see ``close``."""

    def close(self) -> None:
        """Closes what paths have opened; the client stays open."""
        opened, self.resources = self.resources, None
        if opened is not None:
            opened.close()

    @property
    def client(self) -> Client:
        """The client for requests other than calls. Raises NotJudgedError if there is none."""
        return self.adapter.client

    def entries(self, title: str) -> list[OperatorInfo]:
        """The entries that it lists of an operator. Raises NotJudgedError if it is no server."""
        if self.listing is None:
            raise NotJudgedError(f"{self.server.target} lists nothing", lowers=False)
        return [each for each in self.listing if _title(each) == title]

    def check_there(self) -> None:
        """Raises NotJudgedError once it is gone."""
        if self.gone:
            raise NotJudgedError(self.gone)

    def ask(self, call: MadeCall) -> AnswerOrError:
        """The answer, or the error that came instead.

        A server that has no time and says when is asked again, as long as a run may wait. Raises
        NotJudgedError if it has no time, if it is gone, or if such a call cannot be sent to it.
        """
        waited = 0.0
        while True:
            self.check_there()
            answer = self._asked(call)
            if not isinstance(answer, NpucallError) or answer.reason not in BUSY:
                return answer
            pause = answer.retry_after
            if pause is None or waited + pause > _A_CALL or self.waits < pause:
                why = f"{self.server.target} answered {answer.reason}: {BUSY[answer.reason]}"
                raise NotJudgedError(why) from answer
            waited += pause
            self.waits -= pause
            time.sleep(pause)

    def _asked(self, call: MadeCall) -> AnswerOrError:
        try:
            answer = self._answer(call)
        except NpucallError as error:
            return error
        except NotJudgedError:
            raise
        except Exception as error:  # noqa: BLE001  # an answer that cannot be read is a wrong one
            return unreadable(error)
        said, server = answer.reply.server, self.server
        if said.instance != server.instance:
            self.server = replace(server, instance=said.instance)  # the one from now on
            return InternalError(
                f"server: expected that instance {server.instance} answers, found {said.instance}: "
                "it ended, and was started again, or the target is several servers"
            )
        if (said.device, said.soc) != (server.device, server.soc):
            return InternalError(
                f"server: expected {server.device} on {server.soc}, found a reply of "
                f"{said.device} on {said.soc}"
            )
        return answer

    def _answer(self, call: MadeCall) -> WireAnswer:
        """The answer. If none comes soon, asks whether the server lives. Raises NpucallError."""
        waits = (_TIMEOUT_WHEN_SILENT,) if self.silent else (_SOON, _TIMEOUT)
        for timeout in waits:
            try:
                answer = self.adapter.answer(call, timeout)
            except NpucallError as error:
                if error.code not in _GONE:
                    self.silent = 0
                    raise
                if timeout == _SOON and not self.adapter.lives():
                    self.gone = f"{self.server.target} went away: {error.reason}"
                    raise
                silence = error
            else:
                self.silent = 0
                return answer
        self.silent += 1
        if self.silent >= _GIVE_UP:
            self.gone = f"{self.server.target} lives, but answered {_GIVE_UP} calls with nothing"
        raise silence


def in_place_of_a_server(adapter: TorchNpu, server: JudgedServer) -> Subject:
    """A library that is judged. It lists nothing; the statements say what its product has."""
    taken = {each.title: each.takes.get(server.product) for each in statements()}
    here = {title: frozenset(dtypes) for title, dtypes in taken.items() if dtypes}
    return Subject(adapter, server, here, None)


def open_subject(client: Client, target: str) -> Subject:
    """Asks a server what it is and what it can run; from a pool, it asks one member.

    Raises NpucallError.
    """
    client, target = fixed_target(client, target)
    info = client.server_info()
    listing = tuple(client.operators().message.operators)
    dtypes = {}
    for each in listing:
        if each.available:
            here = [p for p in each.products if p.soc == info.product]
            known = (BY_WIRE.get(wire) for p in here for wire in p.dtypes)
            dtypes[_title(each)] = frozenset(filter(None, known))
    server = JudgedServer(
        target, info.server.device, info.server.soc, info.product, info.version,
        info.server.instance, info.default_variant, tuple(sorted(dtypes)),
    )  # fmt: skip
    return Subject(ServerAdapter(client), server, dtypes, listing)


@dataclass
class SubjectOpener:
    """Opens the servers or libraries that are judged; ``stack`` closes them."""

    stack: ExitStack
    connect: Callable[..., Client]
    soc: str = ""
    """The SoC of ``local:``, and of the members of a pool; empty: as the settings say."""

    def first(self, target: str | None, adapter: str = "") -> Subject:
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

    def second(self, target: str, first: Subject) -> Subject:
        """A server to compare with; ``local:`` has the SoC of the first."""
        soc = self.soc
        if target == _LOCAL and not soc and product_of(first.server.soc):
            soc = first.server.soc
        return self._server(target, soc if target.startswith((_LOCAL, _POOL)) else "")

    def _server(self, target: str | None, soc: str) -> Subject:
        settings: dict[str, Any] = {"soc": soc} if soc else {}
        client = self.stack.enter_context(self.connect(target, **settings))
        named = target or client._settings.target  # noqa: SLF001  # its own package
        if soc and not named.startswith((_LOCAL, _POOL)):
            raise ValueError(
                f"soc: expected {_LOCAL} or a pool, for a server has its own, found {named}"
            )
        found = open_subject(client, named)
        self.stack.callback(found.close)
        return found


def _title(info: OperatorInfo) -> str:
    return f"{info.name}.{info.variant}" if info.variant else info.name


_SECONDS = 10.0
"""How long to wait for a member."""


def fixed_target(client: Client, target: str) -> tuple[Client, str]:
    """A client of one member, if this one has a pool, and a target that names the member.

    It is the member that would get the next call. The given client still owns the connection.
    Raises NpucallError.
    """
    pool = client._transport  # noqa: SLF001  # what Client hides
    if not isinstance(pool, PoolTransport):
        return client, target
    link = finished(pool.ask(Request(_SECONDS), _itself))  # there is no other member to ask
    settings = client._settings.model_copy(update={"target": link.target})  # noqa: SLF001  # likewise
    return Client(ServerTransport(link), settings), f"{target}, member {link.target}"


async def _itself(link: Link, _: Attempts) -> Link:
    """Returns the link, since nothing else is needed."""
    return link
