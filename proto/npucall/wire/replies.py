"""What a server answers, apart from the outputs' bytes: a reply, its timings, and their bytes."""

from __future__ import annotations

import struct
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

from google.protobuf.message import DecodeError

from npucall.dtypes import BY_WIRE
from npucall.errors import MessageError
from npucall.v1 import operator_service_pb2 as pb
from npucall.wire.calls import decode_tensor, encode_tensor

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import numpy as np

    from npucall.declare.prepare import Prepared
    from npucall.dtypes import DType
    from npucall.tensors import Shape, TensorSpec


class Timings(NamedTuple):
    """Where a server's time went, in nanoseconds."""

    decode_ns: int = 0
    """Finding call and storage in the message."""
    check_ns: int = 0
    """Checking the call; short if the same call was checked before."""
    queue_ns: int = 0
    """Waiting for the device."""
    run_ns: int = 0
    """Running on the device; without copies, and by the device's clock if it has copies."""
    encode_ns: int = 0
    """Putting the response together."""
    copy_in_ns: int = 0
    """Copying the inputs to the device, by its clock; 0 where there are no copies."""
    plan_ns: int = 0
    """Phase one: the device's library checks and plans."""
    copy_out_ns: int = 0
    """Copying the outputs from the device, by its clock."""


@dataclass(frozen=True)
class ServerIdentity:
    """Identity of a server process."""

    instance: str
    """Random name of the process; another one after each restart."""
    device: str
    """``cpu`` or ``cann:0``; ``local`` if the client computes itself."""
    soc: str
    """The SoC whose rules hold."""


@dataclass(frozen=True)
class Reply:
    """What a call resolved to."""

    variant: str
    """The variant that ran; empty for an operator that has only one."""
    kernel_dtype: DType | None
    """The dtype in which the operator computes and rounds, if the device tells."""
    outputs: Mapping[str, TensorSpec]
    """The outputs, in the operator's order."""
    stored: tuple[str, ...]
    """Outputs whose storage follows."""
    warnings: tuple[str, ...]
    """What the caller should know, although the call is valid."""
    server: ServerIdentity
    warned: tuple[str, ...] = ()
    """The parameter that each of ``warnings`` is about."""

    @cached_property
    def stored_bytes(self) -> tuple[int, ...]:
        """Bytes of each storage that follows."""
        return tuple(self.outputs[name].storage_bytes for name in self.stored)

    @cached_property
    def dense(self) -> Sequence[tuple[str, Shape, np.dtype[Any], int]] | None:
        """Name, shape, dtype and bytes of each storage, if all are row-major without gaps."""
        specs = {name: self.outputs[name] for name in self.stored}
        if not all(spec.row_major for spec in specs.values()):
            return None
        return [
            (name, spec.shape, spec.dtype.numpy, spec.storage_bytes) for name, spec in specs.items()
        ]


def encode_reply(call: Prepared, server: ServerIdentity) -> bytes:
    """The bytes of the reply to a call; every output's storage follows it."""
    outputs = [
        pb.Argument(name=name, stored=True, tensor=encode_tensor(spec))
        for name, spec in call.outputs.items()
    ]
    warnings = [pb.Warning(parameter=name, message=text) for name, text in call.warnings]
    return pb.Reply(
        variant=call.operator.variant,
        kernel_dtype=call.kernel_dtype.wire if call.kernel_dtype else 0,  # type: ignore[arg-type]
        outputs=outputs,
        warnings=warnings,
        server=encode_identity(server),
    ).SerializeToString()


def decode_reply(data: bytes) -> Reply:
    """The reply in its bytes. Raises MessageError."""
    try:
        message = pb.Reply.FromString(data)
    except DecodeError as error:
        raise MessageError(f"reply: expected a message, found: {error}") from None
    return Reply(
        variant=message.variant,
        kernel_dtype=BY_WIRE.get(message.kernel_dtype),
        outputs={a.name: decode_tensor(a.name, a.tensor) for a in message.outputs},
        stored=tuple(argument.name for argument in message.outputs if argument.stored),
        warnings=tuple(warning.message for warning in message.warnings),
        server=decode_identity(message.server),
        warned=tuple(warning.parameter for warning in message.warnings),
    )


def encode_identity(server: ServerIdentity) -> pb.ServerIdentity:
    """The message of an identity."""
    return pb.ServerIdentity(instance=server.instance, device=server.device, soc=server.soc)


def decode_identity(message: pb.ServerIdentity) -> ServerIdentity:
    """The identity in its message."""
    return ServerIdentity(message.instance, message.device, message.soc)


_TIMINGS = struct.Struct("<" + "BQ" * 8)
TIMINGS_BYTES = _TIMINGS.size
"""Of timings as we write them."""
_TAGS = (0x09, 0x11, 0x19, 0x21, 0x29, 0x31, 0x39, 0x41)


def encode_timings(of: Any) -> bytes:
    """The bytes of ``npucall.v1.Timings``: eight fixed64 fields, each after its tag.

    ``of``: whatever has the fields of ``Timings``, such as the record of a call.
    """
    return _TIMINGS.pack(
        0x09, of.decode_ns, 0x11, of.check_ns, 0x19, of.queue_ns, 0x21, of.run_ns,
        0x29, of.encode_ns, 0x31, of.copy_in_ns, 0x39, of.plan_ns, 0x41, of.copy_out_ns,
    )  # fmt: skip


def decode_timings(data: bytes) -> Timings:
    """The timings in their bytes."""
    if len(data) == _TIMINGS.size:
        values = _TIMINGS.unpack(data)
        if values[::2] == _TAGS:  # as we write them
            return Timings(*values[1::2])
    message = pb.Timings.FromString(data)
    return Timings(*(getattr(message, name) for name in Timings._fields))
