"""What a call is made of: every stage on its own, in one process, in microseconds."""

from __future__ import annotations

import io
import threading
import time
import timeit
from typing import TYPE_CHECKING, Any

import numpy as np
from figures import KIB, MIB, Figure, Series, size_text

from npucall.compute import evaluate
from npucall.operators import CATALOGUE
from npucall.operators.kl_div_backward import kl_div_backward
from npucall.products import A2
from npucall.wire import messages, replies
from npucall.wire.calls import PreparedCalls
from npucall_client.calls import answers, arguments
from npucall_server.access.identity import anybody
from npucall_server.scheduling.call_turn import CallTurn
from npucall_server.scheduling.schedule import Schedule
from npucall_server.telemetry.log import Log, Record

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

SIZES = (KIB, 64 * KIB, MIB)
_IDENTITY = replies.ServerIdentity("0123456789ab", "cpu", "Ascend910B1")
_REPEAT = 7
_SECONDS = 0.02
"""How long a stage is repeated, at least, for one measurement."""


class _NoCaller:
    """A caller that waits for ever."""

    identity = anybody("bench")

    def time_remaining(self) -> float | None:
        return None

    def is_active(self) -> bool:
        return True

    def add_callback(self, callback: Callable[[], None]) -> bool:
        return callback is not None


def stage_figures(size: int) -> Iterator[Figure]:
    """Each stage of a call with three float32 tensors of ``size`` bytes."""
    for name, stage in stages(size).items():
        yield Figure(_series(size, name), absolute=_microseconds(stage))
    yield Figure(_series(size, "server: queue hop"), absolute=queue_hop())


def stages(size: int) -> dict[str, Callable[[], Any]]:
    """The stages by name, in the order in which a call goes through them."""
    g, s, t = np.random.default_rng(1).random((3, size // 4), np.float32)
    calls = PreparedCalls(CATALOGUE, A2, "documented")

    def bind() -> arguments.BoundCall:
        return arguments.bind(
            kl_div_backward, "", (g, s, t), {}, {}, keep_layout=False, send_unread=True
        )

    request = bind()
    storage = list(request.storage.values())
    message = messages.join_request(request.call, storage)
    split = messages.split_request(message)
    prepared = calls.of(split.call)
    storages = prepared.storages(split.storage)
    turns = Schedule(1)
    outputs = evaluate.run(prepared, storages)
    reply = replies.encode_reply(prepared, _IDENTITY)
    timings = replies.encode_timings(replies.Timings())
    answer = messages.join_response(reply, timings, outputs)
    response = messages.split_response(answer)
    log = Log("all", stream=io.StringIO())
    record = Record("Execute", "0123456789ab-1", "ipv4:127.0.0.1:40000", kl_div_backward.name)

    def decode() -> object:
        return answers.unpack(request, answers.decode_reply(response.reply), response.storage)

    return {
        "client: arguments -> call": bind,
        "client: encode": lambda: messages.join_request(request.call, storage),
        "server: decode, checks (known)": lambda: calls.received(message),
        "server: decode": lambda: messages.split_request(message),
        "server: checks (cached)": lambda: calls.of(split.call),
        "server: checks (first time)": lambda: PreparedCalls(CATALOGUE, A2, "").of(split.call),
        "server: run": lambda: evaluate.run(
            prepared, storages, CallTurn(turns, _NoCaller(), call_timeout=60.0)
        ),
        "server: encode": lambda: messages.join_response(reply, timings, outputs),
        "server: log line": lambda: log.call(record),
        "client: decode": lambda: messages.split_response(answer),
        "client: reply -> array": decode,
    }


def queue_hop(hops: int = 2000) -> float:
    """Microseconds from a turn being given back to the one who waits for it having it.

    Two threads have the only turn by turns; each keeps it until the other one waits.
    """
    turns, left = Schedule(1), [hops, hops]

    def take_turns(mine: int) -> None:
        while left[mine]:
            with CallTurn(turns, _NoCaller(), call_timeout=60.0)():
                left[mine] -= 1
                while not turns.waiting and left[1 - mine]:
                    time.sleep(0)

    thread = threading.Thread(target=take_turns, args=(1,))
    thread.start()
    seconds = timeit.timeit(lambda: take_turns(0), number=1)
    thread.join()
    return seconds / (2 * hops) * 1e6


def stages_text(size: int) -> str:
    """How the names of the stages of a call of this size begin."""
    return f"stage, {size_text(size)}"


def stage_series(size: int) -> list[Series]:
    """The series of all stages."""
    return [_series(size, name) for name in (*stages(size), "server: queue hop")]


def _series(size: int, name: str) -> Series:
    return Series(f"{stages_text(size)}, {name}", "lower", "us", "stage", size, way=name)


def _microseconds(stage: Callable[[], Any]) -> float:
    timer = timeit.Timer(stage)
    once = min(timer.repeat(3, 1))
    number = max(1, min(1000, round(_SECONDS / once)))
    return min(timer.repeat(_REPEAT, number)) / number * 1e6
