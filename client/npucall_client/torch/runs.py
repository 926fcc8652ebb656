"""Where operators run: on a client, in a session, or in float64 in this process."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Self

import numpy as np
import torch
from torch import Tensor

from npucall.compute.evaluate import compute
from npucall.operators import CATALOGUE
from npucall_client.calls import arrays
from npucall_client.calls.options import Result
from npucall_client.client import Client
from npucall_client.sessions.program import Program
from npucall_client.sessions.remote import Remote
from npucall_client.sessions.session import Session

_MOST_COPIED = 1 << 20
"""Bytes of a tensor that travels in the message of a program."""


class EachAtOnce:
    """What runs each operator when it is asked for it."""

    @contextmanager
    def together(self) -> Iterator[Self]:
        yield self

    def kept(self, value: Tensor) -> Any:
        return value

    def fetch(self, *values: Any) -> None:
        """They are here."""

    def tensor(self, value: Any) -> Tensor:
        return value


class InProgram:
    """Operators that run together, in a program of a session."""

    def __init__(self, run: InSession, session: Session, program: Program) -> None:
        self._run = run
        self._session = session
        self.fetch = program.fetch
        self._program = program

    def __call__(self, operator: str, /, **arguments: Any) -> Any:
        return self._program.run(operator, **self._run.placed(arguments))

    def kept(self, value: Tensor) -> Any:
        return _kept(value, self._session, self._program)


class OnClient(EachAtOnce):
    """Calls of a client; ``note`` is told each result."""

    def __init__(self, client: Client, note: Callable[[Result], None] | None = None) -> None:
        self._client = client
        self._note = note

    def __call__(self, operator: str, /, **arguments: Any) -> Any:
        result = self._client.execute(operator, **self.placed(arguments))
        if self._note is not None:
            self._note(result)
        return one_or_several(
            each if arrays.is_torch(each) else arrays.to_torch(each)
            for each in result.outputs.values()
        )

    def tensor(self, value: Any) -> Tensor:
        return value if isinstance(value, torch.Tensor) else value.torch()

    def placed(self, arguments: Mapping[str, Any]) -> Mapping[str, Any]:
        """The arguments, as they travel."""
        return arguments


class InSession(OnClient):
    """The same if a session holds arguments, by their number and how they are looked at."""

    def __init__(
        self,
        client: Client,
        given: Sequence[Any],
        session: Session,
        held: dict[tuple[Any, ...], Remote],
        note: Callable[[Result], None] | None = None,
    ) -> None:
        super().__init__(client, note)
        self._given = given
        self._session = session
        self.held = held

    @contextmanager
    def together(self) -> Iterator[Any]:
        with self._session.program() as program:
            yield InProgram(self, self._session, program)

    def placed(self, arguments: Mapping[str, Any]) -> Mapping[str, Any]:
        return {name: self._place(value) for name, value in arguments.items()}

    def _place(self, value: Any) -> Any:
        if not isinstance(value, torch.Tensor):
            return value
        key = self._key(value)
        return value if key is None else self.place(key, value)

    def place(self, key: tuple[Any, ...], value: Tensor) -> Any:
        """The tensor that the session holds for an argument, or else the argument itself."""
        return self.held.get(key, value)

    def _key(self, value: Tensor) -> tuple[Any, ...] | None:
        """An argument by its number, since its address may be another one in the backward."""
        for number, argument in enumerate(self._given):
            if isinstance(argument, torch.Tensor) and value.numel() and _same(argument, value):
                return number, value.dtype, tuple(value.shape), value.stride()
        return None


class SessionRun(InSession):
    """A forward in a session: arguments stay there, and results if the backward takes them.

    It is one program: with ``results`` one that runs once the result is asked for.
    """

    def __init__(
        self, client: Client, given: Sequence[Any], session: Session, *, results: bool
    ) -> None:
        super().__init__(client, given, session, {})
        self._results = results
        self._program: Program | None = None

    @contextmanager
    def together(self) -> Iterator[Any]:
        with self._session.program() as self._program:
            yield InProgram(self, self._session, self._program)

    def __call__(self, operator: str, /, **arguments: Any) -> Any:
        if self._results:
            self._program = self._program or self._session.program()
            return self._program.run(operator, **self.placed(arguments))
        with self.together() as calls:
            several = _there(calls(operator, **arguments))
            calls.fetch(*several)
        return one_or_several(map(self.tensor, several))

    def tensor(self, value: Any) -> Tensor:
        if self._results and self._program is not None:
            with self._program as program:
                program.fetch(value)
            self._program = None
        return super().tensor(value)

    def place(self, key: tuple[Any, ...], value: Tensor) -> Any:
        if key not in self.held:
            assert self._program is not None  # noqa: S101  # arguments are placed for its calls
            self.held[key] = _kept(value, self._session, self._program)
        return self.held[key]


class InFloat64(EachAtOnce):
    """The formulas of the reference in float64, which operators take nowhere else."""

    def __init__(self, variant: str) -> None:
        self._variant = variant

    def __call__(self, operator: str, /, **arguments: Any) -> Any:
        given = {
            name: arrays.as_array(name, value) if isinstance(value, torch.Tensor) else value
            for name, value in arguments.items()
        }
        found = compute(CATALOGUE.find(operator, "", self._variant), **given)
        there = map(np.asarray, _there(found))
        return one_or_several(map(torch.from_numpy, there))


def _there(found: Any) -> list[Any]:
    """The outputs of an operator that there are."""
    every = found if isinstance(found, tuple) else (found,)
    return [each for each in every if each is not None]


def _kept(value: Tensor, session: Session, program: Program) -> Remote:
    """A tensor that stays in the session: a copy that the program makes of what its message has.

    A larger one has an upload of its own, and so has what is sent again if the session is lost.
    """
    if value.nbytes > _MOST_COPIED or session.refill:
        return session.put(value)
    copy = {"self": value, "dtype": arrays.as_array("self", value).dtype}
    if value.is_floating_point() or value.dtype is torch.bool:
        return program.run("aclnnCast", **copy)
    with session.program() as before:  # an operator may look at indices before its program runs
        return before.run("aclnnCast", **copy)


def _same(first: Tensor, second: Tensor) -> bool:
    """Whether both begin at the same address."""
    return first.dtype == second.dtype and first.data_ptr() == second.data_ptr()


def one_or_several(tensors: Iterable[Tensor]) -> Any:
    """What an operator gives: the only tensor, or a tuple of several."""
    several = tuple(tensors)
    return several[0] if len(several) == 1 else several
