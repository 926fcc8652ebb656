"""The yardstick [src:yardstick]: the plainest service that does the same work.

Sync grpcio, ``ThreadPoolExecutor(10)``, an ordinary protobuf class
``message Tensor { repeated int64 shape = 1; string dtype = 2; bytes data = 3; }``, the operator
computed with NumPy in the handler; no checks, no limits, no log. Run as a program,
``yardstick.py HOST [WINDOWS]``, it serves, and prints its address.
"""

from __future__ import annotations

import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Self

import grpc
import ml_dtypes  # noqa: F401  # makes bfloat16 a name that NumPy knows
import numpy as np
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import TracebackType

_METHOD = "/yardstick.Yardstick/KlDivBackward"
ECHO = "/yardstick.Yardstick/Echo"
"""Answers the first third of a request's bytes, whatever they are: gRPC and nothing else."""
UNLIMITED = [("grpc.max_receive_message_length", -1), ("grpc.max_send_message_length", -1)]
WINDOWS: dict[str, list[tuple[str, int]]] = {
    "defaults": [],
    "no BDP probe": [("grpc.http2.bdp_probe", 0)],
    "lookahead of 8 MiB": [("grpc.http2.lookahead_bytes", 8 << 20)],
    "both": [("grpc.http2.bdp_probe", 0), ("grpc.http2.lookahead_bytes", 8 << 20)],
}
"""gRPC's options of HTTP/2's windows, which are measured over a far link."""
_FIELD = descriptor_pb2.FieldDescriptorProto


def _messages() -> tuple[Any, Any]:
    file = descriptor_pb2.FileDescriptorProto(name="yardstick.proto", package="yardstick")
    file.syntax = "proto3"
    tensor = file.message_type.add(name="Tensor")
    tensor.field.add(name="shape", number=1, type=_FIELD.TYPE_INT64, label=_FIELD.LABEL_REPEATED)
    tensor.field.add(name="dtype", number=2, type=_FIELD.TYPE_STRING, label=_FIELD.LABEL_OPTIONAL)
    tensor.field.add(name="data", number=3, type=_FIELD.TYPE_BYTES, label=_FIELD.LABEL_OPTIONAL)
    request = file.message_type.add(name="Request")
    request.field.add(
        name="tensors", number=1, type=_FIELD.TYPE_MESSAGE, label=_FIELD.LABEL_REPEATED,
        type_name=".yardstick.Tensor",
    )  # fmt: skip
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return tuple(  # type: ignore[return-value]
        message_factory.GetMessageClass(pool.FindMessageTypeByName(f"yardstick.{name}"))
        for name in ("Tensor", "Request")
    )


Tensor, Request = _messages()


def encode(array: np.ndarray[Any, Any]) -> Any:
    """A tensor's message."""
    return Tensor(shape=array.shape, dtype=array.dtype.name, data=array.tobytes())


def decode(message: Any) -> np.ndarray[Any, Any]:
    """The array in a message, of its own memory."""
    return np.frombuffer(message.data, message.dtype).reshape(message.shape).copy()


def kl_div_backward(request: Any, _: grpc.ServicerContext) -> Any:
    """Mean reduction, target not logarithmic."""
    g, s, t = (np.frombuffer(m.data, m.dtype).reshape(m.shape) for m in request.tensors)
    return encode(-(t * g) * s.dtype.type(1 / s.size))


class YardstickClient:
    """Arrays in, an array out."""

    def __init__(self, target: str, windows: str = "defaults") -> None:
        self._channel = grpc.insecure_channel(target, options=UNLIMITED + WINDOWS[windows])
        self._call = self._channel.unary_unary(
            _METHOD, request_serializer=Request.SerializeToString,
            response_deserializer=Tensor.FromString,
        )  # fmt: skip

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._channel.close()

    def run(self, *arrays: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        """One call."""
        return decode(self._call(Request(tensors=[encode(array) for array in arrays])))


@contextmanager
def running_yardstick(
    *inside: str, host: str = "127.0.0.1", windows: str = "defaults"
) -> Iterator[tuple[str, int]]:
    """A yardstick server in a process of its own: its address, its process id.

    ``inside``: what its command begins with.
    """
    command = [*inside, sys.executable, __file__, host, windows]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            if process.stdout is None:
                raise RuntimeError("the yardstick has no output")
            yield process.stdout.readline().strip(), process.pid
        finally:
            process.kill()


def main(host: str, windows: str = "defaults") -> None:
    """Serves until it is killed."""
    server = grpc.server(ThreadPoolExecutor(10), options=UNLIMITED + WINDOWS[windows])
    handler = grpc.unary_unary_rpc_method_handler(
        kl_div_backward, request_deserializer=Request.FromString,
        response_serializer=Tensor.SerializeToString,
    )  # fmt: skip
    echo = grpc.unary_unary_rpc_method_handler(lambda request, _: request[: len(request) // 3])
    service, method = _METHOD[1:].split("/")
    methods = {method: handler, ECHO.rpartition("/")[2]: echo}
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(service, methods),))
    port = server.add_insecure_port(f"{host}:0")
    server.start()
    print(f"{host}:{port}", flush=True)
    server.wait_for_termination()


if __name__ == "__main__":
    main(*sys.argv[1:])
