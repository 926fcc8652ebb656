"""A process that measures our own work in one tree; ``own_work.py`` says what, and when.

``own_worker.py CALLS``. It says where its packages are, then answers each way, a line, with the
microseconds of a call: of CPU and of time.
"""

from __future__ import annotations

import json
import os
import sys
import time
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import grpc
import numpy as np

import npucall
import npucall_client
import npucall_server
from npucall.operators.kl_div_backward import kl_div_backward

if TYPE_CHECKING:
    from collections.abc import Callable

WAYS = "server", "server, its method", "client"
_PEER = "ipv4:127.0.0.1:40000"
_EXECUTE = "/npucall.v1.OperatorService/Execute"
_WARM = 500
_ELEMENTS = 1024 // 4
_SETTINGS = {"listen": "127.0.0.1:0"}


def main(calls: int) -> None:
    """Measures the ways that come as lines; each answer is a line of JSON."""
    ways = _ways()
    for each in ways.values():
        for _ in range(_WARM):
            each()
    _say([each.__file__ for each in (npucall, npucall_server, npucall_client)])
    for line in sys.stdin:
        each = ways[line.rstrip("\n")]
        began, cpu = time.perf_counter(), time.process_time()
        for _ in range(calls):
            each()
        seconds = time.process_time() - cpu, time.perf_counter() - began
        _say([value / calls * 1e6 for value in seconds])


def _say(value: object) -> None:
    print(json.dumps(value), flush=True)


def _ways() -> dict[str, Callable[[], object]]:
    handlers, method = _server()
    channel = _Channel(handlers)
    with channel:
        client = npucall_client.connect("127.0.0.1:1", send_unread=True)
    arrays = np.random.default_rng(1).random((3, _ELEMENTS), np.float32)

    def call() -> object:
        return client.run(kl_div_backward, *arrays)

    call()
    request, channel.known = channel.request, channel.answer
    handle, context = handlers(_EXECUTE), _Context()

    def handled() -> None:
        handle(iter([request]), context)
        context.end()

    return dict(zip(WAYS, (handled, lambda: method(request), call), strict=True))


def _server() -> tuple[Callable[[str], Any], Callable[[bytes], object]]:
    """Of a server with its defaults that nobody reaches: its handlers; its service's method."""
    registered: list[Any] = []
    made = grpc.server

    def server(*args: Any, **given: Any) -> Any:
        real = made(*args, **given)
        add = real.add_generic_rpc_handlers
        real.add_generic_rpc_handlers = lambda each: (registered.extend(each), add(each))
        return real

    grpc.server = server
    try:
        method = _of_this_tree()
    except ImportError:
        method = _of_978653d8()
    grpc.server = made

    def handler(path: str) -> Any:
        found = (each.service(_Details(path)) for each in registered)
        rpc = next(each for each in found if each is not None)
        return rpc.stream_unary or rpc.unary_unary

    return handler, method


def _of_this_tree() -> Callable[[bytes], object]:
    """Puts a server together. Whoever moves or changes what it uses changes this function."""
    from npucall_server.carriers.grpc_carrier import GrpcCaller  # noqa: PLC0415
    from npucall_server.devices.cpu import open_cpu  # noqa: PLC0415
    from npucall_server.serving.app import build  # noqa: PLC0415  # not in the other tree
    from npucall_server.settings.server import ServerSettings  # noqa: PLC0415
    from npucall_server.telemetry.log import Log, Record  # noqa: PLC0415

    settings = ServerSettings(**_SETTINGS)
    parts = build(settings, open_cpu(settings, print), Log(**_log()))
    record, context = Record("Execute", "1", _PEER), _Context()
    caller, execute = GrpcCaller(context), parts.methods.operators.execute  # type: ignore[arg-type]

    def method(request: bytes) -> None:
        execute(request, record, caller)
        context.end()

    return method


def _of_978653d8() -> Callable[[bytes], object]:
    """The same in a tree of then. Names are in parts, so that no tool for moves changes them."""

    def module(name: str) -> Any:
        return import_module(f"{npucall_server.__name__}.{name}")

    settings = module("settings").ServerSettings(**_SETTINGS)
    device = module("devices.cpu").open_cpu(settings, print)
    server = module("app").Server(settings, device, module("log").Log(**_log()))
    record, context = module("log").Record("Execute", "1", _PEER), _Context()
    caller, execute = module("callers").UnaryCaller(context), server._operators.execute  # noqa: SLF001

    def method(request: bytes) -> None:
        execute(request, record, caller)
        context.end()

    return method


def _log() -> dict[str, Any]:
    return {"calls": "all", "stream": Path(os.devnull).open("w"), "delay": 0.01}


class _Details(NamedTuple):
    method: str
    invocation_metadata: tuple[()] = ()


class _Context:
    """What gRPC gives a method with its request. ``end``: the answer is read."""

    def __init__(self) -> None:
        self._callbacks: list[Callable[[], object]] = []

    def peer(self) -> str:
        return _PEER

    def invocation_metadata(self) -> tuple[tuple[str, str], ...]:
        return (("user-agent", "grpc-python"),)

    def auth_context(self) -> dict[str, list[bytes]]:
        return {}

    def time_remaining(self) -> float:
        return 60.0

    def is_active(self) -> bool:
        return True

    def cancel(self) -> None:
        raise SystemExit("a call was cancelled")

    def add_callback(self, callback: Callable[[], object]) -> bool:
        self._callbacks.append(callback)
        return True

    def end(self) -> None:
        callbacks, self._callbacks = self._callbacks, []
        for each in callbacks:
            each()


class _Channel:
    """A channel of gRPC that answers from memory. As a context: whoever opens one gets it."""

    def __init__(self, handlers: Callable[[str], Any]) -> None:
        self._handlers = handlers
        self.request, self.answer, self.known = b"", b"", b""

    def __enter__(self) -> None:
        self._made = grpc.insecure_channel
        grpc.insecure_channel = lambda *_, **__: self

    def __exit__(self, *_: object) -> None:
        grpc.insecure_channel = self._made

    def unary_unary(self, path: str, *_: object, **__: object) -> Any:
        handle = self._handlers(path)

        def method(request: bytes, **_: object) -> bytes:
            if self.known:
                return self.known
            context = _Context()
            self.request, self.answer = request, handle(iter([request]), context)
            context.end()
            return self.answer

        return method

    def close(self) -> None:
        pass


if __name__ == "__main__":
    main(int(sys.argv[1]))
