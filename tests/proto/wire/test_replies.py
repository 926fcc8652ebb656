"""npucall.wire.replies: reply and timings, and their bytes."""

from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from tests.rows import each

from npucall.dtypes import BF16, FLOAT, FLOAT16
from npucall.operators import CATALOGUE
from npucall.products import A2
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
FIELDS = (
    "decode_ns", "check_ns", "queue_ns", "run_ns", "encode_ns", "copy_in_ns", "plan_ns",
    "copy_out_ns",
)  # fmt: skip


def replied(operator: str = "aclnnKlDivBackward", **more: Any) -> Reply:
    arguments = {**dict.fromkeys(("grad_output", "self", "target"), HALF), **more}
    stored = tuple(name for name, value in arguments.items() if isinstance(value, TensorSpec))
    call = PreparedCalls(CATALOGUE, A2, "documented").of(encode(operator, "", arguments, stored))
    return decode_reply(encode_reply(call, SERVER))


def test_a_reply_comes_back_from_its_bytes() -> None:
    assert replied("aclnnKlDivTargetBackward") == Reply(
        variant="documented",
        kernel_dtype=FLOAT16,
        outputs={"grad_target": HALF},
        stored=("grad_target",),
        warnings=(),
        server=SERVER,
    )


def test_an_operator_without_variants_replies_none() -> None:
    assert replied().variant == ""


def test_a_reply_has_the_warnings_of_the_call() -> None:
    (warning,) = replied(reduction=7).warnings
    assert "reduction: 7" in warning


def test_an_output_with_storage_of_its_own_comes_back_with_its_layout() -> None:
    strided = TensorSpec(BF16, (2, 3), (8, 2), 1, (20,))
    assert replied(out=strided).outputs["out"] == strided


def test_a_kernel_dtype_that_the_device_does_not_tell_is_none() -> None:
    assert decode_reply(pb.Reply(variant="x").SerializeToString()).kernel_dtype is None
    assert decode_reply(pb.Reply(kernel_dtype=1).SerializeToString()).kernel_dtype is FLOAT  # type: ignore[arg-type]


def test_an_output_that_is_not_stored_has_no_storage_behind_the_reply() -> None:
    spec: Any = {"dtype": 1}
    outputs = [pb.Argument(name=name, stored=name == "b", tensor=spec) for name in "ab"]
    reply = decode_reply(pb.Reply(outputs=outputs).SerializeToString())
    assert (list(reply.outputs), reply.stored) == (["a", "b"], ("b",))


@given(st.builds(Timings, *[st.integers(0, 2**64 - 1)] * len(FIELDS)))
def test_timings_are_the_same_to_us_and_to_the_class(spent: Timings) -> None:
    parsed = pb.Timings.FromString(encode_timings(spent))
    assert spent == tuple(getattr(parsed, field) for field in FIELDS)
    assert decode_timings(encode_timings(spent)) == spent


@each("field", FIELDS)
def test_timings_that_a_server_leaves_out_are_0(field: str) -> None:
    assert tuple(known.name for known in pb.Timings.DESCRIPTOR.fields) == FIELDS
    spent = pb.Timings(**{field: 5})
    assert decode_timings(spent.SerializeToString()) == Timings(**{field: 5})
