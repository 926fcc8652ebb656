"""Callers that are killed: ``python -m tests.attacks.doomed TARGET COUNT AT_ONCE SEED``.

Each is a process that does one thing after the other, leaves most of them unfinished, and is ended
by SIGKILL at a random moment. Prints as JSON how many were killed while they did what.
"""

from __future__ import annotations

import json
import os
import random
import select
import signal
import subprocess
import sys
import time
from collections import Counter
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import grpc
from tests.end_to_end.session_caller import (
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


def killed(target: str, count: int, at_once: int, seed: int) -> Counter[str]:
    """Lets so many callers live and die; how many were killed while they did what."""
    command = [
        sys.executable,
        "-m",
        "tests.attacks.doomed",
        target,
        *map(str, (count, at_once, seed)),
    ]
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
    return Counter(json.loads(done.stdout))


class Doomed:
    """What a caller does until it is killed. What it leaves open stays in ``_open``."""

    def __init__(self, channel: grpc.Channel, chance: random.Random) -> None:
        self._caller = SessionCaller(channel)
        self._chance = chance
        self._filled: list[bytes] = []
        self._open: list[Any] = []
        self.deeds = {
            "open": self._caller.open,
            "upload": self._upload,
            "stopped upload": self._stopped_upload,
            "call that waits": self._call_that_waits,
            "kept output": self._kept_output,
            "program": self._program,
            "stream": self._stream,
            "chunked call beside handles": self._chunked,
            "unread download": self._unread_download,
            "release": self._release,
        }

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
        self._open.append(
            self._caller.begin(
                "Execute", request, pb.ExecuteResponse, "/npucall.v1.OperatorService/"
            )
        )

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


def _live(target: str, seed: int, tell: int) -> None:
    chance = random.Random(seed)
    with bare_channel(target) as channel:
        doomed = Doomed(channel, chance)
        names = list(doomed.deeds)
        name = "open"
        while True:
            os.write(tell, bytes([names.index(name)]))
            with suppress(grpc.RpcError, StopIteration):  # the server may be full
                doomed.deeds[name]()
            time.sleep(_PAUSE)
            name = chance.choices(names, [0.2] + [1.0] * (len(names) - 1))[0]


def _begin(target: str, seed: int) -> tuple[int, int]:
    """A caller's process, and where it tells what it does."""
    hear, tell = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            _live(target, seed, tell)
        finally:
            os._exit(1)
    os.close(tell)
    return pid, hear


def _end(pid: int, hear: int) -> int | None:
    """Kills a caller; the last deed that it told of."""
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    told = os.read(hear, 1 << 16) if select.select([hear], [], [], 0)[0] else b""
    os.close(hear)
    return told[-1] if told else None


def main(target: str, count: int, at_once: int, seed: int) -> None:
    chance = random.Random(seed)
    names = [*Doomed(grpc.Channel, chance).deeds]  # type: ignore[arg-type]  # none is called here
    counted: Counter[str] = Counter()
    for first in range(0, count, at_once):
        seeds = range(first, min(first + at_once, count))
        living = [_begin(target, seed * count + each) for each in seeds]
        for pid, hear in living:
            time.sleep(chance.uniform(0, 2 * _LONGEST_LIFE / at_once))
            last = _end(pid, hear)
            counted["start" if last is None else names[last]] += 1
    print(json.dumps(counted))


if __name__ == "__main__":
    main(sys.argv[1], *map(int, sys.argv[2:]))
