"""The ways that a call can take: each gives one function a caller, which makes one call."""

from __future__ import annotations

import os
from collections import deque
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any

import grpc
import ml_dtypes
import numpy as np
from cases import (
    COPIES_ALONE,
    FLIGHT,
    FRAMES,
    FRAMES_IN_FLIGHT,
    FRAMES_TCP,
    FRAMES_TLS,
    GRPC_ALONE,
    IN_FLIGHT,
)
from flight import flight
from resident import EXPECTED, RESIDENT_WAYS
from yardstick import ECHO, UNLIMITED, WINDOWS, YardstickClient

import npucall_client
from npucall.compute.helpers import Helpers
from npucall.operators.kl_div_backward import kl_div_backward

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from contextlib import AbstractContextManager

    from npucall_client import Client

    Arrays = Sequence[np.ndarray[Any, Any]]
    Runs = list[Callable[[], np.ndarray[Any, Any]]]
    Way = Callable[[str, Arrays, int], AbstractContextManager[Runs]]

DTYPES = {
    "float32": np.dtype(np.float32),
    "float16": np.dtype(np.float16),
    "bfloat16": np.dtype(ml_dtypes.bfloat16),
}
FLOORS = GRPC_ALONE, COPIES_ALONE
"""Ways that compute nothing: what no service that goes the same way can be faster than."""
_NEVER = 2**62
_SLACK = 1 << 20
"""Bytes of a region beside its tensors, for their alignment."""
_TIMEOUT = 600.0


def expected(way: str, arrays: Arrays) -> np.ndarray[Any, Any]:
    """What a call of a way has to give."""
    grad_output, _, target = arrays
    if way in FLOORS:
        return grad_output
    if way in EXPECTED:
        return EXPECTED[way](arrays)
    return -(target * grad_output) * np.float32(1 / target.size)


def tensors(size: int, dtype: str) -> Arrays:
    """Three tensors of that many bytes each, always the same."""
    random = np.random.default_rng(1)
    count = size // DTYPES[dtype].itemsize
    return [random.random(count, np.float32).astype(DTYPES[dtype], copy=False) for _ in range(3)]


@contextmanager
def _yardstick(
    target: str, arrays: Arrays, callers: int, *, windows: str = "defaults"
) -> Iterator[Runs]:
    with YardstickClient(target, windows) as client:
        yield [partial(client.run, *arrays)] * callers


@contextmanager
def _calls(
    target: str, arrays: Arrays, callers: int, *, carrier: str = "grpc", **settings: Any
) -> Iterator[Runs]:
    """``target``: with the file of an authority behind it, if the server has a certificate."""
    address, _, ca = target.partition(" ")
    given: dict[str, Any] = {"ca": ca} if ca else {}
    given |= {"carrier": "auto" if carrier == "frames" else carrier, **settings}
    with npucall_client.connect(address, timeout=_TIMEOUT, **given) as client:
        if (found := client.carrier()) != carrier:
            raise RuntimeError(f"carrier: expected {carrier}, found {found}")
        yield [partial(client.run, kl_div_backward, *arrays)] * callers


def _sending(target: str, carrier: Any) -> Client:
    """A client that sends all inputs, as the yardstick does."""
    return npucall_client.connect(target, timeout=_TIMEOUT, send_unread=True, carrier=carrier)


@contextmanager
def _pipeline(target: str, arrays: Arrays, callers: int) -> Iterator[Runs]:
    with (
        _sending(target, carrier="grpc") as client,
        client.pipeline() as pipeline,
    ):
        yield [lambda: pipeline.submit(kl_div_backward, *arrays).result()] * callers


class _InFlight:
    """Keeps so many calls of a pipeline in flight; as many are submitted at a time."""

    def __init__(self, submit: Callable[[], Any], count: int) -> None:
        self._submit, self._count = submit, count
        self._calls: deque[Any] = deque()

    def __call__(self) -> np.ndarray[Any, Any]:
        for _ in range(self._count):
            self._calls.append(self._submit())
            if len(self._calls) >= self._count:
                result = self._calls.popleft().result()
        return result

    def finish(self) -> None:
        """Waits for those that are left."""
        while self._calls:
            self._calls.popleft().result()


