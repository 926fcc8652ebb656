"""What a small call is made of: every stage on its own, in one process, in microseconds."""

from __future__ import annotations

import io
import timeit
from typing import TYPE_CHECKING, Any

import numpy as np

from npucall import evaluate, framing, replies
from npucall.calls import PreparedCalls
from npucall.operators import CATALOGUE
from npucall.operators.kl_div_backward import kl_div_backward
from npucall.products import A2
from npucall_client import arguments
from npucall_server.executor import Turns, _Turn
from npucall_server.log import Log, Record

if TYPE_CHECKING:
    from collections.abc import Callable

_IDENTITY = replies.ServerIdentity("0123456789ab", "cpu", "Ascend910B1")


class _NoCaller:
    """A caller that waits for ever."""

    def time_remaining(self) -> float | None:
        return None

    def is_active(self) -> bool:
        return True

    def add_callback(self, callback: Callable[[], None]) -> bool:
        return callback is not None


def stages(size: int) -> dict[str, float]:
    """Microseconds of each stage of a call with three float32 tensors of ``size`` bytes."""
    g, s, t = np.random.default_rng(1).random((3, size // 4), np.float32)
    calls = PreparedCalls(CATALOGUE, A2, "documented")

    def bind() -> arguments.Request:
        return arguments.bind(kl_div_backward, "", (g, s, t), {}, {}, keep_layout=False)

    request = bind()
    storage = list(request.storage.values())
    message = framing.join_request(request.call, storage)
    split = framing.split_request(message)
    prepared = calls.of(split.call)
    storages = prepared.storages(split.storage)
    turns = Turns(2)
    outputs = evaluate.run(prepared, storages)
    reply = replies.encode_reply(prepared, _IDENTITY)
    timings = replies.encode_timings(replies.Timings())
    answer = framing.join_response(reply, timings, outputs)
    response = framing.split_response(answer)
    log = Log("all", stream=io.StringIO())
    record = Record("Execute", "0123456789ab-1", "ipv4:127.0.0.1:40000", kl_div_backward.name)

    def decode() -> object:
        return arguments.unpack(request, arguments.decode_reply(response.reply), response.storage)

    measured: dict[str, Callable[[], Any]] = {
        "client: arguments -> call": bind,
        "client: join": lambda: framing.join_request(request.call, storage),
        "server: split": lambda: framing.split_request(message),
        "server: prepared call (cached)": lambda: calls.of(split.call),
        "server: run": lambda: evaluate.run(
            prepared, storages, _Turn(turns, _NoCaller(), call_timeout=60.0)
        ),
        "server: join": lambda: framing.join_response(reply, timings, outputs),
        "server: log line": lambda: log.call(record),
        "client: split": lambda: framing.split_response(answer),
        "client: reply -> array": decode,
        "(first time: check the call)": lambda: PreparedCalls(CATALOGUE, A2, "").of(split.call),
    }
    return {name: _microseconds(stage) for name, stage in measured.items()}


def _microseconds(stage: Callable[[], Any]) -> float:
    number = 200
    return min(timeit.repeat(stage, number=number, repeat=7)) / number * 1e6
