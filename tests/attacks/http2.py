"""An HTTP/2 client without manners: frames by hand, so that it can stop, stall and lie anywhere."""

import select
import socket
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager

import hpack

SERVICE = "/npucall.v1.OperatorService/"
HEALTH = "/grpc.health.v1.Health/Check"
REFLECTION = "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo"
MOST = 2**31 - 1
"""The widest window that HTTP/2 has."""

_DATA, _HEADERS, _RESET, _SETTINGS, _PING, _WINDOW = 0, 1, 3, 4, 6, 8
_END_STREAM, _ACK, _END_HEADERS = 1, 1, 4
_INITIAL_WINDOW, _MAX_FRAME = 4, 5
_CANCEL = 8
_HEADER_BYTES = 9
_AT_ONCE = 2**20
"""Bytes that are handed to the socket at a time."""


class Connection:
    """Nothing moves but in ``pump``: a connection that is not pumped looks to the server like a
    peer that was stopped, since its kernel goes on acknowledging.

    ``window``: bytes of each answer that the server may send unasked; 0 reads no answer at all.
    """

    def __init__(self, target: str, window: int = MOST) -> None:
        host, _, port = target.rpartition(":")
        self.socket = socket.create_connection((host, int(port)), timeout=10)
        self.socket.setblocking(False)  # its one parameter
        self.ended: dict[int, str] = {}
        """The streams that are over, and how: grpc-status or "reset N"."""
        self.received: dict[int, int] = defaultdict(int)
        """Bytes of each answer; it is there once the answer has begun."""
        self.closed = False
        self.opened = 0
        """Streams that were ever opened."""
        self._pending: dict[int, list[memoryview]] = {}
        self._finished: set[int] = set()
        self._out, self._in = bytearray(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"), bytearray()
        self._max_frame, self._initial = 16384, 65535
        self._rooms = {0: 65535}
        """What may be sent: on each stream, and on all of them together, which is 0."""
        self._encoder, self._decoder = hpack.Encoder(), hpack.Decoder()
        self._frame(_SETTINGS, 0, 0, _INITIAL_WINDOW.to_bytes(2) + window.to_bytes(4))
        self.allow(0, MOST - 65535)

    def call(
        self, path: str, *parts: bytes, end: bool = True, encoding: str = "", token: str = ""
    ) -> int:
        """Opens a stream with a body of these parts, which ``pump`` sends; its number.

        ``end``: nothing follows. A path without slash is a method of OperatorService.
        """
        stream, self.opened = 2 * self.opened + 1, self.opened + 1
        fields = {":method": "POST", ":scheme": "http", ":authority": "attack"}
        fields |= {":path": path if path.startswith("/") else SERVICE + path}
        fields |= {"te": "trailers", "content-type": "application/grpc"}
        fields |= {"grpc-encoding": encoding} if encoding else {}
        fields |= {"authorization": f"Bearer {token}"} if token else {}
        flags = _END_HEADERS | (_END_STREAM if end and not parts else 0)
        self._frame(_HEADERS, flags, stream, self._encoder.encode(list(fields.items())))
        self._rooms[stream] = self._initial
        self.send(stream, *parts, end=end and bool(parts))
        return stream

    def send(self, stream: int, *parts: bytes, end: bool = False) -> None:
        """More of a body."""
        self._pending.setdefault(stream, []).extend(memoryview(part) for part in parts if part)
        if end:
            self._finished.add(stream)

    def reset(self, stream: int) -> None:
        """Ends a stream at once."""
        self._pending.pop(stream, None)
        self._frame(_RESET, 0, stream, _CANCEL.to_bytes(4))

    def allow(self, stream: int, size: int) -> None:
        """Lets the server send so many more bytes of an answer."""
        self._frame(_WINDOW, 0, stream, size.to_bytes(4))

    @property
    def unsent(self) -> int:
        """Bytes of bodies that have not been sent yet."""
        return len(self._out) + sum(len(part) for parts in self._pending.values() for part in parts)

    @property
    def open_streams(self) -> int:
        """Streams that the server has not ended."""
        return 0 if self.closed else self.opened - len(self.ended)

    # --- Used by pump -----------------------------------------------------------------------------

    def wants_to_write(self) -> bool:
        """Turns bodies into frames, a frame of each stream in turn, as far as windows are open."""
        moved = True
        while moved and len(self._out) < _AT_ONCE:
            moved = sum(self._fill_from(*pending) for pending in list(self._pending.items())) > 0
        return bool(self._out)

    def write(self) -> None:
        try:
            del self._out[: self.socket.send(self._out[:_AT_ONCE])]
        except BlockingIOError:
            pass
        except OSError:
            self.closed = True

    def read(self) -> None:
        try:
            data = self.socket.recv(_AT_ONCE)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        self.closed = self.closed or not data
        self._in += data
        while len(self._in) >= _HEADER_BYTES:
            end = _HEADER_BYTES + int.from_bytes(self._in[:3])
            if len(self._in) < end:
                return
            kind, flags, stream = self._in[3], self._in[4], int.from_bytes(self._in[5:9])
            self._take(kind, flags, stream, bytes(self._in[_HEADER_BYTES:end]))
            del self._in[:end]

    def _take(self, kind: int, flags: int, stream: int, payload: bytes) -> None:
        if kind == _DATA:
            self.received[stream] += len(payload)
            self.allow(0, max(len(payload), 1))
        elif kind == _HEADERS:
            fields = dict(self._decoder.decode(payload))
            self.received[stream] += 0
            if flags & _END_STREAM:
                self._end(stream, fields.get("grpc-status") or f"HTTP {fields.get(':status')}")
        elif kind == _RESET:
            self._end(stream, f"reset {int.from_bytes(payload)}")
        elif kind == _SETTINGS and not flags & _ACK:
            self._obey(payload)
        elif kind == _PING and not flags & _ACK:
            self._frame(_PING, _ACK, 0, payload)
        elif kind == _WINDOW:
            self._rooms[stream] = self._rooms.get(stream, self._initial) + int.from_bytes(payload)

    def _end(self, stream: int, how: str) -> None:
        self.ended.setdefault(stream, how)
        self.received[stream] += 0
        self._pending.pop(stream, None)

    def _obey(self, payload: bytes) -> None:
        """The limits that keep gRPC from closing at once; that of streams is none of them."""
        for at in range(0, len(payload), 6):
            name, value = int.from_bytes(payload[at:][:2]), int.from_bytes(payload[at + 2 :][:4])
            if name == _INITIAL_WINDOW:
                for stream in self._rooms.keys() - {0}:
                    self._rooms[stream] += value - self._initial
                self._initial = value
            elif name == _MAX_FRAME:
                self._max_frame = min(value, _AT_ONCE)
        self._frame(_SETTINGS, _ACK, 0, b"")

    def _fill_from(self, stream: int, parts: list[memoryview]) -> bool:
        """Whether a frame was made."""
        if not parts:
            if stream in self._finished:
                self._frame(_DATA, _END_STREAM, stream, b"")
            del self._pending[stream]
            return False
        size = min(len(parts[0]), self._rooms[0], self._rooms[stream], self._max_frame)
        if size <= 0:
            return False
        self._frame(_DATA, 0, stream, parts[0][:size])
        parts[:1] = [parts[0][size:]] if size < len(parts[0]) else []
        for room in 0, stream:
            self._rooms[room] -= size
        return True

    def _frame(self, kind: int, flags: int, stream: int, payload: bytes | memoryview) -> None:
        self._out += len(payload).to_bytes(3) + bytes([kind, flags]) + stream.to_bytes(4)
        self._out += payload


Connections = list[Connection]
LONG = 300.0
"""Seconds in which anything that has to happen does, on a machine that is busy."""


@contextmanager
def connected(target: str, count: int = 1, window: int = MOST) -> Iterator[Connections]:
    """Several connections, greeted."""
    with ExitStack() as stack:
        made = [Connection(target, window) for _ in range(count)]
        for each in made:
            stack.callback(each.socket.close)
        pump(made, 0.2)
        yield made


def pump(
    connections: Connections,
    seconds: float,
    until: Callable[[Sequence[Connection]], bool] = lambda _: False,
) -> None:
    """Lets connections send and receive for so long, or until something is so of them."""
    end = time.monotonic() + seconds
    while time.monotonic() < end and not until(connections):
        alive = {each.socket.fileno(): each for each in connections if not each.closed}
        if not alive:
            return
        poll = select.poll()  # `select` takes no descriptor above 1,023
        for number, each in alive.items():
            poll.register(number, select.POLLIN | select.POLLOUT * each.wants_to_write())
        for number, happened in poll.poll(50):
            if happened & ~select.POLLOUT:
                alive[number].read()
            if happened & select.POLLOUT:
                alive[number].write()


def sent(connections: Sequence[Connection]) -> bool:
    """Whether all that was to be sent has been."""
    return not any(each.unsent for each in connections if not each.closed)


def over(connections: Sequence[Connection]) -> bool:
    """Whether all streams are over."""
    return not any(each.open_streams for each in connections)


def answered(connections: Sequence[Connection]) -> bool:
    """Whether all streams are over, or their answers have begun."""
    return all(each.closed or len(each.received) == each.opened for each in connections)


def message(body: bytes, *, short: int = 0, compressed: bool = False) -> tuple[bytes, bytes]:
    """A gRPC message of this body, which is ``short`` bytes shorter than announced."""
    return bytes([compressed]) + (len(body) + short).to_bytes(4), body
