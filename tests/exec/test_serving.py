"""The socket of ``npucall exec``: whatever comes there, the command goes on."""

from __future__ import annotations

import json
import os
import random
import socket
import threading
from collections.abc import Iterator

import pytest
from tests.rows import each

import npucall_client
from npucall.wire.headers import HEADER_BYTES, pack, unpack
from npucall_exec import frames
from npucall_exec.calls import ProgramCalls
from npucall_exec.findings import Findings
from npucall_exec.serving import Programs

ONE = {"dtype": 0, "shape": [2], "strides": [1], "offset": 0, "storage_shape": [2], "format": 2}
REACH = bytes(8) + (64).to_bytes(8, "little") + bytes(8)
CALL = {
    "operator": "aclnnSigmoid",
    "package": "builtin",
    "arguments": [
        {"name": "self", "kind": "Tensor", "output": False, "value": ONE},
        {"name": "out", "kind": "Tensor", "output": True, "value": ONE},
    ],
}
TEXT = json.dumps(CALL).encode()


def launch(*offsets: int, text: bytes = TEXT) -> bytes:
    numbers = b"".join(number.to_bytes(8, "little") for number in offsets)
    return (1).to_bytes(4, "little") + len(offsets).to_bytes(4, "little") + numbers + text


def frame(kind: int, payload: bytes) -> bytes:
    return pack(kind, len(payload)) + payload


@pytest.fixture(scope="module")
def programs() -> Iterator[Programs]:
    with npucall_client.connect("local:") as client:
        calls = ProgramCalls(client)
        yield Programs(client, calls, Findings(quiet=True), 2**20, strict=False)


class Peer:
    """A program, as the command sees it."""

    def __init__(self, programs: Programs) -> None:
        self.socket, theirs = socket.socketpair()
        self.socket.settimeout(60)
        self.thread = threading.Thread(target=programs.serve, args=(theirs,))
        self.thread.start()

    def hello(self) -> str:
        self.socket.sendall(frame(frames.HELLO, frames.PROTOCOL))
        return self.answer()[1]

    def ask(self, kind: int, payload: bytes) -> tuple[int, str]:
        self.socket.sendall(frame(kind, payload))
        if kind == frames.LAUNCH:
            self.socket.sendall(frame(frames.WAIT, b""))
        return self.answer()

    def answer(self) -> tuple[int, str]:
        data, descriptors, _, _ = socket.recv_fds(self.socket, HEADER_BYTES, 1)
        for descriptor in descriptors:
            os.close(descriptor)
        payload = self.socket.recv(unpack(data).length, socket.MSG_WAITALL)
        return int.from_bytes(payload[:4], "little", signed=True), payload[16:].decode()

    def close(self) -> None:
        self.socket.close()
        self.thread.join(60)
        assert not self.thread.is_alive()


@pytest.fixture
def peer(programs: Programs) -> Iterator[Peer]:
    made = Peer(programs)
    assert made.hello() == f"{2**20} {2**21} 0 0 Ascend910B1"
    yield made
    made.close()


@each(
    ("kind", "payload", "status", "sentence"),
    [
        (frames.PLAN, TEXT, 0, ""),
        (frames.LAUNCH, launch(0, 64), 0, ""),
        (frames.LAUNCH, launch(0, 2**21 - 4), 507015, "expected memory of the device"),
        (frames.LAUNCH, launch(0, 2**64 - 2), 507015, "expected memory of the device"),
        (frames.LAUNCH, b"", 507015, "expected its numbers"),
        (frames.LAUNCH, launch(0, 64)[:12], 507015, "expected 2 offsets"),
        (frames.PLAN, b"{", 161002, "Expecting"),
        (frames.PLAN, b"\xff", 161002, "decode"),
        (frames.PLAN, b"[]", 161002, "indices"),
        (frames.PLAN, TEXT.replace(b"Sigmoid", b"Sigmoit"), 561003, "did you mean aclnnSigmoid"),
        (
            frames.PLAN,
            TEXT.replace(b'"dtype": 0', b'"dtype": 5'),
            161002,
            "expected an aclDataType",
        ),
        (
            frames.PLAN,
            TEXT.replace(b'"format": 2', b'"format": 9'),
            161002,
            "expected an aclFormat",
        ),
        (frames.PLAN, TEXT.replace(b'"shape": [2]', b'"shape": [3]'), 161002, "inside its storage"),
        (frames.REACH, REACH, 0, ""),
        (frames.REACH, b"", 507015, "expected 24 bytes"),
    ],
)
def test_a_frame_has_an_answer_with_a_status_of_cann(
    peer: Peer, kind: int, payload: bytes, status: int, sentence: str
) -> None:
    found = peer.ask(kind, payload)
    assert found[0] == status
    assert sentence in found[1]


def test_what_does_not_begin_with_the_version_is_no_program(programs: Programs) -> None:
    stranger = Peer(programs)
    stranger.socket.sendall(frame(frames.HELLO, b"nope"))
    assert stranger.socket.recv(1) == b""
    stranger.close()


def mutated(chance: random.Random) -> bytes:
    """A frame that was right until a few of its bytes changed."""
    payloads = {
        frames.PLAN: TEXT,
        frames.LAUNCH: launch(0, 64),
        frames.WAIT: b"",
        frames.REACH: REACH,
    }
    kind, payload = chance.choice(list(payloads.items()))
    data = bytearray(frame(kind, payload))
    for _ in range(chance.randint(1, 4)):
        data[chance.randrange(4, len(data))] = chance.randrange(256)
    return bytes(data)


@pytest.mark.parametrize("count", [500, pytest.param(100_000, marks=pytest.mark.long)])
def test_changed_frames_end_at_most_their_own_connection(programs: Programs, count: int) -> None:
    chance = random.Random(count)
    peer = Peer(programs)
    peer.hello()
    for _ in range(count):
        data = mutated(chance)
        peer.socket.sendall(data)
        if data[8] in (frames.PLAN, frames.WAIT, frames.REACH):
            peer.answer()
        elif data[8] not in (frames.LAUNCH, frames.FOUND):  # it ended the connection
            peer.close()
            peer = Peer(programs)
            peer.hello()
    peer.ask(frames.WAIT, b"")  # for what failed
    assert peer.ask(frames.LAUNCH, launch(0, 64))[0] == 0
    peer.close()
