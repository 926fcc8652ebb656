"""Requests that cost their sender nothing: some hundred bytes that claim much."""

import zlib
from typing import Any

from tests.end_to_end.wire import long_call, request_of, tensor

from npucall.v1 import operator_service_pb2 as pb
from npucall.v1 import tensor_pb2
from npucall.wire import protobuf

FLOAT16, BOOL, INT64 = (
    tensor_pb2.DATA_TYPE_FLOAT16,
    tensor_pb2.DATA_TYPE_BOOL,
    tensor_pb2.DATA_TYPE_INT64,
)
L1 = "aclnnL1LossBackward"
INPUTS = "grad_output", "self", "target"
ZERO = b"\0" * 8
SMALL = long_call(1)
"""A call of one element."""
BUSY = long_call(2**25)
"""A call of 2^25 elements, which takes a while, and whose answer is one of them."""


def one(name: str, *shape: int, **spec: Any) -> pb.Argument:
    """A tensor all of whose elements are the same one."""
    return tensor(name, *shape, strides=[0] * len(shape), storage_shape=[1], **spec)


def data(size: int) -> bytes:
    """A call with so many bytes of data."""
    arguments = [tensor(name, size // 12) for name in INPUTS]
    return request_of(L1, arguments, *[bytes(size // 12 * 4)] * 3)


def large_answer(size: int) -> bytes:
    """A call whose answer has so many bytes."""
    arguments = [one(name, size // 4) if name == "self" else tensor(name) for name in INPUTS]
    return request_of(L1, arguments, *[ZERO[:4]] * 3)


def _along_a_row(operator: str, **elements: int) -> bytes:
    """A call over tensors of FLOAT16 with one row each."""
    rows = [one(name, count, dtype=FLOAT16) for name, count in elements.items()]
    arguments = [*rows, pb.Argument(name="dim", integer=0)]
    return request_of(operator, arguments, *[ZERO[:2]] * len(rows))


def _cross_entropy(size: int) -> bytes:
    arguments = [
        tensor("grad_loss", dtype=FLOAT16),
        one("log_prob", 1, size // 2, dtype=FLOAT16),
        tensor("target", 1, dtype=INT64),
    ]
    return request_of("aclnnCrossEntropyLossGrad", arguments, ZERO[:2], ZERO[:2], ZERO)


def ctc(*, steps: int = 1, labels: int = 1) -> bytes:
    """The gradient of one item of so many time steps and labels, all of them the same one."""
    tensors = [
        tensor("grad_out", 1),
        one("log_probs", steps, 1, 2),
        one("targets", 1, labels, dtype=BOOL),
        tensor("neg_log_likelihood", 1),
        one("log_alpha", 1, steps, 2 * labels + 1),
    ]
    lengths = [
        pb.Argument(name=name, integers=pb.IntArray(values=[value]))
        for name, value in (("input_lengths", steps), ("target_lengths", labels))
    ]
    contents = ZERO[:4], ZERO[:4], b"\1", ZERO[:4], ZERO[:4]
    return request_of("aclnnCtcLossBackward", tensors + lengths, *contents)


WORKING_MEMORY = {
    # Four bytes for each of two states a label.
    "CtcLossBackward": lambda size: ctc(labels=size // 8 - 1),
    "SoftmaxBackward": lambda size: _along_a_row(
        "aclnnSoftmaxBackward", grad_output=size // 2, output=size // 2
    ),
    "LogSoftmaxBackward": lambda size: _along_a_row(
        "aclnnLogSoftmaxBackward", grad_output=size // 2, output=size // 2
    ),
    "CrossEntropyLossGrad": _cross_entropy,
    "GluBackward": lambda size: _along_a_row(
        "aclnnGluBackward", grad_out=size // 4, self=size // 4 * 2
    ),
}
"""By operator: a request whose largest tensor, or answer, has the bytes that it is given."""


def padded(size: int) -> list[bytes]:
    """A call that takes a while, behind an unknown field of so many bytes."""
    return [protobuf.header(99, size), bytes(size), BUSY]


def gzip_of_zeros(mebibytes: int) -> bytes:
    """A thousandth of what it unpacks to."""
    packer = zlib.compressobj(9, wbits=31)
    zeros = bytes(2**20)
    return b"".join([*[packer.compress(zeros) for _ in range(mebibytes)], packer.flush()])


def field(number: int, content: bytes) -> bytes:
    """A field of bytes."""
    return protobuf.header(number, len(content)) + content


def crowded(size: int) -> dict[str, tuple[str, bytes]]:
    """By what they are full of: a method, and a request for it of so many bytes, all small fields.

    The classes of protobuf would make of some of them an object of many times their two bytes.
    """
    start, number, end = b"\x9b\x06", b"\x18\x00", b"\x9c\x06"  # a group in field 99, 0 in field 3
    groups, nested = (start + number + end) * (size // 6), (start * 50 + end * 50) * (size // 200)
    places = b"\x12\x00\x7a\x00" * (size // 4)  # of a storage: in a region, in the message
    frames = b"\x12\x00\x1a\x00" * (size // 4)  # begin, chunk
    storages, arguments = b"\x12\x00" * (size // 2), field(1, b"\x1a\x00" * (size // 2))
    chunked = b"\x10\x01"  # before the request, which is another spelling than ours
    return {
        "groups": ("Execute", groups),
        "nested groups": ("Execute", nested),
        "nested groups in a storage": ("Execute", field(2, nested)),
        "places in a storage": ("Execute", field(2, places)),
        "groups in a small method": ("GetServerInfo", nested),
        "frames in a frame": ("ExecuteStream", frames),
        "groups in a frame": ("ExecuteStream", nested),
        "storages in a begin": ("ExecuteStream", field(2, chunked + field(1, storages))),
        "arguments in a begin": ("ExecuteStream", field(2, chunked + field(1, arguments))),
    }


def begun(call_id: int, request: bytes) -> bytes:
    """The frame of a call whose storages stand in it."""
    opening = pb.Begin(request=pb.ExecuteRequest.FromString(request))
    return pb.ExecuteStreamRequest(call_id=call_id, begin=opening).SerializeToString()


def claim(call_id: int, size: int) -> bytes:
    """A frame of some hundred bytes that opens a call of ``size`` bytes, which are to follow."""
    call = pb.Call(operator=L1, arguments=[tensor(name, size // 16) for name in INPUTS])
    opening = pb.Begin(request=pb.ExecuteRequest(call=call), chunked=True)
    return pb.ExecuteStreamRequest(call_id=call_id, begin=opening).SerializeToString()
