"""The order of checks that the ``.proto`` files promise, tried over a socket."""

import struct

import grpc
import pytest

from npucall.v1 import operator_service_pb2 as pb
from npucall.v1 import tensor_pb2

from . import wire
from .contract import KL, PAIR, Caller, floats, kl, request, says

NOWHERE = tensor_pb2.Storage()


def discard(output: str) -> pb.OutputPlace:
    return pb.OutputPlace(output=output, discard=True)


DEFECTS = {
    "two places for an output": ("MESSAGE_MALFORMED", "output_places"),
    "an operator that is unknown": ("OPERATOR_UNKNOWN", ""),
    "an argument that is unknown": ("ARGUMENT_UNKNOWN", ""),
    "a type that is unknown": ("DTYPE_UNSUPPORTED", "self"),
    "a tensor that is not stored": ("TENSOR_LAYOUT", "stored"),
    "a rule that is broken": ("SHAPE_MISMATCH", ""),
    "a storage without a place": ("MESSAGE_MALFORMED", "storage"),
    "a storage too many": ("TENSOR_LAYOUT", "storage"),
    "a storage too long": ("TENSOR_LAYOUT", "bytes"),
    "a place for no output": ("MESSAGE_MALFORMED", "output_places"),
    "a handle without a session": ("SESSION_UNKNOWN", ""),
    "a computation too large": ("TOO_LARGE", ""),
}
"""In the order of the checks, with the reason, and a word of the message."""


def with_defects(*names: str) -> pb.ExecuteRequest:
    """A call that has all of them."""
    gradient, self, target, _ = kl(2)
    first, second = tensor_pb2.Storage(data=PAIR), tensor_pb2.Storage(data=PAIR)
    if "a computation too large" in names:
        target.tensor.CopyFrom(
            tensor_pb2.TensorSpec(
                dtype=wire.FLOAT, shape=[2**20, 2**20, 2], strides=[0, 0, 1], storage_shape=[2]
            )
        )
    if "a handle without a session" in names:
        first = tensor_pb2.Storage(handle=tensor_pb2.HandlePart(id=bytes(16), length=8))
    second.data += b"x" * ("a storage too long" in names)
    storage = [first, second, *[second] * ("a storage too many" in names)]
    storage = [NOWHERE] * 3 if "a storage without a place" in names else storage
    if "a rule that is broken" in names:
        gradient.tensor.shape[:] = [3]
    target.stored = "a tensor that is not stored" not in names
    if "a type that is unknown" in names:
        self.tensor.dtype = 99  # type: ignore[assignment]
    name = "nothing" if "an argument that is unknown" in names else "reduction"
    operator = "aclnnNothing" if "an operator that is unknown" in names else KL
    places = [discard("nothing")] * ("a place for no output" in names)
    places += [discard("out")] * 2 * ("two places for an output" in names)
    arguments = [pb.Argument(name=name, integer=2), gradient, self, target]
    return request(operator, arguments, storage, places)


def test_checks_come_in_the_order_that_the_contract_lists(caller: Caller) -> None:
    says(
        "ORDER OF CHECKS. The server makes these checks in this order.",
        "2. The request as a message:",
        "3. The operator and the variant exist",
        "4. The arguments, one after the other",
        "5. The operator's own rules",
        "6. The storages: each has a place, their number, the length of each; then the names in "
        "`output_places`, and what the places name",
        "7. Room: RESERVED, TOO_LARGE",
        "An error carries the aclnn status of its rule",
    )
    names = list(DEFECTS)
    for number, (reason, word) in enumerate(DEFECTS.values()):
        refusal = caller.refused(with_defects(*names[number:]))
        assert (names[number], refusal.reason) == (names[number], reason)
        assert word in refusal.message
        of_a_rule = "aclnn_status" in caller.refused(with_defects(names[number])).facts
        assert of_a_rule == (names[number] == "a rule that is broken")


def test_arguments_are_checked_in_the_order_of_the_message(caller: Caller) -> None:
    unknown, untyped = wire.tensor("nothing", 2), wire.tensor("self", 2, dtype=99)
    assert caller.refused(request(KL, [unknown, untyped])).reason == "ARGUMENT_UNKNOWN"
    assert caller.refused(request(KL, [untyped, unknown])).reason == "DTYPE_UNSUPPORTED"


def test_plan_makes_the_checks_of_the_call_and_looks_at_no_storage(caller: Caller) -> None:
    says(
        "Plan and PlanProgram make the checks 1 to 5", "Plan sets it too, though no storage comes."
    )
    asked = pb.PlanRequest(call=request(KL, kl(2)).call)
    (output,) = caller.stub.Plan(asked, timeout=wire.PATIENCE).reply.outputs
    assert output.stored
    wrong = pb.PlanRequest(call=with_defects("a rule that is broken").call)
    with pytest.raises(grpc.RpcError) as refused:
        caller.stub.Plan(wrong, timeout=wire.PATIENCE)
    assert wire.reason_of(refused.value) == "SHAPE_MISMATCH"


def test_values_are_looked_at_last(caller: Caller) -> None:
    says("8. At the device: the deadline; then the values that the operator checks")
    scores = wire.tensor("input", 2, 3)
    labels = wire.tensor("target", 2, dtype=tensor_pb2.DATA_TYPE_INT64)
    asked = [floats(1, 2, 3, 4, 5, 6), struct.pack("<2q", 0, 9)]
    refusal = caller.refused(request("aclnnCrossEntropyLoss", [scores, labels], asked))
    assert (refusal.reason, refusal.facts["aclnn_status"]) == ("ARGUMENT_INVALID", "161002")
    asked.append(b"")
    refusal = caller.refused(request("aclnnCrossEntropyLoss", [scores, labels], asked))
    assert refusal.reason == "TENSOR_LAYOUT"
