"""``Program``: many calls in one round trip; a call may take the results of earlier ones."""

from __future__ import annotations

import weakref
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple, ParamSpec, Self, overload

from npucall.errors import NpucallError, TooLargeError
from npucall.places import Discard, Keep, StepOutput
from npucall_client.calls import answers
from npucall_client.calls.hints import warn
from npucall_client.calls.options import plan_of
from npucall_client.sending.senders import finished
from npucall_client.sessions.results import new_handle, results_of_step

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from types import TracebackType

    from npucall.declare import Operator
    from npucall.dtypes import AnyArray
    from npucall.wire.messages import Response
    from npucall_client.calls.arguments import BoundCall
    from npucall_client.calls.options import Plan
    from npucall_client.sessions.checks import Checks
    from npucall_client.sessions.connection import Connection
    from npucall_client.sessions.remote import Remote, RemoteTensor
    from npucall_client.sessions.session_link import SessionLink

__tracebackhide__ = True  # in a red test pytest shows the line that called

P = ParamSpec("P")


@dataclass(frozen=True)
class ProgramPlan:
    """What running a program would need and give."""

    steps: tuple[Plan, ...]
    """The plan of each call."""
    peak_device_bytes: int
    """Most device memory that it holds at a time, in addition to what the session holds already."""


class _Step(NamedTuple):
    """A call, and its results as far as somebody has them."""

    call: BoundCall
    results: Mapping[str, weakref.ref[RemoteTensor]]


