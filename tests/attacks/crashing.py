"""Clients that are killed: ``python -m tests.attacks.crashing TARGET COUNT AT_ONCE SEED``.

Each is a process that does one thing after the other, leaves most of them unfinished, and is ended
by SIGKILL at a random moment.
"""

from __future__ import annotations

import os
import random
import secrets
import signal
import subprocess
import sys
import time
from contextlib import suppress
from hashlib import sha256
from typing import TYPE_CHECKING, Any

import grpc
from tests.end_to_end.contract import KL, Caller, begin, kl, request
from tests.end_to_end.wire import PATIENCE, bare_channel
from tests.server.sessions.raw import SESSIONS, RawSessions, RefusedError, entry, frames

from npucall.v1 import operator_service_pb2 as pb
from npucall.v1 import tensor_pb2

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

COUNT = 1 << 16
"""Elements of a tensor, of 4 bytes each."""
BYTES = 4 * COUNT
MOST_DEEDS, LONGEST_DEED = 15, 0.02
_LONG = 60.0


def crash(target: str, count: int, at_once: int, seed: int) -> None:
    """Lets so many clients live and die."""
    command = [sys.executable, "-m", "tests.attacks.crashing", target]
    subprocess.run([*command, *map(str, (count, at_once, seed))], check=True)


def _stopping(messages: Iterable[Any]) -> Iterator[Any]:
    """These, and then nothing more, while the stream stays open."""
    yield from messages
    time.sleep(_LONG)


class Client:
    """What it leaves open stays in ``_open``."""

    def __init__(self, channel: grpc.Channel, chance: random.Random) -> None:
        self._session, self._operators = RawSessions(channel), Caller(channel).stub
        self._chance = chance
        self._filled: list[bytes] = []
        self._open: list[Any] = []
        self.open = self._session.open
        self.deeds = [
            self._upload, self._stopped_upload, self._call_that_waits, self._kept_output,
            self._program, self._stream, self._chunked, self._unread_download, self._release,
        ]  # fmt: skip

    @property
    def _given(self) -> dict[str, Any]:
        return {"timeout": PATIENCE, "metadata": self._session.metadata}

    def _upload(self) -> None:
        handle, data = secrets.token_bytes(16), self._chance.randbytes(64) * (BYTES // 64)
        digest = sha256(data).digest() if self._chance.random() < 0.5 else b""
        self._session.put(handle, data, digest=digest)
        self._filled.append(handle)

    def _stopped_upload(self) -> bytes:
        handle = secrets.token_bytes(16)
        messages = [each.SerializeToString() for each in frames(entry(handle, bytes(BYTES)))]
        given = _stopping(messages[: self._chance.randrange(len(messages))])
        upload = self._session.channel.stream_unary(f"{SESSIONS}/Upload")
        self._open.append(upload.future(given, **self._given))
        return handle

    def _call_that_waits(self) -> None:
        """For a handle that nobody ends to fill."""
        call = self._call(self._part(self._stopped_upload()))
        self._open.append(self._operators.Execute.future(call, **self._given))

    def _kept_output(self) -> None:
        kept = secrets.token_bytes(16)
        self._operators.Execute(self._call(self._any_filled(), kept), **self._given)
        self._filled.append(kept)

    def _program(self) -> None:
        steps = [self._call(self._any_filled())]
        for step in range(19):
            steps[-1].output_places.add(output="out", discard=True)
            result = tensor_pb2.StepOutput(step=step, output="out")
            steps.append(self._call(tensor_pb2.Storage(result=result)))
        kept = secrets.token_bytes(16)
        steps[-1].output_places.add(output="out", keep=kept)
        self._operators.ExecuteProgram(pb.ExecuteProgramRequest(steps=steps), **self._given)
        self._filled.append(kept)

    def _stream(self) -> None:
        filled = self._any_filled()
        calls = [self._call(filled, secrets.token_bytes(16)) for _ in range(8)]
        self._exchange(*(begin(number, call) for number, call in enumerate(calls)))
        next(self._open[-1])

    def _chunked(self) -> None:
        call = self._call(self._any_filled(), secrets.token_bytes(16))
        call.storage[0].CopyFrom(tensor_pb2.Storage())
        self._exchange(begin(0, call, chunked=True))

    def _unread_download(self) -> None:
        self._any_filled()
        self._open.append(self._session.downloading(self._filled[-1], BYTES))
        next(self._open[-1])

    def _release(self) -> None:
        if self._filled:
            self._session.release(self._filled.pop())

    def _exchange(self, *given: pb.ExecuteStreamRequest) -> None:
        self._open.append(self._operators.ExecuteStream(_stopping(given), **self._given))

    def _call(self, storage: tensor_pb2.Storage, keep: bytes = b"") -> pb.ExecuteRequest:
        """A call whose two inputs are the same; ``keep``: a handle for its output."""
        places = [pb.OutputPlace(output="out", keep=keep)] if keep else []
        return request(KL, kl(COUNT), [storage] * 2, places)

    def _any_filled(self) -> tensor_pb2.Storage:
        if not self._filled:
            self._upload()
        return self._part(self._chance.choice(self._filled))

    def _part(self, handle: bytes) -> tensor_pb2.Storage:
        return tensor_pb2.Storage(handle=tensor_pb2.HandlePart(id=handle, length=BYTES))


def _live(target: str, chance: random.Random, tell: int) -> None:
    with bare_channel(target) as channel:
        client = Client(channel, chance)
        act: Any = client.open
        while True:
            os.write(tell, b".")
            with suppress(grpc.RpcError, RefusedError, StopIteration):  # the server may be full
                act()
            act = chance.choices([client.open, *client.deeds], [0.2] + [1.0] * len(client.deeds))[0]


def _fork(target: str, seed: int) -> tuple[int, int]:
    """A client's process, and where it tells that it begins something."""
    hear, tell = os.pipe()
    if pid := os.fork():
        os.close(tell)
        return pid, hear
    try:
        _live(target, random.Random(seed), tell)
    finally:
        os._exit(1)


def main(target: str, count: int, at_once: int, seed: int) -> None:
    chance = random.Random(seed)
    for first in range(0, count, at_once):
        seeds = range(first, min(first + at_once, count))
        for pid, hear in [_fork(target, seed * count + each) for each in seeds]:
            for _ in range(chance.randint(1, MOST_DEEDS)):
                assert os.read(hear, 1), "it ended by itself"
            time.sleep(chance.uniform(0, LONGEST_DEED))
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
            os.close(hear)


if __name__ == "__main__":
    main(sys.argv[1], *map(int, sys.argv[2:]))
