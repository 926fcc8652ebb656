"""Callers of sessions that die with everything open: all they held is free within one lease.

Each is a process that does one thing after the other, leaves most of them unfinished, and is ended
by SIGKILL at a random moment.
"""

import json
import os
import random
import secrets
import signal
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator
from contextlib import suppress
from hashlib import sha256
from pathlib import Path
from typing import Any, NamedTuple

import grpc
import pytest
from tests.end_to_end.contract import KL, Caller, begin, kl, request
from tests.end_to_end.wire import PATIENCE, bare_channel
from tests.npu import environment
from tests.server.sessions.raw import SESSIONS, RawSessions, RefusedError, entry, frames

from npucall.v1 import operator_service_pb2 as pb
from npucall.v1 import tensor_pb2

from .servers import MIB, AttackedServer, Start

LEASE = 3.0
SLACK = 20.0
"""Seconds beyond the lease, on a machine that is busy."""
DIGESTS, LIMIT = 4 * MIB, 512 * MIB
FLAGS = f"--session-lease={LEASE}", f"--digest-cache-bytes={DIGESTS}", "--queue-length=64"
AT_ONCE, KILLED = 20, 1000
METHODS = {"OpenSession", "Upload", "Execute", "ExecuteProgram", "ExecuteStream"}
"""At least of these were answered, so that there was something to hold."""
THREADS, DESCRIPTORS = 64, 8
"""More than a server keeps for calls, and for looking at itself."""


class Held(NamedTuple):
    """What a server holds."""

    calls: int
    bytes: int
    """Those of sessions, handles and digests among them."""
    device_bytes: int
    """Of an NPU; 0 for a CPU."""


def held(server: AttackedServer) -> Held:
    info = server.info()
    used = info.device.memory_total_bytes - info.device.memory_free_bytes
    return Held(info.calls_in_flight, info.bytes_in_flight, used)


def answered_methods(server: AttackedServer) -> set[str]:
    lines = map(json.loads, server.log.read_text().splitlines())
    return {line["method"] for line in lines if line.get("reason") == "OK"}


def seconds_until_free(server: AttackedServer, most: Held) -> float:
    """Until the server holds no more than that; infinite where that takes longer than it may."""
    return server.seconds_until(
        lambda: all(now <= bound for now, bound in zip(held(server), most, strict=True)),
        LEASE + SLACK,
    )


@pytest.mark.more
@pytest.mark.parametrize("count", [AT_ONCE, pytest.param(KILLED, marks=pytest.mark.long)])
def test_all_that_killed_callers_held_is_free_within_one_lease(start: Start, count: int) -> None:
    with start(*FLAGS, limit=LIMIT) as server:
        threads, descriptors = server.threads(), server.descriptors()
        crash(server.target, count, AT_ONCE, seed=1)
        assert answered_methods(server) >= METHODS
        seconds = seconds_until_free(server, Held(0, DIGESTS, 0))
        server.note(
            f"free after {seconds:.1f} s", f"threads {threads} -> {server.threads()}",
            f"descriptors {descriptors} -> {server.descriptors()}",
        )  # fmt: skip
        assert seconds < LEASE + SLACK
        assert server.threads() < threads + THREADS
        assert server.descriptors() <= descriptors + DESCRIPTORS
        assert '"traceback"' not in server.log.read_text()


@pytest.mark.long
def test_device_memory_of_killed_callers_is_free_within_one_lease(
    start: Start, tmp_path: Path
) -> None:
    """Lanes keep memory of their own, as much as the largest call took: callers before show it."""
    report = tmp_path / "report.json"
    given = environment(NPUCALL_SIM_REPORT=str(report))
    with start("--device=cann:0", *FLAGS, limit=LIMIT, environment=given) as server:
        crash(server.target, 5 * AT_ONCE, AT_ONCE, seed=2)
        time.sleep(LEASE + 2.0)
        before = held(server)
        crash(server.target, KILLED, AT_ONCE, seed=3)
        seconds = seconds_until_free(server, Held(0, DIGESTS, before.device_bytes))
        server.note(f"free after {seconds:.1f} s", before, held(server))
        assert seconds < LEASE + SLACK
        server.process.terminate()
        assert server.process.wait(PATIENCE) == 0
    told = json.loads(report.read_text())
    assert (told["violations"], told["live_objects"]) == ([], {})


COUNT = 1 << 16
"""Elements of a tensor, of 4 bytes each."""
BYTES = 4 * COUNT
MOST_DEEDS, LONGEST_DEED = 15, 0.02
_LONG = 60.0


def crash(target: str, count: int, at_once: int, seed: int) -> None:
    """Lets so many clients live and die."""
    command = [sys.executable, "-m", "tests.attacks.test_killed_callers", target]
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
