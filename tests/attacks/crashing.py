"""Clients that are killed: ``python -m tests.attacks.crashing TARGET COUNT AT_ONCE SEED``.

Each is a process that does one thing after the other, leaves most of them unfinished, and is ended
by SIGKILL at a random moment.
"""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import grpc
from tests.end_to_end.session_caller import (
    OPERATORS,
    SessionCaller,
    chain,
    negated,
    new_handle,
    part,
    upload_frames,
)
from tests.end_to_end.wire import bare_channel

from npucall.v1 import operator_service_pb2 as pb

if TYPE_CHECKING:
    from collections.abc import Iterator

COUNT = 1 << 16
"""Elements of a tensor, of 4 bytes each."""
BYTES = 4 * COUNT
_LONGEST_LIFE, _PAUSE, _LONG = 0.8, 0.01, 60.0


def crash(target: str, count: int, at_once: int, seed: int) -> None:
    """Lets so many clients live and die."""
    command = [sys.executable, "-m", "tests.attacks.crashing", target]
    subprocess.run([*command, *map(str, (count, at_once, seed))], check=True)


class Client:
    """What it leaves open stays in ``_open``."""

    def __init__(self, channel: grpc.Channel, chance: random.Random) -> None:
        self._caller = SessionCaller(channel)
        self._chance = chance
        self._filled: list[bytes] = []
        self._open: list[Any] = []
        self.open = self._caller.open
        self.deeds = [
            self._upload, self._stopped_upload, self._call_that_waits, self._kept_output,
            self._program, self._stream, self._chunked, self._unread_download, self._release,
        ]  # fmt: skip

    def _upload(self) -> None:
        data = bytes(self._chance.randrange(256) for _ in range(64)) * (BYTES // 64)
        self._filled.append(self._caller.put(data, constant=self._chance.random() < 0.5))

    def _stopped_upload(self) -> bytes:
        handle = new_handle()
        whole = upload_frames({handle: bytes(BYTES)}, chunk=BYTES // 8)
        self._open.append(self._caller.begin_upload(_stopping(whole, self._chance.randrange(10))))
        return handle

    def _call_that_waits(self) -> None:
        """For a handle that nobody ends to fill."""
        request = negated(part(self._stopped_upload(), BYTES), COUNT, keep=new_handle())
        self._open.append(self._caller.begin("Execute", request, pb.ExecuteResponse, OPERATORS))

    def _kept_output(self) -> None:
        kept = new_handle()
        self._caller.execute(negated(self._any_filled(), COUNT, keep=kept))
        self._filled.append(kept)

    def _program(self) -> None:
        kept = new_handle()
        self._caller.run_program(chain(self._any_filled(), COUNT, 20, keep=kept))
        self._filled.append(kept)

    def _stream(self) -> None:
        calls = [negated(self._any_filled(), COUNT, keep=new_handle()) for _ in range(8)]
        frames = (
            pb.ExecuteStreamRequest(call_id=index, begin=pb.Begin(request=call))
            for index, call in enumerate(calls)
        )
        self._open.append(self._caller.stream(_stopping(frames, len(calls))))
        next(self._open[-1])

    def _chunked(self) -> None:
        request = negated(self._any_filled(), COUNT, keep=new_handle())
        request.storage[0].ClearField("data")
        begin = pb.ExecuteStreamRequest(begin=pb.Begin(request=request, chunked=True))
        self._open.append(self._caller.stream(_stopping(iter([begin]), 1)))

    def _unread_download(self) -> None:
        self._open.append(self._caller.begin_download(self._any_filled()))
        next(self._open[-1])

    def _release(self) -> None:
        if self._filled:
            self._caller.release(self._filled.pop())

    def _any_filled(self) -> Any:
        if not self._filled:
            self._upload()
        return part(self._chance.choice(self._filled), BYTES)


def _stopping(frames: Iterator[Any], after: int) -> Iterator[Any]:
    """So many frames, and then nothing more, while the stream stays open."""
    for _, frame in zip(range(after), frames, strict=False):
        yield frame
    time.sleep(_LONG)


def _live(target: str, chance: random.Random) -> None:
    with bare_channel(target) as channel:
        client = Client(channel, chance)
        act: Any = client.open
        while True:
            with suppress(grpc.RpcError, StopIteration):  # the server may be full
                act()
            time.sleep(_PAUSE)
            act = chance.choices([client.open, *client.deeds], [0.2] + [1.0] * len(client.deeds))[0]


def _fork(target: str, seed: int) -> int:
    if pid := os.fork():
        return pid
    try:
        _live(target, random.Random(seed))
    finally:
        os._exit(1)


def main(target: str, count: int, at_once: int, seed: int) -> None:
    chance = random.Random(seed)
    for first in range(0, count, at_once):
        seeds = range(first, min(first + at_once, count))
        for pid in [_fork(target, seed * count + each) for each in seeds]:
            time.sleep(chance.uniform(0, 2 * _LONGEST_LIFE / at_once))
            os.kill(pid, signal.SIGKILL)
            assert os.waitpid(pid, 0)[1] == signal.SIGKILL, "it ended by itself"


if __name__ == "__main__":
    main(sys.argv[1], *map(int, sys.argv[2:]))