class ProgramBase:
    """A program without the methods that wait for the server."""

    def __init__(self, home: SessionLink, connection: Connection, timeout: float) -> None:
        self._home = home
        self._connection = connection
        self._timeout = timeout
        self._steps: list[_Step] = []
        self._fetched: set[StepOutput] = set()
        self._ended = ""
        self._most = 0
        self._checks: Checks | None = None

    def __len__(self) -> int:
        """How many calls it has."""
        return len(self._steps)

    def fetch(self, *remotes: RemoteTensor) -> None:
        """Makes results come back with the program's answer, instead of staying on the server.

        Then their ``numpy`` needs no download; if a later call takes them, they travel again.
        """
        for remote in remotes:
            place = remote.place(self)
            if not isinstance(place, StepOutput):
                raise TypeError(f"fetch: expected a result of this program, found {remote!r}")
            self._fetched.add(place)

    async def begin(self) -> None:
        """Gets the server's rules to check calls. Call it first; once is enough."""
        if self._checks is None:
            self._most = await self._connection.sessions.program_steps()
            self._checks = await self._connection.checks()

    async def _leave(self, kind: type[BaseException] | None) -> None:
        """Runs it when its block is left, unless the block raised."""
        if self._ended:
            return
        if kind is not None:
            self._abandon(f"the block of its program raised {kind.__name__}")
        elif self._steps:
            await self._send()
        self._ended = "its block was left"

    async def _add(self, operator: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Adds a call, and returns its results, whose bytes come later."""
        await self.begin()
        assert self._checks is not None  # noqa: S101  # it has begun
        self._check(kwargs)
        number = len(self._steps)
        call = (await self._connection.bind(operator, args, kwargs, self._home, self)).call
        call.within = None
        results = results_of_step(self, number, self._home, call, self._checks)
        self._steps.append(
            _Step(call, {name: weakref.ref(remote) for name, remote in results.items()})
        )
        return self._value(call, results, self._checks)

    async def _plan(self) -> ProgramPlan:
        await self.begin()
        self._check({})
        calls = [step.call for step in self._steps]
        request = self._connection.request(self._timeout)._replace(home=self._home)
        answer = await self._connection.sessions.plan_program(request, calls)
        return ProgramPlan(tuple(map(plan_of, answer.steps)), answer.peak_device_bytes)

    def _value(self, call: BoundCall, results: Mapping[str, RemoteTensor], checks: Checks) -> Any:
        """What ``run`` returns: results, and the caller's own arrays, in the operator's order."""
        if len(results) == 1 and not call.targets and not call.lists:
            return next(iter(results.values()))
        names = checks.results_of(call)
        outputs = {
            name: results.get(name, call.tensors.get(name, call.targets.get(name)))
            for name in names
        }
        return answers.value_of(call.operator, answers.in_lists(call, outputs))

    def _check(self, kwargs: Mapping[str, Any]) -> None:
        if self._ended:
            raise ValueError(
                f"the program takes no more calls: {self._ended}; session.program() opens "
                "another one"
            )
        if "timeout" in kwargs:
            raise TypeError(
                "timeout: expected none in a call of a program, found one; use "
                "session.program(timeout=...)"
            )
        if len(self._steps) >= self._most:
            raise TooLargeError(
                f"program: expected at most {self._most} calls, as this server allows, found one "
                "more; open another program, or use session.run() if the server allows none",
                limit=str(self._most),
            )

    async def _send(self) -> None:
        living = [
            {name: remote for name, of in step.results.items() if (remote := of()) is not None}
            for step in self._steps
        ]
        for number, step in enumerate(self._steps):
            self._place_outputs(number, step, living[number])
        try:
            answered = await self._run()
        except NpucallError as error:
            self._abandon(f"its program failed: {error}")
            raise
        except BaseException as error:
            self._abandon(f"its program raised {type(error).__name__}")
            raise
        for step, remotes, answer in zip(self._steps, living, answered, strict=True):
            _take(step.call, remotes, answer)
        self._steps.clear()
        for answer in answered:
            warn(answers.decode_reply(answer.reply).warnings)

    def _place_outputs(self, number: int, step: _Step, living: Mapping[str, RemoteTensor]) -> None:
        """Decides which results the server keeps, which come back, and which it discards."""
        kept: dict[str, Keep | Discard] = {}
        for name in step.results:
            remote = living.get(name)
            if remote is None:
                kept[name] = Discard()
            elif StepOutput(number, name) not in self._fetched:
                handle = new_handle()
                kept[name] = Keep(handle)
                remote.keep_as(handle)
        step.call.kept = kept

    async def _run(self) -> Sequence[Response]:
        calls = [step.call for step in self._steps]
        held = [each for call in calls for each in call.held]
        request = self._connection.request(self._timeout)._replace(home=self._home, held=held)
        return await self._connection.sessions.run_program(request, calls)

    def _abandon(self, why: str) -> None:
        for step in self._steps:
            for result in step.results.values():
                if (remote := result()) is not None:
                    remote.never_filled(why)


def _take(call: BoundCall, remotes: Mapping[str, RemoteTensor], answer: Response) -> None:
    """Tells the results that their bytes are there now."""
    reply = answers.decode_reply(answer.reply)
    for name, place in zip(reply.stored, answer.storage, strict=True):  # as it was checked
        if name in call.targets:
            answers.receive(call, name, reply.outputs[name], place)
        elif name in remotes:
            remotes[name].filled(bytes(place) if isinstance(place, memoryview) else None)


class Program(ProgramBase):
    """Calls that are sent together when the block is left. Made by ``session.program``.

    ``run`` checks a call at once, as its server will, and returns Remotes whose shape and dtype are
    known. Their bytes are there after the block was left without an exception. If you no longer
    hold a result then, the server does not keep it. If a call fails, nothing is kept, and leaving
    the block raises the error, whose ``details["step"]`` counts from 0. For one thread.
    """

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        finished(self._leave(kind))

    @overload
    def run(
        self, operator: Operator[P, AnyArray], /, *args: P.args, **kwargs: P.kwargs
    ) -> Remote: ...
    @overload
    def run(
        self,
        operator: Operator[P, tuple[AnyArray, AnyArray]],
        /,
        *args: P.args,
        **kwargs: P.kwargs,
    ) -> tuple[Remote, Remote]: ...
    @overload
    def run(
        self,
        operator: Operator[P, tuple[AnyArray, AnyArray, AnyArray, AnyArray]],
        /,
        *args: P.args,
        **kwargs: P.kwargs,
    ) -> tuple[Remote, Remote, Remote, Remote]: ...
    @overload
    def run(
        self,
        operator: str,
        /,
        *args: Any,
        variant: str | None = None,
        outputs: Mapping[str, Any] | None = None,
        **kwargs: Any,
    ) -> Any: ...
    def run(self, operator: Any, /, *args: Any, **kwargs: Any) -> Any:
        """Adds a call: a Remote, whose bytes come later, or a named tuple of them.

        Arguments as for ``session.run``. An array travels with the program each time that you give
        it, so ``put`` it first if several calls take it. Do not change arrays before the end.
        """
        return finished(self._add(operator, args, kwargs))

    def plan(self) -> ProgramPlan:
        """What running the calls added so far would need and give. Sends no data."""
        return finished(self._plan())
