"""npucall.wire.replies: reply and timings, and their bytes."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from tests.rows import each

from npucall.dtypes import BF16, FLOAT, FLOAT16
from npucall.operators import CATALOGUE
from npucall.products import product_of
from npucall.tensors import TensorSpec
from npucall.v1 import operator_service_pb2 as pb
from npucall.wire.calls import PreparedCalls, encode
from npucall.wire.replies import (
    Reply,
    ServerIdentity,
    Timings,
    decode_reply,
    decode_timings,
    encode_reply,
    encode_timings,
)

SERVER = ServerIdentity("a1b2", "cpu", "Ascend910B1")
HALF = TensorSpec(FLOAT16, (2, 3))

nanoseconds = st.integers(0, 2**64 - 1)
FIELDS = (
    "decode_ns", "check_ns", "queue_ns", "run_ns", "encode_ns", "copy_in_ns", "plan_ns",
    "copy_out_ns",
)  # fmt: skip
timings = st.builds(Timings, *[nanoseconds] * 8)


def replied(operator: str, variant: str = "", **arguments: Any) -> Reply:
    stored = tuple(name for name, value in arguments.items() if isinstance(value, TensorSpec))
    calls = PreparedCalls(CATALOGUE, product_of(SERVER.soc), "documented")
    return decode_reply(
        encode_reply(calls.of(encode(operator, variant, arguments, stored)), SERVER)
    )


def test_a_reply_comes_back_from_its_bytes() -> None:
    reply = replied("aclnnKlDivTargetBackward", grad_output=HALF, self=HALF, target=HALF)
    assert reply == Reply(
        variant="documented",
        kernel_dtype=FLOAT16,
        outputs={"grad_target": HALF},
        stored=("grad_target",),
        warnings=(),
        server=SERVER,
    )


def test_an_operator_without_variants_replies_none() -> None:
    reply = replied("aclnnKlDivBackward", grad_output=HALF, self=HALF, target=HALF)
    assert reply.variant == ""


def test_a_reply_has_the_warnings_of_the_call() -> None:
    tensors = dict.fromkeys(("grad_output", "self", "target"), HALF)
    (warning,) = replied("aclnnKlDivBackward", **tensors, reduction=7).warnings
    assert "reduction: 7" in warning


def test_an_output_with_storage_of_its_own_comes_back_with_its_layout() -> None:
    strided = TensorSpec(BF16, (2, 3), (8, 2), 1, (20,))
    tensors = dict.fromkeys(("grad_output", "self", "target"), HALF)
    assert replied("aclnnKlDivBackward", **tensors, out=strided).outputs["out"] == strided


def test_a_kernel_dtype_that_the_device_does_not_tell_is_none() -> None:
    assert decode_reply(pb.Reply(variant="x").SerializeToString()).kernel_dtype is None
    assert decode_reply(pb.Reply(kernel_dtype=1).SerializeToString()).kernel_dtype is FLOAT  # type: ignore[arg-type]


def test_an_output_that_is_not_stored_has_no_storage_behind_the_reply() -> None:
    outputs = [pb.Argument(name="a", tensor={"dtype": 1}), pb.Argument(name="b", stored=True)]  # type: ignore[arg-type]
    outputs[1].tensor.dtype = 1  # type: ignore[assignment]
    reply = decode_reply(pb.Reply(outputs=outputs).SerializeToString())
    assert (list(reply.outputs), reply.stored) == (["a", "b"], ("b",))


@given(timings)
def test_the_class_reads_the_timings_that_we_write(spent: Timings) -> None:
    parsed = pb.Timings.FromString(encode_timings(spent))
    assert spent == tuple(getattr(parsed, field) for field in FIELDS)


@given(timings)
def test_timings_come_back_from_their_bytes(spent: Timings) -> None:
    assert decode_timings(encode_timings(spent)) == spent


def test_the_tests_know_every_field_of_the_timings() -> None:
    assert tuple(field.name for field in pb.Timings.DESCRIPTOR.fields) == FIELDS


@each("field", FIELDS)
def test_timings_that_a_server_leaves_out_are_0(field: str) -> None:
    spent = pb.Timings(**{field: 5})
    assert decode_timings(spent.SerializeToString()) == Timings(**{field: 5})
