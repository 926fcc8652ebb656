"""Fake servers that answer wrongly, or not at all, and runs of the suite in this process."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any

import typer
from tests.more import parts
from typer.testing import CliRunner

from npucall.errors import ServerUnreachableError
from npucall.operators import CATALOGUE
from npucall.products import A2, DEFAULT_SOC
from npucall.v1 import operator_service_pb2 as pb
from npucall.wire.messages import Response
from npucall_client.client import Client
from npucall_client.local.transport import LocalTransport
from npucall_client.sending.request import Request
from npucall_client.settings import ClientSettings
from npucall_conformance import conform_command
from npucall_conformance.cases.select import Selection, select
from npucall_conformance.reporting.report import CaseOutcome, Report
from npucall_conformance.running.runner import Runner
from npucall_conformance.running.search import Fuzz
from npucall_conformance.running.subject import Subject, open_subject
from npucall_conformance.statements import statements

if TYPE_CHECKING:
    from typer.testing import Result

PARTS = parts(few=slice(5, None, 48), more=slice(1, None, 6))
"""The operators of a sweep: few by make test, a sixth by make test-all, all by make test-long."""
STATEMENTS = {each.title: each for each in statements()}
TITLES = list(STATEMENTS)
LONG = 300.0
"""More seconds than any search of a test takes."""


class Altered(LocalTransport):
    """Lets a function change the bytes of every output before they are answered."""

    def __init__(self, change: Callable[[bytearray], None], soc: str = "Ascend910B1") -> None:
        super().__init__(soc)
        self._change = change

    async def execute(self, request: Request) -> Response:
        response = await super().execute(request)
        storages = [bytearray(storage) for storage in response.storage]
        for storage in storages:
            self._change(storage)
        return Response(response.reply, response.timings, [memoryview(each) for each in storages])


class Failing(LocalTransport):
    """Raises what ``error_of`` has for a call, by how many came before it; else answers."""

    def __init__(
        self, error_of: Callable[[int], BaseException | None], *, lives: bool = True
    ) -> None:
        super().__init__("Ascend910B1")
        self.asked = 0
        self.lives = lives
        self._error_of = error_of

    async def execute(self, request: Request) -> Response:
        error = self._error_of(self.asked)
        self.asked += 1
        if error is not None:
            raise error
        return await super().execute(request)

    def get_server_info(self, asked: pb.GetServerInfoRequest) -> pb.GetServerInfoResponse:
        if self.asked and not self.lives:
            raise ServerUnreachableError("target: expected a server, found none")
        return super().get_server_info(asked)


def client_of(transport: Any, soc: str = "") -> Client:
    return Client(transport, ClientSettings(target="local:", soc=soc))


def local(soc: str = DEFAULT_SOC) -> Subject:
    return open_subject(client_of(LocalTransport(soc), soc), "local:")


def soc_with(title: str) -> str:
    """An Atlas A2, or the first product that has the operator."""
    statement = STATEMENTS[title]
    near = CATALOGUE.find(statement.operator, statement.variant).product_near(A2)
    return DEFAULT_SOC if near is A2 else near.soc


def altered(change: Callable[[bytearray], None]) -> Subject:
    return open_subject(client_of(Altered(change)), "altered")


def run(first: Subject, second: Subject | None = None, **filters: Any) -> list[CaseOutcome]:
    """The outcomes of a run with these fields of a selection."""
    names = ("profile", "on_failure", "allow_missing")
    options = {name: filters.pop(name) for name in names if name in filters}
    cases = select(statements(), Selection(**filters))
    try:
        return list(Runner(first, second, **options).run(cases))
    finally:
        first.close()


def failed(outcomes: list[CaseOutcome]) -> list[CaseOutcome]:
    return [outcome for outcome in outcomes if outcome.status == "failed"]


def report_on(operator: str, blocks: Iterable[str] = (), **more: Any) -> Report:
    """What the suite says of an operator of ``local:`` in these blocks; none: all."""
    soc, profile = more.pop("soc", "Ascend910B1"), more.pop("profile", "cpu-strict")
    first = local(soc)
    outcomes = run(first, operators=(operator,), blocks=tuple(blocks), profile=profile, **more)
    return Report(profile, 0, first.server, outcomes=outcomes)


def failing_blocks(report: Report) -> set[str]:
    """The blocks in which something failed."""
    return {outcome.block for outcome in report.failures}


def drawn(
    *titles: str, seed: int = 0, seconds: float = LONG, keep: Any = None, **more: Any
) -> Iterator[CaseOutcome]:
    """The outcomes of calls that are drawn of these operators of ``local:``, of one product."""
    runner = Runner(local(soc_with(titles[0])), seed=seed, on_failure=keep)
    yield from Fuzz(runner, seconds, **more).outcomes([STATEMENTS[each] for each in titles])


def command(*words: str) -> Result:
    """``npucall conform`` or ``npucall replay``, at a terminal of 200 columns."""
    app = typer.Typer()
    app.command("conform")(conform_command.conform)
    app.command("replay")(conform_command.replay)
    return CliRunner().invoke(app, list(words), env={"COLUMNS": "200"})


def flip(storage: bytearray) -> None:
    """Makes the last number of an output another: its largest byte has sign and exponent."""
    if storage:
        storage[-1] ^= 0x80
