"""The ways of sessions: what is sent once stays on the server, and programs take one round trip."""

from __future__ import annotations

from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
from cases import PROGRAM, PROGRAM_CALLS, RESIDENT, STEP, TEACHER

import npucall_client
from npucall.operators.kl_div_backward import kl_div_backward

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ways import Arrays, Runs

    from npucall_client import Client
    from npucall_client.sessions.session import Session

CHAIN = 20
"""Operators of the program whose round trips are counted."""
_TIMEOUT = 600.0
_ONE = np.ones(1, np.float32)
_NONE, _SUM = 0, 2
"""Reductions."""


@contextmanager
def _session(target: str, **settings: Any) -> Iterator[tuple[Client, Session]]:
    with (
        npucall_client.connect(target, timeout=_TIMEOUT, **settings) as client,
        client.session() as session,
    ):
        yield client, session


@contextmanager
def _program(target: str, arrays: Arrays, callers: int) -> Iterator[Runs]:
    """As many bytes as single calls of the yardstick, all results too."""
    with _session(target, send_unread=True) as (_, session):

        def run() -> np.ndarray[Any, Any]:
            with session.program() as program:
                results = [program.run(kl_div_backward, *arrays) for _ in range(PROGRAM_CALLS)]
                program.fetch(*results)
            return [result.numpy() for result in results][-1]

        yield [run] * callers


@contextmanager
def _step(target: str, arrays: Arrays, callers: int) -> Iterator[Runs]:
    """The step of a training: the gradient is one element, and ``self`` is not read."""
    with npucall_client.connect(target, timeout=_TIMEOUT) as client:
        run = partial(client.run, kl_div_backward, arrays[0][:1], arrays[1], arrays[2])
        yield [run] * callers


@contextmanager
def _teacher(target: str, arrays: Arrays, callers: int) -> Iterator[Runs]:
    """The same with the teacher's output on the server."""
    with _session(target) as (client, session):
        teacher = session.put(arrays[2])
        yield [partial(client.run, kl_div_backward, arrays[0][:1], arrays[1], teacher)] * callers


@contextmanager
def _resident(target: str, arrays: Arrays, callers: int) -> Iterator[Runs]:
    """The same with the result kept there too: a scalar goes up, nothing comes down."""
    with _session(target) as (_, session):
        teacher = session.put(arrays[2])
        yield [partial(session.run, kl_div_backward, arrays[0][:1], arrays[1], teacher)] * callers


@contextmanager
def _chain(target: str, arrays: Arrays, callers: int) -> Iterator[Runs]:
    """A program of 20 operators over a resident tensor, of which one element comes down."""
    with _session(target) as (_, session):
        resident = session.put(arrays[2])

        def run() -> np.ndarray[Any, Any]:
            with session.program() as program:
                found = resident
                for _ in range(CHAIN - 1):
                    found = program.run(kl_div_backward, _ONE, arrays[1], found, _NONE)
                total = program.run(kl_div_backward, _ONE, _ONE, found, _SUM)
                program.fetch(total)
            return total.numpy()

        yield [run] * callers


@contextmanager
def _calls(target: str, arrays: Arrays, callers: int) -> Iterator[Runs]:
    """What the program does, a call after the other: the results stay there too."""
    with _session(target) as (_, session):
        resident = session.put(arrays[2])

        def run() -> np.ndarray[Any, Any]:
            found = resident
            for _ in range(CHAIN - 1):
                found = session.run(kl_div_backward, _ONE, arrays[1], found, _NONE)
            return session.run(kl_div_backward, _ONE, _ONE, found, _SUM).numpy()

        yield [run] * callers


@contextmanager
def _constant(target: str, arrays: Arrays, callers: int) -> Iterator[Runs]:
    """A whole case, from its connection on, with a constant that the server may know already."""

    def run() -> np.ndarray[Any, Any]:
        with _session(target) as (_, session):
            constant = session.put(arrays[2], constant=True)
            return session.run(kl_div_backward, _ONE, _ONE, constant, _SUM).numpy()

    yield [run] * callers


def _of_step(arrays: Arrays) -> np.ndarray[Any, Any]:
    return -(arrays[2] * arrays[0][:1]) * np.float32(1 / arrays[2].size)


def _of_constant(arrays: Arrays) -> np.ndarray[Any, Any]:
    """As this process adds, so that the last bits are the same."""
    return npucall_client.connect("local:").run(kl_div_backward, _ONE, _ONE, arrays[2], _SUM)


def _of_chain(arrays: Arrays) -> np.ndarray[Any, Any]:
    """An even number of negations, and that of the sum."""
    return -_of_constant(arrays)


IN_A_PROGRAM, CALL_BY_CALL, CONSTANT = "chain as a program", "chain call by call", "constant case"
RESIDENT_WAYS = {
    PROGRAM: _program,
    STEP: _step,
    TEACHER: _teacher,
    RESIDENT: _resident,
    IN_A_PROGRAM: _chain,
    CALL_BY_CALL: _calls,
    CONSTANT: _constant,
}
EXPECTED = {
    **dict.fromkeys((STEP, TEACHER, RESIDENT), _of_step),
    **dict.fromkeys((IN_A_PROGRAM, CALL_BY_CALL), _of_chain),
    CONSTANT: _of_constant,
}
"""What these compute of their tensors, where that is not what the yardstick does."""