@contextmanager
def _in_flight(
    target: str, arrays: Arrays, callers: int, *, carrier: str = "grpc"
) -> Iterator[Runs]:
    """One thread, which has as many calls in flight as there are callers."""
    with (
        _sending(target, carrier) as client,
        client.pipeline() as pipeline,
    ):
        yield [_InFlight(lambda: pipeline.submit(kl_div_backward, *arrays), callers)]


@contextmanager
def _shared(target: str, arrays: Arrays, callers: int, *, copied: bool) -> Iterator[Runs]:
    size = arrays[0].nbytes
    with (
        _sending(target, carrier="grpc") as client,
        client.shared(callers * (4 * size + _SLACK)) as memory,
    ):

        def caller() -> Callable[[], np.ndarray[Any, Any]]:
            if copied:  # from zeros, so that a copy left out would show
                inputs = [memory.zeros(array.shape, array.dtype) for array in arrays]
            else:
                inputs = [memory.array(array) for array in arrays]
            out = memory.empty(arrays[0].shape, arrays[0].dtype)
            into_region = client.options(outputs={"out": out})

            def in_place() -> np.ndarray[Any, Any]:
                return into_region.run(kl_div_backward, *inputs)

            def copied_in_and_out() -> np.ndarray[Any, Any]:
                for region, array in zip(inputs, arrays, strict=True):
                    region[...] = array
                in_place()
                return np.array(out)

            return copied_in_and_out if copied else in_place

        yield [caller() for _ in range(callers)]


@contextmanager
def _in_process(_: str, arrays: Arrays, callers: int) -> Iterator[Runs]:
    """The evaluator alone, with as many threads as the server has, into an output that is there."""
    from operators import Work  # noqa: PLC0415  # no other way needs it

    work = Work(arrays)
    helpers = Helpers(len(os.sched_getaffinity(0)) - 1)

    def run() -> np.ndarray[Any, Any]:
        work.into_given_memory(helpers)
        return work.out.view(work.dtype)

    yield [run] * callers
    helpers.close()


@contextmanager
def _grpc_alone(target: str, arrays: Arrays, callers: int) -> Iterator[Runs]:
    """As many bytes there and back, and nothing done with them."""
    request = b"".join(array.tobytes() for array in arrays)
    with grpc.insecure_channel(target, options=UNLIMITED) as channel:
        call = channel.unary_unary(ECHO)
        yield [lambda: np.frombuffer(call(request), arrays[0].dtype)] * callers


@contextmanager
def _copies_alone(_: str, arrays: Arrays, callers: int) -> Iterator[Runs]:
    """What ``shared memory copied`` copies, and no call."""
    places = [np.zeros_like(array) for array in arrays]

    def run() -> np.ndarray[Any, Any]:
        for place, array in zip(places, arrays, strict=True):
            place[...] = array
        return np.array(places[0])

    yield [run] * callers


WAYS: dict[str, Way] = {
    "yardstick": _yardstick,
    "as it comes": partial(_calls, send_unread=True),
    "kept memory": partial(_calls, send_unread=True, keep_memory=True),
    "self not sent": _calls,
    "unary": partial(_calls, send_unread=True, stream_from=_NEVER),
    "chunked": partial(_calls, send_unread=True, stream_from=1),
    "pipeline": _pipeline,
    IN_FLIGHT: _in_flight,
    FRAMES: partial(_calls, send_unread=True, carrier="frames"),
    FRAMES_TCP: partial(_calls, send_unread=True, carrier="frames", keep_memory=True),
    FRAMES_TLS: partial(_calls, send_unread=True, carrier="frames"),
    FRAMES_IN_FLIGHT: partial(_in_flight, carrier="auto"),
    FLIGHT: flight,
    "shared memory copied": partial(_shared, copied=True),
    "shared memory in place": partial(_shared, copied=False),
    "in process": _in_process,
    GRPC_ALONE: _grpc_alone,
    COPIES_ALONE: _copies_alone,
    **RESIDENT_WAYS,
    **{f"yardstick, {name}": partial(_yardstick, windows=name) for name in WINDOWS},
}
"""The first three with the three inputs sent, as the yardstick does; so do those below, but for
``self not sent``, which is what a client does by default: ``self`` is never read."""
